"""Strategies of hypothesis for the arguments of kernels: sizes, arrays that lie in memory in many ways, special values.

The arguments of a kernel belong together: arrays share dimensions, a stride is that of another argument. So a dimension
may have a name, which is drawn once for a call, and an argument may be computed from those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tilewright.comparing.arrays import LAYOUTS, READ_ONLY, array

SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0)
_MOST_SPECIAL = 4


def sizes(least: int = 1, most: int = 200) -> SearchStrategy[int]:
    """Extents of dimensions: any, and powers of two with those beside them, where kernels go wrong.

    Args:
        least, most: the smallest and the largest.
    """
    powers = {p + d for e in range(most.bit_length() + 1) for p in (1 << e,) for d in (-1, 0, 1)}
    corners = sorted(size for size in powers if least <= size <= most)
    return st.one_of(st.integers(least, most), st.sampled_from(corners or [least]))


@dataclass(frozen=True, slots=True)
class ArrayStrategy:
    """What `arrays` makes."""

    shape: tuple[Any, ...]
    dtype: Any
    layouts: tuple[str, ...]
    special: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OverlappingStrategy:
    """What `overlapping` makes."""

    name: str
    shift: int | SearchStrategy[int]


def arrays(
    *shape: int | str | SearchStrategy[int],
    dtype: str | Sequence[str] | Callable[[Mapping[str, Any]], str] = "float32",
    layouts: Sequence[str] | None = None,
    special: bool | Sequence[float] = False,
    written: bool = False,
) -> ArrayStrategy:
    """Arrays as arguments.

    Args:
        shape: an extent each: a number, a strategy, or a name, which stands for one number in a call.
        dtype: of an element; several are drawn from; a function computes it from the arguments before.
        layouts: how it may lie in memory (`array`); default is every way, for arrays that are written every
            one in which elements share no memory.
        special: sow NaN, infinities and zeros, or the values that are given, among the contents.
        written: the kernel writes it.
    """
    usual = [layout for layout in LAYOUTS if not (written and layout in READ_ONLY)]
    values = SPECIAL if special is True else tuple(special or ())
    return ArrayStrategy(tuple(shape), dtype, tuple(layouts or usual), values)


def overlapping(name: str, shift: int | SearchStrategy[int] = 0) -> OverlappingStrategy:
    """An array in the memory of another argument: the same shape and strides, `shift` (at most 16) elements later.

    Args:
        name: of the argument, which comes before this one.
        shift: 0 for the array itself, as in updates in place.
    """
    return OverlappingStrategy(name, shift)


def size(name: str) -> Callable[[Mapping[str, Any]], int]:
    """A named extent as an argument."""
    return lambda drawn: int(drawn[name])


def stride(name: str, dim: int) -> Callable[[Mapping[str, Any]], int]:
    """A stride of an array argument, in elements, as an argument."""

    def of(drawn: Mapping[str, Any]) -> int:
        value = drawn[name]
        return int(value.stride(dim)) if hasattr(value, "untyped_storage") else value.strides[dim] // value.itemsize

    return of


@dataclass(slots=True)
class Example:
    """A call that was drawn.

    Args:
        arguments: by parameter, as they are passed.
        texts: how each is written.
        lines: of a program, ahead of the call.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)


def examples(
    strategies: Mapping[str, Any], dims: Mapping[str, SearchStrategy[int]] | None = None, *, torch: bool = False
) -> SearchStrategy[Example]:
    """Calls of a kernel.

    Args:
        strategies: by parameter, in order: `arrays`, `overlapping`, a strategy of hypothesis, a function of what was
            drawn before (arguments and named extents by name), or a value.
        dims: strategies of named extents; default is `sizes()`.
        torch: arrays are tensors of PyTorch.
    """

    def draw_example(draw: DrawFn) -> Example:
        drawn: dict[str, Any] = {}
        made = Example()
        shared: dict[
            str, tuple[array, dict[str, int]]
        ] = {}  # by its name an array, and the shifts of all in its memory

        def extent(wanted: Any) -> int:
            if not isinstance(wanted, str):
                return draw(wanted) if isinstance(wanted, SearchStrategy) else int(wanted)
            if wanted not in drawn:
                drawn[wanted] = draw(sizes() if dims is None or wanted not in dims else dims[wanted])
            return int(drawn[wanted])

        for name, wanted in strategies.items():
            if isinstance(wanted, ArrayStrategy):
                described = _drawn(draw, wanted, tuple(map(extent, wanted.shape)), drawn, torch)
                value, text = described.make(), f"{described!r}.make()"
                shared[name] = described, {name: 0}
            elif isinstance(wanted, OverlappingStrategy):
                described, shifts = shared[wanted.name]
                shifts[name] = draw(wanted.shift) if isinstance(wanted.shift, SearchStrategy) else wanted.shift
                views = dict(zip(shifts, described.views(*shifts.values())))
                made.lines[wanted.name] = f"{', '.join(shifts)} = {described!r}.views{(*shifts.values(),)}"
                made.arguments.update(views)
                made.texts.update({view: view for view in views})
                drawn.update(views)
                continue
            elif isinstance(wanted, SearchStrategy):
                value = draw(wanted)
                text = repr(value)
            else:
                value = wanted(drawn) if callable(wanted) else wanted
                text = repr(value)
            made.arguments[name] = drawn[name] = value
            made.texts[name] = text
        return made

    return st.composite(draw_example)()


def _drawn(draw: DrawFn, wanted: ArrayStrategy, shape: tuple[int, ...], drawn: Mapping[str, Any], torch: bool) -> array:
    dtype = wanted.dtype(drawn) if callable(wanted.dtype) else wanted.dtype
    dtype = dtype if isinstance(dtype, str) else draw(st.sampled_from(list(dtype)))
    layout, seed = draw(st.sampled_from(wanted.layouts)), draw(st.integers(0, 1 << 16))
    special: list[tuple[int, float]] = []
    if wanted.special:
        element = st.tuples(st.integers(0, 1 << 12), st.sampled_from(wanted.special))
        special = draw(st.lists(element, max_size=_MOST_SPECIAL))
    return array(shape, dtype, layout, seed, tuple(special), torch=torch)
