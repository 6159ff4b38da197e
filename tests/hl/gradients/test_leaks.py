"""Sizes that a trace invents do not get into derived kernels as numbers."""

import math
from types import SimpleNamespace

import pytest
import torch

from tilewright import hl
from tilewright.hl.grad import leaks
from tilewright.hl.grad.replay import Product
from tilewright.hl.trace.samples import Sampling
from tilewright.hl.trace.state import raw_shape

FORMULAS = {
    "a size": lambda n: n,
    "one less": lambda n: n - 1,
    "one more": lambda n: n + 1,
    "a mean": lambda n: 1 / n,
    "a mean of squares": lambda n: 2 / n,
    "a variance": lambda n: 1 / (n - 1),
    "the derivative of a variance": lambda n: 2 / (n - 1),
    "the middle": lambda n: (n - 1) // 2,
    "a root": math.sqrt,
    "one over a root": lambda n: 1 / math.sqrt(n),
    "a deviation": lambda n: math.sqrt(1 / (n - 1)),
    "a float32": lambda n: float(torch.tensor(2 / (n - 1))),
}


def _traced(constants: list[int], axes: int) -> SimpleNamespace:
    sampling = Sampling(constants, 0)
    return SimpleNamespace(factors=SimpleNamespace(atoms={sampling.axis(): None for _ in range(axes)}))


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("several", [False, True])
def test_what_formulas_make_of_sizes_is_seen(formula: str, several: bool) -> None:
    traced = _traced([], 3)
    primes = list(traced.factors.atoms)
    for n in [math.prod(primes[:2]), math.prod(primes)] if several else primes:
        number = FORMULAS[formula](n)
        assert leaks.are_possible(f"    v = (v_2 * {number!r})\n", traced), number
    assert leaks.are_possible(f"    v = v_2.reshape([{primes[0] + primes[1]}])\n", traced)


def test_constants_of_programs_are_not_taken_for_sizes() -> None:
    constants = [64, 128, 1024, 4096, 50_257]
    numbers = [*constants, 2, 3, 0.5, 1e-05, 0.044715, 1.702, math.log(2), math.log2(math.e) / math.sqrt(64)]
    text = "\n".join(f"    v_{at} = (v * {number!r})" for at, number in enumerate(numbers))
    assert not leaks.are_possible(text, _traced(constants, 3))


@hl.kernel
def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0), y.size(1)])
    for m, n in hl.tile(out.shape):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            acc = acc + hl.dot(x[m, k], y[k, n])
        out[m, n] = acc
    return out


def test_a_formula_with_the_size_of_a_tile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Product.backward

    def leaking(ctx, *grads):  # as PyTorch's C++ does
        return whole(ctx, *(grad * (2 / (raw_shape(grad)[0] - 1)) for grad in grads))

    monkeypatch.setattr(Product, "backward", staticmethod(leaking))
    with pytest.raises(hl.exc.NotDifferentiable, match="contains the size of a tile"):
        _product(torch.randn(9, 7, requires_grad=True), torch.randn(7, 5))
