"""Where passes store: in places of their own, or it is refused, as the last store counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import check, leaves
from tilewright import hl


@hl.kernel(autotune_effort="none")
def by_quotient_and_rest(x):
    out = torch.empty([3, 2, x.size(1)], dtype=x.dtype)
    for at in hl.grid(x.size(0)):
        out[at // 2, at % 2, :] = x[at, :].sin()
    return out


@hl.kernel(autotune_effort="none")
def by_a_flat_index(x):
    out = torch.empty([6, x.size(1)], dtype=x.dtype)
    for one, other in hl.grid([2, 3]):
        out[one * 3 + other, :] = x[one * 3 + other, :].sin()
    return out


@hl.kernel(autotune_effort="none")
def by_the_number_of_the_tile(x):
    out = torch.empty([3, x.size(1)], dtype=x.dtype)
    for rows in hl.tile(6, block_size=2):
        out[rows.id, :] = x[rows, :].sin().sum(0)
    return out


@hl.kernel(autotune_effort="none")
def by_the_rest(x):
    out = torch.empty([x.size(0), 2], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        for at in hl.grid(x.size(1)):
            out[rows, at % 2] = x[rows, at]
    return out


@hl.kernel(autotune_effort="none")
def by_a_sum(x):
    out = torch.empty([x.size(0), 9], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        for one in hl.grid(5):
            for other in hl.grid(5):
                out[rows, one + other] = x[rows, one]
    return out


@hl.kernel(autotune_effort="none")
def by_a_computed_flat_index(x):
    out = torch.empty([30], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            out[rows.index[:, None] * 5 - (-columns.index[None, :])] = x[rows, columns].sin()
    return out


@hl.kernel(autotune_effort="none")
def by_a_table(x):
    out, table = torch.empty_like(x), torch.arange(x.size(1)).flip(0)
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            out[rows.index[:, None], table[columns][None, :]] = x[rows, columns].sin()
    return out


@hl.kernel(autotune_effort="none")
def by_a_computed_sum(x):
    out = torch.zeros([9, x.size(1)], dtype=x.dtype)
    for rows, columns in hl.tile(x.shape):
        for step in hl.grid(3):
            out[rows.index + step, columns] = x[rows, columns]
    return out


@hl.kernel(autotune_effort="none")
def by_a_sum_of_counts(x, count):
    out = torch.zeros([6 + count, x.size(1)], dtype=x.dtype)
    for one in hl.grid(x.size(0)):
        for other in hl.grid(count):
            out[one + other, :] = x[one, :] * other
    return out


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (by_quotient_and_rest, lambda x: x.sin().view(3, 2, -1)),
        (by_a_flat_index, torch.sin),
        (by_a_computed_flat_index, lambda x: x.sin().reshape(-1)),
        (by_a_table, lambda x: x.sin().flip(1)),
        (by_the_number_of_the_tile, lambda x: x.sin().view(3, 2, -1).sum(1)),
    ],
)
def test_places_of_their_own(kernel: Any, reference: Any) -> None:
    check(kernel, reference, torch.randn(6, 5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("kernel", "message", "statement"),
    [
        (by_the_rest, "is stored in every pass of the loop over at", "out[rows, at % 2] ="),
        (by_a_sum, "is stored at a sum of indices", "out[rows, one + other] ="),
        (by_a_computed_sum, "is stored at a sum of indices", "out[rows.index + step, columns] ="),
    ],
)
def test_places_that_meet_are_refused(kernel: Any, message: str, statement: str) -> None:
    with pytest.raises(hl.exc.NotDifferentiable, match=message) as caught:
        kernel(*leaves((torch.randn(6, 5, dtype=torch.float64),)))
    assert statement in str(caught.value) and " ^" in str(caught.value) and caught.value.hint


def test_places_that_may_meet_for_some_count_are_refused() -> None:
    with pytest.raises(hl.exc.NotDifferentiable, match="is stored at a sum of indices"):
        by_a_sum_of_counts(*leaves((torch.randn(6, 5, dtype=torch.float64), 3)))


# --- steps of an unrolled loop ---------------------------------------------------------------------------------------


@hl.kernel(autotune_effort="none")
def four_steps_at_once(x):
    out = torch.empty_like(x)
    for columns in hl.tile(x.size(1)):
        state = hl.zeros([columns], dtype=x.dtype)
        for several in hl.grid(x.size(0) // 4):
            for one in hl.static_range(4):
                state = torch.tanh(0.5 * state + x[several * 4 + one, columns])
                out[several * 4 + one, columns] = state
    return out


def step_by_step(x):
    state, outs = torch.zeros_like(x[0]), []
    for one in x:
        state = torch.tanh(0.5 * state + one)
        outs.append(state)
    return torch.stack(outs)


@hl.kernel(autotune_effort="none")
def windows(x):
    """Loads that meet: the first of a pass is the last of the one before."""
    out = torch.empty([3, x.size(1)], dtype=x.dtype)
    for at in hl.grid(3):
        out[at, :] = x[at * 2, :].sin() + x[at * 2 + 1, :].cos() * x[at * 2 + 2, :]
    return out


@hl.kernel(autotune_effort="none")
def by_two_indices(x):
    """Multiples of 4 and 6, and one more: never one place."""
    out = torch.zeros([21, x.size(1)], dtype=x.dtype)
    for one in hl.grid(2):
        out[one * 16, :] = x[one, :].sin()
        out[one * 6 + 1, :] = x[one + 2, :].cos()
    return out


@hl.kernel(autotune_effort="none")
def steps_that_meet(x):
    out = torch.empty([7, x.size(1)], dtype=x.dtype)
    for at in hl.grid(3):
        for one in hl.static_range(3):
            out[at * 2 + one, :] = x[at, :] * (one + 1)
    return out


@hl.kernel(autotune_effort="none")
def indices_that_meet(x):
    out = torch.zeros([21, x.size(1)], dtype=x.dtype)
    for one in hl.grid(2):
        out[one * 4, :] = x[one, :].sin()
        out[one * 6 + 2, :] = x[one + 2, :].cos()
    return out


def test_steps_of_an_unrolled_loop_have_places_of_their_own() -> None:
    x = torch.randn(12, 5, dtype=torch.float64)
    check(four_steps_at_once, step_by_step, x)
    (plan,) = hl.grad(four_steps_at_once).plan((x,))
    assert [owner.form for owner in plan.owners] == ["store"]


def test_steps_that_load_one_place_add() -> None:
    x = torch.randn(7, 5, dtype=torch.float64)
    check(windows, lambda x: x[:-2:2].sin() + x[1:-1:2].cos() * x[2::2], x)
    (plan,) = hl.grad(windows).plan((x,))
    assert [owner.form for owner in plan.owners] != ["store"]


def test_indices_with_other_remainders_do_not_meet() -> None:
    def reference(x):
        out = torch.zeros([21, x.size(1)], dtype=x.dtype)
        out[[0, 16]] = x[:2].sin()
        out[[1, 7]] = x[2:].cos()
        return out

    check(by_two_indices, reference, torch.randn(4, 5, dtype=torch.float64))


@pytest.mark.parametrize("kernel", [steps_that_meet, indices_that_meet])
def test_stores_that_may_meet_are_refused(kernel: Any) -> None:
    with pytest.raises(hl.exc.NotDifferentiable, match="stored twice"):
        kernel(torch.randn(4, 5, requires_grad=True))


@hl.kernel
def sums_and_differences(x):
    out = torch.empty_like(x)
    half = x.size(1) // 2
    for rows, columns in hl.tile([x.size(0), half]):
        left, right = x[rows, columns.index * 2], x[rows, columns.index * 2 + 1]
        out[rows, columns] = torch.tanh(left + right)
        out[rows, columns + half] = torch.tanh(left - right)
    return out


def test_tiles_of_two_halves_are_stored_apart():
    x = torch.randn(7, 26, dtype=torch.float64, requires_grad=True)
    y = x.detach().requires_grad_()
    left, right = y[:, ::2], y[:, 1::2]
    (expected,) = torch.autograd.grad(torch.cat([left + right, left - right], 1).tanh().sin().sum(), y)
    (grad,) = torch.autograd.grad(sums_and_differences(x).sin().sum(), x)
    torch.testing.assert_close(grad, expected)


@hl.kernel
def halves_that_meet(x):
    out = torch.zeros_like(x)
    half = x.size(1) // 2
    for rows, columns in hl.tile([x.size(0), half + 1]):
        out[rows, columns] = x[rows, columns] * 2
        out[rows, columns + half] = x[rows, columns] * 3
    return out


def test_tiles_of_two_halves_that_meet_are_refused():
    with pytest.raises(hl.exc.NotDifferentiable, match="stored twice"):
        halves_that_meet(torch.randn(4, 10, requires_grad=True))
