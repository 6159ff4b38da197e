"""Vectors, bank conflicts and matrix instructions, each against a search that knows no algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layouts.simulator import NOTHING, touch
from tests.layouts.strategies import covering, invertible
from tilewright.layouts.access import (
    contiguity,
    count_wavefronts,
    immediate_offset,
    matrix_access,
    memory_vectors,
    plan_access,
    unique_registers,
    vector_access,
    vector_registers,
    vector_wavefronts,
)
from tilewright.layouts.distributed import (
    blocked,
    default_blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    sliced,
)
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shared import hardware_swizzled, padded, row_major, swizzled


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 4), st.sampled_from([1, 2, 4, 8]))
def test_vector_registers(rng, mixing, limit):
    """The groups are runs in every thread, and no wider aligned runs of one order exist."""
    columns = invertible(rng, 6, mixing)
    offsets = LinearLayout((("register", 4), ("lane", 2)), (("offset", 6),), tuple(columns))
    groups = vector_registers(offsets, limit)
    assert sorted(r for group in groups for r in group) == list(range(16))
    held = [{offsets(register=r, lane=lane)["offset"]: r for r in range(16)} for lane in range(4)]

    def runs(width):
        """Registers of each aligned run of a thread, or None if a run is broken or threads differ in order."""
        found = set()
        for lane in held:
            tiles = {}
            for offset, register in lane.items():
                tiles.setdefault(offset // width, {})[offset % width] = register
            if any(len(tile) < width for tile in tiles.values()):
                return None
            found.add(tuple(sorted(tuple(tile[i] for i in range(width)) for tile in tiles.values())))
        return found.pop() if len(found) == 1 else None

    assert tuple(sorted(groups)) == runs(len(groups[0]))
    for wider in range(2 * len(groups[0]), limit + 1, 2 * len(groups[0])):
        if wider & (wider - 1) == 0:
            assert runs(wider) is None


def test_memory_vectors():
    layout = blocked((2, 4), (8, 4), (4, 1), (1, 0), (64, 32))
    assert (contiguity(layout), contiguity(layout, (0, 1))) == (4, 2)
    assert memory_vectors(layout)[:2] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert memory_vectors(layout, (0, 1))[0] == (0, 4)
    assert len(memory_vectors(layout, limit=2)[0]) == 2
    assert contiguity(mma_accumulator((2, 2), (64, 64))) == 2
    assert contiguity(mma_operand_b((2, 2), (64, 64), 8), (0, 1)) == 4
    assert contiguity(sliced(layout, 1)) == 2
    # A run ends with the dim: the next row may lie anywhere.
    assert contiguity(blocked((4, 2), (32, 1), (1, 1), (1, 0), (128, 2))) == 2
    with pytest.raises(LayoutError, match="copies"):
        vector_registers(LinearLayout.zeros(2, "register", "offset"), 2)


@given(st.randoms(use_true_random=False), st.integers(0, 6))
def test_unique_registers(rng, mixing):
    layout = covering(rng, {"register": 4, "lane": 3, "warp": 0, "block": 0}, (2, 3), mixing)
    unique, table = unique_registers(layout)
    assert len(table) == 16 and set(table) == set(range(unique.in_sizes["register"]))
    registers = unique.sublayout(["register"], ["dim0", "dim1"])
    assert registers.is_injective()
    for register, lane in itertools.product(range(16), range(8)):
        assert layout(register=register, lane=lane) == unique(register=table[register], lane=lane)


# --- bank conflicts -------------------------------------------------------------------------------------


def transactions(addresses, width):
    """Cycles, bank by bank: groups of lanes that fetch 128 bytes at once, one word per bank and cycle."""
    group = min(32, 128 // width)
    total = 0
    for start in range(0, 32, group):
        wanted = {bank: set() for bank in range(32)}
        for address in addresses[start : start + group]:
            for byte in range(address, address + width):
                wanted[byte // 4 % 32].add(byte // 4)
        total += max(len(words) for words in wanted.values())
    return total


@given(st.lists(st.integers(0, 255), min_size=32, max_size=32), st.sampled_from([1, 2, 4, 8, 16]))
def test_counted_wavefronts(slots, width):
    addresses = [slot * width for slot in slots]
    assert count_wavefronts(np.array(addresses), width) == transactions(addresses, width)


@given(
    st.lists(st.integers(0, 2047), min_size=5, max_size=5),
    st.sampled_from([8, 16, 32, 64]),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_wavefronts_from_ranks(lanes, bits, vector):
    if vector * bits > 128:
        vector = 128 // bits
    columns = [lane * vector % 2048 for lane in lanes]
    layout = LinearLayout((("lane", 5),), (("offset", 11),), tuple(columns))
    addresses = [layout(lane=lane)["offset"] * bits // 8 for lane in range(32)]
    assert vector_wavefronts(columns, vector, bits) == transactions(addresses, vector * bits // 8)


def test_known_conflicts():
    """Reading a column of a row-major 32 x 32 f32 tile takes 32 wavefronts; padded or swizzled, one."""
    column = LinearLayout.from_bases(
        {"register": [], "lane": [(1 << i, 0) for i in range(5)]}, {"dim0": 32, "dim1": 32}
    )
    for buffer, expected in (
        (row_major((32, 32)), 32),
        (swizzled((32, 32), 1, 1, 32), 1),
        (swizzled((32, 32), 4, 1, 8), 4),
    ):
        assert vector_access(column.invert_and_compose(buffer), 32).wavefronts == expected
    gaps = padded((32, 32), 1)
    offsets = np.array([column.invert_and_compose(gaps.layout)(lane=lane)["offset"] for lane in range(32)])
    assert count_wavefronts(4 * gaps.position(offsets), 4) == 1


def test_copy_into_swizzled_buffers_is_free_of_conflicts():
    for bits in (8, 16, 32):
        vector = 128 // bits
        tile = default_blocked((64, 1024 // bits), 4, vector=vector)
        access = plan_access(tile.invert_and_compose(hardware_swizzled((64, 1024 // bits), bits, 128)), bits)
        assert (access.vector_bits, access.wavefronts, access.conflicts) == (128, 4, 0)


# --- matrix instructions ----------------------------------------------------------------------------------


def execute(access, offsets):
    """Run every instruction of every warp as a load; what each register got must be the element of its offset."""
    memory = np.arange(1 << sum(width for _, width in offsets.outs))
    sizes = offsets.in_sizes
    for warp in range(sizes.get("warp", 1)):
        registers = np.full((sizes["register"], 32), NOTHING)
        for instruction in access.instructions:
            touch(access, instruction, memory, registers, warp, 0, False)
        for register, lane in np.ndindex(*registers.shape):
            assert registers[register, lane] == offsets(register=register, lane=lane, warp=warp)["offset"]


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("width", [128, 64, 32, 16])
def test_operands_from_hardware_swizzles(bits, width):
    """ldmatrix.x4 serves A and B (k contiguous) of every swizzle; only the narrow ones conflict."""
    k = 2048 // bits
    for operand, order in (
        (mma_operand_a((2, 2), (64, k), bits), (1, 0)),
        (mma_operand_b((2, 2), (k, 64), bits), (0, 1)),
    ):
        offsets = operand.invert_and_compose(hardware_swizzled(tuple(operand.out_sizes.values()), bits, width, order))
        access = plan_access(offsets, bits, matrix=True)
        assert access.kind == "matrix" and access.vector_bits == 128
        assert access.conflicts == 0
        execute(access, offsets)


@pytest.mark.parametrize("bits, applies", [(8, False), (16, True), (32, False)])
def test_transposed_operands(bits, applies):
    """B with n contiguous: ldmatrix.trans for 16-bit elements, nothing for others."""
    operand = mma_operand_b((2, 2), (64, 128), bits)
    offsets = operand.invert_and_compose(hardware_swizzled((64, 128), bits, 128))
    access = matrix_access(offsets, bits, True)
    assert (access is not None) == applies
    if access is not None:
        assert (access.vector_bits, access.conflicts) == (128, 0)
        execute(access, offsets)
        assert plan_access(offsets, bits, True).kind == "matrix_transposed"
    assert plan_access(offsets, bits, False).kind == "vector"


def test_stores_of_accumulators():
    """stmatrix serves f16 accumulators in rows, and transposed in columns."""
    accumulator = mma_accumulator((2, 2), (64, 64))
    for order, kind in (((1, 0), "matrix"), ((0, 1), "matrix_transposed")):
        offsets = accumulator.invert_and_compose(hardware_swizzled((64, 64), 16, 128, order))
        access = plan_access(offsets, 16, matrix=True)
        assert (access.kind, access.vector_bits, access.conflicts) == (kind, 128, 0)
        execute(access, offsets)


def test_few_registers_take_smaller_matrix_instructions():
    for shape, bits_per_lane in (((16, 8), 64), ((8, 8), 32)):
        operand = mma_accumulator((1, 1), shape)
        offsets = unique_registers(operand)[0].invert_and_compose(hardware_swizzled(shape, 16, 16))
        access = matrix_access(offsets, 16, False)
        assert access is not None and access.vector_bits == bits_per_lane
        execute(access, offsets)


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.sampled_from([8, 16, 32]), st.booleans(), st.integers(0, 3))
def test_matrix_instructions_on_disturbed_layouts(rng, bits, transposed, mixing):
    """Whatever the offsets, a plan that is offered reads the right elements; refusals are right for simple reasons."""
    operand = mma_operand_a((1, 2), (32, 512 // bits), bits)
    order = (0, 1) if transposed else (1, 0)
    offsets = operand.invert_and_compose(hardware_swizzled((32, 512 // bits), bits, 32, order))
    columns = list(offsets.columns)
    for _ in range(mixing):
        i, j = rng.sample(range(len(columns) - 1), 2)
        columns[i] ^= columns[j]
    disturbed = LinearLayout(offsets.ins, offsets.outs, tuple(columns))
    access = matrix_access(disturbed, bits, transposed)
    if access is not None:
        execute(access, disturbed)
    elif not mixing:
        assert transposed and bits != 16


def test_immediate_offsets():
    """Offsets split into a part that lanes touch and one that can be added."""
    operand = mma_operand_a((2, 2), (64, 64), 16)
    access = plan_access(operand.invert_and_compose(hardware_swizzled((64, 64), 16, 128)), 16, matrix=True)
    bases = set()
    for instruction in access.instructions:
        flip, added = immediate_offset(access, instruction)
        bases.add(flip)
        for lane, warp in itertools.product(range(32), range(4)):
            address = access.address(lane=lane, warp=warp)["offset"]
            assert (address ^ instruction.offset) == (address ^ flip) + added
    assert len(bases) < len(access.instructions)
