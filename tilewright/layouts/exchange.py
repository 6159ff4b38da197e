"""Conversions through shared memory, with a swizzle computed for the two layouts at hand.

A buffer layout is a basis of the tile's coordinate space: its first vectors fill a vector (16 bytes at most), the next
ones the banks, the rest (H) select the line. An access whose wavefront spans the subspace X is free of conflicts
exactly if H meets X only in zero, and two subspaces of one dimension always have a common complement, so that there
is a layout free of conflicts for writer and reader alike (paper, section 5.4, optimal swizzling). What remains to be
chosen is what fills the vector; the few candidates are planned and the cheapest is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.layouts import f2
from tilewright.layouts.access import (
    WIDEST,
    Instruction,
    SharedAccess,
    lanes_per_wavefront,
    plan_access,
    unique_registers,
)
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout, log2
from tilewright.layouts.shuffle import stays_in_warp

# Rough cost of waiting for all warps, or for the lanes of one, in cycles.
_BARRIER = {"block": 32, "warp": 8}


@dataclass(frozen=True, slots=True)
class Slice:
    """One iteration through the buffer; between two of them, and between its two halves, there is a barrier.

    Args:
        stores: instructions of `SharedPlan.store`, registers of the source.
        loads: instructions of `SharedPlan.load`, registers of the (unique) destination.
    """

    stores: tuple[Instruction, ...]
    loads: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """A conversion through shared memory.

    Args:
        shared: (offset) -> coordinates; block b of a cluster holds its own, shifted by the source's block bases.
        store, load: how the threads write the source and read the destination, all slices together.
        slices: the iterations; one, unless the buffer was to be small.
        copies: which of the registers that `load` fills each register of the destination is.
        idle_warps: warps with one of these bits set hold copies and need not store.
        barrier: "warp" if no warp touches what another does, else "block".
        element_bits: bits of an element.
    """

    shared: LinearLayout
    store: SharedAccess
    load: SharedAccess
    slices: tuple[Slice, ...]
    copies: tuple[int, ...]
    idle_warps: int
    barrier: Literal["warp", "block"]
    element_bits: int

    kind = "shared"

    @property
    def scratch_bytes(self) -> int:
        """Size of the buffer."""
        return max(1, self.shared.in_sizes["offset"] // len(self.slices) * self.element_bits // 8)

    @property
    def cost(self) -> float:
        """Cycles of a multiprocessor for one warp, with a rough price for barriers."""
        waits = 2 * len(self.slices) - 1
        moved = sum(
            len(access.instructions) * (access.wavefronts + 0.5 * access.packings) for access in (self.store, self.load)
        )
        return moved + waits * _BARRIER[self.barrier]


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two layouts, as vectors of the coordinate space."""

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    others: tuple[int, ...]

    @staticmethod
    def of(layout: LinearLayout) -> _Side:
        return _Side(layout.columns_of("register"), layout.columns_of("lane"), layout.columns_of("warp"))

    @property
    def threads(self) -> tuple[int, ...]:
        """Images of lanes and warps."""
        return (*self.lanes, *self.others)

    def width(self, vector: Sequence[int]) -> int:
        """How much of the vector, from its start, one thread holds."""
        own = f2.Span(self.registers)
        return next((i for i, v in enumerate(vector) if v not in own), len(vector))

    def wavefront(self, vector: Sequence[int], element_bits: int) -> tuple[int, ...]:
        """What the lanes of one wavefront touch if memory has `vector` lowest: registers and lanes."""
        width = self.width(vector)
        return (*vector[:width], *self.lanes[: log2(lanes_per_wavefront(element_bits << width))])


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What fills a vector.

    Args:
        vector: coordinates of the low offset bits.
        wavefronts: the subspace that a wavefront of each side touches then.
        wider: the side (0 or 1) that moves more of the vector at once.
    """

    vector: tuple[int, ...]
    wavefronts: tuple[tuple[int, ...], tuple[int, ...]]
    wider: int


def plan_shared(
    source: LinearLayout,
    destination: LinearLayout,
    element_bits: int,
    scratch_limit: int | None = None,
    load_matrix: bool = True,
    store_matrix: bool = False,
) -> SharedPlan | None:
    """The cheapest exchange through shared memory, or None if a block needs elements that only another one holds.

    Args:
        source, destination: (register, lane, warp, block) -> coordinates of one tile, each covering it.
        element_bits: 8, 16, 32 or 64.
        scratch_limit: bytes that the buffer may have. Registers that both sides hold are then exchanged in several
            slices; if even that is too much, the plan with the smallest buffer is returned.
        load_matrix: ldmatrix may be used (sm_75).
        store_matrix: stmatrix may be used (sm_90).
    """
    wanted, copies = unique_registers(destination.transpose(outs=list(source.out_sizes)))
    held, table = unique_registers(source)
    inside = [held.sublayout(["register", "lane", "warp"], list(held.out_sizes)) for held in (held, wanted)]
    if not _blocks_suffice(held, wanted):
        return None
    sides = _Side.of(held), _Side.of(wanted)
    whole = f2.independent(inside[0].columns)
    plans = []
    # Short vectors are for small buffers: what fills the vector cannot select the slice.
    shortest = 4 if scratch_limit is None else 0
    for candidate in _candidates(sides, element_bits, (store_matrix, load_matrix), shortest):
        slicing = _slicing(sides, candidate, len(whole), element_bits, scratch_limit)
        basis = buffer_basis(candidate, sides, slicing, whole, element_bits)
        accesses = [
            plan_access(_offsets(layout, held, basis), element_bits, matrix, 1 << len(basis) - len(slicing))
            for layout, matrix in ((held, store_matrix), (wanted, load_matrix))
        ]
        plans.append((len(slicing), sum(access.cost for access in accesses), basis, accesses))
    # No candidate has more slices than the limit asks for; one with fewer misses it.
    count, _, basis, (store, load) = min(plans, key=lambda plan: (-plan[0], plan[1]))
    full = {unique: register for register, unique in reversed(list(enumerate(table)))}
    store = replace(
        store,
        instructions=tuple(Instruction(i.offset, tuple(full[r] for r in i.registers)) for i in store.instructions),
    )
    shared = LinearLayout((("offset", len(basis)),), held.outs, tuple(basis))
    idle = held.free_masks()["warp"]
    # Warps that hold copies share addresses, even where each could read its own.
    barrier: Literal["warp", "block"] = "warp" if not idle and stays_in_warp(held, wanted) else "block"
    slices = _slices(store, load, count, len(basis))
    return SharedPlan(shared, store, load, slices, copies, idle, barrier, element_bits)


def swizzle(
    source: LinearLayout, destination: LinearLayout, element_bits: int, load_matrix: bool = True
) -> LinearLayout:
    """The buffer layout, (offset) -> coordinates, of a tile that `source` writes and `destination` reads.

    For buffers that outlive one conversion, such as the stages of a pipelined load.
    """
    plan = plan_shared(source, destination, element_bits, None, load_matrix)
    if plan is None:
        raise LayoutError("a block would have to read what only another one holds")
    return plan.shared


def buffer_basis(
    candidate: _Candidate, sides: tuple[_Side, _Side], slicing: Sequence[int], whole: Sequence[int], element_bits: int
) -> list[int]:
    """Coordinates of offsets 1, 2, 4, ... of a buffer, with the fewest conflicts that its vector allows.

    Vectors need the threads of the side that moves them to stay clear of the low offset bits: those threads lie in W,
    a complement of the vector. Within W, H has to avoid what the wavefronts of both sides have in it.

    Args:
        candidate: what fills a vector.
        sides: the two layouts; their lanes and warps stay out of the slice bits.
        slicing: vectors that select the slice, the highest offset bits.
        whole: a basis of the space.
    """
    vector, (first, second) = list(candidate.vector), candidate.wavefronts
    ordered = sides if candidate.wider == 0 else sides[::-1]
    threads = [column for side in ordered for column in side.threads]
    beside = f2.complement(vector, [*threads, *first, *second])
    beside += f2.complement([*vector, *beside, *slicing], whole)
    # Bytes of one word never conflict. A vector shorter than a word leaves room for what both sides share.
    word = log2(max(1, 32 // element_bits))
    shared = f2.intersection(f2.intersection(first, second), beside)
    fill = f2.independent([*shared, *f2.intersection(first, beside), *beside])[: max(0, word - len(vector))]
    low = [*vector, *fill]
    line = min(max(0, log2(1024 // element_bits) - len(vector)), len(beside))
    avoid = [
        f2.independent([*fill, *f2.intersection([*low[:word], *wavefront], beside)])[:line]
        for wavefront in (first, second)
    ]
    avoid[0] = _extended(avoid[0], [*avoid[1], *beside], line)
    avoid[1] = _extended(avoid[1], [*avoid[0], *beside], line)
    lines = f2.common_complement(avoid[0], avoid[1], beside)
    banks = f2.complement([*low, *lines], [*avoid[0], *avoid[1]])
    return [*low, *banks, *lines, *slicing]


def _extended(basis: list[int], candidates: Sequence[int], dimension: int) -> list[int]:
    return basis + f2.complement(basis, candidates)[: dimension - len(basis)]


def _candidates(
    sides: tuple[_Side, _Side], element_bits: int, matrix: tuple[bool, bool], shortest: int
) -> Iterator[_Candidate]:
    """Ways to fill a vector: what both sides hold in registers, then one side's; or rows of a matrix instruction.

    Args:
        sides: source and destination.
        element_bits: bits of an element.
        matrix: whether each side may use matrix instructions.
        shortest: how much of what both sides hold the vector has at least.
    """
    most = log2(WIDEST // element_bits)
    threads = [*sides[0].threads, *sides[1].threads]
    common = f2.complement(threads, f2.intersection(sides[0].registers, sides[1].registers))
    found: dict[tuple[int, ...], int] = {}  # vector -> the side that moves more of it at once
    for i, side in enumerate(sides):
        own, start = f2.Span(side.registers), common[:most]
        wished = [lane for lane in sides[1 - i].lanes if lane in own]
        full = (start + f2.complement([*start, *side.threads], [*wished, *side.registers]))[:most]
        for length in range(min(shortest, len(start)), len(full) + 1):
            found.setdefault(tuple(full[:length]), i)
    for i, side in enumerate(sides):
        if not matrix[i] or element_bits > 32 or len(side.lanes) != 5:
            continue
        row = (*common[: log2(32 // element_bits)], *side.lanes[:2])
        if f2.rank(row) == most == len(row):
            found.setdefault(row, i)
        column = side.lanes[2:]
        if element_bits == 16 and f2.rank(column) == most:
            touched = [other.wavefront(column, element_bits) for other in sides]
            touched[i] = (*column, *f2.complement(side.lanes, side.registers)[:1], *side.lanes[:2])
            yield _Candidate(column, (touched[0], touched[1]), i)
    for vector, wider in found.items():
        yield _Candidate(
            vector, (sides[0].wavefront(vector, element_bits), sides[1].wavefront(vector, element_bits)), wider
        )


def _slicing(
    sides: tuple[_Side, _Side], candidate: _Candidate, total: int, element_bits: int, limit: int | None
) -> list[int]:
    """Vectors that both sides hold in registers and nothing else depends on: as many as the limit asks for."""
    if limit is None:
        return []
    threads = [column for side in sides for column in side.threads]
    taken = [*candidate.vector, *candidate.wavefronts[0], *candidate.wavefronts[1], *threads]
    found = f2.complement(taken, f2.intersection(sides[0].registers, sides[1].registers))
    needed = next((n for n in range(total) if (element_bits << total >> n) // 8 <= limit), total)
    return found[::-1][:needed]


def _slices(store: SharedAccess, load: SharedAccess, count: int, width: int) -> tuple[Slice, ...]:
    """The instructions by the `count` highest of `width` offset bits, which the offsets then lose."""
    below = width - count
    parts = []
    for number in range(1 << count):
        chosen = [
            tuple(
                Instruction(i.offset & (1 << below) - 1, i.registers)
                for i in access.instructions
                if i.offset >> below == number
            )
            for access in (store, load)
        ]
        parts.append(Slice(chosen[0], chosen[1]))
    return tuple(parts)


def _blocks_suffice(source: LinearLayout, destination: LinearLayout) -> bool:
    """Whether each block holds all that it needs."""
    inside = f2.Span(c for dim in ("register", "lane", "warp") for c in source.columns_of(dim))
    own = [c for dim in ("register", "lane", "warp") for c in destination.columns_of(dim)]
    own += [a ^ b for a, b in zip(source.columns_of("block"), destination.columns_of("block"))]
    return all(column in inside for column in own)


def _offsets(layout: LinearLayout, source: LinearLayout, basis: Sequence[int]) -> LinearLayout:
    """(register, lane, warp, block) -> (offset); a block's own coordinates start where the source's do."""
    span, columns = f2.Span(basis), []
    for dim, _ in layout.ins:
        starts = source.columns_of(dim) if dim == "block" else ()
        for i, column in enumerate(layout.columns_of(dim)):
            columns.append(span.reduce(column ^ starts[i] if starts else column)[1])
    return LinearLayout(layout.ins, (("offset", len(basis)),), tuple(columns))
