"""Which loads of a loop are worth copying to shared memory ahead of time, and what their buffers look like.

A load qualifies if its tile reaches a product of the loop, nothing in the loop writes memory, its addresses and mask
are cheap functions of the loop's counter and carried values, and it can be copied: by cp.async, 4 bytes or more at a
time and zeros where the mask is off, or by the copy engine if it goes through a descriptor. The buffer is the one that
the product reads, if the tile goes there as it is; else one with swizzled rows, from which the tile is read where it
was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from tilewright.analysis.solver import Facts
from tilewright.backends.nvidia.emit.memory import access_groups
from tilewright.backends.nvidia.emit.shared import contiguous, offsets_in
from tilewright.backends.nvidia.plan.anchors import mask_of
from tilewright.backends.nvidia.plan.operands import buffer_layout
from tilewright.backends.nvidia.plan.tma import buffer_type
from tilewright.backends.nvidia.tgir.ops import LocalAllocOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import MemDescType, layout_of, memdesc_bytes, memdesc_type, memory_bits
from tilewright.ir.types import element_type, is_pointer, shape_of
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.tile import transpose_tile
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.debug import BarrierOp
from tilewright.ops.descriptor import DescriptorLoadOp
from tilewright.ops.dot import DotOp
from tilewright.ops.facts import AxisFacts
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import TransOp

_LEAST_COPY = 4  # bytes of the smallest cp.async
_HARMLESS = frozenset(
    {"tt.load", "tt.descriptor_load", "tt.assert", "tt.print", "scf.yield", "scf.if", "llvm.intr.assume"}
)
# Without side effects, but too dear to be done twice in every trip, or not to be done for a trip that there is not.
_DEAR = frozenset(
    {"tt.dot", "ttg.convert_layout", "tt.reduce", "tt.scan", "tt.gather", "tt.histogram", "tt.load"}
    | {"tt.descriptor_load"}
)


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A load that is copied ahead.

    Args:
        load: the load.
        ring: type of one buffer.
        order: the buffer holds the tile with its dims in this order; None for as it is.
        alloc: the buffer of a product that a stage of the ring stands for; None if tiles are read from the ring.
    """

    load: LoadOp | DescriptorLoadOp
    ring: MemDescType
    order: tuple[int, ...] | None = None
    alloc: LocalAllocOp | None = None

    @property
    def address(self) -> Sequence[SSAValue]:
        """What the copy of another trip needs anew: pointers and mask, or descriptor and indices."""
        return _address(self.load)

    @property
    def is_block(self) -> bool:
        """Whether the copy engine moves it."""
        return isinstance(self.load, DescriptorLoadOp)


def _address(load: LoadOp | DescriptorLoadOp) -> Sequence[SSAValue]:
    return load.operands[:2] if isinstance(load, LoadOp) else load.operands


def plan_prefetches(loop: ForOp, facts: Facts[AxisFacts]) -> list[Prefetch]:
    """The loads of an innermost loop that are to be copied ahead.

    Args:
        loop: of laid-out tile IR.
        facts: axis facts of its function.
    """
    if any(_may_write(op) for op in loop.walk() if op is not loop):
        return []
    body = loop.body.block
    loads = [op for op in body.ops if isinstance(op, LoadOp | DescriptorLoadOp) and shape_of(op.result.type)]
    made = (_prefetch(op, facts) for op in loads if _reaches_product(op) and _is_movable(op, body))
    return [prefetch for prefetch in made if prefetch is not None]


def _may_write(op: Operation) -> bool:
    """Whether an operation may change what a load reads, or must stay in order with loads."""
    if op.name in _HARMLESS:
        return isinstance(op, LoadOp) and bool(op.attr_values()["isVolatile"])
    internal = isinstance(op, LocalAllocOp | WarpGroupDotOp)
    return isinstance(op, BarrierOp) or not (internal or is_side_effect_free(op))


def _reaches_product(load: LoadOp | DescriptorLoadOp) -> bool:
    body, seen, todo = load.parent_block(), set[Operation](), [load.result]
    while todo:
        for use in todo.pop().uses:
            user = use.operation
            if isinstance(user, DotOp | WarpGroupDotOp):
                if use.index < 2:
                    return True
            elif user.parent_block() is body and user not in seen and not isinstance(user, LoadOp):
                seen.add(user)
                todo += user.results
    return False


# --- addresses ----------------------------------------------------------------------------------------------------


def _is_movable(load: LoadOp | DescriptorLoadOp, body: Block) -> bool:
    """Whether address and mask can be computed some trips ahead, and what is off is zero (for cp.async)."""
    other = load.other if isinstance(load, LoadOp) else None
    zero = other is None or (isinstance(other.owner, ConstantOp) and other.owner.splat_value == 0)
    return zero and address_slice(_address(load), body) is not None


def address_slice(values: Iterable[SSAValue], body: Block) -> tuple[set[Operation], set[int]] | None:
    """What of a loop's body computes some values, now and in later trips.

    Args:
        values: of the body.
        body: of the loop.

    Returns:
        Operations of the body, and numbers of the carried values; None if an operation among them is dear or reads
        memory.
    """
    end = body.last_op
    assert end is not None
    ops: set[Operation] = set()
    carried: set[int] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        owner = value.owner
        if owner is body:
            index = next(i for i, arg in enumerate(body.args) if arg is value)
            if index and index - 1 not in carried:
                carried.add(index - 1)
                todo.append(end.operands[index - 1])
        elif isinstance(owner, Operation) and owner.parent_block() is body and owner not in ops:
            if owner.regions or owner.name in _DEAR or not is_side_effect_free(owner):
                return None
            ops.add(owner)
            todo += owner.operands
    return ops, carried


# --- buffers ------------------------------------------------------------------------------------------------------


def block_prefetch(load: DescriptorLoadOp) -> Prefetch:
    """The buffer for what the copy engine brings: that of a product, if it lies there as the engine writes it."""
    usual = buffer_type(load.desc.type)
    for order, alloc in _buffers(load):
        type_ = alloc.result.type
        assert isinstance(type_, MemDescType)
        if _as_loaded(layout_of(type_), order) == layout_of(usual):
            return Prefetch(load, type_, order, alloc)
    return Prefetch(load, usual)


def _prefetch(load: LoadOp | DescriptorLoadOp, facts: Facts[AxisFacts]) -> Prefetch | None:
    if isinstance(load, DescriptorLoadOp):
        return block_prefetch(load)
    element = element_type(load.result.type)
    if is_pointer(element):
        return None
    for order, alloc in _buffers(load):
        type_ = alloc.result.type
        assert isinstance(type_, MemDescType)
        if _copy_bytes(load, _as_loaded(layout_of(type_), order), facts) >= _LEAST_COPY:
            return Prefetch(load, type_, order, alloc)
    shape = shape_of(load.result.type)
    layout = buffer_layout(layout_of(load.result), shape, memory_bits(element))
    if _copy_bytes(load, layout, facts) < _LEAST_COPY:
        return None
    return Prefetch(load, memdesc_type(shape, element, layout))


def _as_loaded(layout: LinearLayout, order: tuple[int, ...] | None) -> LinearLayout:
    """A buffer seen with its dims in the order of the load."""
    return layout if order is None else transpose_tile(layout, inverse_order(order))


def _buffers(load: LoadOp | DescriptorLoadOp) -> Iterable[tuple[tuple[int, ...] | None, LocalAllocOp]]:
    """Buffers into which the tile goes as it is or transposed, and the order of its dims there."""
    for use in load.result.uses:
        user = use.operation
        if isinstance(user, LocalAllocOp):
            yield None, user
        elif isinstance(user, TransOp):
            order = tuple(user.attr_values()["order"])
            yield from (
                (order, inner.operation) for inner in user.result.uses if isinstance(inner.operation, LocalAllocOp)
            )


def _copy_bytes(load: LoadOp, buffer: LinearLayout, facts: Facts[AxisFacts]) -> int:
    """Bytes that one cp.async moves."""
    group = access_groups(facts, load.ptr, mask_of(load))[0]
    pieces = contiguous(group, offsets_in(layout_of(load.ptr), buffer))
    return len(pieces[0]) * memory_bits(element_type(load.result.type)) // 8


def inverse_order(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(order.index(axis) for axis in range(len(order)))


def ring_bytes(prefetches: Iterable[Prefetch]) -> int:
    """Bytes of one stage of all rings."""
    return sum(memdesc_bytes(prefetch.ring) for prefetch in prefetches)


__all__ = ["Prefetch", "address_slice", "block_prefetch", "inverse_order", "plan_prefetches", "ring_bytes"]
