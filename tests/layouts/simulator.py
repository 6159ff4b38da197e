"""A block of threads in numpy: runs conversion plans lane by lane, as the hardware would, and counts bank conflicts.

Written from the PTX ISA (shfl.sync, ld/st.shared, ldmatrix, stmatrix) and the plans' own field descriptions only.
Registers are arrays indexed by (register, lane, warp, block); every element is its flat coordinate in the tile, so that
a value that goes astray is seen.
"""

from __future__ import annotations

import collections
import functools

import numpy as np

from tilewright.layouts.access import SharedAccess
from tilewright.layouts.exchange import SharedPlan
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shuffle import WarpPlan

NOTHING = -1
POSITION = ("register", "lane", "warp", "block")


def tile_in(layout: LinearLayout) -> np.ndarray:
    """Registers of all threads, holding the tile as `layout` says."""
    sizes = layout.in_sizes
    axes = np.meshgrid(*(np.arange(sizes[dim]) for dim in POSITION), indexing="ij")
    points = layout.array(**dict(zip(POSITION, axes)))
    flat = np.zeros_like(axes[0])
    for name in sorted(points):
        flat = flat * layout.out_sizes[name] + points[name]
    return flat


def run(plan: WarpPlan | SharedPlan, registers: np.ndarray) -> np.ndarray:
    """The destination's registers after the plan."""
    return _run_warp(plan, registers) if isinstance(plan, WarpPlan) else _run_shared(plan, registers)


# --- shuffles -------------------------------------------------------------------------------------------


def _run_warp(plan: WarpPlan, registers: np.ndarray) -> np.ndarray:
    assert len(plan.source_words[0]) * plan.element_bits <= max(32, plan.element_bits)
    assert sorted(register for word in plan.source_words for register in word) == list(range(len(registers)))
    words = np.stack([registers[list(word)] for word in plan.source_words])  # word, member, lane, warp, block
    words = _swap(words, plan.before)
    received = np.full((len(plan.destination_words), *words.shape[1:]), NOTHING)
    lane, warp, block = np.indices(words.shape[2:])
    reads = plan.lanes.array(lane=lane, warp=warp, block=block)["lane"]
    for move in plan.rounds:
        if move.shuffled:
            assert len(move.moves) * words.shape[1] * plan.element_bits <= max(32, plan.element_bits)
        else:
            assert (reads ^ move.lane_xor == lane).all()
        for source, destination in move.moves:
            assert (received[destination] == NOTHING).all()
            received[destination] = words[source][:, reads ^ move.lane_xor, warp, block]
    received = _swap(received, plan.after)
    unique = np.full((sum(map(len, plan.destination_words)), *registers.shape[1:]), NOTHING)
    for i, word in enumerate(plan.destination_words):
        unique[list(word)] = received[i]
    return unique[list(plan.copies)]


def _swap(words: np.ndarray, swaps) -> np.ndarray:
    for swap in swaps:
        axis = {"lane": 2, "warp": 3, "block": 4}[swap.dim]
        chosen = (np.arange(words.shape[axis]) & swap.mask).astype(bool)
        chosen = chosen.reshape([-1 if i == axis else 1 for i in range(5)])
        words = np.where(chosen, words[np.arange(len(words)) ^ swap.words], words)
    return words


# --- shared memory --------------------------------------------------------------------------------------


def _run_shared(plan: SharedPlan, registers: np.ndarray) -> np.ndarray:
    loaded = len(set(plan.copies))
    unique = np.full((loaded, *registers.shape[1:]), NOTHING)
    size = plan.scratch_bytes * 8 // plan.element_bits
    for part in plan.slices:
        memory = np.full((registers.shape[3], max(1, size)), NOTHING)
        writer = memory.copy()
        for instruction in part.stores:
            for warp, block in np.ndindex(*registers.shape[2:]):
                if not warp & plan.idle_warps:
                    held = registers[:, :, warp, block]
                    places = touch(plan.store, instruction, memory[block], held, warp, block, True)
                    assert plan.barrier == "block" or np.isin(writer[block, places], (NOTHING, warp)).all()
                    writer[block, places] = warp
        for instruction in part.loads:
            for warp, block in np.ndindex(*registers.shape[2:]):
                places = touch(plan.load, instruction, memory[block], unique[:, :, warp, block], warp, block, False)
                assert plan.barrier == "block" or (writer[block, places] == warp).all()
    return unique[list(plan.copies)]


def touch(access: SharedAccess, instruction, memory, registers, warp, block, store: bool) -> np.ndarray:
    """One instruction of one warp: `registers` (register, lane) to or from `memory`; gives the places touched."""
    offsets = lane_offsets(access.address, registers.shape[1], warp, block) ^ instruction.offset
    moved = len(instruction.registers)
    if access.kind == "vector":
        places = offsets[None, :] + np.arange(moved)[:, None]  # of (register in the instruction, lane)
        width = moved * access.element_bits // 8
        assert width <= 16 and not (offsets % moved).any()
        lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
        groups = [offsets[i : i + lanes] for i in range(0, len(offsets), lanes)]
    else:
        places = _matrix_places(access, offsets, moved)
        width = 16
        matrices = moved * access.element_bits // 32
        assert matrices in (1, 2, 4)
        assert not (offsets * access.element_bits % 128).any()
        groups = [offsets[8 * i : 8 * i + 8] for i in range(matrices)]
    assert access.wavefronts == sum(_wavefronts(group, width, access.element_bits) for group in groups)
    rows = list(instruction.registers)
    if store:
        before = memory[places]
        assert ((before == NOTHING) | (before == registers[rows])).all(), "a value was overwritten"
        memory[places] = registers[rows]
        assert (memory[places] == registers[rows]).all(), "two lanes wrote different values to one place"
    else:
        registers[rows] = memory[places]
        assert (registers[rows] != NOTHING).all(), "read before written"
    return places


@functools.lru_cache(maxsize=64)
def lane_offsets(address: LinearLayout, lanes: int, warp: int, block: int) -> np.ndarray:
    """What each lane of a warp passes, before the instruction's own offset."""
    return address.array(lane=np.arange(lanes), warp=np.array(warp), block=np.array(block))["offset"]


def _matrix_places(access: SharedAccess, offsets, moved):
    """PTX ISA, ldmatrix: of each matrix lane l has elements of row l / 4 or, transposed, of column l / 4."""
    word = 32 // access.element_bits
    matrix, element = np.divmod(np.arange(moved)[:, None], word)
    lane = np.arange(32)[None, :]
    if access.kind == "matrix":
        row, column = lane // 4, word * (lane % 4) + element
    else:
        row, column = 2 * (lane % 4) + element, lane // 4
    return offsets[8 * matrix + row] + column


def _wavefronts(offsets, width: int, element_bits: int) -> int:
    first = offsets * element_bits // 8
    words = {(int(byte) + step) // 4 for byte in first for step in range(0, width, min(4, width))}
    return max(collections.Counter(word % 32 for word in words).values())
