"""Reductions and running combinations written with sums, maxima and positions."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tilewright.hl.rows.gather import lanes, positions, static_extent, take
from tilewright.hl.rows.recipes import Dims, count, dims_of, largest, same_rows, wide
from tilewright.hl.rows.recipes_math import floats, like
from tilewright.hl.rows.table import recipe
from tilewright.hl.trace.state import raw_shape

_INF = float("inf")


@recipe("any")
def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
    """Whether one is true."""
    return (x != 0).amax(dims_of(x, dim), keepdim)


@recipe("all")
def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
    """Whether every one is true."""
    return (x != 0).amin(dims_of(x, dim), keepdim)


@recipe("count_nonzero")
def count_nonzero(x: Tensor, dim: Dims = None) -> Any:
    """How many are not zero."""
    return (x != 0).sum(dims_of(x, dim))


@recipe("nansum")
def nansum(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Sum without NaN."""
    return torch.where(torch.isnan(x), 0, x).to(dtype or x.dtype).sum(dims_of(x, dim), keepdim)


# --- extremes and where they are ------------------------------------------------------------------------------


def _where(x: Tensor, extreme: Any, dims: list[int], keepdim: bool) -> Any:
    """The position of the first element that is `extreme` (which kept its dimensions), in row-major order."""
    hit = x == extreme
    place: Any = 0
    for at, dim in enumerate(dims):
        same_rows(x, dims[at + 1 :], "a position in several dimensions")
        place = place + positions(x, dim).to(torch.int64) * count(x, dims[at + 1 :])
    if x.dtype.is_floating_point:
        hit = torch.where(torch.isnan(extreme), torch.isnan(x), hit)
    return torch.where(hit, place, torch.iinfo(torch.int64).max).amin(dims, keepdim)


@recipe("argmax")
def argmax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
    """The position of the first largest; a NaN counts as larger."""
    dims = dims_of(x, dim)
    return _where(x, x.amax(dims, True), dims, keepdim)


@recipe("argmin")
def argmin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
    """The position of the first smallest; a NaN counts as smaller."""
    dims = dims_of(x, dim)
    return _where(x, x.amin(dims, True), dims, keepdim)


@recipe("max")
def max(x: Tensor, dim: Tensor | int | None = None, keepdim: bool = False) -> Any:
    """The largest, with `dim` also its position; of two tensors, element by element."""
    if isinstance(dim, Tensor):
        return torch.maximum(x, dim)
    return x.amax() if dim is None else (x.amax(dim, keepdim), x.argmax(dim, keepdim))


@recipe("min")
def min(x: Tensor, dim: Tensor | int | None = None, keepdim: bool = False) -> Any:
    """The smallest, with `dim` also its position; of two tensors, element by element."""
    if isinstance(dim, Tensor):
        return torch.minimum(x, dim)
    return x.amin() if dim is None else (x.amin(dim, keepdim), x.argmin(dim, keepdim))


@recipe("aminmax")
def aminmax(x: Tensor, *, dim: Dims = None, keepdim: bool = False) -> Any:
    """The smallest and the largest."""
    dims = dims_of(x, dim)
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


# --- moments and norms ------------------------------------------------------------------------------------------


def _moments(x: Tensor, dim: Dims, unbiased: bool | None, correction: float | None, keepdim: bool) -> tuple[Any, Any]:
    """(variance, mean) in the type in which sums are taken."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    dims = dims_of(x, dim)
    less = (1 if unbiased in (None, True) else 0) if correction is None else correction
    y, n = wide(x), count(x, dims)
    mean = y.sum(dims, True) / n
    centred = y - mean
    rest = n - less
    if not isinstance(rest, Tensor):
        rest = builtins.max(rest, 0)
    elif rest.dim() and not keepdim:
        rest = rest.squeeze(dims)
    total = (centred * centred).sum(dims, keepdim)
    if not isinstance(rest, Tensor) and rest == 0:
        return total / (total * 0), mean if keepdim else mean.squeeze(dims)
    return total / rest, mean if keepdim else mean.squeeze(dims)


@recipe("var")
def var(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> Any:
    """Mean square of what is left when the mean is taken away."""
    return _moments(x, dim, unbiased, correction, keepdim)[0].to(x.dtype)


@recipe("std")
def std(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> Any:
    """Root of the variance."""
    return torch.sqrt(_moments(x, dim, unbiased, correction, keepdim)[0]).to(x.dtype)


@recipe("var_mean")
def var_mean(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> Any:
    """(variance, mean)."""
    square, mean = _moments(x, dim, unbiased, correction, keepdim)
    return square.to(x.dtype), mean.to(x.dtype)


@recipe("std_mean")
def std_mean(
    x: Tensor, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float | None = None
) -> Any:
    """(standard deviation, mean)."""
    square, mean = _moments(x, dim, unbiased, correction, keepdim)
    return torch.sqrt(square).to(x.dtype), mean.to(x.dtype)


@recipe("logsumexp")
def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Any:
    """log(sum(exp(x))), shifted by the maximum where that is finite."""
    dims, y = dims_of(x, dim), floats(x)
    m = largest(y, dims)
    m = torch.where(m.abs() == _INF, 0.0, m)
    made = torch.log(torch.exp(y - m).sum(dims, True)) + m
    return like(made if keepdim else made.squeeze(dims), x)


@recipe("linalg_vector_norm")
def vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """The norm of order `ord`."""
    dims, y = dims_of(x, dim), wide(x if dtype is None else x.to(dtype))
    size = y.abs()
    if ord == _INF:
        made = size.amax(dims, keepdim)
    elif ord == -_INF:
        made = size.amin(dims, keepdim)
    elif ord == 0:
        made = (y != 0).to(y.dtype).sum(dims, keepdim)
    elif ord == 1:
        made = size.sum(dims, keepdim)
    elif ord == 2:
        made = torch.sqrt((y * y).sum(dims, keepdim))
    else:
        made = (size**ord).sum(dims, keepdim) ** (1 / ord)
    return made.to(dtype or x.dtype)


@recipe("norm")
def norm(x: Tensor, p: float = 2, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Any:
    """The norm of order `p`."""
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype=dtype)


@recipe("dist")
def dist(x: Tensor, y: Tensor, p: float = 2) -> Any:
    """The norm of the difference."""
    return vector_norm(x - y, p)


# --- running combinations ------------------------------------------------------------------------------------------


def running(state: tuple[Any, ...], dim: int, combine: Callable[..., tuple[Any, ...]], what: str) -> tuple[Any, ...]:
    """Each element combined with all before it, in steps that double their reach (Hillis and Steele, 1986).

    Args:
        state: tiles that are combined together.
        dim: dimension, of static extent.
        combine: (earlier state, later state) -> state; associative.
        what: the operation, for messages.
    """
    extent = static_extent(state[0], dim, what, "use hl.associative_scan")
    lane, reach = lanes(extent), 1
    while reach < extent:
        before = tuple(take(item, (lane - reach).clamp_min(0), dim) for item in state)
        joined = combine(before, state)
        inside = lane.view([-1 if at == dim else 1 for at in range(state[0].dim())]) >= reach
        state = tuple(torch.where(inside, new, old) for new, old in zip(joined, state, strict=True))
        reach *= 2
    return state


def _running_extreme(x: Tensor, dim: int, better: Callable[[Any, Any], Any], what: str) -> tuple[Any, Any]:
    dim %= x.dim()
    index = positions(x, dim).to(torch.int64).expand(raw_shape(x))

    def combine(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
        later = better(after[0], before[0])
        if x.dtype.is_floating_point:
            later = (later & torch.isnan(before[0]).logical_not()) | torch.isnan(after[0])
        return torch.where(later, after[0], before[0]), torch.where(later, after[1], before[1])

    values, indices = running((x, index), dim, combine, what)
    return values, indices


@recipe("cummax")
def cummax(x: Tensor, dim: int) -> Any:
    """The largest so far and the position of the last of the largest."""
    return _running_extreme(x, dim, torch.ge, "cummax")


@recipe("cummin")
def cummin(x: Tensor, dim: int) -> Any:
    """The smallest so far and the position of the last of the smallest."""
    return _running_extreme(x, dim, torch.le, "cummin")


@recipe("logcumsumexp")
def logcumsumexp(x: Tensor, dim: int) -> Any:
    """Running log(sum(exp(x)))."""
    (made,) = running((wide(x),), dim % x.dim(), lambda a, b: (torch.logaddexp(a[0], b[0]),), "logcumsumexp")
    return made.to(x.dtype)


@recipe("trace")
def trace(x: Tensor) -> Any:
    """The sum of the diagonal."""
    return torch.where(positions(x, 0) == positions(x, 1), x, 0).sum()
