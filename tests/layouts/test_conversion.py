"""Conversion plans, executed thread by thread on a simulated block."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layouts.simulator import run, tile_in
from tests.layouts.strategies import covering, invertible
from tilewright.base.errors import UnsupportedError
from tilewright.layouts import f2
from tilewright.layouts.access import plan_access
from tilewright.layouts.conversion import is_free, plan_conversion
from tilewright.layouts.distributed import (
    default_blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    over_blocks,
    sliced,
    wgmma_accumulator,
    wgmma_operand_a,
)
from tilewright.layouts.exchange import SharedPlan, plan_shared, swizzle
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shuffle import WarpPlan, plan_warp


def check(source, destination, bits, **options):
    """Plan, execute and compare; gives the plan."""
    plan = plan_conversion(source, destination, bits, **options)
    np.testing.assert_array_equal(run(plan, tile_in(source)), tile_in(destination))
    return plan


def named():
    """Layouts of a (64, 32) tile over 4 warps that the compiler uses."""
    shape, warps = (64, 32), (2, 2)
    return {
        "rows": default_blocked(shape, 4, vector=4),
        "columns": default_blocked(shape, 4, (0, 1), vector=8),
        "scalar": default_blocked(shape, 4),
        "accumulator": mma_accumulator(warps, shape),
        "wide accumulator": mma_accumulator(warps, shape, (32, 16)),
        "a16": mma_operand_a(warps, shape, 16),
        "a8": mma_operand_a(warps, shape, 8),
        "b16": mma_operand_b(warps, shape, 16),
        "b32": mma_operand_b(warps, shape, 32),
        "wgmma": wgmma_accumulator((4, 1), 32, shape),
        "wgmma a": wgmma_operand_a((4, 1), shape, 16),
        "slice": sliced(default_blocked((64, 32, 4), 4, vector=2), 2),
    }


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_named_layouts_convert(bits):
    kinds = set()
    layouts = list(named().items())[:: 1 if bits in (16, 32) else 3]
    for (first, source), (second, destination) in itertools.product(layouts, repeat=2):
        plan = check(source, destination, bits, store_matrix=True)
        kinds.add(plan.kind)
        if first == second:
            assert plan.registers == plan.copies
        if isinstance(plan, SharedPlan):
            assert plan.store.conflicts == 0 == plan.load.conflicts, (first, second)
    assert kinds >= {"register", "shared"}


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 10), st.sampled_from([8, 16, 32, 64]), st.booleans())
def test_any_two_layouts_convert(rng, mixing, bits, matrix):
    shape = rng.choice([(3, 3), (2, 5), (4, 4), (5, 3)])
    pair = []
    warps = rng.randrange(3)
    for _ in range(2):
        registers = max(0, sum(shape) - 5 - warps) + rng.randrange(2)
        pair.append(covering(rng, {"register": registers, "lane": 5, "warp": warps, "block": 0}, shape, mixing))
    plan = check(*pair, bits, load_matrix=matrix, store_matrix=matrix)
    if isinstance(plan, SharedPlan) and not matrix:  # a matrix instruction may be worth a conflict
        assert plan.store.conflicts == 0 == plan.load.conflicts


def test_halves_of_a_word_do_not_conflict():
    """The reader has 16-bit elements one by one; the writer's pairs make two of them share a word."""
    outs = (("dim0", 5), ("dim1", 3))
    ins = [(("register", n), ("lane", 5), ("warp", 0), ("block", 0)) for n in (4, 3)]
    source = LinearLayout(ins[0], outs, (4, 74, 33, 16, 32, 96, 194, 14, 40))
    destination = LinearLayout(ins[1], outs, (9, 144, 140, 2, 8, 237, 253, 208))
    plan = plan_shared(source, destination, 16, load_matrix=False)
    assert plan.store.conflicts == plan.load.conflicts == 0
    np.testing.assert_array_equal(run(plan, tile_in(source)), tile_in(destination))


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 12), st.sampled_from([8, 16, 32, 64]))
def test_shuffles_serve_every_conversion_inside_a_warp(rng, mixing, bits):
    """Without copies there is always a plan, and no plan could need fewer words."""
    registers, warps = rng.randrange(4), rng.randrange(2)
    widths = {"register": registers, "lane": 5, "warp": warps, "block": 0}
    shape = (registers + 2, 3 + warps)
    source = covering(rng, widths, shape, mixing)
    inner = invertible(rng, registers + 5, mixing)
    moved = [f2.multiply(source.columns[: registers + 5], column) for column in inner]
    # Warps keep their elements, in other registers and lanes.
    outer = [column ^ f2.multiply(moved, rng.randrange(1 << registers + 5)) for column in source.columns[-warps:]]
    destination = LinearLayout(source.ins, source.outs, (*moved, *(outer if warps else [])))
    plan = plan_warp(source, destination, bits)
    assert plan is not None
    held, wanted = tile_in(source), tile_in(destination)
    np.testing.assert_array_equal(run(plan, held), wanted)
    # Every element that is not in its lane must be shuffled there, however the rounds are arranged.
    most = max(
        len(set(wanted[:, lane, warp, 0]) - set(held[:, lane, warp, 0]))
        for lane, warp in itertools.product(range(32), range(1 << warps))
    )
    if warps == 0:
        words = (
            plan.shuffles * 32 // bits
            if bits >= 32
            else sum(len(move.moves) * len(plan.source_words[0]) for move in plan.rounds if move.shuffled)
        )
        assert words == most


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 8))
def test_warp_plans_with_copies_are_right_if_given(rng, mixing):
    shape = (2, 3)
    widths = {"register": 1, "lane": 5, "warp": 1, "block": 0}
    source, destination = (covering(rng, widths, shape, mixing) for _ in range(2))
    plan = plan_warp(source, destination, 16)
    if plan is not None:
        np.testing.assert_array_equal(run(plan, tile_in(source)), tile_in(destination))


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(0, 8), st.sampled_from([8, 16, 32]))
def test_slices_bound_the_buffer(rng, mixing, bits):
    """Registers in common are exchanged a few at a time, also if other registers are sums with them."""
    pair = []
    for _ in range(2):
        layout = covering(rng, {"register": 2, "lane": 5, "warp": 1, "block": 0}, (4, 4), mixing)
        columns = list((layout * LinearLayout.identity(4, "register", "dim0")).columns)
        for i in range(2):
            columns[i] ^= rng.choice([0, columns[2], columns[3]])
        pair.append(LinearLayout((("register", 4), *layout.ins[1:]), (("dim0", 6), ("dim1", 4)), tuple(columns)))
    source, destination = pair
    whole = plan_shared(source, destination, bits)
    assert len(whole.slices) == 1 and whole.scratch_bytes == 1024 * bits // 8
    for parts in (2, 4):
        plan = plan_shared(source, destination, bits, whole.scratch_bytes // parts)
        np.testing.assert_array_equal(run(plan, tile_in(source)), tile_in(destination))
        assert len(plan.slices) <= parts and plan.scratch_bytes == whole.scratch_bytes // len(plan.slices)


def test_epilogue_in_slices():
    """An accumulator of 128 x 256 f32 leaves in vectors of 16 bytes, shorter if the buffer is tiny."""
    accumulator, rows = mma_accumulator((2, 2), (128, 256)), default_blocked((128, 256), 4, vector=4)
    for limit, slices, vector in ((None, 1, 128), (32768, 4, 128), (16384, 8, 64)):
        plan = check(accumulator, rows, 32, scratch_limit=limit)
        assert (len(plan.slices), plan.store.vector_bits, plan.load.vector_bits) == (slices, vector, vector)
        assert plan.scratch_bytes == limit or limit is None
        assert plan.load.conflicts == plan.store.conflicts == 0


def test_accumulator_is_operand_without_a_move():
    """The chained product of attention: D of one mma is A of the next."""
    for warps, shape in (((4, 1), (64, 64)), ((8, 1), (128, 32))):
        assert is_free(mma_accumulator(warps, shape), mma_operand_a(warps, shape, 16))
        assert is_free(wgmma_accumulator(warps, shape[1], shape), wgmma_operand_a(warps, shape, 16))
    assert not is_free(mma_accumulator((4, 1), (64, 64)), mma_operand_a((4, 1), (64, 64), 8))


def test_operands_load_by_matrix_instructions():
    """From a coalesced f16 tile: A by ldmatrix, B (rows of n) by ldmatrix.trans, four matrices each, no conflict."""
    shape = (64, 64)
    tile = default_blocked(shape, 4, vector=8)
    for operand, kind in (
        (mma_operand_a((2, 2), shape, 16), "matrix"),
        (mma_operand_b((2, 2), shape, 16), "matrix_transposed"),
    ):
        plan = check(tile, operand, 16)
        assert (plan.store.kind, plan.store.vector_bits, plan.store.conflicts) == ("vector", 128, 0)
        assert (plan.load.kind, plan.load.vector_bits, plan.load.conflicts) == (kind, 128, 0)
        buffer = swizzle(tile, operand, 16)  # the same, as a buffer that a pipeline keeps
        assert plan_access(operand.invert_and_compose(buffer), 16, matrix=True).conflicts == 0
        assert plan_access(tile.invert_and_compose(buffer), 16).vector_bits == 128
        # Without matrix instructions the answer is still right, and still free of conflicts.
        plain = check(tile, operand, 16, load_matrix=False)
        assert (plain.load.kind, plain.store.conflicts, plain.load.conflicts) == ("vector", 0, 0)


def test_epilogue_of_f16_accumulators():
    plan = check(mma_accumulator((2, 2), (64, 64)), default_blocked((64, 64), 4, vector=8), 16, store_matrix=True)
    assert plan.store.vector_bits == plan.load.vector_bits == 128
    assert plan.store.conflicts == plan.load.conflicts == 0


def line(**bases):
    """A layout of one dim over one warp, from the strides of its bits."""
    groups = {dim: [(stride,) for stride in bases.get(dim, ())] for dim in ("register", "lane", "warp", "block")}
    return LinearLayout.from_bases(groups, ["dim0"])


def test_swapping_a_register_and_a_lane_bit():
    """Half of the elements stay: one butterfly for two registers, and a select before and after."""
    source, destination = line(register=[1], lane=[2, 4, 8, 16, 32]), line(register=[2], lane=[1, 4, 8, 16, 32])
    plan = check(source, destination, 32)
    assert isinstance(plan, WarpPlan) and plan.butterfly and plan.shuffles == 1
    assert [swap.mask for swap in (*plan.before, *plan.after)] == [1, 1]
    assert check(source, destination, 64).shuffles == 2
    with_more = [
        line(register=[*a.bases()["register"][0], 64, 128], lane=[b[0] for b in a.bases()["lane"]])
        for a in (source, destination)
    ]
    plan = plan_warp(*with_more, 8)
    assert plan.shuffles == 1 and len(plan.source_words[0]) == 4  # four bytes travel as one word
    np.testing.assert_array_equal(run(plan, tile_in(with_more[0])), tile_in(with_more[1]))


def test_permuting_lanes():
    """One shuffle from a computed lane per register; the registers need no select."""
    plan = check(line(register=[32], lane=[1, 2, 4, 8, 16]), line(register=[32], lane=[2, 4, 8, 16, 1]), 32)
    assert isinstance(plan, WarpPlan) and not plan.butterfly
    assert (plan.shuffles, plan.before, plan.after) == (2, (), ())


def test_copies_are_read_from_the_own_lane():
    """All lanes hold all elements; each picks its own by selects, and nothing is shuffled."""
    plan = check(line(register=[1, 2], lane=[0] * 5), line(lane=[1, 2, 0, 0, 0]), 32)
    assert (plan.kind, plan.shuffles, plan.registers) == ("register", 0, None)
    back = check(line(lane=[1, 2, 0, 0, 0]), line(register=[1, 2], lane=[0] * 5), 32)
    assert (back.kind, back.shuffles) == ("shuffle", 3)  # of four elements a lane holds one already


def test_registers_in_another_order():
    plan = check(line(register=[1, 2, 0], lane=[4, 8, 16, 32, 64]), line(register=[2, 1], lane=[4, 8, 16, 32, 64]), 16)
    assert plan.registers == (0, 2, 1, 3)
    plan = check(line(register=[1], lane=[4, 8, 16, 32, 2]), line(register=[1, 1, 0], lane=[4, 8, 16, 32, 2]), 16)
    assert plan.registers == (0, 1, 1, 0) * 2


def test_barriers():
    """Warps that exchange nothing wait for their own lanes only, unless copies make them share the buffer."""
    reversed_lanes = [16, 8, 4, 2, 1]
    source = line(register=[32, 64, 128], lane=[1, 2, 4, 8, 16], warp=[256])
    destination = line(register=[1, 2, 4], lane=[128, 64, 32, 16, 8], warp=[256])
    assert plan_shared(source, destination, 32).barrier == "warp"
    both = [line(register=[32, 64, 128], lane=lanes, warp=[0]) for lanes in ([1, 2, 4, 8, 16], reversed_lanes)]
    plan = plan_shared(*both, 32)
    assert (plan.barrier, plan.idle_warps) == ("block", 1)
    for pair in ((source, destination), both):
        np.testing.assert_array_equal(run(plan_shared(*pair, 32), tile_in(pair[0])), tile_in(pair[1]))


def test_blocks_of_a_cluster():
    share = (32, 32)
    rows, columns = (over_blocks(default_blocked(share, 2, order), (2, 1), (1, 0)) for order in ((1, 0), (0, 1)))
    assert check(rows, columns, 32).kind == "shared"
    # Blocks may start in other places of their shares.
    turned = LinearLayout(columns.ins, columns.outs, (*columns.columns[:-1], columns.columns[-1] ^ columns.columns[3]))
    assert turned != columns and check(rows, turned, 32).kind == "shared"
    pair = []
    for layout in (default_blocked(share, 2, vector=4), mma_operand_a((2, 1), share, 16)):
        layout = over_blocks(layout, (2, 1), (1, 0))
        shifted = layout.columns[-1] ^ layout(register=1)["dim1"] << 6
        pair.append(LinearLayout(layout.ins, layout.outs, (*layout.columns[:-1], shifted)))
    plan = check(*pair, 32)  # where a block starts does not narrow the vectors
    assert plan.store.vector_bits == 128
    other = over_blocks(default_blocked((64, 16), 2), (1, 2), (1, 0))
    with pytest.raises(UnsupportedError, match="cluster"):
        plan_conversion(rows, other, 32)


def test_refusals():
    rows = default_blocked((32, 32), 4)
    with pytest.raises(LayoutError, match="different tiles"):
        plan_conversion(rows, default_blocked((32, 64), 4), 32)
    with pytest.raises(LayoutError, match="different tiles"):
        plan_conversion(rows, default_blocked((32, 32), 8), 32)
    partial = LinearLayout.from_bases(
        {"register": [], "lane": [(1, 0)] * 5, "warp": [(0, 0)] * 2}, {"dim0": 32, "dim1": 32}
    )
    with pytest.raises(LayoutError, match="cover"):
        plan_conversion(rows, partial, 32)
