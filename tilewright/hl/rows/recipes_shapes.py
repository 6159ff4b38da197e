"""Slices, joins, rolls, sorts: gathers at positions that are computed."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tilewright.hl import exc
from tilewright.hl.rows.gather import lanes, positions, sort_lanes, static_extent, take
from tilewright.hl.rows.recipes import Dims, count, dims_of, same_rows
from tilewright.hl.rows.table import recipe, refuse
from tilewright.hl.trace.equal import equate_shapes
from tilewright.hl.trace.state import device_trace, raw_shape


def narrow(x: Tensor, dim: int, start: int, length: int, step: int = 1) -> Any:
    """`length` elements from `start` on, `step` apart."""
    index = lanes(length)
    index = index * step if step != 1 else index
    return take(x, index + start if start else index, dim)


@recipe("slice")
def slice(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """A slice of static bounds; a whole one has a row."""
    dim %= x.dim()
    extent = raw_shape(x)[dim]
    if (start or 0) in (0, -extent) and (end is None or end >= extent) and step == 1:
        return NotImplemented
    static_extent(x, dim, "a slice that narrows a tile", "subscript the tensor of the host with the narrower range")
    first, last, step = builtins.slice(start, end, step).indices(extent)
    length = len(range(first, last, step))
    if length == 0:
        raise exc.UnsupportedOperation("a slice without elements", hint="a tile has at least one element")
    return narrow(x, dim, first, length, step)


@recipe("select")
def select(x: Tensor, dim: int, index: int) -> Any:
    """One element of a dimension."""
    dim %= x.dim()
    extent = static_extent(x, dim, "select")
    return narrow(x, dim, index % extent, 1).squeeze(dim)


@recipe("slice_backward")
def slice_backward(grad: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    """Zeros, with the gradient of a slice in its place."""
    dim %= grad.dim()
    first, last, step = builtins.slice(start, end, step).indices(sizes[dim])
    length = len(range(first, last, step))
    if (first, length, step) == (0, sizes[dim], 1):
        return grad
    lane = lanes(sizes[dim]) - first
    inside = (lane >= 0) & (lane < length * step) & (lane % step == 0)
    inside = inside.view([-1 if at == dim else 1 for at in range(grad.dim())])
    part = take(grad, (lane // step).clamp(0, length - 1), dim)
    return torch.where(inside, part, 0.0).to(grad.dtype)


@recipe("select_backward")
def select_backward(grad: Tensor, sizes: Sequence[int], dim: int, index: int) -> Any:
    """Zeros, with the gradient of one element of a dimension in its place."""
    dim %= len(sizes)
    place = lanes(sizes[dim]) == index % sizes[dim]
    place = place.view([-1 if at == dim else 1 for at in range(len(sizes))])
    return torch.where(place, grad.unsqueeze(dim), 0.0).to(grad.dtype)


@recipe("split", "unsafe_split")
def split(x: Tensor, size: int, dim: int = 0) -> Any:
    """Parts of one size, the last perhaps smaller."""
    dim %= x.dim()
    extent = static_extent(x, dim, "split")
    return [narrow(x, dim, at, min(size, extent - at)) for at in range(0, extent, size)]


@recipe("split_with_sizes")
def split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> Any:
    """Parts of given sizes."""
    dim %= x.dim()
    static_extent(x, dim, "split")
    made, at = [], 0
    for size in sizes:
        made.append(narrow(x, dim, at, size))
        at += size
    return made


@recipe("unbind")
def unbind(x: Tensor, dim: int = 0) -> Any:
    """Every element of a dimension."""
    dim %= x.dim()
    return [select(x, dim, at) for at in range(static_extent(x, dim, "unbind"))]


@recipe("cat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Tiles one after the other."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    dim %= tensors[0].dim()
    sizes, trace = [raw_shape(tensor)[dim] for tensor in tensors], device_trace("cat")
    if len(set(sizes)) == 1 and trace.factors.dim(sizes[0]).atoms and trace.factors.dim(sum(sizes)).atom is not None:
        return torch.stack(list(tensors), dim).flatten(dim, dim + 1)  # all parts of a block
    extents = [static_extent(tensor, dim, "cat", "store the parts one by one") for tensor in tensors]
    lane, offset, made = lanes(sum(extents)), 0, None
    for tensor, extent in zip(tensors, extents, strict=True):
        if extent == 0:
            continue
        part = take(tensor.to(dtype), (lane - offset).clamp(0, extent - 1), dim)
        behind = (lane >= offset).view([-1 if at == dim else 1 for at in range(tensor.dim())])
        made = part if made is None else torch.where(behind, part, made)
        offset += extent
    return made


@recipe("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Tiles side by side along a new dimension."""
    dim %= tensors[0].dim() + 1
    return cat([tensor.unsqueeze(dim) for tensor in tensors], dim)


@recipe("flip")
def flip(x: Tensor, dims: Dims) -> Any:
    """Dimensions in reverse order."""
    for dim in dims_of(x, dims):
        extent = static_extent(x, dim, "flip")
        x = take(x, extent - 1 - lanes(extent), dim)
    return x


@recipe("roll")
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Dimensions shifted around."""
    if not dims and x.dim() > 1:
        raise exc.UnsupportedOperation("roll over all dimensions", hint="name the dimensions: roll(shifts, dims)")
    for shift, dim in zip(shifts, dims or [0], strict=True):
        dim %= x.dim()
        extent = static_extent(x, dim, "roll")
        x = take(x, (lanes(extent) + (-shift) % extent) % extent, dim)
    return x


@recipe("repeat")
def repeat(x: Tensor, times: Sequence[int]) -> Any:
    """Copies one behind the other."""
    while x.dim() < len(times):
        x = x.unsqueeze(0)
    for dim, n in enumerate(times):
        if raw_shape(x)[dim] == 1 and n != 1:
            x = x.expand([n if at == dim else -1 for at in range(x.dim())])
        elif n != 1:
            extent = static_extent(x, dim, "repeat")
            x = take(x, lanes(extent * n) % extent, dim)
    return x


@recipe("constant_pad_nd")
def constant_pad_nd(x: Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """Constants before and behind; negative widths cut off."""
    for at in range(len(pad) // 2):
        before, behind, dim = pad[2 * at], pad[2 * at + 1], x.dim() - 1 - at
        if before == behind == 0:
            continue
        extent = static_extent(x, dim, "pad")
        lane = lanes(extent + before + behind) - before
        inside = ((lane >= 0) & (lane < extent)).view([-1 if d == dim else 1 for d in range(x.dim())])
        x = torch.where(inside, take(x, lane.clamp(0, extent - 1), dim), value).to(x.dtype)
    return x


@recipe("index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    """Elements of a dimension by number."""
    dim %= x.dim()
    return take(x, index.clamp(0, static_extent(x, dim, "index_select") - 1), dim)


@recipe("gather")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """Elements by number along one dimension; the others must agree."""
    dim %= x.dim()
    ours, theirs = ([n for at, n in enumerate(raw_shape(tensor)) if at != dim] for tensor in (x, index))
    if ours != theirs:
        equate_shapes(device_trace("gather"), ours, theirs)
        raise exc.ShapeMismatch("gather: the index must have the shape of the tile but for the gathered dimension")
    return take(x, index.clamp(0, static_extent(x, dim, "gather") - 1), dim)


def _triangle(x: Tensor, diagonal: int, lower: bool) -> Any:
    distance = positions(x, x.dim() - 1) - positions(x, x.dim() - 2)
    keep = distance <= diagonal if lower else distance >= diagonal
    return torch.where(keep, x, 0).to(x.dtype)


@recipe("tril")
def tril(x: Tensor, diagonal: int = 0) -> Any:
    """The part on and below a diagonal of the tile."""
    return _triangle(x, diagonal, True)


@recipe("triu")
def triu(x: Tensor, diagonal: int = 0) -> Any:
    """The part on and above a diagonal of the tile."""
    return _triangle(x, diagonal, False)


@recipe("arange")
def arange(*bounds: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Consecutive numbers: `arange(end)`, `arange(begin, end)`, `arange(begin, end, step)`."""
    begin, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    floats = any(isinstance(bound, float) for bound in (begin, end, step))
    made = lanes(max(-(-(end - begin) // step), 0) if not floats else int(-(-(end - begin) // step)))
    made = made.to(dtype or (torch.float32 if floats else torch.int64))
    made = made * step if step != 1 else made
    return made + begin if begin != 0 else made


@recipe("eye")
def eye(n: int, m: int | None = None, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """1 on the diagonal."""
    return (lanes(n, 2, 0) == lanes(m or n, 2, 1)).to(dtype or torch.float32)


@recipe("linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Numbers evenly spaced, ends included; the second half is counted from the end."""
    lane, step = lanes(steps), (end - start) / max(steps - 1, 1)
    near = start + lane.float() * step
    far = end - (steps - 1 - lane).float() * step
    return torch.where(lane < steps // 2, near, far).to(dtype or torch.float32)


# --- order --------------------------------------------------------------------------------------------------


def _keys(x: Tensor, descending: bool) -> Any:
    """Integers in the order of `x`, NaN last, each with its position in the lower half."""
    if x.dtype in (torch.float64, torch.int64):
        raise exc.UnsupportedOperation(f"sorting {x.dtype}", hint="sort types of at most 32 bits")
    if x.dtype.is_floating_point:
        bits = (x.float() + 0.0).view(torch.int32)
        key = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
        key = torch.where(torch.isnan(x), 0x7FFFFFFF, key)
    else:
        key = x.to(torch.int32)
    key = (~key if descending else key).to(torch.int64)
    return (key << 32) | positions(x, x.dim() - 1)


def order(x: Tensor, dim: int, descending: bool) -> Any:
    """The positions of the elements along the last dimension `dim` in stable order, int64."""
    trace = device_trace("a sort")
    keys = _keys(x, descending)
    extent = raw_shape(x)[dim]
    static = not trace.factors.dim(extent).atoms
    padded = 1 << (extent - 1).bit_length() if static else extent
    if padded != extent:  # sorting networks want powers of two
        lane = lanes(padded)
        inside = (lane < extent).view([1] * dim + [padded])
        keys = torch.where(inside, take(keys, lane.clamp_max(extent - 1), dim), torch.iinfo(torch.int64).max)
    keys = sort_lanes(keys)
    keys = narrow(keys, dim, 0, extent) if padded != extent else keys
    return keys & 0xFFFFFFFF


@recipe("sort")
def sort(x: Tensor, dim: Dims = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """(values, positions) in order; stable, NaN largest."""
    if isinstance(dim, bool):  # the overload with `stable` as first argument gives all by name
        dim = -1
    dim, last = dim % x.dim(), x.dim() - 1
    y = x.transpose(dim, last) if dim != last else x
    index = order(y, last, descending)
    values = take(y, index, last)
    return (values.transpose(dim, last), index.transpose(dim, last)) if dim != last else (values, index)


@recipe("topk")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The `k` largest or smallest with their positions."""
    dim %= x.dim()
    values, index = torch.sort(x, dim, largest)
    return narrow(values, dim, 0, k), narrow(index, dim, 0, k)


@recipe("kthvalue")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest with its position."""
    return _at(x, k - 1, dim, keepdim)


@recipe("median")
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median; with `dim` also its position. NaN where there is one."""
    if dim is None:
        if x.dim() != 1:
            raise exc.UnsupportedOperation("the median over all dimensions", hint="give a dimension: x.median(dim)")
        return median(x, 0)[0]
    same_rows(x, [dim % x.dim()], "the median")
    values, index = _at(x, (count(x, [dim % x.dim()]) - 1) // 2, dim, keepdim)
    if x.dtype.is_floating_point:
        values = torch.where(torch.isnan(x).any(dim, keepdim), float("nan"), values)
    return values, index


@recipe("nanmedian")
def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of what is not NaN; with `dim` also its position."""
    if dim is None:
        if x.dim() != 1:
            raise exc.UnsupportedOperation("the median over all dimensions", hint="give a dimension: x.nanmedian(dim)")
        return nanmedian(x, 0)[0]
    same_rows(x, [dim % x.dim()], "the median")
    numbers = (~torch.isnan(x)).sum(dim, True)
    return _at(x, (numbers - 1).clamp_min(0) // 2, dim, keepdim)


def _at(x: Tensor, place: Tensor, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """(value, position) of the element that is at `place` in order."""
    dim %= x.dim()
    _, index = torch.sort(x, dim)
    index = torch.where(positions(index, dim) == place, index, 0).sum(dim, True)
    value = torch.where(positions(x, dim) == index, x, 0).sum(dim, True).to(x.dtype)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


_SHAPE = "the shape of its result would depend on data; use torch.where(mask, x, 0)"
for _name in ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "nonzero_static"):
    refuse(_name, _SHAPE)
refuse("index", "tiles are indexed with constants; index the tensor of the host, or use torch.gather")
for _name in ("scatter", "scatter_add", "index_add", "index_copy", "index_put", "masked_scatter", "put", "histc"):
    refuse(_name, "elements of a tile cannot be written at places that data say; use hl.atomic_add on a host tensor")
refuse("bincount", _SHAPE)
refuse("multinomial", "it draws from whole rows; use torch.rand_like and cumsum")
