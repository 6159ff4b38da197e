"""Reductions and scans with a function that combines two elements."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tilewright import lazy_module
from tilewright.hl import exc
from tilewright.hl.language.reference_functions import FUNCTIONS
from tilewright.hl.language.reference_tiles import running
from tilewright.hl.rows.dtypes import opmath
from tilewright.hl.trace import builtins
from tilewright.hl.trace.equal import equate_shapes
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import device_trace, raw_shape

if TYPE_CHECKING:
    from tilewright.hl.rows import functions
else:
    functions = lazy_module("tilewright.hl.rows.functions")


def reduce(
    combine_fn: Callable[..., Any], input_tensor: Any, dim: Any = None, other: Any = 0, keep_dims: bool = False
) -> Any:
    """Combine the elements of dimensions.

    Args:
        combine_fn: associative and commutative; takes two elements, of a tuple of tiles two tuples (or the elements one
            by one, those of the left side first), and returns one.
        input_tensor: a tile, or a tuple of tiles of one shape.
        dim: a dimension; None for all.
        other: the neutral element, one for each tile: it stands in the place of lanes that are not valid.
        keep_dims: whether reduced dimensions stay as 1.

    Returns:
        A tile, or a tuple of tiles.
    """
    device_trace("hl.reduce")
    operands, several = _operands("hl.reduce", input_tensor)
    rank = operands[0].dim()
    dims = list(range(rank)) if dim is None else [_dim(dim, rank)]
    others = list(other) if isinstance(other, list | tuple) else [other] * len(operands)
    if len(others) != len(operands):
        raise exc.InvalidAPIUsage(f"hl.reduce of {len(operands)} tiles with {len(others)} neutral elements")
    made = _recorded("reduce_fn", combine_fn, operands, (dims, others, keep_dims), _reduced(operands, dims, keep_dims))
    return tuple(made) if several else made[0]


def associative_scan(combine_fn: Callable[..., Any], input_tensor: Any, dim: int, reverse: bool = False) -> Any:
    """Running combinations along a dimension.

    Args:
        combine_fn: associative; as of `reduce`.
        input_tensor: a tile, or a tuple of tiles of one shape.
        dim: the dimension.
        reverse: from the end to the front.

    Returns:
        A tile of the same shape, or a tuple of tiles.
    """
    trace = device_trace("hl.associative_scan")
    operands, several = _operands("hl.associative_scan", input_tensor)
    dim = _dim(dim, operands[0].dim())
    if reverse and trace.factors.dim(raw_shape(operands[0])[dim]).atoms:
        made = _guarded(combine_fn, operands, dim)
    else:
        made = _scan(_unpacked(combine_fn, len(operands)), operands, dim, reverse)
    return tuple(made) if several else made[0]


def cumsum(input_tensor: Any, dim: int, reverse: bool = False) -> Any:
    """Running sums along a dimension, from the end where `reverse`; the type is that of `torch.cumsum`."""
    return _running("cumsum", torch.cumsum, input_tensor, dim, reverse)


def cumprod(input_tensor: Any, dim: int, reverse: bool = False) -> Any:
    """Running products along a dimension, from the end where `reverse`; the type is that of `torch.cumprod`."""
    return _running("cumprod", torch.cumprod, input_tensor, dim, reverse)


def _running(name: str, function: Callable[..., Any], tensor: Any, dim: int, reverse: bool) -> Any:
    trace = device_trace(f"hl.{name}")
    if not reverse:
        return function(tensor, dim)
    with trace.silence():
        sample = function(tensor, dim)
    return trace.record(name, (tensor, _dim(dim, tensor.dim())), sample, {"reverse": True}, opmath(sample.dtype))


def _operands(name: str, given: Any) -> tuple[list[Any], bool]:
    several = isinstance(given, list | tuple)
    operands = list(given) if several else [given]
    if not operands or any(not isinstance(operand, torch.Tensor) or not operand.dim() for operand in operands):
        raise exc.InvalidAPIUsage(f"{name} takes a tile, or a tuple of tiles")
    first, *others = map(raw_shape, operands)
    for shape in others:
        if shape == first:
            continue
        if len(shape) == len(first):
            equate_shapes(device_trace(name), first, shape)
        raise exc.ShapeMismatch(f"{name} of tiles of different shapes", hint="expand them to one shape first")
    return operands, several


def _dim(dim: int, rank: int) -> int:
    if type(dim) is not int or not -rank <= dim < rank:
        raise exc.InvalidReductionDim(f"dimension {dim!r} of a tile with {rank} dimensions")
    return dim % rank


def _unpacked(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`function` taking its elements one by one."""
    function = getattr(function, "fn", function)  # of a jit function or a kernel the function below
    try:
        parameters = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = 2 * count
    if count == 1 or parameters != 2:
        return function
    return lambda *elements: function(elements[:count], elements[count:])


def _reduced(operands: list[Any], dims: list[int], keep: bool) -> list[Any]:
    trace = device_trace("hl.reduce")
    shape = raw_shape(operands[0])
    kept = [1 if at in dims else extent for at, extent in enumerate(shape) if keep or at not in dims]
    with trace.silence():
        return [sample_of(trace, kept, operand.dtype) for operand in operands]


def _recorded(
    op: str, function: Callable[..., Any], operands: list[Any], rest: tuple[Any, ...], samples: list[Any]
) -> list[Any]:
    trace = device_trace("a combine function")
    region = functions.traced(_unpacked(function, len(operands)), operands)
    trace.record(op, (operands, *rest), samples)
    assert trace.region is not None
    trace.region.nodes[-1].regions = [region]
    return samples


def _scan(function: Callable[..., Any], operands: list[Any], dim: int, reverse: bool) -> list[Any]:
    trace = device_trace("hl.associative_scan")
    with trace.silence():
        samples = [sample_of(trace, raw_shape(operand), operand.dtype) for operand in operands]
    return _recorded("scan_fn", function, operands, (dim, reverse), samples)


def _guarded(function: Callable[..., Any], operands: list[Any], dim: int) -> list[Any]:
    """A scan from the end, which meets the lanes that are not valid first: each element says whether it counts.

    The running sum of ones from the end is positive from the last valid lane on, so it says so.
    """
    count, plain = len(operands), _unpacked(function, len(operands))
    ones = torch.ones_like(operands[0], dtype=torch.int32)
    flags = _running("cumsum", torch.cumsum, ones, dim, True).to(torch.int32).clamp_max(1)

    def guarded(*elements: Any) -> list[Any]:
        left, right = elements[: count + 1], elements[count + 1 :]
        made = plain(*left[1:], *right[1:])
        made = list(made) if isinstance(made, list | tuple) else [made]
        # `left` is what was met before, nearer to the end; without it the element stands alone
        chosen = [torch.where(left[0] > 0, one, other) for one, other in zip(made, right[1:], strict=True)]
        return [torch.maximum(left[0], right[0]), *chosen]

    return _scan(guarded, [flags, *operands], dim, True)[1:]


def _torch_scan(
    combine_fn: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """`associative_scan` of torch's higher-order operations, in a loop."""
    scan = associative_scan if running() is None else FUNCTIONS["associative_scan"]
    return scan(combine_fn, tuple(xs) if isinstance(xs, list) else xs, dim, reverse)


builtins.provide("scan", _torch_scan)
