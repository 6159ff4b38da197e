"""Random numbers: Philox-4x32-10, counted by where an element is in the whole range, so that blocks do not matter.

Functions with a seed draw one word per element of their shape. PyTorch's own functions have none; for these the
launcher draws a seed from PyTorch's generator for every launch, each call in the text gets a key of its own, and the
counter runs over the ranges of the loops around it too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Node
from tilewright.hl.rows.gather import lanes
from tilewright.hl.rows.table import Emitter, Row, recipe, refuse, row
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import Trace, device_trace, raw_shape
from tilewright.hl.trace.tiles import Tile

_SEED = "torch.randint(2**62, (), device='cpu').item()"  # drawn by the launcher, for each launch
_NARROW = 2**31


@dataclass(frozen=True)
class Draw(Row):
    """Our own nodes `draw_*(seed, counter)`.

    Args:
        function: name in `tl`.
    """

    function: str = ""

    def emit(self, emitter: Emitter, node: Node) -> None:
        seed, counter = (emitter.operand(arg) for arg in node.args[:2])
        emitter.assign_all(node.outs, f"{self.function}({seed}, {counter})")


@dataclass(frozen=True)
class DrawBelow(Draw):
    """Our own node `draw_integers(seed, counter, low, high)`: `low + word % (high - low)`, int32."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        seed, counter, low, high = (emitter.operand(arg) for arg in node.args)
        word = f"{self.function}({seed}, {counter}).to(tl.uint32)"
        span = f"tl.full([], {high} - {low}, tl.uint32)"
        emitter.assign(node.out, f"({word} % {span}).to(tl.int32) + {low}")


row(Draw("draw_uniform", None, "tl.rand"))
row(Draw("draw_normal", None, "tl.randn"))
row(Draw("draw_uniform4", None, "tl.rand4x"))
row(DrawBelow("draw_integers", None, "tl.randint"))


def drawn(
    op: str, shape: list[int], seed: Any, counter: Any, dtype: torch.dtype, count: int = 1, rest: Any = ()
) -> Any:
    """Record a draw for every element of `counter`; `count` results."""
    trace = device_trace("a random number")
    with trace.silence():
        samples = tuple(sample_of(trace, shape, dtype) for _ in range(count))
    made = trace.record(op, (seed, counter, *rest), samples)
    return made if count > 1 else made[0]


def counter(trace: Trace, shape: list[int], loops: bool, entries: Sequence[Any] = ()) -> Any:
    """The place of every element in the whole range, row after row; 32 bits where that is enough.

    Args:
        trace: the running trace.
        shape: extents of samples.
        loops: whether the loops around count too, outermost first, where they are no dimension of `shape`.
        entries: what the program gave as extents, where it gave them: a tile of one lane is told from a 1 by it.
    """
    dims = [
        _of_tile(trace, entry) if isinstance(entry, Tile) and extent == 1 else _place(trace, shape, at)
        for at, (extent, entry) in enumerate(zip_longest(shape, entries))
    ]
    places = [(index, extent) for index, extent, _ in dims]
    if loops:
        used = {axis.id for _, _, axis in dims if axis is not None}
        places = [(Sym.of(axis.offset), _end(trace, axis)) for axis in _around(trace) if axis.id not in used] + places
    narrow = all(type(extent) is int for _, extent in places) and math.prod(extent for _, extent in places) < _NARROW
    total: Any = None
    size: Any = 1
    # recipes run below the mode that turns symbols into values
    places = [tuple(trace.scalar(one) if isinstance(one, Sym) else one for one in place) for place in places]
    for index, extent in reversed(places):
        part = index.to(torch.int64) if isinstance(index, Tensor) and not narrow else index
        part = part if type(size) is int and size == 1 else part * size
        total = part if total is None else total + part
        size = size * extent
    total = 0 if total is None else total
    if not isinstance(total, Tensor):
        total = torch.full((), total)
    return total.expand(shape) if raw_shape(total) != tuple(shape) else total


def _place(trace: Trace, shape: list[int], at: int) -> tuple[Any, Any, Axis | None]:
    """(indices along a dimension, shaped for broadcasting; the extent of the whole range; its axis)."""
    dim = trace.factors.dim(shape[at])
    view = [-1 if other == at else 1 for other in range(len(shape))]
    if dim.is_one:
        return 0, 1, None
    if dim.atom is not None and dim.atom.kind == "block":
        axis = next(axis for axis in reversed(_around(trace)) if axis.size == dim.atom)
        index = Tile(axis).index
        return index.view(view) if len(shape) > 1 else index, _end(trace, axis), axis
    if any(atom.kind == "block" for atom in dim.atoms):
        raise exc.UnsupportedOperation(
            "random numbers for a dimension that merges a tile with something else",
            hint="draw them before the reshape: they are counted along the range of the tile",
        )
    return lanes(shape[at], len(shape), at), dim.size(), None


def _of_tile(trace: Trace, tile: Tile) -> tuple[Any, Any, Axis | None]:
    """What `_place` gives, for a tile of one lane."""
    return Sym.of(tile.axis.offset), _end(trace, tile.axis), tile.axis


def _around(trace: Trace) -> list[Axis]:
    """The axes of the loops around, outermost first."""
    return [axis for loop in trace.loops for axis in loop.kwargs["axes"]]


def _end(trace: Trace, axis: Axis) -> Any:
    """The end of an axis' range; of a jagged one that of its longest row."""
    end = trace.bounds[axis.id][1]
    return torch.amax(end) if axis.kind == "jagged" else end


# --- PyTorch's functions: the seed is the launcher's --------------------------------------------------


def _implicit(op: str, shape: Sequence[int], dtype: torch.dtype) -> Any:
    trace = device_trace("a random number")
    shape = [int.__int__(extent) for extent in shape]
    if trace.repeats:
        raise exc.UnsupportedOperation(
            "random numbers of PyTorch in a `while`: every pass would draw the same",
            hint="use hl.rand with offsets that count the passes",
        )
    trace.drawn += 1
    seed = trace.scalar(trace.host_symbol("rng_seed", _SEED) + trace.drawn)
    made = drawn(op, shape, seed, counter(trace, shape, True), torch.float32)
    return made if dtype in (None, torch.float32) else made.to(dtype)


def _like(x: Tensor, dtype: torch.dtype) -> Any:
    dtype = dtype or x.dtype
    if not dtype.is_floating_point:
        raise exc.UnsupportedOperation(f"random numbers of type {dtype}", hint="floating-point types, or hl.randint")
    return dtype


@recipe("rand")
def rand(size: Sequence[int], *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Uniform in [0, 1)."""
    return _implicit("draw_uniform", size, dtype)


@recipe("randn")
def randn(size: Sequence[int], *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Normal, by the method of Box and Muller."""
    return _implicit("draw_normal", size, dtype)


@recipe("rand_like")
def rand_like(x: Tensor, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Uniform in [0, 1)."""
    return _implicit("draw_uniform", raw_shape(x), _like(x, dtype))


@recipe("randn_like")
def randn_like(x: Tensor, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Normal, by the method of Box and Muller."""
    return _implicit("draw_normal", raw_shape(x), _like(x, dtype))


@recipe("bernoulli")
def bernoulli(x: Tensor, p: float | None = None, *, generator: torch.Generator | None = None) -> Any:
    """1 with the probability `p`, or where that is None the element."""
    return (_implicit("draw_uniform", raw_shape(x), torch.float32) < (x if p is None else p)).to(x.dtype)


refuse("randperm", "a permutation needs all elements at once; make it on the host")
refuse("multinomial", "drawing from a distribution needs a search; compare a cumulative sum with hl.rand")
