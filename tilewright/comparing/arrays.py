"""Arrays described by a few words: shape, type, how they lie in memory, contents from a seed.

>>> from tilewright.testing import array
>>> array((2, 3), "int32", layout="transposed").make().tolist()
[[0, 1, 2], [3, -3, -2]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import ArgumentError

CONTIGUOUS, TRANSPOSED, PADDED, SLICED, EXPANDED, OVERLAPPING = LAYOUTS = (
    "contiguous",
    "transposed",  # the last dimensions in the other order
    "padded",  # a gap behind each row
    "sliced",  # every second element of a row
    "expanded",  # all rows are one
    "overlapping",  # each row begins an element behind the one before it
)
READ_ONLY = frozenset({EXPANDED, OVERLAPPING})  # whose elements share memory
_SLACK = 16  # elements before the first and behind the last, which nobody may touch
_GAP = 3  # elements behind each row
_PERIOD = 7  # of the contents without a seed


@dataclass(frozen=True, slots=True)
class array:
    """An array to be made.

    Args:
        shape: of the array.
        dtype: name of the type of an element, as numpy and torch have it.
        layout: "contiguous", "transposed", "padded", "sliced", "expanded" or "overlapping".
        seed: of the contents; 0 for small whole numbers that repeat, 1 for ones.
        special: (number of an element in the order of rows, value) of elements that are something else.
        torch: make a tensor of PyTorch.

    Raises:
        ArgumentError: there is no such layout.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = CONTIGUOUS
    seed: int = 0
    special: tuple[tuple[int, float], ...] = ()
    torch: bool = False

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ArgumentError(f"array: there is no layout {self.layout!r}", hint=f"layouts are {', '.join(LAYOUTS)}")

    def __repr__(self) -> str:
        rows = ", ".join(f"({index}, {_number(value)})" for index, value in self.special)
        words = [repr(self.shape), repr(self.dtype)]
        words += [f"layout={self.layout!r}"] if self.layout != CONTIGUOUS else []
        words += [f"seed={self.seed}"] if self.seed else []
        words += [f"special=({rows},)"] if self.special else []
        return f"array({', '.join([*words, *(['torch=True'] if self.torch else [])])})"

    def make(self) -> Any:
        """The array: a view of memory that has NaN, or the largest integer, in all other places."""
        return self.views(0)[0]

    def views(self, *shifts: int) -> list[Any]:
        """Views of one memory, like the array: each so many elements (at most 16) later. The contents are at 0."""
        strides = self._strides()
        memory = self._memory(strides)
        self._fill(self._view(memory, strides, 0))
        return [self._view(memory, strides, shift) for shift in shifts]

    def _memory(self, strides: tuple[int, ...]) -> Any:
        """What the view lies in, with values in it that no test takes for right."""
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, strides)) + 1 if 0 not in self.shape else 0
        size = reach + 2 * _SLACK
        if self.torch:
            import torch

            kind = getattr(torch, self.dtype)
            poison = math.nan if kind.is_floating_point else 1 if kind == torch.bool else torch.iinfo(kind).max
            return torch.full((size,), poison).to(kind)
        named = np.dtype(self.dtype)
        return np.full(size, math.nan if named.kind == "f" else named.kind == "b" or np.iinfo(named).max, named)

    def _view(self, memory: Any, strides: tuple[int, ...], shift: int) -> Any:
        if self.torch:
            return memory.as_strided(self.shape, strides, _SLACK + shift)
        size = memory.itemsize
        return np.ndarray(self.shape, memory.dtype, memory.data, (_SLACK + shift) * size, [size * s for s in strides])

    def _fill(self, view: Any) -> None:
        """Write the contents; where elements share memory the last one stays."""
        values = self._values()
        if not self.torch:
            with np.errstate(all="ignore"):
                view[...] = values.astype(view.dtype)
            return
        import torch

        rounded = torch.from_numpy(values).to(view.dtype)
        for index in np.ndindex(*view.shape) if self.layout in READ_ONLY else [()]:
            view[index] = rounded[index]

    def _strides(self) -> tuple[int, ...]:
        """In elements."""
        order = list(range(len(self.shape)))
        if self.layout == TRANSPOSED:
            order = [*order[:-2], *order[:-3:-1]]
        strides, step = [0] * len(order), 2 if self.layout == SLICED else 1
        for position, dim in enumerate(reversed(order)):
            strides[dim] = step
            step *= max(1, self.shape[dim])
            step += _GAP if self.layout == PADDED and position == 0 else 0
        if len(order) > 1 and self.layout in READ_ONLY:
            strides[-2] = 0 if self.layout == EXPANDED else 1
        elif len(order) == 1 and self.layout == EXPANDED:
            strides[0] = 0
        return tuple(strides)

    def _values(self) -> NDArray[Any]:
        count = math.prod(self.shape)
        integers = self.dtype.startswith(("int", "uint", "bool"))
        flat: NDArray[Any]
        if self.seed <= 1:
            half = 0 if self.dtype.startswith(("uint", "bool")) else _PERIOD // 2
            flat = np.ones(count) if self.seed else (np.arange(count) + half) % _PERIOD - half
        else:
            random = np.random.default_rng(self.seed)
            flat = random.integers(0, 100, count) if integers else random.standard_normal(count)
        flat = flat.astype(np.int64 if integers else np.float64)
        for index, value in self.special:
            if count and not (integers and not math.isfinite(value)):
                flat[index % count] = value
        return flat.reshape(self.shape)


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'
