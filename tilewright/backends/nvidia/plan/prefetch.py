"""Which loads of a loop are worth copying to shared memory ahead of time, and what their buffers look like.

A load qualifies if its tile reaches a product of the loop, nothing in the loop writes what it reads, its addresses and
mask are cheap functions of the loop's counter and carried values, and it can be copied: by cp.async, 4 bytes or more at
a time and zeros where the mask is off, or by the copy engine if it goes through a descriptor. The buffer is the one
that the product reads, if the tile goes there as it is; else one with swizzled rows, from which the tile is read where
it was loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.origins import may_meet
from tilewright.analysis.solver import Facts
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.emit.memory import access_groups
from tilewright.backends.nvidia.emit.shared import contiguous, offsets_in
from tilewright.backends.nvidia.plan.operands import buffer_layout
from tilewright.backends.nvidia.plan.tma import buffer_type
from tilewright.backends.nvidia.plan.turning import is_turned
from tilewright.backends.nvidia.tgir.facts import axis_facts
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp, LocalAllocOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import MemDescType, layout_of, memdesc_bytes, memdesc_type, memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.effect_traits import is_without_effects, mask_of
from tilewright.ir.traits import is_collective
from tilewright.ir.types import bit_width, element_type, is_pointer, shape_of
from tilewright.ir.values import users_of, uses_behind
from tilewright.ir.walk import among, contains, enclosing, every, walk
from tilewright.layouts.access import unique_registers
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.tile import transpose_tile
from tilewright.ops.control import ForOp, IfOp, LoopOp, WhileOp, YieldOp
from tilewright.ops.debug import AssertOp, BarrierOp, PrintOp
from tilewright.ops.descriptor import DescriptorLoadOp
from tilewright.ops.dot import DotOp
from tilewright.ops.facts import AxisFacts
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import CachePolicy, LoadOp, StoreOp, is_volatile
from tilewright.ops.program import AssumeOp
from tilewright.ops.shape import TransOp

_LEAST_COPY, _WIDEST_COPY = 4, 16  # bytes of the smallest and the widest cp.async
_HARMLESS = (LoadOp, DescriptorLoadOp, AssertOp, PrintOp, YieldOp, IfOp, AssumeOp)
# Without side effects, but too costly to be done twice in every iteration, or not to be done for an iteration that
# there is not.
_COSTLY = (ConvertLayoutOp, LoadOp, DescriptorLoadOp)  # and collective operations


Load = LoadOp | DescriptorLoadOp


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A load that is copied ahead.

    Args:
        load: the load.
        ring: type of one buffer.
        order: the buffer holds the tile with its dims in this order; None for as it is.
        alloc: the buffer of a product that a stage of the ring stands for; None if tiles are read from the ring.
        turned: further buffers for which it stands: the same bytes, seen with their dims in another order.
        copied: type of the buffer that the copy engine fills, if a role of its own turns what it brings
            (`plan/turning.py`), and puts it into the ring.
    """

    load: Load
    ring: MemDescType
    order: tuple[int, ...] | None = None
    alloc: LocalAllocOp | None = None
    turned: tuple[LocalAllocOp, ...] = ()
    copied: MemDescType | None = None

    @property
    def address(self) -> Sequence[SSAValue]:
        """What the copy of another iteration needs anew: pointers and mask, or descriptor and indices."""
        return _address(self.load)

    @property
    def buffers(self) -> tuple[LocalAllocOp, ...]:
        """The buffers of products for which a stage of the ring stands."""
        return () if self.alloc is None else (self.alloc, *self.turned)

    @property
    def policy(self) -> CachePolicy:
        """What the load asks of the caches."""
        found: CachePolicy = self.load.attr_values()["cachePolicy"]
        return found

    @property
    def is_block(self) -> bool:
        """Whether the copy engine moves it."""
        return isinstance(self.load, DescriptorLoadOp)


def _address(load: Load) -> Sequence[SSAValue]:
    return load.operands[:2] if isinstance(load, LoadOp) else load.operands


Loads = list[tuple[Load, Answer[Prefetch]]]


def plan_prefetches(loop: ForOp | WhileOp, function: FuncOp) -> Loads:
    """Whether each load of a tile in the body of a loop is to be copied ahead, and how.

    Args:
        loop: of laid-out tile IR.
        function: that holds it.
    """
    body = loop.regions[-1].block
    loads = [op for op in every(loop, LoadOp, DescriptorLoadOp) if shape_of(op.result.type)]
    unfit = _unfit(loop) if loads else None
    refused = {load: _refused(load, body, unfit) for load in loads if loop_of(load) is loop}
    if None not in refused.values():  # the facts take time
        return [(load, no) for load, no in refused.items() if no is not None]
    facts = axis_facts(function)
    return [(load, no or _prefetch(load, facts)) for load, no in refused.items()]


def loads_ahead(loop: ForOp) -> list[tuple[LoadOp, No | None]]:
    """The loads through pointers that feed products of a loop, each with why it is not copied ahead, if it is not.

    Args:
        loop: of tile IR without layouts.
    """
    body = loop.body.block
    loads = [op for op in among(body.ops, LoadOp) if shape_of(op.result.type) and _reaches_dot(op)]
    unfit = _unfit(loop) if loads else None
    return [(load, _refused(load, body, unfit)) for load in loads]


def loop_of(op: Operation) -> LoopOp | None:
    """The innermost loop around an operation."""
    return enclosing(op, LoopOp)


def _unfit(loop: LoopOp) -> No | None:
    """Why nothing of a loop can be copied ahead; None if something can."""
    if isinstance(loop, WhileOp):
        return No("only the iterations of a for loop are known ahead", loop, "for k in tl.range(...), without break")
    inner = every(loop, LoopOp)[1:]
    return No("only innermost loops are pipelined", inner[0]) if inner else order_kept(loop)


def order_kept(loop: LoopOp) -> No | None:
    """Why no load of a loop may leave its place: something may write that is no store, whose addresses are known."""
    inside = (op for op in walk(loop) if op is not loop and not isinstance(op, StoreOp))
    writer = next(filter(may_write, inside), None)
    return None if writer is None else changed_by(writer)


def changed_by(writer: Operation) -> No:
    """The answer for a load that must stay in order with an operation of its loop."""
    return No(
        f"{describe_op(writer)} in the loop may change what is loaded", writer, "stores and atomics after the loop"
    )


def overwritten(load: Load, body: Block) -> No | None:
    """Why a load must stay in order with the stores of the loop: one of them may be to what it reads."""
    loop = body.parent_op()
    assert loop is not None
    stores = [op for op in every(loop, StoreOp) if may_meet(op.operands[0], load.operands[0])]
    return changed_by(stores[0]) if stores else None


def _refused(load: Load, body: Block, unfit: No | None) -> No | None:
    """Why a load is not copied ahead, as far as its addresses do not matter."""
    holder = load.parent_op()
    if load.parent_block() is not body and holder is not None:
        return No("it stands under a condition", holder)
    if not (_reaches_dot(load) or _is_large(load)):
        return No("the tile reaches no dot of the loop")
    return unfit or overwritten(load, body) or _movable(load, body)


def words_of(load: LoadOp) -> int:
    """Registers that a thread takes for what a load of pointers brings."""
    type_ = load.result.type
    bits = 64 if is_pointer(element_type(type_)) else bit_width(element_type(type_))
    count = len(unique_registers(layout_of(load.ptr))[0].columns_of("register")) if shape_of(type_) else 0
    return max(1, (1 << count) * bits // 32)


def _is_large(load: Load) -> bool:
    """Whether a loop without products loads so much in an iteration that registers hold no iteration ahead."""
    loop = load.parent_op()
    if not isinstance(load, LoadOp) or not isinstance(loop, ForOp) or words_of(load) <= tuning.DOUBLE_BUFFER_WORDS:
        return False
    return not contains(loop, DotOp, WarpGroupDotOp)


def may_write(op: Operation) -> bool:
    """Whether an operation may change what a load reads, or must stay in order with loads."""
    if isinstance(op, _HARMLESS):
        return is_volatile(op)
    internal = isinstance(op, LocalAllocOp | WarpGroupDotOp)
    return isinstance(op, BarrierOp) or not (internal or is_without_effects(op))


def _reaches_dot(load: Load) -> bool:
    """Whether a product multiplies what is made of a tile, or adds a row of numbers."""
    operands = 3 if len(shape_of(load.result.type)) == 1 else 2
    body, dots = load.parent_block(), DotOp | WarpGroupDotOp

    def through(user: Operation) -> bool:
        return user.parent_block() is body and not isinstance(user, dots | LoadOp)

    return any(use.index < operands and isinstance(use.operation, dots) for use in uses_behind([load.result], through))


# --- addresses ----------------------------------------------------------------------------------------------------


def _movable(load: Load, body: Block) -> No | None:
    """Why a load cannot be made some iterations ahead: its address is not known then, or what is off is not zero."""
    other = load.other if isinstance(load, LoadOp) else None
    if other is not None and constant_of(other) != 0:
        return No("a copy puts zeros where the mask is off", other.owner, "other=0")
    found = address_slice(_address(load), body)
    return found if isinstance(found, No) else None


def address_slice(
    values: Iterable[SSAValue], body: Block, given: Collection[SSAValue] = ()
) -> tuple[set[Operation], set[int]] | No:
    """What of a loop's body computes some values, now and in later iterations.

    Args:
        values: of the body.
        body: of the loop.
        given: values that are at hand for every iteration.

    Returns:
        Operations of the body, and numbers of the carried values; no if one of them is costly or reads memory.
    """
    end = body.last_op
    assert end is not None
    ops: set[Operation] = set()
    carried: set[int] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        owner = value.owner
        if value in given:
            continue
        if owner is body:
            index = next(i for i, arg in enumerate(body.args) if arg is value)
            if index and index - 1 not in carried:
                carried.add(index - 1)
                todo.append(end.operands[index - 1])
        elif isinstance(owner, Operation) and owner.parent_block() is body and owner not in ops:
            parts = list(walk(owner))
            costly = next((part for part in parts if _is_costly(part)), None)
            if costly is not None:
                return No(
                    f"its address or mask needs {describe_op(costly)}, too costly to be done for an iteration ahead",
                    costly,
                )
            ops.add(owner)
            todo += [operand for part in parts for operand in part.operands]
    return ops, carried


def _is_costly(op: Operation) -> bool:
    """Whether an operation is not to be done once more in every iteration; a branch is as costly as what it holds."""
    if isinstance(op, IfOp | YieldOp):
        return False
    return bool(op.regions) or isinstance(op, _COSTLY) or is_collective(op) or not is_without_effects(op)


# --- buffers ------------------------------------------------------------------------------------------------------


def block_prefetch(load: DescriptorLoadOp) -> Prefetch:
    """The buffer for what the copy engine brings: that of a product, if it lies there as the engine writes it."""
    usual = buffer_type(load.desc.type)
    for order, alloc in _buffers(load):
        type_ = alloc.result.type
        assert isinstance(type_, MemDescType)
        if _as_loaded(layout_of(type_), order) == layout_of(usual):
            return Prefetch(load, type_, order, alloc, _turned(load, order, alloc))
    return Prefetch(load, usual)


def turned_on_the_way(prefetch: Prefetch) -> Prefetch:
    """The prefetch of a block that a role turns for the products that read it, if they read nothing else of it."""
    buffers = [use.operation for use in prefetch.load.result.uses]
    if prefetch.alloc is not None or not prefetch.is_block or len(buffers) != 1:
        return prefetch
    (buffer,) = buffers
    if not isinstance(buffer, LocalAllocOp) or not is_turned(layout_of(prefetch.load.result)):
        return prefetch
    type_ = buffer.result.type
    assert isinstance(type_, MemDescType)
    return Prefetch(prefetch.load, type_, alloc=buffer, copied=prefetch.ring)


def _prefetch(load: Load, facts: Facts[AxisFacts]) -> Answer[Prefetch]:
    if isinstance(load, DescriptorLoadOp):
        return Yes(block_prefetch(load))
    element = element_type(load.result.type)
    if is_pointer(element):
        return No("pointers are not copied ahead")
    for order, alloc in _buffers(load):
        type_ = alloc.result.type
        assert isinstance(type_, MemDescType)
        if _copy_bytes(load, _as_loaded(layout_of(type_), order), facts) >= _LEAST_COPY:
            return Yes(Prefetch(load, type_, order, alloc, _turned(load, order, alloc)))
    shape = shape_of(load.result.type)
    layout = buffer_layout(layout_of(load.result), shape, memory_bits(element))
    if (size := _copy_bytes(load, layout, facts)) < _LEAST_COPY:
        return No(
            f"a thread could copy {size} bytes at once, not {_LEAST_COPY}: what lies together is not known",
            instead="addresses that are contiguous along a dim, and multiples of 16 for row strides",
        )
    if size < _WIDEST_COPY and _is_large(load):
        return No(f"a thread would copy {size} bytes at once, not {_WIDEST_COPY}, which takes longer than it hides")
    return Yes(Prefetch(load, memdesc_type(shape, element, layout)))


def _turned(load: Load, order: tuple[int, ...] | None, alloc: LocalAllocOp) -> tuple[LocalAllocOp, ...]:
    """The other buffers of a tile that have its elements at the same places as `alloc`."""
    wanted = _as_loaded(layout_of(alloc.result), order)
    others = [(theirs, other) for theirs, other in _buffers(load) if other is not alloc]
    return tuple(other for theirs, other in others if _as_loaded(layout_of(other.result), theirs) == wanted)


def _as_loaded(layout: LinearLayout, order: tuple[int, ...] | None) -> LinearLayout:
    """A buffer seen with its dims in the order of the load."""
    return layout if order is None else transpose_tile(layout, inverse_order(order))


def _buffers(load: Load) -> Iterable[tuple[tuple[int, ...] | None, LocalAllocOp]]:
    """Buffers into which the tile goes as it is or transposed, and the order of its dims there."""
    for use in load.result.uses:
        user = use.operation
        if isinstance(user, LocalAllocOp):
            yield None, user
        elif isinstance(user, TransOp):
            order = tuple(user.attr_values()["order"])
            yield from ((order, buffer) for buffer in among(users_of(user.result), LocalAllocOp))


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
    types = [type_ for prefetch in prefetches for type_ in (prefetch.ring, prefetch.copied) if type_ is not None]
    return sum(map(memdesc_bytes, types))


__all__ = [
    "Prefetch", "address_slice", "block_prefetch", "changed_by", "inverse_order", "loads_ahead", "loop_of", "may_write",
    "overwritten", "plan_prefetches", "ring_bytes", "turned_on_the_way", "words_of",
]  # fmt: skip
