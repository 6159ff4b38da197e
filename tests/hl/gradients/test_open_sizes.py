"""Kernels with `static_shapes=False`: one derivation for all sizes, and constants where a decision needs a number."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from tests.hl.gradients.compare import check, gradients, leaves
from tests.hl.gradients.examples import CASES, Draw, Sizes, kernel
from tests.hl.gradients.texts import kernel_of
from tilewright import hl
from tilewright.hl.grad import loops

ONCE = (
    "elementwise.add",
    "elementwise.bias_gelu",
    "softmax.softmax_online",
    "norms.layer_norm",
    "gather.embedding",
    "matmul.matmul",
    "matmul.bmm",
    "jagged.jagged_mean",
    "delta.delta_rule",
)
"""Parts, exchanged loops, summaries, histories, atomics: each in one derivation for all sizes."""


@pytest.fixture
def derivations() -> Iterator[list[str]]:
    """The names of the kernels that are derived from now on."""
    made: list[str] = []

    def derive(traces: Any, at: int, asked: Any, name: str, *args: Any) -> Any:
        made.append(name)
        return whole(traces, at, asked, name, *args)

    whole = loops.derive
    with mock.patch.object(loops, "derive", derive):
        yield made


def opened(made: hl.Kernel) -> hl.Kernel:
    settings = copy.copy(made.settings)
    settings.static_shapes = False
    return hl.Kernel(made.fn, made.configs, settings)


@pytest.mark.parametrize("name", ONCE)
def test_one_derivation_for_all_sizes(name: str, derivations: list[str]) -> None:
    where, example = CASES[name]
    made = opened(kernel(where, wide=True))
    for sizes in (Sizes(9, 13, 5), Sizes(7, 37, 6), Sizes(16, 3, 11)):
        check(made, example.reference, *example.make(Draw(), sizes))
    assert len(derivations) == 1


def test_plans_are_those_of_constant_sizes() -> None:
    for name in ("softmax.softmax_online", "norms.layer_norm", "matmul.matmul"):
        where, example = CASES[name]
        args = example.make(Draw(), Sizes(9, 13, 5))
        one, other = (hl.grad(k).plan(args) for k in (kernel(where, wide=True), opened(kernel(where, wide=True))))
        assert [plan.owners for plan in one] == [plan.owners for plan in other]
        assert [plan.saved for plan in one] == [plan.saved for plan in other]


def test_extents_of_one_are_another_kind_of_call(derivations: list[str]) -> None:
    where, example = CASES["norms.layer_norm"]
    made = opened(kernel(where, wide=True))
    for sizes in (Sizes(9, 13, 5), Sizes(1, 13, 5), Sizes(9, 1, 5), Sizes(1, 5, 5), Sizes(0, 7, 3)):
        check(made, example.reference, *example.make(Draw(), sizes))
    assert len(derivations) == 4


def test_sizes_are_constants_where_a_number_is_needed(derivations: list[str]) -> None:
    where, example = CASES["gather.rope"]
    made = opened(kernel(where, wide=True))
    for sizes in (Sizes(9, 12, 5), Sizes(7, 10, 6)):
        args = example.make(Draw(), sizes)
        check(made, example.reference, *args)
        check(made, example.reference, *args)
    assert len(derivations) > 1


@hl.kernel(static_shapes=False, autotune_effort="none")
def scaled_views(x, weight):
    x = x.view(-1, weight.size(0))
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.sin(x[rows, :]) * weight[:]
    return out.view(-1)


def test_names_of_arguments_that_the_host_code_gives_to_others() -> None:
    for count, columns in ((3, 5), (7, 4)):
        x, weight = Draw()(count * columns), Draw()(columns)
        check(scaled_views, lambda x, w: (torch.sin(x.view(-1, w.size(0))) * w).view(-1), x, weight)


@hl.kernel(static_shapes=False, autotune_effort="none")
def two_steps(x, weight):
    scaled = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        scaled[rows, :] = x[rows, :] * weight[:]
    total = scaled.sum(1)
    out = torch.empty_like(scaled)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.exp(scaled[rows, :]) / (1 + total[rows][:, None] ** 2)
    return out


def test_several_loops(derivations: list[str]) -> None:
    def reference(x: Any, weight: Any) -> Any:
        scaled = x * weight
        return torch.exp(scaled) / (1 + scaled.sum(1)[:, None] ** 2)

    for rows, columns in ((3, 5), (7, 4)):
        check(two_steps, reference, Draw()(rows, columns), Draw()(columns))
    assert derivations == ["two_steps_backward_0", "two_steps_backward_1"]


@hl.kernel(static_shapes=False, autotune_effort="none")
def sums_that_meet(x, y):
    out = torch.zeros([2 * y.size(0)], dtype=x.dtype)
    for one in hl.grid(x.size(0)):
        for other in hl.grid(y.size(0)):
            out[one + other] = x[one] * y[other]
    return out


def test_open_ranges_are_no_short_ones() -> None:
    with pytest.raises(hl.exc.NotDifferentiable, match="sum of indices"):
        sums_that_meet(*leaves((Draw()(3), Draw()(4))))


def test_second_gradients() -> None:
    made = opened(kernel("norms.rms_norm", wide=True))
    _, example = CASES["norms.rms_norm"]

    def squares(function: Any) -> Any:
        def run(x: Any, *rest: Any) -> Any:
            (grad,) = torch.autograd.grad((function(x, *rest) ** 2).sum(), x, create_graph=True)
            return grad

        return run

    for sizes in (Sizes(9, 13, 5), Sizes(7, 6, 5)):
        check(squares(made), squares(example.reference), *example.make(Draw(), sizes))


def test_the_text_runs_by_itself_at_every_size() -> None:
    made = opened(kernel("softmax.softmax", wide=True))
    text = hl.grad(made).to_hl((Draw()(9, 13),))
    assert "= out.size(1)" in text and "13" not in text
    run = kernel_of(text)
    for rows, columns in ((9, 13), (4, 6)):
        x, grad = Draw()(rows, columns), Draw(seed=1)(rows, columns)
        out = x.softmax(1)
        expected = (grad - (grad * out).sum(1, keepdim=True)) * out
        torch.testing.assert_close(run(out, grad)[0], expected)


def test_other_strides_and_types() -> None:
    where, example = CASES["norms.layer_norm"]
    made = opened(kernel(where))
    for dtype in (torch.float32, torch.bfloat16):
        x, *rest = example.make(Draw(dtype), Sizes(12, 10, 5))
        check(made, example.reference, x, *rest)
        check(made, example.reference, x[::2, 3:], *(r[3:] if isinstance(r, torch.Tensor) else r for r in rest))


def test_argument_that_is_a_number_is_none_of_the_sizes() -> None:
    @hl.kernel(static_shapes=False, autotune_effort="none")
    def moved(x: torch.Tensor, by: int) -> torch.Tensor:
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = torch.sin(x[rows, :] * by)
        return out

    for rows, by in ((5, 5), (7, 3), (3, 7)):
        ours, theirs = (
            gradients(moved, (Draw()(rows, 4), by)),
            gradients(lambda x, n: torch.sin(x * n), (Draw()(rows, 4), by)),
        )
        torch.testing.assert_close(ours, theirs)


@hl.kernel(static_shapes=False, autotune_effort="none")
def linear(x, weight, bias):
    """The bias has a size of its own, for all that is known: its parts are stored nevertheless, and not added to."""
    out = torch.empty([x.size(0), weight.size(1)], dtype=x.dtype)
    for rows, columns in hl.tile(out.shape):
        total = hl.zeros([rows, columns], dtype=x.dtype)
        for k in hl.tile(x.size(1)):
            total += x[rows, k] @ weight[k, columns]
        out[rows, columns] = F.silu(total + bias[columns])
    return out


def test_second_gradients_of_several_loops() -> None:
    def all_of(function: Any) -> Any:
        def run(*args: Any) -> Any:
            return torch.autograd.grad((function(*args) ** 2).sum(), args, create_graph=True)

        return run

    def reference(x: Any, weight: Any, bias: Any) -> Any:
        return F.silu(x @ weight + bias)

    for m, k, n in ((9, 13, 5), (7, 6, 40)):
        check(all_of(linear), all_of(reference), Draw()(m, k), Draw(seed=1)(k, n), Draw(seed=2)(n))


@hl.kernel(static_shapes=False, autotune_effort="none")
def by_size(x, by):
    """Functions that PyTorch writes in Python look at their numbers, which are sizes here."""
    out = torch.empty_like(x)
    count = x.size(1)
    for rows in hl.tile(x.size(0)):
        values = F.hardtanh(x[rows, :] * 9, -count, count) + torch.xlogy(x[rows, :], count)
        out[rows, :] = values * torch.xlogy(by, 1 + x[rows, :] ** 2) + F.smooth_l1_loss(
            x[rows, :], 9 * x[rows, :], reduction="none", beta=count
        )
    return out


def test_sizes_as_numbers_of_functions() -> None:
    def reference(x: Any, by: Any) -> Any:
        count = x.size(1)
        values = F.hardtanh(x * 9, -count, count) + torch.xlogy(x, count)
        return values * torch.xlogy(by, 1 + x**2) + F.smooth_l1_loss(x, 9 * x, reduction="none", beta=count)

    for (rows, columns), by in (((5, 3), 2), ((4, 7), 3), ((3, 2), 5)):
        check(by_size, reference, Draw()(rows, columns), by)
