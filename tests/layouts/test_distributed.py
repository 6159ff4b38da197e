"""Thread layouts against plain enumerations: nested boxes, and the fragment formulae of the PTX ISA."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.layouts.distributed import (
    blocked,
    default_blocked,
    fit,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    over_blocks,
    sliced,
    wgmma_accumulator,
    wgmma_operand_a,
)
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.picture import points

SIZES = {1: [1, 2, 4, 8], 2: [1, 2, 4], 3: [1, 2]}


def unravel(index: int, sizes, order) -> list[int]:
    """Coordinates of a flat index in a box, ``order[0]`` fastest."""
    result = [0] * len(sizes)
    for axis in order:
        result[axis] = index % sizes[axis]
        index //= sizes[axis]
    assert index == 0
    return result


@settings(max_examples=40)
@given(st.data(), st.integers(1, 3))
def test_blocked(data, rank):
    def box():
        return tuple(data.draw(st.sampled_from(SIZES[rank])) for _ in range(rank))

    per_thread, threads, warps, shape = box(), box(), box(), tuple(2 * size for size in box())
    order = data.draw(st.permutations(range(rank)))
    layout = blocked(per_thread, threads, warps, order, shape)
    tile = [a * b * c for a, b, c in zip(per_thread, threads, warps)]
    # Registers of the box that lie inside of the tile, in order; then the repetitions of the box.
    own = [min(p, s) for p, s in zip(per_thread, shape)]
    repeats = [max(1, s // t) for s, t in zip(shape, tile)]
    assert layout.in_sizes == {
        "register": int(np.prod(own) * np.prod(repeats)),
        "lane": int(np.prod(threads)),
        "warp": int(np.prod(warps)),
        "block": 1,
    }
    assert tuple(layout.out_sizes.values()) == shape
    for inputs, outputs in points(layout):
        again, register = divmod(inputs["register"], int(np.prod(own)))
        element = unravel(register, own, order)
        lane, warp = unravel(inputs["lane"], threads, order), unravel(inputs["warp"], warps, order)
        more = unravel(again, repeats, order)
        for axis, got in enumerate(outputs.values()):
            in_box = element[axis] + per_thread[axis] * (lane[axis] + threads[axis] * warp[axis])
            assert got == (more[axis] * tile[axis] + in_box) % shape[axis]
    assert layout.is_surjective()


@given(st.data(), st.integers(1, 3), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 16]))
def test_default_blocked_is_coalesced(data, rank, warps, vector):
    shape = tuple(data.draw(st.sampled_from([1, 2, 4, 16, 64])) for _ in range(rank))
    order = data.draw(st.permutations(range(rank)))
    layout = default_blocked(shape, warps, order, vector)
    assert layout.is_surjective() and layout.in_sizes["lane"] == 32 and layout.in_sizes["warp"] == warps
    elements = int(np.prod(shape))
    # No register holds a copy unless threads outnumber the elements, and then each holds one vector at most.
    assert layout.in_sizes["register"] == max(min(vector, shape[order[0]]), elements // (32 * warps))
    # The lanes of a warp touch one contiguous piece of (dense) memory.
    flat = [
        np.ravel_multi_index([point[f"dim{a}"] for a in reversed(order)], [shape[a] for a in reversed(order)])
        for register in range(min(vector, shape[order[0]]))
        for point in (layout(register=register, lane=lane) for lane in range(32))
    ]
    assert max(flat) - min(flat) + 1 == len(set(flat))


def test_order_and_wrapping():
    layout = blocked((1, 2), (4, 8), (1, 1), (1, 0), (8, 32))
    assert layout.bases()["register"] == [(0, 1), (0, 16), (4, 0)]
    layout = blocked((1, 2), (4, 8), (1, 1), (0, 1), (8, 32))
    assert layout.bases()["register"] == [(0, 1), (4, 0), (0, 16)]


@given(st.data())
def test_sliced(data):
    parent = data.draw(
        st.sampled_from(
            [
                blocked((2, 2), (4, 8), (2, 2), (1, 0), (32, 16)),
                blocked((1, 4), (8, 4), (4, 1), (1, 0), (16, 64)),
                mma_accumulator((2, 2), (64, 32)),
                default_blocked((8, 4, 32), 4, vector=4),
            ]
        )
    )
    axis = data.draw(st.integers(0, len(parent.outs) - 1))
    layout = sliced(parent, axis)
    shape = [size for i, size in enumerate(parent.out_sizes.values()) if i != axis]
    assert list(layout.out_sizes.values()) == shape
    held, kept = {}, {}
    for inputs, outputs in points(parent):
        thread = inputs["lane"], inputs["warp"]
        held.setdefault(thread, set()).add(tuple(c for i, c in enumerate(outputs.values()) if i != axis))
    for inputs, outputs in points(layout):
        kept.setdefault((inputs["lane"], inputs["warp"]), []).append(tuple(outputs.values()))
    assert {thread: sorted(rows) for thread, rows in held.items()} == {t: sorted(rows) for t, rows in kept.items()}


# --- fragments, as the PTX ISA words them ---------------------------------------------------------------


def accumulator(lane, i):
    """Matrix Fragments for mma.m16n8k16, C and D."""
    group, thread = lane >> 2, lane % 4
    return group if i < 2 else group + 8, thread * 2 + (i & 1)


def a_16(lane, i):
    """mma.m16n8k16, .f16 / .bf16, A: a0 to a7."""
    group, thread = lane >> 2, lane % 4
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)


def b_16(lane, i):
    """mma.m16n8k16, B: b0 to b3."""
    group, thread = lane >> 2, lane % 4
    return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group


def a_32(lane, i):
    """mma.m16n8k8, .tf32, A: a0 to a3."""
    group, thread = lane >> 2, lane % 4
    return group if i in (0, 2) else group + 8, thread if i in (0, 1) else thread + 4


def b_32(lane, i):
    """mma.m16n8k8, .tf32, B: b0 and b1."""
    group, thread = lane >> 2, lane % 4
    return thread if i == 0 else thread + 4, group


def a_8(lane, i):
    """mma.m16n8k32, 8-bit types, A: a0 to a15."""
    group, thread = lane >> 2, lane % 4
    row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
    return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def b_8(lane, i):
    """mma.m16n8k32, B: b0 to b7."""
    group, thread = lane >> 2, lane % 4
    return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group


def fragment(layout, registers, warp=0):
    return {
        (lane, i): tuple(layout(lane=lane, register=i, warp=warp).values()) for lane in range(32) for i in registers
    }


def expected(formula, registers):
    return {(lane, i): formula(lane, i) for lane in range(32) for i in registers}


FORMULAE = {32: (a_32, b_32, 4, 2, 8), 16: (a_16, b_16, 8, 4, 16), 8: (a_8, b_8, 16, 8, 32)}


@pytest.mark.parametrize("bits", FORMULAE)
def test_mma_fragments(bits):
    a, b, count_a, count_b, k = FORMULAE[bits]
    assert fragment(mma_accumulator((1, 1), (16, 8)), range(4)) == expected(accumulator, range(4))
    assert fragment(mma_operand_a((1, 1), (16, k), bits), range(count_a)) == expected(a, range(count_a))
    assert fragment(mma_operand_b((1, 1), (k, 8), bits), range(count_b)) == expected(b, range(count_b))
    for layout in (mma_operand_a((1, 1), (16, k), bits), mma_operand_b((1, 1), (k, 8), bits)):
        assert layout.is_injective() and layout.is_surjective()
    # The instruction with half of k has the first half of the registers.
    half = mma_operand_a((1, 1), (16, k // 2), bits), mma_operand_b((1, 1), (k // 2, 8), bits)
    assert fragment(half[0], range(count_a // 2)) == expected(a, range(count_a // 2))
    assert fragment(half[1], range(count_b // 2)) == expected(b, range(count_b // 2))
    assert [layout.in_sizes["register"] for layout in half] == [count_a // 2, count_b // 2]


def corners(layout, formula, count, warp):
    """Corners of a warp's instruction tiles; each aligned group of `count` registers must be one fragment."""
    found = []
    for first in range(0, layout.in_sizes["register"], count):
        corner = tuple(layout(register=first, warp=warp).values())
        found.append(corner)
        for lane, i in itertools.product(range(32), range(count)):
            row, column = formula(lane, i)
            got = tuple(layout(register=first + i, lane=lane, warp=warp).values())
            assert got == (corner[0] + row, corner[1] + column)
    return found


@pytest.mark.parametrize("bits", FORMULAE)
@pytest.mark.parametrize("warps, tile", [((2, 2), (16, 8)), ((2, 2), (32, 16)), ((4, 1), (16, 32)), ((1, 4), (64, 8))])
def test_warps_hold_what_their_product_needs(bits, warps, tile):
    a, b, count_a, count_b, k = FORMULAE[bits]
    m, n, depth = 64, 32, 2 * k
    acc = mma_accumulator(warps, (m, n), tile)
    left = mma_operand_a(warps, (m, depth), bits, warp_rows=tile[0])
    right = mma_operand_b(warps, (depth, n), bits, warp_columns=tile[1])
    covered = set()
    for warp in range(4):
        tiles = corners(acc, accumulator, 4, warp)
        covered.update(tiles)
        assert len(set(tiles)) == len(tiles)
        rows, columns = {row for row, _ in tiles}, {column for _, column in tiles}
        assert set(corners(left, a, count_a, warp)) == set(itertools.product(rows, range(0, depth, k)))
        assert set(corners(right, b, count_b, warp)) == set(itertools.product(range(0, depth, k), columns))
        assert set(tiles) == set(itertools.product(rows, columns))
        assert rows >= set(range(min(rows), min(rows) + tile[0], 16))
        assert columns >= set(range(min(columns), min(columns) + tile[1], 8))
    assert covered == set(itertools.product(range(0, m, 16), range(0, n, 8)))


def test_k_width_permutes_k_alike():
    """With wider lanes both operands put the same k into the same place of each instruction."""
    for bits, width in ((16, 4), (8, 8), (16, 8), (32, 4)):
        packed = 32 // bits
        left = mma_operand_a((1, 1), (16, 16 * width), bits, width)
        right = mma_operand_b((1, 1), (16 * width, 8), bits, width)
        # Registers of k: A has the row + 8 bit in between.
        bases_a = [basis for basis in left.bases()["register"] if basis != (8, 0)]
        assert [k for _, k in bases_a] == [k for k, _ in right.bases()["register"]]
        assert (
            [k for _, k in left.bases()["lane"][:2]] == [k for k, _ in right.bases()["lane"][:2]] == [width, 2 * width]
        )
        assert left.is_surjective() and right.is_surjective() and width >= packed


def test_batches_and_small_tiles():
    layout = mma_accumulator((2, 1, 2), (2, 16, 16))
    assert [layout(warp=w) for w in range(4)] == [{"dim0": w // 2, "dim1": 0, "dim2": 8 * (w % 2)} for w in range(4)]
    assert layout.is_surjective() and layout.in_sizes["register"] == 4
    small = mma_accumulator((1, 1), (8, 8))  # the fragment keeps its four registers; two hold copies
    assert small.in_sizes["register"] == 4 and small.free_masks()["register"] == 2
    assert mma_operand_a((1, 1, 1), (4, 16, 16), 16).in_sizes["register"] == 8 * 4


def test_wgmma_accumulator():
    """PTX ISA, wgmma.mma_async.m64nNk16, D: 128 threads of a warpgroup, d0 to d(N/2 - 1)."""
    for n in (8, 64, 256):
        layout = wgmma_accumulator((4, 1), n, (64, n))
        assert layout.in_sizes["register"] == n // 2
        for thread, i in itertools.product(range(128), range(0, n // 2, 3)):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + 2 * (thread % 4) + i % 2
            got = layout(lane=thread % 32, warp=thread // 32, register=i)
            assert (got["dim0"], got["dim1"]) == (row, column)


def test_wgmma_tiles():
    """Two warpgroups beside each other; each repeats its instruction over the rows that are left."""
    layout = wgmma_accumulator((4, 2), 32, (128, 128))
    assert layout.in_sizes["register"] == 128 * 128 // 256 and layout.is_injective() and layout.is_surjective()
    for warpgroup, tile in itertools.product(range(2), range(4)):
        corner = layout(warp=4 * warpgroup, register=16 * tile)
        assert corner == {"dim0": 64 * (tile // 2), "dim1": 32 * warpgroup + 64 * (tile % 2)}


@pytest.mark.parametrize("bits", FORMULAE)
def test_wgmma_register_operand(bits):
    """PTX ISA, register fragment of matrix A: that of mma.m16n8k*, 16 rows per warp of the warpgroup."""
    a, _, count, _, k = FORMULAE[bits]
    layout = wgmma_operand_a((4, 2), (128, 2 * k), bits)
    for warp in range(8):  # the second warpgroup holds the same rows
        tiles = corners(layout, a, count, warp)
        assert tiles == [(row + 16 * (warp % 4), deep) for row in (0, 64) for deep in (0, k)]


def test_blocks_of_a_cluster():
    share = default_blocked((32, 32), 4)
    layout = over_blocks(share, (2, 2), (1, 0))
    for block in range(4):
        assert layout(block=block) == {"dim0": 32 * (block // 2), "dim1": 32 * (block % 2)}
        assert layout(block=block, lane=7)["dim1"] == share(lane=7)["dim1"] + 32 * (block % 2)


def test_shapes_are_padded():
    assert default_blocked((24, 100), 4).out_sizes == {"dim0": 32, "dim1": 128}
    assert mma_accumulator((2, 2), (48, 24)).out_sizes == {"dim0": 64, "dim1": 32}


def test_refusals():
    rows = LinearLayout.identity(4, "register", "dim0")
    for wrong, message in (
        (lambda: blocked((1, 1), (4, 8), (1, 1), (0, 0), (8, 8)), "no order"),
        (lambda: blocked((1, 3), (4, 8), (1, 1), (1, 0), (8, 8)), "power of two"),
        (lambda: fit(rows, (4, 4), (1, 0)), "does not fit"),
        (lambda: wgmma_accumulator((2, 2), 64, (64, 64)), "multiple of 4 warps"),
        (lambda: wgmma_accumulator((4, 1), 512, (64, 512)), "8 to 256"),
        (lambda: mma_operand_a((1, 1), (16, 16), 64), "not 64"),
        (lambda: mma_operand_b((1, 1), (16, 16), 8, 2), "too small"),
        (lambda: default_blocked((0, 4), 4), "no elements"),
    ):
        with pytest.raises(LayoutError, match=message):
            wrong()
