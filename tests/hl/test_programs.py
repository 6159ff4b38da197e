"""What programs do around and between their operations: numbers read on the host, sizes that configurations choose,
tiles of one lane, loops that are left, merged dimensions, parts of tiles that are assigned."""

from __future__ import annotations

import random

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **({"atol": 1e-4, "rtol": 1e-4} | tolerance))


# --- the host ------------------------------------------------------------------------------------------------


@hl.kernel
def first_rows(x, counts):
    n = counts[-1].item()
    m = int(counts.min())
    out = torch.zeros([n * x.size(1)])
    for rows, columns in hl.tile([n, x.size(1)]):
        out[(rows.index[:, None] * x.size(1) + columns.index[None, :])] = x[rows, columns] + m
    return out.reshape(n, x.size(1))


@pytest.mark.parametrize("n", [3, 7])
def test_a_number_that_the_host_reads_from_a_tensor_is_an_argument(n):
    x = torch.randn(9, 5)
    close(first_rows(x, torch.tensor([4, n])), x[:n] + min(4, n))
    assert len(first_rows._bound) == 1


def test_a_number_read_in_a_loop_of_the_host_is_refused():
    @hl.kernel
    def kernel(x, counts):
        total = 0
        for at in range(2):
            total += counts[at].item()
        for rows in hl.tile(total):
            x[rows] = 0

    with pytest.raises(exc.HostValueNotAvailable, match=r"in a loop or a function of the host[\s\S]*as an argument"):
        kernel(torch.randn(9), torch.tensor([2, 3]))


@hl.kernel
def in_parts(x):
    parts = hl.register_tunable("parts", hl.autotuner.PowerOfTwoFragment(2, 16, 4))
    block = hl.next_power_of_2(hl.cdiv(x.size(1), parts))
    sums = torch.zeros(x.size(0), parts)
    for rows, columns in hl.tile(x.shape, block_size=[None, block]):
        sums[rows, columns.id] = x[rows, columns].sum(-1)
    return sums.sum(1)


@pytest.mark.parametrize("parts", [2, 8, 16])
def test_a_block_size_computed_from_a_choice_of_the_configuration(parts):
    x = torch.randn(6, 50)
    close(in_parts.bind((x,)).compile_config(hl.Config(block_sizes=[4], parts=parts))(x), x.sum(1))


def test_an_assertion_on_block_sizes_is_the_launchers():
    @hl.kernel
    def kernel(x):
        block = hl.register_block_size(x.size(0))
        assert x.size(0) % block == 0, "blocks must fit"
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0), block_size=block):
            out[rows] = x[rows] * 2
        return out

    x = torch.randn(24)
    bound = kernel.bind((x,))
    close(bound.compile_config(hl.Config(block_sizes=[8]))(x), x * 2)
    with pytest.raises(AssertionError, match="blocks must fit"):
        bound.compile_config(hl.Config(block_sizes=[16]))(x)


@hl.kernel(static_shapes=False)
def unless_empty(x, flag):
    if x.size(0) == 0:
        return x.clone()
    if flag.sum().item() == 0:
        return x * 3
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] + 1
    return out


def test_the_host_may_return_before_the_loops():
    x = torch.randn(5)
    close(unless_empty(x, torch.ones(2, dtype=torch.int32)), x + 1)
    close(unless_empty(x, torch.zeros(2, dtype=torch.int32)), x * 3)
    assert unless_empty(x[:0], torch.ones(2, dtype=torch.int32)).shape == (0,)


@hl.kernel(static_shapes=False)
def in_blocks_of(x, size: int):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0), block_size=size):
        out[rows] = x[rows] - x[rows].mean()
    return out


def test_an_argument_as_block_size_becomes_a_constant():
    x = torch.randn(12)
    for size in (4, 6):
        parts = x.reshape(-1, size)
        close(in_blocks_of(x, size), (parts - parts.mean(1, keepdim=True)).reshape(-1))


# --- loops -----------------------------------------------------------------------------------------------------


@hl.kernel
def one_after_the_other(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(x.size(1)):
            value = x[rows, columns] * 2
            total += value.sum(-1)
        for columns in hl.tile(x.size(1)):
            value = x[rows, columns] * 3
            out[rows, columns] = value + total[:, None]
    return out


def test_two_inner_loops_may_use_the_same_names():
    x = torch.randn(7, 9)
    close(one_after_the_other(x), x * 3 + 2 * x.sum(1, keepdim=True))


def test_a_variable_of_the_passes_alone_has_no_value_behind_them():
    @hl.kernel
    def kernel(x):
        for rows in hl.tile(x.size(0)):
            for columns in hl.tile(x.size(1)):
                last = x[rows, columns].sum(-1)
            x[rows, 0] = last

    with pytest.raises(exc.UndefinedVariable, match="assign it before the loop too"):
        kernel(torch.randn(4, 4))


@hl.kernel
def until_marked(x, marks):
    out = torch.zeros(x.size(0))
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            if marks[column] < 0:
                continue
            if marks[column] > 0:
                break
            total = total + x[rows, column]
        out[rows] = total
    return out


def test_break_on_a_value_leaves_an_inner_loop():
    x, marks = torch.randn(9, 6), torch.tensor([0, -1, 0, 1, 0, 1])
    close(until_marked(x, marks), x[:, 0] + x[:, 2])
    close(until_marked(x, marks * 0), x.sum(1))


@hl.kernel
def doublings(x, limits):
    out = torch.zeros_like(x)
    for row in hl.grid(x.size(0)):
        value = x[row]
        steps = 0
        while value < 100:
            if value > limits[row]:
                break
            value = value * 2
            steps += 1
        out[row] = steps
    return out


def test_break_leaves_a_while():
    x, limits = torch.tensor([1.0, 1.0, 3.0]), torch.tensor([7.0, 1000.0, 2.0])
    assert doublings(x, limits).tolist() == [3.0, 7.0, 0.0]


@hl.kernel
def first_positive(x):
    out = torch.full([x.size(0)], -1.0)
    for row in hl.grid(x.size(0)):
        found = -1.0
        for column in range(3):
            if x[row, column] > 0:
                found = x[row, column]
                break
        out[row] = found
    return out


def test_break_on_a_value_leaves_an_unrolled_loop():
    x = torch.tensor([[-1.0, 2.0, 3.0], [-1.0, -1.0, -1.0], [5.0, -1.0, 6.0]])
    assert first_positive(x).tolist() == [2.0, -1.0, 5.0]


@hl.kernel
def squares_below(x, n: hl.constexpr):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        total, k = hl.zeros([rows]), 0
        while True:
            k += 1
            if k == 3:
                continue
            if k * k > n:
                break
            total += k * k
        for k in (5, 6):
            if k > n:
                break
        else:
            total += 1000
        out[rows] = x[rows] + total
    return out


def test_unrolled_loops_with_else_and_break():
    x = torch.randn(4)
    close(squares_below(x, 30), x + 1 + 4 + 16 + 25 + 1000)
    close(squares_below(x, 5), x + 1 + 4)


def test_nested_loops_of_one_registered_block_size():
    @hl.kernel
    def kernel(x):
        block = hl.register_block_size(32)
        for rows in hl.tile(x.size(0), block_size=block):
            for columns in hl.tile(x.size(1), block_size=block):
                x[rows, columns] = 0

    with pytest.raises(exc.NestedDeviceLoopsConflict, match="once for each of the loops"):
        kernel(torch.randn(40, 40))


# --- tiles of one lane ------------------------------------------------------------------------------------------


@hl.kernel(config=hl.Config(block_sizes=[8]))
def of_one_batch(x, weights, marks):
    out = torch.empty_like(x)
    draws = torch.empty_like(x)
    for batch, rows in hl.tile(x.shape, block_size=[1, None]):
        one = x[batch, rows]
        if marks[batch] > 0:
            row = one.squeeze(0) * weights[rows]
            out[batch, rows] = row[None, :] + batch.block_size
        else:
            out[batch, rows] = one
        draws[batch, rows] = hl.rand([batch, rows], 3)
    return out, draws


def test_a_tile_of_one_lane_broadcasts_and_can_be_squeezed():
    x, weights, marks = torch.randn(4, 20), torch.randn(20), torch.tensor([1, 0, 1, 0])
    found, draws = of_one_batch(x, weights, marks)
    close(found, torch.where(marks[:, None] > 0, x * weights + 1, x))
    assert draws.unique().numel() == 80


# --- values ------------------------------------------------------------------------------------------------------


@hl.kernel
def shares(x, first, last):
    out = torch.zeros_like(x)
    for row in hl.grid(x.size(0)):
        count = last[row] - first[row]  # samples of the two are equal
        for column in hl.tile(first[row], last[row]):
            out[row, column] = x[row, column] + column.index % count + 100 // count
    return out


def test_an_integer_divisor_may_be_zero_in_the_samples():
    x, first, last = torch.randn(3, 8), torch.tensor([0, 2, 3]), torch.tensor([4, 8, 3])
    expected = torch.zeros(3, 8)
    for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        if b > a:
            expected[row, a:b] = x[row, a:b] + torch.arange(a, b) % (b - a) + 100 // (b - a)
    close(shares(x, first, last), expected)


@hl.kernel
def made_like_the_host(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        start = x.new_zeros([x.size(1)]) + x.new_full([], 2.0)
        out[rows, :] = x[rows, :] + start
    return out


def test_tiles_of_the_type_of_a_host_tensor():
    x = torch.randn(5, 6, dtype=torch.float64)
    close(made_like_the_host(x), x + 2)


@hl.kernel
def parts_assigned(x, y):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows, :] * 1
        value[:, 0] = 5.0
        value[..., -1] = y[rows]
        value[:, 1:3] = x[rows, 4:6]
        value[:, 3:8:2] += 10
        value[value < -1] = 0
        value[:] = value + 1
        out[rows, :] = value
    return out


def test_parts_of_tiles_are_assigned():
    x, y = torch.randn(11, 8), torch.randn(11)
    expected = x.clone()
    expected[:, 0] = 5.0
    expected[..., -1] = y
    expected[:, 1:3] = x[:, 4:6]
    expected[:, 3:8:2] += 10
    expected[expected < -1] = 0
    close(parts_assigned(x, y), expected + 1)


def test_the_part_of_a_tile_that_is_no_constant():
    @hl.kernel
    def kernel(x):
        for rows in hl.tile(x.size(0)):
            value = x[rows] + 0
            value[0] = 1
            x[rows] = value

    with pytest.raises(exc.UnsupportedOperation, match=r"torch.where\(condition, new, x\)"):
        kernel(torch.randn(40))


# --- merged dimensions -------------------------------------------------------------------------------------------


@hl.kernel(static_shapes=False)
def of_pairs(x, packed):
    out = torch.zeros(x.size(0), packed.size(1))
    block = hl.register_block_size(packed.size(0))
    for rows, columns in hl.tile(out.shape):
        acc = hl.zeros([rows, columns])
        for pair in hl.tile(packed.size(0), block_size=block):
            left = x[rows, pair.begin * 2 : pair.begin * 2 + block * 2]
            right = packed[pair, columns] + 1
            right = torch.stack([right, right * 2], dim=1).reshape(2 * block, columns.block_size)
            acc = hl.dot(left, right, acc=acc)
        out[rows, columns] = acc
    return out


@pytest.mark.parametrize("block", [4, 16])
def test_a_product_over_a_dimension_that_merges_a_cut_tile(block):
    x, packed = torch.randn(9, 30), torch.randn(11, 6)  # x is longer than the pairs that are used
    both = torch.stack([packed + 1, packed * 2 + 2], 1).reshape(22, 6)
    found = of_pairs.bind((x, packed)).compile_config(hl.Config(block_sizes=[block, 16, 8]))(x, packed)
    close(found, x[:, :22] @ both)


@hl.kernel
def by_positions(x, packed):
    m, k = x.size()
    out = torch.empty(m, packed.size(1))
    for rows, columns in hl.tile(out.shape):
        acc = hl.zeros([rows, columns])
        for pair in hl.tile(k // 2):
            both = torch.stack([packed[pair, columns], packed[pair, columns] * 2], 1)
            at = pair.begin * 2 + hl.arange(pair.block_size * 2)
            acc = hl.dot(x[rows, at], both.reshape(pair.block_size * 2, columns.block_size), acc=acc)
        out[rows, columns] = acc
    return out


@pytest.mark.parametrize("block", [1, 8, 11, 16])
def test_positions_of_a_dimension_that_merges_a_cut_tile_end_with_it(block):
    x, packed = torch.randn(9, 22), torch.randn(11, 6)
    found = by_positions.bind((x, packed)).compile_config(hl.Config(block_sizes=[4, 8, block]))(x, packed)
    close(found, x @ torch.stack([packed, packed * 2], 1).reshape(22, 6))


@hl.kernel
def over_merged(x):
    sums, largest = torch.empty(x.size(0)), torch.empty(x.size(0))
    for rows in hl.tile(x.size(0)):
        total, best = hl.zeros([rows]), hl.full([rows], -100.0)
        for a, b in hl.tile([x.size(1), x.size(2)]):
            value = x[rows, a, b].transpose(1, 2).reshape(rows.block_size, -1)
            total += (value + 1).sum(-1)
            best = torch.maximum(best, (value - 3).view(-1, b.block_size, a.block_size).flatten(1).amax(-1))
        sums[rows] = total
        largest[rows] = best
    return sums, largest


def test_reductions_over_merged_tiles():
    x = torch.randn(5, 9, 11)
    sums, largest = over_merged.bind((x,)).compile_config(hl.Config(block_sizes=[4, 4, 8]))(x)
    close(sums, (x + 1).sum((1, 2)))
    close(largest, (x - 3).amax((1, 2)))


@hl.kernel
def over_carried(x):
    out = torch.empty(x.size(0))
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            both = hl.zeros([rows, columns.block_size * 2])
            for again in hl.static_range(2):
                both = torch.cumsum(both + 1, 1) * (again + 1)
            out[rows] = both.sum(1)
    return out


def test_a_search_offers_block_sizes_that_divide_where_a_cut_tile_would_be_refused():
    x = torch.zeros(5, 24)
    bound = over_carried.bind((x,))
    with pytest.raises(exc.UnsupportedOperation, match="a block size that divides the range"):
        bound.to_code(hl.Config(block_sizes=[4, 16]))
    spec, rng = bound.config_spec, random.Random(0)
    default = spec.default_config()
    configs = [default, *spec.neighbors(default), *(spec.random(rng) for _ in range(20))]
    assert {config["block_sizes"][1] for config in configs} == {1, 2, 4, 8}
    for config in configs:
        bound.to_code(config)


@hl.kernel
def lower_medians(x):
    values, places = torch.empty(x.size(0)), torch.empty(x.size(0), dtype=torch.int64)
    for rows in hl.tile(x.size(0)):
        found = x[rows, :].nanmedian(-1)
        values[rows], places[rows] = found.values, found.indices
    return values, places


def test_the_median_of_what_is_a_number():
    x = torch.randn(9, 7)
    x[torch.rand(9, 7) < 0.3] = float("nan")
    expected = x.nanmedian(-1)
    values, places = lower_medians(x)
    close(values, expected.values, equal_nan=True)
    close(places, expected.indices)
