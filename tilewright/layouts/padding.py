"""Tiles whose shape is no power of two: the padded shape, and which elements of it are real.

Layouts cover the padded tile. Of each register it is known here whether it lies inside for every thread, for none, or
must be tested by the threads, and along which dims: the coordinates that a register takes over all threads are a coset
of a subspace, whose least and greatest members echelon reduction gives at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.layouts import f2
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout


def padded_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Each size rounded up to a power of two.

    Raises:
        LayoutError: a size is not positive.
    """
    if any(size < 1 for size in shape):
        raise LayoutError(f"a tile of shape {tuple(shape)} has no elements")
    return tuple(1 << (size - 1).bit_length() for size in shape)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where one register lies.

    Args:
        inside: True if it is inside the tile for every thread, False for none, None if it depends.
        tests: dims whose coordinate each thread must compare with the shape; empty unless it depends.
    """

    inside: bool | None
    tests: tuple[int, ...] = ()


def register_bounds(layout: LinearLayout, shape: Sequence[int]) -> tuple[Bounds, ...]:
    """Of each register of a layout of the padded tile, whether it holds an element of a tile of `shape`."""
    names = list(layout.out_sizes)
    threads = [name for name in layout.in_sizes if name != "register"]
    reach = [f2.Span(layout.sublayout(threads, [name]).columns) for name in names]
    result = []
    for register in range(layout.in_sizes["register"]):
        point = layout(register=register)
        least = [span.reduce(point[name])[0] for name, span in zip(names, reach)]
        most = [span.largest(point[name]) for name, span in zip(names, reach)]
        if any(low >= size for low, size in zip(least, shape)):
            result.append(Bounds(False))
        else:
            tests = tuple(axis for axis, (high, size) in enumerate(zip(most, shape)) if high >= size)
            result.append(Bounds(None, tests) if tests else Bounds(True))
    return tuple(result)


def mask(layout: LinearLayout, shape: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each position holds an element of a tile of `shape`: an array indexed by the inputs, in their order."""
    axes = np.meshgrid(*(np.arange(size) for size in layout.in_sizes.values()), indexing="ij")
    points = layout.array(**dict(zip(layout.in_sizes, axes)))
    inside: NDArray[np.bool_] = np.logical_and.reduce([p < size for p, size in zip(points.values(), shape)])
    return inside
