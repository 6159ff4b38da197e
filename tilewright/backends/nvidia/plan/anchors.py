"""Layouts of accesses to global memory: who reads or writes what, in vectors and sectors.

What the axis analysis knows of a tile of pointers is condensed into an `Access`; `cycles` prices an access in any
layout, and `common_layouts` gives accesses to tiles of one shape one layout where that costs little, so that what is
loaded, computed and stored need not be converted in between.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.solver import Facts
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.plan.team import Team
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.ir.effect_traits import is_atomic, mask_of
from tilewright.ir.types import element_type, pointee_bytes, shape_of
from tilewright.layouts import f2
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.ops.facts import AxisFacts

_WIDEST = 16  # bytes of one lane's access
_SECTOR = 32  # bytes
_LINE = 128  # bytes that shared memory moves per cycle


@dataclass(frozen=True, slots=True)
class Access:
    """A tile of pointers as memory sees it.

    Args:
        shape: padded shape of the tile.
        order: dims, the one along which neighbours lie side by side in memory first.
        run: length of the runs of neighbours along ``order[0]``.
        vector: most elements that a lane may access at once along ``order[0]``.
        bytes: size of an element.
        constancy: per dim, how many elements in a row have one address.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    run: int
    vector: int
    bytes: int
    constancy: tuple[int, ...]

    def layout(self, team: Team) -> LinearLayout:
        """The blocked layout in which lanes take vectors side by side; shorter ones rather than idle lanes."""
        size = 1
        for dim in self.shape:
            size *= dim
        return team.blocked(self.shape, self.order, min(self.vector, max(1, size // (WARP * team.all_warps))))


def access_of(op: Operation, facts: Facts[AxisFacts]) -> Access:
    """What is known of the access of a load, store or atomic on a tile of pointers."""
    pointer = op.operands[0]
    known, shape = facts[pointer], padded_shape(shape_of(pointer.type))
    order = tuple(sorted(range(len(shape)), key=lambda axis: (known.contiguity[axis], axis), reverse=True))
    vector = 1 if is_atomic(op) else widest_vector(facts, pointer, mask_of(op), order[0])
    return Access(shape, order, known.contiguity[order[0]], vector, pointee_bytes(pointer.type), known.constancy)


def widest_vector(facts: Facts[AxisFacts], pointer: SSAValue, mask: SSAValue | None, axis: int) -> int:
    """Elements along one dim that one instruction may access: neighbours in memory, aligned, under one mask.

    Args:
        facts: what is known of the elements of tiles.
        pointer: a tile of pointers.
        mask: which elements are accessed.
        axis: the dim.
    """
    known, size = facts[pointer], pointee_bytes(pointer.type)
    aligned = max(1, known.divisibility[axis] // size)
    under_mask = _WIDEST if mask is None else facts[mask].constancy[axis]
    return min(known.contiguity[axis], aligned, max(1, _WIDEST // size), under_mask)


# --- prices -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def cycles(access: Access, layout: LinearLayout) -> float:
    """Cycles that one warp's share of an access takes: one per instruction and one per sector that it touches.

    Global memory is reached in sectors of 32 bytes; each instruction asks for those that its lanes touch, whatever
    part of them it needs (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"). Which lanes share a
    sector is linear: images of lane bits count, as far as they lead to another sector.

    Args:
        access: the access.
        layout: of its tiles.
    """
    bases, fast = layout.bases(), access.order[0]
    units = list(access.constancy)
    units[fast] = max(units[fast], min(access.run, _SECTOR // access.bytes))
    widths = [size.bit_length() for size in layout.out_sizes.values()]
    sectors = 1 << f2.rank(_joined(basis, units, widths) for basis in bases["lane"])
    registers = [basis for basis in bases["register"] if any(basis)]
    vector = 1
    while vector < access.vector and _step(len(widths), fast, vector) in registers:
        vector *= 2
    return (1 << len(registers)) / vector * (1 + sectors)


def _joined(basis: tuple[int, ...], units: list[int], widths: list[int]) -> int:
    """Coordinates in whole units, as one number."""
    flat = 0
    for coordinate, unit, width in zip(basis, units, widths, strict=True):
        flat = flat << width | coordinate // unit
    return flat


def _step(rank: int, axis: int, stride: int) -> tuple[int, ...]:
    return tuple(stride if dim == axis else 0 for dim in range(rank))


def conversion_cycles(source: LinearLayout, destination: LinearLayout, value: SSAValue) -> float:
    """Estimate of one warp's share of a conversion: every byte goes into shared memory and out of it.

    Args:
        source, destination: layouts of the tile.
        value: the tile, for the size of its elements.
    """
    size = memory_bits(element_type(value.type)) / 8
    return (_held(source) + _held(destination)) * size / _LINE + tuning.BARRIER_CYCLES


def arithmetic_cycles(op: Operation, layout: LinearLayout) -> float:
    """Estimate of one warp's share of an operation on elements whose result is laid out as `layout`.

    A multiprocessor starts four plain instructions of a warp per cycle, but half a special function (CUDA C++
    Programming Guide, "Throughput of Native Arithmetic Instructions").
    """
    return layout.in_sizes["register"] * (2 if op.dialect_name() == "math" else 0.25)


@functools.lru_cache(maxsize=1024)
def within_warps(held: LinearLayout, access: Access) -> LinearLayout | None:
    """A layout for an access in which every warp keeps what it holds, and its lanes take whole sectors, or lines.

    Then no warp waits for another, and a part of the tile after the other may pass through a little shared memory.

    Args:
        held: the layout in which a tile is.
        access: how it is stored.

    Returns:
        The layout; None if several warps hold the same elements, or each has less than a sector in a row.
    """
    warps, fast = held.bases()["warp"], access.order[0]
    if access.shape != tuple(held.out_sizes.values()) or len(set(warps)) < len(warps) or not all(map(any, warps)):
        return None
    steps = [[_step(len(access.shape), dim, 1 << bit) for bit in range(size.bit_length() - 1)]
             for dim, size in enumerate(access.shape)]  # fmt: skip
    lanes, vector = WARP.bit_length() - 1, access.vector.bit_length() - 1
    least = vector + (_SECTOR // _WIDEST).bit_length() - 1
    first = [step for step in steps[fast][: vector + lanes] if step not in warps]
    line = len(first)
    if line < least or access.vector * access.bytes != _WIDEST or not set(steps[fast][:least]).isdisjoint(warps):
        return None
    others = [step for dim in access.order[1:] for step in steps[dim]] + steps[fast]
    left = [step for step in others if step not in warps and step not in first]
    count = lanes - (line - vector)
    bases = {
        "register": [*first[:vector], *left[count:]],
        "lane": [*first[vector:], *left[:count]],
        "warp": list(warps),
    }
    if len(left) < count or len(left) + line + len(warps) != sum(map(len, steps)):
        return None
    return LinearLayout.from_bases({**held.bases(), **bases}, held.out_sizes)


@functools.lru_cache(maxsize=1024)
def _held(layout: LinearLayout) -> int:
    """Different elements that a warp holds."""
    return 1 << f2.rank((*layout.columns_of("register"), *layout.columns_of("lane")))


# --- choosing -----------------------------------------------------------------------------------------

_Key = TypeVar("_Key", bound=Hashable)


def common_layouts(accesses: Mapping[_Key, Access], team: Team) -> dict[_Key, LinearLayout]:
    """A layout for every access, the same one for accesses to tiles of one shape unless one would suffer.

    Args:
        accesses: key -> access.
        team: the threads of a program.
    """
    chosen: dict[_Key, LinearLayout] = {}
    for shape in dict.fromkeys(access.shape for access in accesses.values()):
        left = {key: access for key, access in accesses.items() if access.shape == shape}
        while left:
            best = _cheapest(left.values(), team)
            together = {
                key: access
                for key, access in left.items()
                if cycles(access, best) <= tuning.SHARED_LAYOUT_TOLERANCE * cycles(access, access.layout(team))
            } or left
            best = _cheapest(together.values(), team)
            chosen.update(dict.fromkeys(together, best))
            left = {key: access for key, access in left.items() if key not in together}
    return chosen


def _cheapest(accesses: Collection[Access], team: Team) -> LinearLayout:
    """Of the layouts that suit one of some accesses, the one that costs them least in all."""
    candidates = dict.fromkeys(access.layout(team) for access in accesses)
    return min(candidates, key=lambda layout: sum(cycles(access, layout) for access in accesses))
