"""Loops, branches and the state that they carry; bounds and sizes that are known late."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc


def close(kernel, expected, *args, atol=1e-4, **config):
    bound = kernel.bind(args)
    if config:
        bound.set_config(hl.Config(**config))
    torch.testing.assert_close(bound(*args), expected, atol=atol, rtol=1e-4)
    return bound


def offsets(lengths):
    return torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(lengths).cumsum(0)])


# --- state ---------------------------------------------------------------------------------------------


@dataclasses.dataclass
class State:
    best: torch.Tensor
    sums: list


def test_state_in_a_dataclass_and_a_list():
    @hl.kernel
    def kernel(x):
        out = torch.empty([2, x.size(0)])
        for rows in hl.tile(x.size(0)):
            state = State(hl.full([rows], float("-inf")), [hl.zeros([rows])])
            for columns in hl.tile(x.size(1)):
                part = x[rows, columns]
                state.best = torch.maximum(state.best, part.amax(-1))
                state.sums[0] += part.sum(-1)
            out[0, rows] = state.best
            out[1, rows] = state.sums[0]
        return out

    x = torch.randn(20, 50)
    close(kernel, torch.stack([x.amax(-1), x.sum(-1)]), x, block_sizes=[8, 16])


def test_values_that_change_places():
    @hl.kernel
    def kernel(x, n):
        out = torch.empty([2, x.size(0)])
        for tile in hl.tile(x.size(0)):
            a, b = x[tile], x[tile] * 10
            for _ in hl.grid(n):
                a, b = b, a
            out[0, tile], out[1, tile] = a, b
        return out

    x = torch.randn(20)
    close(kernel, torch.stack([x * 10, x]), x, 3)
    close(kernel, torch.stack([x, x * 10]), x, 4)


def test_nested_loops_and_a_counter():
    @hl.kernel
    def kernel(x):
        out = torch.empty([x.size(0)])
        for tile in hl.tile(x.size(0)):
            total, count = hl.zeros([tile]), 0
            for i in hl.grid(x.size(1)):
                for j in hl.grid(x.size(2)):
                    total = total + x[tile, i, j] * (j + 1)
                    count += 1
            out[tile] = total / count
        return out

    x = torch.randn(10, 3, 4)
    close(kernel, (x * torch.arange(1, 5)).sum((1, 2)) / 12, x)


def test_an_accumulator_is_one_variable():
    @hl.kernel(config=hl.Config(block_sizes=[16, 16, 16]))
    def kernel(x, y):
        out = torch.empty([x.size(0), y.size(1)])
        for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
            acc = hl.zeros([tile_m, tile_n])
            for tile_k in hl.tile(x.size(1)):
                acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            out[tile_m, tile_n] = acc
        return out

    x, y = torch.randn(32, 50), torch.randn(50, 20)
    code = close(kernel, x @ y, x, y).to_code()
    assert "acc = tl.dot(" in code and ", acc)" in code and "acc_1" not in code


def test_one_loop_variable_for_two_loops():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            total = hl.zeros([rows])
            for columns in hl.tile(x.size(1)):
                total = total + x[rows, columns].sum(-1)
            for columns in hl.tile(x.size(1)):
                out[rows, columns] = x[rows, columns] / total[:, None]
        return out

    x = torch.rand(20, 50)
    close(kernel, x / x.sum(-1, keepdim=True), x, block_sizes=[8, 16, 32])


# --- branches --------------------------------------------------------------------------------------------


def test_if_and_while_on_values():
    @hl.kernel
    def steps(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            value, count = x[i], 0
            while value > 1:
                if value - (value & -2) == 0:
                    value = value - 1
                else:
                    value = value - 2
                count = count + 1
            out[i] = count
        return out

    close(steps, torch.tensor([0, 1, 1, 2, 2]), torch.tensor([1, 2, 3, 4, 5]))


def test_a_branch_without_else_that_stores():
    @hl.kernel
    def kernel(x, flags):
        out = torch.zeros_like(x)
        for i in hl.grid(x.size(0)):
            if flags[i]:
                out[i, :] = x[i, :] * 2
        return out

    x, flags = torch.randn(4, 9), torch.tensor([True, False, True, True])
    close(kernel, x * 2 * flags[:, None], x, flags)


def test_a_variable_of_both_branches():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            if x[i] > 0:
                scale = 2.0
            else:
                scale = 3.0
            out[i] = x[i] * scale
        return out

    x = torch.randn(9)
    close(kernel, torch.where(x > 0, x * 2, x * 3), x)


def test_a_variable_of_one_branch():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            if x[i] > 0:
                scale = 2.0
            out[i] = x[i] * scale
        return out

    with pytest.raises(exc.UndefinedVariable, match="assign it in both branches"):
        kernel(torch.randn(3))


def test_a_condition_of_many_elements():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            if x[tile] > 0:
                out[tile] = x[tile]
        return out

    with pytest.raises(exc.ControlFlowTensorMismatch, match=r"bool\[tile\][\s\S]*torch.where"):
        kernel(torch.randn(3))


def test_break_out_of_the_grid():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            if x[i] > 0:
                break
            out[i] = x[i]
        return out

    with pytest.raises(exc.NotAllowedOnDevice, match=r"break[\s\S]*`continue`"):
        kernel(torch.randn(3))


def test_unrolled_loops_may_break_and_continue():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            total = hl.zeros([tile])
            for factor in (1, 2, 3, 4):
                if factor == 2:
                    continue
                if factor == 4:
                    break
                total = total + x[tile] * factor
            out[tile] = total
        return out

    x = torch.randn(9)
    close(kernel, x * 4, x)


@pytest.mark.parametrize(("block", "change"), [(64, 1), (16, -1)])
def test_a_branch_on_the_block_size_is_decided_by_the_configuration(block, change):
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            value = x[tile]
            if tile.block_size > 32:
                value = value + 1
            else:
                value = value - 1
            out[tile] = value
        return out

    x = torch.randn(100)
    code = close(kernel, x + change, x, block_sizes=[block]).to_code(hl.Config(block_sizes=[block]))
    assert "if " not in code


# --- bounds ----------------------------------------------------------------------------------------------


def test_bounds_that_are_data():
    @hl.kernel
    def kernel(x, ends):
        out = torch.empty([ends.size(0) - 1])
        for i in hl.grid(ends.size(0) - 1):
            total = hl.zeros([])
            for tile in hl.tile(ends[i], ends[i + 1]):
                total = total + x[tile].sum()
            out[i] = total
        return out

    ends = offsets([3, 0, 7, 40, 12])
    x = torch.randn(62)
    close(kernel, torch.stack([x[a:b].sum() for a, b in itertools.pairwise(ends)]), x, ends, block_sizes=[16])


def test_jagged_rows():
    @hl.kernel
    def kernel(x, ends):
        rows, columns = ends.size(0) - 1, x.size(1)
        out = torch.zeros([rows, columns])
        for tile_b in hl.tile(rows):
            starts = ends[tile_b]
            lengths = ends[tile_b.index + 1] - starts
            for tile_n in hl.tile(columns):
                total = hl.zeros([tile_b, tile_n])
                for tile_k in hl.jagged_tile(lengths):
                    total = total + x[starts[:, None] + tile_k.index[None, :], tile_n].sum(dim=1)
                out[tile_b, tile_n] = total
        return out

    ends = offsets([3, 0, 7, 40, 12])
    x = torch.randn(62, 9)
    expected = torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise(ends)])
    close(kernel, expected, x, ends, block_sizes=[4, 8, 16])


def test_tiles_of_tiles_and_atomic_sums():
    @hl.kernel
    def kernel(x, y):
        out = torch.zeros([x.size(0), y.size(1)])
        block = hl.register_block_size(16, 64)
        for tile_m, tile_n, outer in hl.tile([x.size(0), y.size(1), x.size(1)], block_size=[None, None, block]):
            acc = hl.zeros([tile_m, tile_n])
            for inner in hl.tile(outer.begin, outer.end):
                acc = torch.addmm(acc, x[tile_m, inner], y[inner, tile_n])
            hl.atomic_add(out, [tile_m, tile_n], acc)
        return out

    x, y = torch.randn(33, 70), torch.randn(70, 20)
    code = close(kernel, x @ y, x, y, block_sizes=[32, 16, 16, 8]).to_code()
    assert ">= 0" not in code  # bounds that follow from the loops are not checked again


def test_several_loops_run_in_order():
    @hl.kernel
    def kernel(x):
        doubled, out = torch.empty_like(x), torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            doubled[tile] = x[tile] * 2
        hl.barrier()
        n = hl.specialize(x.size(0))
        for tile in hl.tile(n):
            out[tile] = doubled[n - 1 - tile.index] + 1
        return out

    x = torch.randn(100)
    close(kernel, (x * 2).flip(0) + 1, x)


# --- sizes that are arguments ------------------------------------------------------------------------------


@hl.kernel(static_shapes=False)
def dynamic_softmax(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], -1)
    return out


def test_one_binding_for_all_sizes():
    for shape in ((10, 20), (3, 100), (65, 7)):
        x = torch.randn(shape)
        close(dynamic_softmax, torch.softmax(x, -1), x)
    assert [len(bound) for bound in dynamic_softmax._bound.values()] == [1]


def test_sizes_that_the_host_finds_equal_are_one():
    @hl.kernel(static_shapes=False)
    def kernel(x, y):
        assert x.size(1) == y.size(1)
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] + y[rows, :]
        return out

    x = torch.randn(10, 20)
    code = close(kernel, x + x, x, x).to_code()
    assert "y_size_1" not in code
    with pytest.raises(AssertionError):
        kernel(x, torch.randn(10, 21))


def test_a_decision_of_the_host_binds_anew():
    @hl.kernel(static_shapes=False)
    def kernel(x):
        out = torch.empty_like(x)
        factor = 2 if x.size(0) > 50 else 3
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * factor
        return out

    for n, factor in ((10, 3), (100, 2), (20, 3), (200, 2)):
        x = torch.randn(n)
        close(kernel, x * factor, x)
    assert [len(bound) for bound in kernel._bound.values()] == [2]


def test_specialized_sizes_bind_anew():
    @hl.kernel(static_shapes=False)
    def kernel(x, n: hl.constexpr):
        width = hl.specialize(x.size(1))
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] * (width + n)
        return out

    for shape in ((4, 8), (6, 8), (4, 9)):
        x = torch.randn(shape)
        close(kernel, x * (shape[1] + 2), x, 2)
    assert [len(bound) for bound in kernel._bound.values()] == [2]


# --- subscripts ----------------------------------------------------------------------------------------------


def test_offsets_beyond_the_extent_read_zero():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile + 1] + x[tile - 1]
        return out

    x = torch.randn(100)
    padded = torch.nn.functional.pad(x, (1, 1))
    close(kernel, padded[2:] + padded[:-2], x, block_sizes=[32])


@pytest.mark.parametrize("static", [True, False])
def test_a_moved_tile_reads_nothing_beyond_one_row(static):
    """A dimension of one element is there for every lane of a tile; for a moved one it is an extent like others."""

    @hl.kernel(static_shapes=static, config=hl.Config(block_sizes=[2, 4]))
    def kernel(x):
        out = torch.empty_like(x)
        for rows, columns in hl.tile(x.shape):
            out[rows, columns] = x[rows, columns] + x[rows - 1, columns]
        return out

    x = torch.randn(1, 3)
    torch.testing.assert_close(kernel(x), x)
    torch.testing.assert_close(kernel.bind((x,)).run_ref(x, mode=hl.RefMode.TILED), x)


def test_gathered_rows():
    @hl.kernel
    def kernel(table, which):
        out = torch.empty([which.size(0), table.size(1)])
        for rows, columns in hl.tile([which.size(0), table.size(1)]):
            out[rows, columns] = table[which[rows], columns]
        return out

    table, which = torch.randn(30, 12), torch.randint(0, 30, (57,))
    close(kernel, table[which], table, which)


def test_subscripts_of_every_kind():
    @hl.kernel
    def kernel(x):
        n, _, width = x.shape
        out = torch.empty([5, n, width])
        for tile in hl.tile(n):
            out[0, tile, :] = x[tile, -1, :]
            out[1, tile, ...] = x[tile, 1]
            out[2, tile, 0:4] = x[tile, 0, 4:]
            out[2, tile, 4:] = x[tile, 0, :4]
            out[3, tile, :] = (x[tile, None, 2, :] * 2).squeeze(1)
            out[4, tile, ::2] = x[tile, 0, 1::2]
            out[4, tile, 1::2] = x[tile, 0, 0::2]
        return out

    x = torch.randn(10, 3, 8)
    swapped = x[:, 0].view(10, 4, 2).flip(-1).reshape(10, 8)
    expected = torch.stack([x[:, -1], x[:, 1], torch.cat([x[:, 0, 4:], x[:, 0, :4]], 1), x[:, 2] * 2, swapped])
    close(kernel, expected, x, block_sizes=[4])


def test_a_mask_as_subscript_is_refused():
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[x[tile] > 0] = x[tile]
        return out

    with pytest.raises(exc.DataDependentOutputShapeNotSupported, match="extra_mask"):
        kernel(torch.randn(3))


def test_functions_are_called():
    offset = 3

    @hl.kernel
    def kernel(x, epilogue):
        def twice(value):
            return value * 2

        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = epilogue(twice(x[tile])) + offset
        return out

    x = torch.randn(9)
    close(kernel, torch.relu(x * 2) + 3, x, torch.relu)
    close(kernel, torch.exp(x * 2) + 3, x, lambda value: value.exp())


@pytest.mark.parametrize("static", [True, False])
def test_returns_inside_branches_of_the_host(static):
    @hl.kernel(static_shapes=static)
    def kernel(x, wants_both):
        out = torch.empty_like(x)
        if x.size(0) == 0:
            return out
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        if wants_both:
            return out, x
        return out

    x = torch.randn(9)
    close(kernel, x * 2, x, False)
    torch.testing.assert_close(kernel(x, True), (x * 2, x))
    assert kernel(x[:0], True).shape == (0,)
