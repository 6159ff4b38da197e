"""`ttg.convert_layout`: a tile moves to another layout within threads, within warps, or through shared memory.

What happens is `layouts.conversion`'s plan, one of

    words = pack(registers); swap words by lane; shuffle; swap; unpack         (no warp needs another's elements)
    store registers to scratch; barrier; load them as the other layout wants   (once for each slice of the tile)

The plan depends on the layouts alone, so that scratch can be allocated before the target is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Operation

from tilewright.backends.llvm.types import T, V
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.emit.context import Kernel, Tile, emits
from tilewright.backends.nvidia.emit.shared_access import Window, as_integers, from_integers, join, part
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp
from tilewright.backends.nvidia.tgir.types import layout_of, memory_bits
from tilewright.base.errors import InternalError
from tilewright.ir.types import element_type
from tilewright.layouts.conversion import plan_conversion
from tilewright.layouts.exchange import SharedPlan
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shuffle import Swap, WarpPlan, stays_in_warp


def plan_of(
    source: LinearLayout, destination: LinearLayout, bits: int, *, store_matrix: bool = False
) -> WarpPlan | SharedPlan:
    """How elements of `bits` bits get from one layout to the other.

    Args:
        source, destination: distributed layouts.
        bits: of an element.
        store_matrix: whether the target has stmatrix.
    """
    size = bits // 8
    for _, width in source.outs:
        size <<= width
    limit = tuning.CONVERSION_SLICE_BYTES
    if stays_in_warp(source, destination):
        limit = min(limit, tuning.WARP_SLICE_BYTES * source.in_sizes["warp"])
    return plan_conversion(source, destination, bits, limit if size > limit else None, store_matrix=store_matrix)


def conversion_bytes(source: LinearLayout, destination: LinearLayout, type_: Attribute) -> int:
    """Bytes of scratch that `convert_registers` needs for a tile of this type, on any target."""
    bits = memory_bits(element_type(type_))
    plans = [plan_of(source, destination, bits, store_matrix=matrix) for matrix in (False, True)]
    return max(plan.scratch_bytes if isinstance(plan, SharedPlan) else 0 for plan in plans)


def _waits(op: Operation) -> bool:
    """Whether warps exchange elements; else each has a part of the scratch to itself."""
    bits = memory_bits(element_type(op.operands[0].type))
    plan = plan_of(layout_of(op.operands[0]), layout_of(op.results[0]), bits)
    return isinstance(plan, SharedPlan) and plan.barrier == "block"


@scratch(ConvertLayoutOp, waits=_waits)
def conversion_scratch(op: Operation) -> int:
    """Bytes of scratch of a conversion."""
    return conversion_bytes(layout_of(op.operands[0]), layout_of(op.results[0]), op.operands[0].type)


@emits(ConvertLayoutOp)
def emit_convert_layout(k: Kernel, op: Operation) -> None:
    """A conversion of a tile."""
    source, destination = layout_of(op.operands[0]), layout_of(op.results[0])
    room = k.scratch(op) if op in k.scratch_offsets else None
    registers, t = k.tile(op.operands[0]), k.element(op.operands[0])
    k.set(op.results[0], convert_registers(k, registers, source, destination, t, room))


def convert_registers(
    k: Kernel, registers: Sequence[V], source: LinearLayout, destination: LinearLayout, t: T, room: V | None
) -> Tile:
    """The registers of a tile in another layout.

    What was in the scratch before must have been read by all threads. Barriers between the writing and the reading are
    made here; one must follow before it is written again.

    Args:
        k: the kernel.
        registers: the tile in the layout `source`.
        source, destination: distributed layouts.
        t: type of an element.
        room: address of scratch of `conversion_bytes`; None if that is 0.
    """
    plan = plan_of(source, destination, max(8, t.bits), store_matrix=k.arch.has_stmatrix)
    if isinstance(plan, SharedPlan):
        if room is None:
            raise InternalError("a conversion through shared memory was given no scratch")
        made = _through_memory(k, plan, as_integers(k, registers), room)
    elif plan.registers is not None:
        return [registers[register] for register in plan.registers]
    else:
        made = _through_shuffles(k, plan, as_integers(k, registers))
    return from_integers(k, made, t)


# --- shuffles -----------------------------------------------------------------------------------------


def _through_shuffles(k: Kernel, plan: WarpPlan, registers: Sequence[V]) -> list[V]:
    element = registers[0].type
    words = [join(k, [registers[register] for register in word]) for word in plan.source_words]
    words = _swapped(k, words, plan.before)
    received = _swapped(k, _received(k, plan, words), plan.after)
    unique: dict[int, V] = {}
    for members, word in zip(plan.destination_words, received, strict=True):
        unique.update(zip(members, part(k, word, element), strict=True))
    return [unique[copy] for copy in plan.copies]


def _received(k: Kernel, plan: WarpPlan, words: Sequence[V]) -> list[V]:
    """The words of the destination; those of one round travel together."""
    found: dict[int, V] = {}
    lane: V | None = None
    for turn in plan.rounds:
        sources, targets = zip(*turn.moves, strict=True)
        sent = [words[source] for source in sources]
        if turn.shuffled:
            if not plan.butterfly and lane is None:
                lane = k.linear({dim: plan.lanes.columns_of(dim) for dim in ("lane", "warp")})
            whole = join(k, sent)
            if lane is None:
                whole = k.f.shuffle_xor(whole, turn.lane_xor)
            else:
                whole = k.f.shuffle_index(whole, k.f.xor(lane, turn.lane_xor))
            sent = part(k, whole, words[0].type)
        found.update(zip(targets, sent, strict=True))
    return [found[word] for word in range(len(plan.destination_words))]


def _swapped(k: Kernel, words: Sequence[V], swaps: Sequence[Swap]) -> list[V]:
    """Words after the exchanges within each thread that depend on its lane and warp."""
    current = list(words)
    for swap in swaps:
        if swap.dim == "block":
            raise InternalError("a conversion moves elements between the blocks of a cluster")
        index = k.lane if swap.dim == "lane" else k.warp
        chosen = k.f.icmp("ne", k.f.and_(index, swap.mask), 0)
        current = [k.f.select(chosen, current[w ^ swap.words], word) for w, word in enumerate(current)]
    return current


# --- shared memory ------------------------------------------------------------------------------------


def _through_memory(k: Kernel, plan: SharedPlan, registers: Sequence[V], room: V) -> list[V]:
    wait = k.f.barrier if plan.barrier == "block" else k.f.warp_barrier
    stores = k.f.icmp("eq", k.f.and_(k.warp, plan.idle_warps), 0)
    unique: dict[int, V] = {}
    for number, piece in enumerate(plan.slices):
        if number or plan.barrier == "warp":  # a loop may come back: nobody else waits for what a warp has to itself
            wait()
        with k.f.if_(stores):
            Window(k, room, plan.store).store(registers, piece.stores)
        wait()
        unique.update(Window(k, room, plan.load).load(piece.loads))
    return [unique[copy] for copy in plan.copies]


__all__ = [
    "conversion_bytes",
    "conversion_scratch",
    "convert_registers",
    "emit_convert_layout",
    "plan_of",
]
