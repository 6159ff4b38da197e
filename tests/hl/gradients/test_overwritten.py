"""Tensors that loops change: arguments, views of a larger tensor, and those that share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilewright.torch  # noqa: F401  # calls are operators
from tests.hl.gradients.compare import check, gradcheck, leaves
from tilewright import hl

WIDE = {"dtype": torch.float64}


def random(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, **WIDE) for shape in shapes]


# --- views -----------------------------------------------------------------------------------------------------------


@hl.kernel(autotune_effort="none")
def through_a_view(x):
    out = torch.empty([x.numel()], dtype=x.dtype)
    own = out.view(x.shape)
    for tile in hl.tile(x.size()):
        own[tile] = x[tile] * x[tile]
    return out


@hl.kernel(autotune_effort="none")
def transposed(x):
    out = torch.empty([x.size(1), x.size(0)], dtype=x.dtype)
    own = out.t()
    for rows in hl.tile(x.size(0)):
        own[rows, :] = torch.softmax(x[rows, :], 1)
    return own[:, :3]


@hl.kernel(autotune_effort="none")
def halves_of_one_loop(x):
    out = torch.empty([2 * x.size(0), x.size(1)], dtype=x.dtype)
    above, below = out[: x.size(0)], out[x.size(0) :]
    for tile in hl.tile(x.size()):
        above[tile] = x[tile].exp()
        below[tile] = x[tile].sin()
    return out


@hl.kernel(autotune_effort="none")
def halves_of_two_loops(x):
    out = torch.empty([2 * x.size(0), x.size(1)], dtype=x.dtype)
    above, below = out[: x.size(0)], out[x.size(0) :]
    for tile in hl.tile(x.size()):
        above[tile] = x[tile].exp()
    for tile in hl.tile(x.size()):
        below[tile] = x[tile].sin()
    return out


def both(x: Any) -> Any:
    return torch.cat([x.exp(), x.sin()])


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [
        (through_a_view, lambda x: (x * x).view(-1)),
        (transposed, lambda x: x.softmax(1)[:, :3]),
        (halves_of_one_loop, both),
        (halves_of_two_loops, both),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_loops_that_write_views(kernel: Any, reference: Callable[..., Any]) -> None:
    check(kernel, reference, *random((7, 5)))
    gradcheck(kernel, tuple(random((5, 3))))
    graph = torch.compile(kernel, fullgraph=True, backend="aot_eager")
    check(graph, reference, *random((7, 5)))


@hl.kernel(autotune_effort="none")
def into(x, w, out):
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * w[:]
    return out


def test_views_that_are_arguments() -> None:
    def columns(x: Any, w: Any) -> Any:
        made = torch.zeros(7, 2, 5, **WIDE)
        into(x, w, made[:, 0])
        into(x * w, w, made[:, 1])
        return made

    check(columns, lambda x, w: torch.stack([x * w, x * w * w], 1), *random((7, 5), (5,)))


# --- in place --------------------------------------------------------------------------------------------------------


@hl.kernel(autotune_effort="none")
def squared_in_place(x, w):
    for rows in hl.tile(x.size(0)):
        x[rows, :] = x[rows, :] ** 2 * w[:]
    return x


@hl.kernel(autotune_effort="none")
def added_in_place(x, y):
    for tile in hl.tile(x.size()):
        x[tile] += y[tile].sin()
    return x


@hl.kernel(autotune_effort="none")
def added_by_index(out, x, at):
    for rows in hl.tile(x.size(0)):
        hl.atomic_add(out, [at[rows], slice(None)], x[rows, :].sin())
    return out


def squares(x: Any, w: Any) -> Any:
    return squared_in_place(squared_in_place(x * 1, w), w)


def of_a_part(x: Any, w: Any) -> Any:
    made = x * 2
    squared_in_place(made[:3], w)
    return made


def of_columns(x: Any, w: Any) -> Any:
    made = x * 2
    added_in_place(made[:, 2:], x[:, 2:] * w[2:])
    return made


def overwritten(x: Any, w: Any) -> Any:
    made = x * 3
    into(x, w, made)
    return made


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (squares, lambda x, w: (x**2 * w) ** 2 * w),
        (of_a_part, lambda x, w: torch.cat([(x[:3] * 2) ** 2 * w, x[3:] * 2])),
        (of_columns, lambda x, w: torch.cat([x[:, :2] * 2, x[:, 2:] * 2 + (x * w)[:, 2:].sin()], 1)),
        (overwritten, lambda x, w: x * w),
    ],
    ids=lambda value: value.__name__,
)
def test_arguments_that_are_changed(function: Callable[..., Any], reference: Callable[..., Any]) -> None:
    check(function, reference, *random((7, 5), (5,)))
    gradcheck(function, tuple(random((4, 3), (3,))))


def test_additions_to_an_argument() -> None:
    at = torch.tensor([0, 3, 0, 2, 0])
    args = *random((4, 6), (5, 6)), at
    check(lambda out, x, at: added_by_index(out * 2, x, at), lambda o, x, i: (o * 2).index_add(0, i, x.sin()), *args)

    def below(out: Any, x: Any, at: Any) -> Any:
        made = out * 2
        added_by_index(made[1:], x, at[1:] - 1)
        return made

    (out, x) = random((5, 6), (4, 6))
    check(below, lambda o, x, i: (o * 2).index_add(0, i[1:], x.sin()), out, x, torch.tensor([9, 3, 1, 2, 1]))


def test_what_was_saved_before_a_tensor_is_changed_is_pytorchs_error() -> None:
    x, w = leaves(tuple(random((7, 5), (5,))))
    made = x * 1
    square = made * made  # reads what is changed
    squared_in_place(made, w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()
    made = x * 1
    out = squared_in_place(made, w)
    with torch.no_grad():
        out.add_(1.0)
    out.sum().backward()  # what the loop read is kept as a copy


# --- refused ---------------------------------------------------------------------------------------------------------


@hl.kernel(autotune_effort="none")
def doubled_rows_of_half(x):
    for rows in hl.tile(x.size(0) // 2):
        x[rows, :] = x[rows, :] * 2
    return x


@hl.kernel(autotune_effort="none")
def moved(x):
    for rows in hl.tile(x.size(0) - 1):
        x[rows, :] = x[rows.index + 1, :] * 2
    return x


@hl.kernel(autotune_effort="none")
def under_another_name(x):
    made = torch.zeros_like(x)
    flat, out = made.view(-1), torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        flat[rows] = x[rows, 0]
        out[rows, :] = made[rows, :] + x[rows, :]
    return out


@hl.kernel(autotune_effort="none")
def into_above(x, out):
    for rows in hl.tile(x.size(0) // 2):
        out[rows, :] = x[rows, :]
    return out


def in_its_own_place(x: Any) -> Any:
    kept = x.detach().clone()
    return into(kept, x[0] * 1, kept)


def of_a_leaf(x: Any) -> Any:
    return squared_in_place(x, torch.ones(5, **WIDE))


def of_a_view_of_a_leaf(x: Any) -> Any:
    return squared_in_place(x[1:], torch.ones(5, **WIDE))


@pytest.mark.parametrize(
    ("function", "message", "statement"),
    [
        (lambda x: doubled_rows_of_half(x * 1), "x is read and written in one loop", "x[rows, :] = x[rows, :] * 2"),
        (lambda x: moved(x * 1), "x is read and written in one loop", "x[rows, :] = x[rows.index + 1, :] * 2"),
        (under_another_name, "flat, which the loop writes, has elements in common with made", "for rows in"),
        (in_its_own_place, "out, which the loop writes, has elements in common with x", "for rows in"),
        (of_a_leaf, "is a leaf of autograd", "x[rows, :] = x[rows, :] ** 2 * w[:]"),
        (of_a_view_of_a_leaf, "is a leaf of autograd", "x[rows, :] = x[rows, :] ** 2 * w[:]"),
        (lambda x: into_above(x, x * 1), "what it held before would have one", "out[rows, :] = x[rows, :]"),
    ],
)
def test_refusals(function: Callable[..., Any], message: str, statement: str) -> None:
    (x,) = leaves(tuple(random((8, 5))))
    kept = x.detach().clone()
    with pytest.raises(hl.exc.NotDifferentiable, match=message) as caught:
        function(x)
    assert torch.equal(x.detach(), kept), "nothing has run"
    assert caught.value.location is not None and caught.value.location.file == __file__
    assert statement in str(caught.value) and " ^" in str(caught.value) and caught.value.hint
