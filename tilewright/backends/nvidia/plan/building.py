"""Building laid-out tile IR: operations inserted before another, tiles read from the buffers to which they were copied,
and the barriers of the copy engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.nvidia.plan.prefetch import Prefetch, inverse_order
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp, InitBarrierOp, LocalAllocOp, LocalLoadOp
from tilewright.backends.nvidia.tgir.types import (
    MemDescType,
    layout_of,
    memdesc_shape,
    memdesc_type,
    with_layout,
)
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, i1, i32, i64, shape_of, tile_type
from tilewright.ir.values import users_of
from tilewright.layouts.shared import row_major
from tilewright.layouts.tile import transpose_tile
from tilewright.ops.constant import ConstantOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.shape import TransOp
from tilewright.passes.rewriting import erase, replace


class Builder:
    """Inserts operations before one of them.

    Args:
        before: the operation that follows.
    """

    def __init__(self, before: Operation) -> None:
        self.before = before

    def insert(self, op: Operation) -> Operation:
        """Put an operation there."""
        block = self.before.parent_block()
        assert block is not None
        block.insert_op_before(op, self.before)
        return op

    def effect(
        self, cls: type[TileOp], operands: Sequence[SSAValue] = (), types: Sequence[Attribute] = (), **attrs: object
    ) -> Operation:
        """Make an operation at the place of the next."""
        op = cls.build_op(operands, types, attrs)
        op.location = self.before.location
        return self.insert(op)

    def make(self, cls: type[TileOp], operands: Sequence[SSAValue], type_: Attribute, **attrs: object) -> SSAValue:
        """Make an operation; gives its result."""
        return self.effect(cls, operands, [type_], **attrs).results[0]

    def number(self, value: int, type_: Attribute = i32) -> SSAValue:
        """A constant."""
        return self.insert(ConstantOp.of(value, type_)).results[0]

    def binary(self, cls: type[TileOp], a: SSAValue, b: SSAValue) -> SSAValue:
        """An operation on two numbers of one type."""
        return self.make(cls, [a, b], a.type)

    def compare(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """An integer comparison."""
        return self.make(CmpIOp, [a, b], i1, predicate=predicate)

    def clone(self, ops: Sequence[Operation], known: dict[SSAValue, SSAValue]) -> None:
        """Write operations again, on other values; `known` learns their results."""
        for op in ops:
            made = self.insert(op.clone(known))
            made.location = op.location


def transposed(b: Builder, value: SSAValue, order: tuple[int, ...]) -> SSAValue:
    """A tile with its dims in another order."""
    return b.make(TransOp, [value], _transposed_type(value.type, order), order=order)


def _transposed_type(type_: Attribute, order: tuple[int, ...]) -> Attribute:
    shape = tuple(shape_of(type_)[axis] for axis in order)
    return with_layout(tile_type(shape, element_type(type_)), transpose_tile(layout_of(type_), order))


def read_load(b: Builder, prefetch: Prefetch, stage: SSAValue) -> None:
    """Give every user of a load the tile out of a buffer, in the layout in which it wants it.

    Args:
        b: at the place of the load.
        prefetch: the load.
        stage: the buffer.
    """
    result, order = prefetch.load.result, prefetch.order
    for user in users_of(result):
        if isinstance(user, TransOp) and user.result.first_use is None:  # its buffer is the ring's now
            erase(user)
        elif isinstance(user, ConvertLayoutOp) and order is None:
            replace(user, [b.make(LocalLoadOp, [stage], user.result.type)])
    if result.first_use is not None:
        loaded = result.type if order is None else _transposed_type(result.type, order)
        tile = b.make(LocalLoadOp, [stage], loaded)
        result.replace_all_uses_with(tile if order is None else transposed(b, tile, inverse_order(order)))


def ring_type(buffer: Attribute, count: int) -> MemDescType:
    """So many buffers of a type."""
    assert isinstance(buffer, MemDescType)
    return memdesc_type((count, *memdesc_shape(buffer)), element_type(buffer.tile), layout_of(buffer))


def make_barrier(function: FuncOp, stages: int, copies: int) -> SSAValue:
    """A barrier for copies of blocks, made at the start of a kernel.

    Args:
        function: the kernel.
        stages: buffers of the ring that is filled.
        copies: that fill one stage.
    """
    first = function.body.block.first_op
    assert first is not None
    b = Builder(first)
    memory = b.make(LocalAllocOp, [], memdesc_type((stages, 1), i64, row_major((1,))))
    return b.make(InitBarrierOp, [memory], memory.type, count=copies)


__all__ = ["Builder", "make_barrier", "read_load", "ring_type", "transposed"]
