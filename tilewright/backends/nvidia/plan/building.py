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
from tilewright.ir.types import element_type, i32, i64, shape_of, tile_type
from tilewright.ir.values import users_of
from tilewright.layouts.shared import row_major
from tilewright.layouts.tile import transpose_tile
from tilewright.ops.constant import ConstantOp, Number
from tilewright.ops.function import FuncOp
from tilewright.ops.shape import TransOp
from tilewright.passes import building
from tilewright.passes.rewriting import erase, insert_before, replace


class Builder(building.Builder):
    """Writes laid-out tile IR in front of an operation; numbers are i32 unless they are said to be something else."""

    def insert(self, op: Operation) -> Operation:
        """Put an operation there that has a place in the source, or needs none."""
        block = self.anchor.parent_block()
        assert block is not None
        block.insert_op_before(op, self.anchor)
        return op

    def effect(
        self, kind: type[TileOp], operands: Sequence[SSAValue] = (), types: Sequence[Attribute] = (), **attrs: object
    ) -> Operation:
        """An operation with any number of results."""
        made = kind.build_op(operands, types, attrs)
        insert_before(made, self.anchor)
        return made

    def number(self, value: Number, type_: Attribute = i32) -> SSAValue:
        """A constant, which is of no line."""
        return self.insert(ConstantOp.of(value, type_)).results[0]

    def clone(self, ops: Sequence[Operation], known: dict[SSAValue, SSAValue]) -> None:
        """Write operations again, on other values; `known` learns their results."""
        for op in ops:
            self.copy(op, known).location = op.location


def transposed(b: Builder, value: SSAValue, order: tuple[int, ...]) -> SSAValue:
    """A tile with its dims in another order."""
    return b.make(TransOp, _transposed_type(value.type, order), value, order=order)


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
            replace(user, [b.make(LocalLoadOp, user.result.type, stage)])
    if result.first_use is not None:
        loaded = result.type if order is None else _transposed_type(result.type, order)
        tile = b.make(LocalLoadOp, loaded, stage)
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
    memory = b.make(LocalAllocOp, memdesc_type((stages, 1), i64, row_major((1,))))
    return b.make(InitBarrierOp, memory.type, memory, count=copies)


__all__ = ["Builder", "make_barrier", "read_load", "ring_type", "transposed"]
