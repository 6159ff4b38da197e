"""What lies at the ends: subscripts that leave a tensor, blocks of which a tile has fewer lanes, extents of nothing."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl

MODES = (None, hl.RefMode.TILED)
BIG = torch.arange(100.0) + 1


def run(kernel, mode, *args, blocks=None):
    bound = kernel.bind(args)
    bound.set_config({"block_sizes": blocks} if blocks else bound.default_config())
    return bound(*args) if mode is None else bound.run_ref(*args, mode=mode)


def beyond(values, index):
    """`values[index]`, 0 where that is outside; a tensor of one element is that element everywhere."""
    if len(values) == 1:
        return values.expand(len(index))
    inside = (index >= 0) & (index < len(values))
    return torch.where(inside, values[index.clamp(0, len(values) - 1)], 0.0)


# --- subscripts that are no tile -------------------------------------------------------------------------


@hl.kernel
def by_indices(n, x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = n[rows.index] + 1000 * n[rows.index * 2 - 3]
    return out


@hl.kernel
def by_first_index(n, x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0), block_size=2):
        out[rows] = n[rows.begin] + 1000 * n[rows.begin + 2] + 0 * x[rows]
    return out


@hl.kernel
def by_numbers(n, x):
    out = torch.empty_like(x)
    for row in hl.grid(x.size(0)):
        out[row] = n[row] + 1000 * n[row - 1] + 1e6 * n[row + 1] + n[row // 2]
    return out


@hl.kernel
def by_data(n, x):
    out = torch.empty_like(x)
    for row in hl.grid(x.size(0)):
        out[row] = n[x[row].to(torch.int64)]
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extent", [1, 2, 5, 9])
def test_what_is_beyond_a_tensor_is_not_read(extent, mode):
    n, x, at = BIG[10 : 10 + extent], torch.arange(6.0), torch.arange(6)
    pair = at // 2 * 2
    expected = beyond(n, at) + 1000 * beyond(n, at * 2 - 3)
    torch.testing.assert_close(run(by_indices, mode, n, x), expected)
    torch.testing.assert_close(run(by_first_index, mode, n, x), beyond(n, pair) + 1000 * beyond(n, pair + 2))
    around = 1000 * beyond(n, at - 1) + 1e6 * beyond(n, at + 1) + beyond(n, at // 2)
    torch.testing.assert_close(run(by_numbers, mode, n, x), beyond(n, at) + around)
    torch.testing.assert_close(run(by_data, mode, n, x - 1), beyond(n, at - 1))


@hl.kernel
def marked(n, x, k):
    for rows in hl.tile(x.size(0)):
        n[rows.index] = 1.0
        n[rows.begin + 3] = 2.0
        n[k] = 3.0
        hl.atomic_add(n, [rows.index + 1], x[rows])


@pytest.mark.parametrize("k", [0, 2, -1, 7, -9])
@pytest.mark.parametrize("extent", [1, 3, 6])
def test_what_is_beyond_a_tensor_is_not_written(extent, k):
    memory = torch.zeros(30)
    marked(memory[10 : 10 + extent], torch.ones(6), k)
    expected = torch.zeros(30)
    for at in range(min(6, extent)):
        expected[10 + at] = 1
    place = k + extent if k < 0 else k
    for at, value in ((3, 2.0), (place, 3.0)):
        if 0 <= at < extent:
            expected[10 + at] = value
    expected[11 : 10 + min(7, extent)] += 1
    torch.testing.assert_close(memory, expected)


@pytest.mark.parametrize("k", [0, 3, -1, -4])
def test_a_number_of_the_host_counts_from_the_end_where_it_is_negative(k):
    @hl.kernel
    def kernel(n, x, k):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows] = x[rows] + n[k]
        return out

    for mode in MODES:
        torch.testing.assert_close(run(kernel, mode, BIG[:4], torch.zeros(5), k), BIG[:4][k].expand(5))


def test_what_is_proved_to_be_inside_has_no_mask():
    @hl.kernel
    def kernel(x, flat, table, small):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            for columns in hl.tile(x.size(1)):
                first = x[i, columns] + x[i // 2, columns] + x[(i + 1) % x.size(0), columns]
                second = flat[i * x.size(1) + columns.index] + table[columns.index + 1] + table[columns.begin]
                out[i, columns] = first + second + small[i % 4] + small[columns.index & 3]
        return out

    args = torch.randn(6, 64), torch.randn(384), torch.randn(65), torch.randn(4)
    bound = kernel.bind(args)
    assert "mask" not in bound.to_code(hl.Config(block_sizes=[16]))
    dynamic = hl.kernel(kernel.fn, static_shapes=False)
    torch.testing.assert_close(dynamic(*args), kernel(*args))


# --- blocks of which a tile has fewer lanes ---------------------------------------------------------------


@hl.kernel
def sums(x):
    out = torch.empty([x.size(0)])
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc, total = hl.zeros([rows, block]), hl.zeros([rows])
        for columns in hl.tile(x.size(1), block_size=block):
            acc = acc + x[rows, columns]
            total = acc.sum(-1)
        out[rows] = total + acc.sum(-1)
    return out


@hl.kernel
def largest(x):
    out = torch.empty([x.size(0)])
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        state = {"most": hl.full([rows, block], float("-inf"))}
        for columns in hl.tile(x.size(1), block_size=block):
            state["most"] = torch.maximum(state["most"], x[rows, columns])
        again = hl.full([rows], float("-inf"))
        for columns in hl.tile(min(40, x.size(1)), block_size=block):
            again = torch.maximum(again, state["most"].amax(1)) + 0 * x[rows, columns].sum(1)
        out[rows] = again
    return out


@hl.kernel
def exponentials(x):
    out = torch.empty([x.size(0)])
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc = hl.zeros([rows, block])
        for columns in hl.tile(x.size(1), block_size=block):
            acc += torch.exp(x[rows, columns])
            if x.size(0) > 3:
                acc.mul_(1.0)
        out[rows] = acc.mean(-1) * block
    return out


@hl.kernel
def places(x):
    out = torch.empty([x.size(0)])
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        best, place = hl.full([rows, block], -99.0), hl.zeros([rows, block], dtype=torch.int32)
        for columns in hl.tile(x.size(1), block_size=block):
            value = x[rows, columns]
            place = torch.where(value > best, columns.index[None, :], place)
            best = torch.where(value > best, value, best)
        most = best.amax(-1)
        out[rows] = torch.where(best == most[:, None], place, 10**6).amin(-1).float()
    return out


@hl.kernel
def lanes_of_a_tile(x):
    out = torch.empty([x.size(0)])
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        weights, total = hl.full([rows, block], 2.0), hl.zeros([rows])
        for columns in hl.tile(x.size(1), block_size=block):
            total = total + (torch.exp(x[rows, columns]) * weights).sum(-1) + hl.full([rows, columns], 1.0).sum(-1)
        out[rows] = total
    return out


ACCUMULATED = {
    sums: lambda x: 2 * x.sum(1),
    largest: lambda x: x.amax(1),
    exponentials: lambda x: x.exp().sum(1),
    places: lambda x: x.argmax(1).float(),
    lanes_of_a_tile: lambda x: 2 * x.exp().sum(1) + x.size(1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", ACCUMULATED, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("block", [7, 16, 25, 64, 128])
def test_accumulators_by_lanes(kernel, block, mode):
    x = torch.randn(5, 100, generator=torch.Generator().manual_seed(block)) - 3
    found = run(kernel, mode, x, blocks=[block, 4])
    torch.testing.assert_close(found, ACCUMULATED[kernel](x), atol=1e-3, rtol=1e-4)


# --- nothing ----------------------------------------------------------------------------------------------


@hl.kernel
def constants(x):
    for i, j in hl.tile(x.shape):
        x[i, j] = 1.5
    for i in hl.tile(x.size(0)):
        x[i, 0] = 3
        x[i, -1:] = 2
    return x


def test_kernels_that_store_only_constants():
    x = constants(torch.zeros(3, 4))
    assert torch.equal(x, torch.tensor([[3, 1.5, 1.5, 2]]).expand(3, 4))


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "logsumexp", "any", "all", "var", "norm"])
def test_reductions_over_nothing(name, static):
    @hl.kernel(static_shapes=static)
    def kernel(x, reduce):
        out = torch.empty([x.size(0)])
        for rows in hl.tile(x.size(0)):
            out[rows] = reduce(x[rows, :]).float()
        return out

    def reduce(x):
        return x.norm(dim=1) if name == "norm" else getattr(x, name)(1)

    for x in (torch.zeros(5, 0), torch.rand(5, 3)):
        torch.testing.assert_close(kernel(x, reduce), reduce(x).float(), equal_nan=True)


def test_tiles_of_nothing():
    @hl.kernel
    def kernel(x, y, z):
        out, product = torch.empty_like(x), torch.empty([x.size(0), z.size(1)])
        for rows in hl.tile(x.size(0)):
            state = hl.zeros([rows, 0])
            for columns in hl.tile(y.size(1)):
                state = state + x[rows, :] + y[rows, columns].sum(1)[:, None]
            out[rows, :] = torch.softmax(state * 2, -1)
            joined = torch.cat([x[rows, :], y[rows, :]], 1)
            product[rows, :] = torch.addmm(joined.sum(1)[:, None].expand([rows, z.size(1)]), x[rows, :], z[:, :])
        return out, product

    y = torch.randn(5, 4)
    out, product = kernel(torch.zeros(5, 0), y, torch.zeros(0, 3))
    assert out.shape == (5, 0)
    torch.testing.assert_close(product, y.sum(1)[:, None].expand(5, 3))


# --- sizes and strides that become constants -----------------------------------------------------------------


def test_specialized_sizes_reach_shapes():
    @hl.kernel(static_shapes=False)
    def kernel(x):
        n, d = x.size(0), hl.specialize(x.size(1))
        flat, pairs = x.view(-1, d), x.view(n, d // 2, 2)
        out = torch.empty_like(flat)
        for rows in hl.tile(flat.size(0)):
            out[rows, :] = hl.zeros([rows, d]) + flat[rows, :] + pairs[rows, :, :].sum(-1).sum(-1)[:, None]
        return out

    for shape in ((3, 8), (5, 8), (3, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(kernel(x), x + x.sum(1, keepdim=True))
    assert sum(map(len, kernel._bound.values())) == 2


@pytest.mark.parametrize("constant", [True, False])
def test_strides_are_numbers(constant):
    @hl.kernel(static_shapes=False)
    def kernel(x, constant: hl.constexpr):
        step, other = x.stride(0), x.stride()[1]
        if constant:
            step = hl.specialize(step)
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] + step * 100 + other + x.stride(0)
        return out

    for x in (torch.randn(3, 8), torch.randn(8, 3).t(), torch.randn(3, 20)[:, ::2]):
        torch.testing.assert_close(kernel(x, constant), x + x.stride(0) * 101 + x.stride(1))


def test_specialized_sizes_that_are_asserted_equal():
    @hl.kernel(static_shapes=False)
    def kernel(x, y):
        d = hl.specialize(y.size(1))
        assert x.size(1) == y.size(1)
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] + hl.full([rows, d], 1.0) * y[rows, :]
        return out

    x = torch.randn(4, 8)
    torch.testing.assert_close(kernel(x, x), 2 * x)


SCALES = {"one": 2.0, "two": 3.0}


def test_what_has_vanished_outside_binds_anew(monkeypatch):
    @hl.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows] = x[rows] * (SCALES["one"] if "one" in SCALES else -1.0)
        return out

    x = torch.randn(4)
    assert torch.equal(kernel(x), x * 2)
    monkeypatch.delitem(SCALES, "one")
    monkeypatch.setitem(SCALES, "other", 2.0)  # as many as before
    assert torch.equal(kernel(x), -x)


def test_products_of_float64_are_summed_so():
    @hl.kernel
    def kernel(x, y):
        out = torch.empty([x.size(0), x.size(1), y.size(2)])
        for b, i, j in hl.tile(out.shape):
            acc = hl.zeros([b, i, j])
            for k in hl.tile(x.size(2)):
                acc = torch.baddbmm(acc, x[b, i, k], y[b, k, j])
            out[b, i, j] = acc
        return out

    x, y = torch.randn(2, 5, 40, dtype=torch.float64), torch.randn(2, 40, 7, dtype=torch.float64)
    torch.testing.assert_close(kernel(x, y), (x @ y).float())


def test_a_comparing_swap_stays_inside():
    @hl.kernel(config=hl.Config(block_sizes=[4]))
    def kernel(marks, x):
        for rows in hl.tile(x.size(0)):
            x[rows] = hl.atomic_cas(marks, [rows], 0, 1)
        for row in hl.grid(x.size(0)):
            hl.atomic_cas(marks, [row + 2], 1, 5)

    memory, x = torch.zeros(20, dtype=torch.int32), torch.full((6,), 9, dtype=torch.int32)
    kernel(memory[:6], x)
    assert memory.tolist() == [1, 1, 5, 5, 5, 5, *[0] * 14] and x.tolist() == [0] * 6
