"""Gradients of gradients: the derived kernel is one more kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import leaves
from tests.hl.gradients.examples import CASES, Draw, Sizes, kernel
from tests.hl.gradients.test_overwritten import added_by_index, squares, transposed
from tilewright import hl

REFUSED = {
    "segments.segment_sum": "hl.associative_scan with a function that mixes several tiles",
}
EVERY = ("elementwise.geglu", "softmax.softmax", "norms.layer_norm", "gather.cross_entropy", "matmul.matmul")
RUN = (*EVERY, "attention.full", "jagged.jagged_softmax", "softmax.softmax_online", "segments.segment_sum")
"""Of the examples: `python -m tests.hl.gradients.at_length` runs all."""


def twice(function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    """The gradients, by arguments and by the gradients of results, of a random sum of gradients."""
    given = leaves(args)
    out = function(*given)
    outs = [one for one in (out if isinstance(out, tuple | list) else [out]) if one.is_floating_point()]
    generator = torch.Generator().manual_seed(5)

    def like(one: Any) -> Any:
        return torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype)

    ups = [like(one).requires_grad_() for one in outs]
    wanted = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    grads = torch.autograd.grad(outs, wanted, ups, create_graph=True)
    total = sum((grad * like(grad)).sum() for grad in grads)
    found = torch.autograd.grad(total, [*wanted, *ups], allow_unused=True)
    return [torch.zeros_like(one) if g is None else g for one, g in zip([*wanted, *ups], found, strict=True)]


def agree(function: Callable[..., Any], reference: Callable[..., Any], args: tuple[Any, ...]) -> None:
    for mine, theirs in zip(twice(function, args), twice(reference, args), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9 * max(float(theirs.abs().max()), 1e-3))


@pytest.mark.parametrize("name", RUN)
def test_examples(name: str) -> None:
    where, example = CASES[name]
    args = example.make(Draw(), Sizes(9, 14, 5))
    if name not in REFUSED:
        agree(kernel(where, wide=True), example.reference, args)
        return
    with pytest.raises(hl.exc.DoubleBackward, match=REFUSED[name]) as caught:
        twice(kernel(where, wide=True), args)
    assert caught.value.location is not None


def test_in_order_what_several_passes_add_to_has_none() -> None:
    where, example = CASES["softmax.softmax_online"]
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(hl.exc.DoubleBackward, match="is read and written in one loop"):
            twice(kernel(where, wide=True), example.make(Draw(), Sizes(5, 6, 3)))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["elementwise.geglu", "softmax.softmax", "norms.layer_norm", "matmul.matmul"])
def test_quotients_of_differences(name: str) -> None:
    where, example = CASES[name]
    given = leaves(example.make(Draw(), Sizes(3, 4, 2)))
    assert torch.autograd.gradgradcheck(kernel(where, wide=True), given, fast_mode=True)


def test_loops_that_change_tensors() -> None:
    x, w = (torch.randn(shape, dtype=torch.float64) for shape in ((7, 5), (5,)))
    agree(squares, lambda x, w: (x**2 * w) ** 2 * w, (x, w))
    agree(transposed, lambda x: x.softmax(1)[:, :3], (x,))
    at = torch.tensor([0, 3, 0, 2, 0, 1, 1])
    agree(
        lambda out, x, at: added_by_index(out * out, x, at),
        lambda out, x, at: (out * out).index_add(0, at, x.sin()),
        (torch.randn(4, 5, dtype=torch.float64), x, at),
    )


def test_results_that_are_changed_are_pytorchs_error() -> None:
    (x,) = leaves((torch.randn(7, 5, dtype=torch.float64),))
    out = transposed(x)
    with torch.no_grad():
        out.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@hl.kernel(autotune_effort="none")
def silu_twice(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.nn.functional.silu(x[rows, :]) * x[rows, :]
    return out


def test_operations_whose_derivative_has_none_of_its_own_in_pytorch():
    agree(silu_twice, lambda x: torch.nn.functional.silu(x) * x, (Draw()(5, 7),))
