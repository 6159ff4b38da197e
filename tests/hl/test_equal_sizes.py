"""Dynamic sizes of several tensors that an operation wants equal: found while tracing, a guard of the binding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tilewright import hl

OPTIONS: dict[str, Any] = {"autotune_effort": "none", "static_shapes": False}


@hl.kernel(**OPTIONS)
def layer_norm(x, weight, bias):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        centred = x[tile, :] - x[tile, :].mean(-1)[:, None]
        scale = torch.rsqrt((centred * centred).mean(-1) + 1e-5)
        out[tile, :] = centred * scale[:, None] * weight[:] + bias[:]
    return out


@hl.kernel(**OPTIONS)
def product(x, y):
    out = x.new_empty([x.size(0), y.size(1)])
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        out[tile_m, tile_n] = x[tile_m, :] @ y[:, tile_n]
    return out


@hl.kernel(**OPTIONS)
def larger(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.where(x[tile, :] > y[tile, :], x[tile, :], y[tile, :])
    return out


@hl.kernel(**OPTIONS)
def copied(x, y):
    for tile in hl.tile(x.size(0)):
        y[tile, :] = x[tile, :]
    return y


@hl.kernel(**OPTIONS)
def rotated(x, cos):
    half = x.size(1) // 2
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :half] = x[tile, :half] * cos[tile, :]
        out[tile, half:] = x[tile, half:] * cos[tile, :]
    return out


TABLE = torch.linspace(0, 1, 24)


@hl.kernel(**OPTIONS)
def by_table(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] * TABLE[:]
    return out


@pytest.mark.parametrize("shape", [(3, 10), (17, 33), (4, 1), (0, 5), (8, 40)])
def test_sizes_that_are_equal(shape: tuple[int, int]) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(shape[1]), torch.randn(shape[1])
    normed = torch.nn.functional.layer_norm(x, shape[1:], weight, bias)
    torch.testing.assert_close(layer_norm(x, weight, bias), normed, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(product(x, x.T.contiguous()), x @ x.T, rtol=1e-4, atol=1e-4)
    assert torch.equal(larger(x, -x), torch.maximum(x, -x))
    assert torch.equal(copied(x, torch.zeros(shape)), x)


def test_one_binding_holds_for_all_sizes_that_are_equal_again() -> None:
    bound = layer_norm.bind((torch.randn(6, 20), torch.randn(20), torch.randn(20)))
    assert layer_norm.bind((torch.randn(9, 48), torch.randn(48), torch.randn(48))) is bound


def test_expressions_and_constants_become_constants() -> None:
    for n in (24, 32):
        x, cos = torch.randn(6, n), torch.randn(6, n // 2)
        assert torch.equal(rotated(x, cos), x * torch.cat([cos, cos], 1))
    x = torch.randn(6, 24)
    assert torch.equal(by_table(x), x * TABLE)
    with pytest.raises(hl.exc.TorchOpTracingError, match="must match the size"):
        by_table(torch.randn(6, 25))


def test_sizes_that_differ_are_refused_after_some_that_agreed() -> None:
    layer_norm(torch.randn(3, 10), torch.randn(10), torch.randn(10))
    with pytest.raises(hl.exc.TorchOpTracingError, match=r"x\.size\(1\).*weight\.size\(0\)"):
        layer_norm(torch.randn(3, 10), torch.randn(11), torch.randn(10))
    with pytest.raises(hl.exc.ShapeMismatch, match="the product of"):
        product(torch.randn(3, 10), torch.randn(11, 4))


def test_gradients_of_sizes_that_are_equal() -> None:
    x, weight, bias = (torch.randn(s, requires_grad=True) for s in ((7, 30), (30,), (30,)))
    theirs = torch.nn.functional.layer_norm(x, (30,), weight, bias)
    up, wanted = torch.randn(7, 30), (x, weight, bias)
    pairs = zip(
        torch.autograd.grad(layer_norm(*wanted), wanted, up), torch.autograd.grad(theirs, wanted, up), strict=True
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@hl.kernel(**OPTIONS)
def between(x, low: int, high: int):
    out = x.new_zeros([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, low:high].sum(-1)
    return out


@pytest.mark.parametrize("bounds", [(2, 5), (0, 9), (4, 30), (6, 3), (9, 12), (-3, 9), (1, -2)])
def test_slices_between_numbers_are_those_of_python(bounds: tuple[int, int]) -> None:
    for columns in (9, 40, 9):
        x = torch.randn(5, columns)
        torch.testing.assert_close(between(x, *bounds), x[:, slice(*bounds)].sum(-1))


@hl.kernel(**OPTIONS)
def by_halves(x, y):
    factor = 2.0 if x.size(0) // 2 == 5 else 3.0
    factor = factor * 5 if x.size(0) // 2 == y.size(0) // 3 else factor
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


@pytest.mark.parametrize(("m", "n"), [(10, 15), (11, 9), (12, 18), (12, 3)])
def test_expressions_of_sizes_that_are_equal_are_guards(m: int, n: int) -> None:
    factor = (2.0 if m // 2 == 5 else 3.0) * (5 if m // 2 == n // 3 else 1)
    assert torch.equal(by_halves(torch.ones(m), torch.ones(n)), torch.full([m], factor))


@hl.kernel(static_shapes=False)
def recurrence(a, b):
    out = torch.empty_like(a)
    for rows in hl.tile(a.size(0)):
        pair = a[rows, :], b[rows, :]
        out[rows, :] = hl.associative_scan(lambda one, two: (one[0] * two[0], one[1] * two[0] + two[1]), pair, 1)[1]
    return out


def test_tiles_that_are_combined_together():
    for shape in ((3, 7), (5, 12)):
        a, b = torch.rand(shape), torch.randn(shape)
        expected, state = [], torch.zeros(shape[0])
        for at in range(shape[1]):
            state = a[:, at] * state + b[:, at]
            expected.append(state)
        torch.testing.assert_close(recurrence(a, b), torch.stack(expected, 1))
    with pytest.raises(hl.exc.ShapeMismatch, match="different shapes"):
        recurrence(torch.ones(3, 7), torch.ones(3, 8))


def test_what_needs_a_number_makes_a_size_a_constant():
    """Operations on elements by their places in a row that `:` takes whole."""

    @hl.kernel(static_shapes=False)
    def kernel(x, index):
        out, half = torch.empty(index.shape), torch.empty([x.size(0), x.size(1) // 2])
        flipped = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = torch.gather(x[rows, :], 1, index[rows, :])
            one, two = torch.chunk(x[rows, :], 2, dim=-1)
            half[rows, :] = one * two
            flipped[rows, :] = x[rows, :].flip(1).roll(1, 1)
        return out, half, flipped

    for rows, columns in ((3, 6), (7, 10), (9, 6)):
        x, index = torch.randn(rows, columns), torch.randint(0, columns, (rows, 4))
        one, two = x.chunk(2, -1)
        expected = x.gather(1, index), one * two, x.flip(1).roll(1, 1)
        torch.testing.assert_close(kernel(x, index), expected)
    assert kernel.bind((torch.randn(3, 6), index[:3])) is kernel.bind((x, index))  # rows are open
