"""Derivatives of operations for which PyTorch has none: scans and reductions with functions, indices into tiles.

y[j] = c(y[j - 1], x[j])            A[j], B[j]: the derivatives of c by its left and its right side, there
t[j] = g[j] + A[j + 1] t[j + 1]     a scan from the end, of affine maps
grad_x[j] = B[j] t[j]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node, Region, operands
from tilewright.hl.language.reduce import associative_scan, cumsum
from tilewright.hl.rows.gather import lanes, take
from tilewright.hl.trace.state import raw_shape

Combine = Callable[..., Sequence[Any]]
"""Takes the elements of the left side, then those of the right one."""

_MONOIDS = {"add": "sum", "mul": "prod", "maximum": "amax", "minimum": "amin"}


class Take(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """An index into a tile: each element adds its gradient to the one that it is a copy of."""

    @staticmethod
    def forward(ctx: Any, source: Any, index: Any, dim: int) -> Any:
        """`source[..., index, ...]`."""
        ctx.save_for_backward(index)
        ctx.dim, ctx.extent = dim, raw_shape(source)[dim]
        return take(source, index, dim)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Sums over the places that say so."""
        (index,) = ctx.saved_tensors
        (grad,) = grads
        places = lanes(ctx.extent, grad.dim() + 1, ctx.dim + 1)
        chosen = torch.where(index.unsqueeze(ctx.dim + 1) == places, grad.unsqueeze(ctx.dim + 1), 0.0)
        return chosen.sum(ctx.dim), None, None


class Cumsum(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """Running sums: those of the gradients from the other side."""

    @staticmethod
    def forward(ctx: Any, x: Any, dim: int, reverse: bool) -> Any:
        """`hl.cumsum`."""
        ctx.about = dim, reverse, x.dtype
        return cumsum(x, dim, reverse)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """`hl.cumsum` of the gradients."""
        dim, reverse, dtype = ctx.about
        return cumsum(grads[0], dim, not reverse).to(dtype), None, None


class Scan(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """A scan with a function, of which one tile has a gradient."""

    @staticmethod
    def forward(ctx: Any, combine: Combine, at: int, dim: int, reverse: bool, *tiles: Any) -> Any:
        """All running combinations."""
        ctx.save_for_backward(*tiles)
        ctx.about = combine, at, dim, reverse
        made = associative_scan(combine, tiles, dim, reverse)
        ctx.mark_non_differentiable(*(one for position, one in enumerate(made) if position != at))
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """A scan from the other side."""
        combine, at, dim, reverse = ctx.about
        tiles, grad = ctx.saved_tensors, grads[at]
        left, right = _slopes(combine, at, tiles, dim, reverse)
        is_last, before, _ = _exclusive(_affine, (left, left * grad), dim, not reverse)
        found = right * (grad + torch.where(is_last, 0.0, before[1]))
        return None, None, None, None, *(found if position == at else None for position in range(len(tiles)))


class Reduce(torch.autograd.Function):  # type: ignore[misc]  # torch is not checked
    """A reduction of one dimension with a function, of which one tile has a gradient."""

    @staticmethod
    def forward(ctx: Any, combine: Combine, at: int, dim: int, run: Callable[..., Any], *tiles: Any) -> Any:
        """What `run` makes of the tiles."""
        ctx.save_for_backward(*tiles)
        ctx.about = combine, at, dim
        made = run(*tiles)
        ctx.mark_non_differentiable(*(one for position, one in enumerate(made) if position != at))
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The derivative by an element, times those of all combinations behind it."""
        combine, at, dim = ctx.about
        tiles, grad = ctx.saved_tensors, grads[at]
        grad = grad if grad.dim() == tiles[at].dim() else grad.unsqueeze(dim)
        left, right = _slopes(combine, at, tiles, dim, False)
        is_last, (behind,), _ = _exclusive(lambda a, b: (a * b,), (left,), dim, True)
        found = right * torch.where(is_last, 1.0, behind) * grad
        return None, None, None, None, *(found if position == at else None for position in range(len(tiles)))


def silu_backward(grad: Any, x: Any) -> Any:
    """The derivative of `x * sigmoid(x)`, made of what has derivatives: PyTorch has none of its own operator."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    share = torch.sigmoid(wide)
    return (grad * (share * (1 + wide * (1 - share)))).to(grad.dtype)


def _affine(*elements: Any) -> tuple[Any, Any]:
    """Two maps z -> a z + b, one after the other."""
    a, b, c, d = elements
    return a * c, d + c * b


def _exclusive(combine: Combine, tiles: Sequence[Any], dim: int, reverse: bool) -> tuple[Any, list[Any], list[Any]]:
    """A scan that tells what each element is combined with.

    Returns:
        Where the first element is, what stands before each (anything for the first), and the running combinations.
    """
    count = len(tiles)

    def joined(*elements: Any) -> list[Any]:
        left, right = elements[: 2 * count + 1], elements[2 * count + 1 :]
        now, before = left[count + 1 :], right[1 : count + 1]
        further = combine(*now, *before)
        previous = [torch.where(right[0] > 0, one, other) for one, other in zip(now, further, strict=True)]
        return [left[0] * 0, *previous, *combine(*now, *right[count + 1 :])]

    ones = torch.ones_like(tiles[0], dtype=torch.int32)
    is_first, *made = associative_scan(joined, (ones, *tiles, *tiles), dim, reverse)
    return is_first > 0, made[:count], made[count:]


def _slopes(combine: Combine, at: int, tiles: Sequence[Any], dim: int, reverse: bool) -> tuple[Any, Any]:
    """The derivatives of each combination of a scan by its left side and by its right one."""
    is_first, before, _ = _exclusive(combine, tiles, dim, reverse)
    with torch.enable_grad():
        left, right = before[at].detach().requires_grad_(), tiles[at].detach().requires_grad_()
        lefts = [left if position == at else one for position, one in enumerate(before)]
        rights = [right if position == at else one for position, one in enumerate(tiles)]
        out = combine(*lefts, *rights)[at]
        by = torch.autograd.grad(out, (left, right), torch.ones_like(out), allow_unused=True)
    found = [torch.zeros_like(out) if one is None else one.expand(raw_shape(out)) for one in by]
    return torch.where(is_first, 0.0, found[0]), torch.where(is_first, 1.0, found[1])


# --- from nodes -------------------------------------------------------------------------------------------------------


def scan(node: Node, tiles: Sequence[Any], combine: Combine) -> Any:
    """The derivative's view of `scan_fn`."""
    _, dim, reverse = node.args
    if _known(node.regions[0]) == "sum" and len(tiles) == 1:
        return (Cumsum.apply(tiles[0], dim, reverse),)
    return Scan.apply(combine, _only(node, tiles), dim, reverse, *tiles)


def reduced(node: Node, tiles: Sequence[Any], combine: Combine, run: Callable[..., Any]) -> Any:
    """The derivative's view of `reduce_fn`: a reduction of PyTorch's where the function is known."""
    _, dims, _, keep = node.args
    known = _known(node.regions[0])
    if known and len(tiles) == 1:
        return (_of_pytorch(known, tiles[0], dims, keep),)
    if len(dims) > 1:
        raise exc.NotDifferentiable(
            "hl.reduce of several dimensions with a function has no gradient", hint="reduce one after the other"
        )
    return Reduce.apply(combine, _only(node, tiles), dims[0], run, *tiles)


def _known(region: Region) -> str | None:
    """The reduction of PyTorch's that a combine function stands for."""
    if len(region.nodes) != 1 or region.results != region.nodes[0].outs:
        return None
    (node,) = region.nodes
    ours = {value.id for value in operands(node)} == {value.id for value in region.params}
    return _MONOIDS.get(node.op) if ours and not node.kwargs else None


def _of_pytorch(known: str, x: Any, dims: Sequence[int], keep: bool) -> Any:
    function = getattr(torch, known)
    if known != "prod":
        return function(x, list(dims), keep)
    for dim in sorted(dims, reverse=True):
        x = function(x, dim, keep)
    return x


def _only(node: Node, tiles: Sequence[Any]) -> int:
    """The position of the only tile that has a gradient, on which no other result depends."""
    name = "hl.reduce" if node.op == "reduce_fn" else "hl.associative_scan"
    wanted = [at for at, tile in enumerate(tiles) if tile.requires_grad]
    region, count = node.regions[0], len(tiles)
    reached = {region.params[at].id for at in wanted} | {region.params[at + count].id for at in wanted}
    for inner in region.nodes:
        if any(value.id in reached for value in operands(inner)):
            reached |= {out.id for out in inner.outs if out.dtype.is_floating_point}
    others = [at for at, result in enumerate(region.results) if at not in wanted and result.id in reached]
    if len(wanted) > 1 or others:
        raise exc.NotDifferentiable(
            f"{name} with a function that mixes several tiles has no gradient",
            hint="write a loop over hl.grid, which carries them; or call .detach() on all tiles but one",
        )
    return wanted[0]
