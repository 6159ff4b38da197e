"""What a kernel can loop over at compile time, and Python's functions on such sequences.

`enumerate`, `zip`, `reversed`, `sorted`, `map`, `filter` give tuples; `sum`, `any`, `all` combine items, tensors
among them with the operators of the language.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import LanguageTypeError
from tilewright.frontend.expressions import binary, static_items, truth_of, wrap
from tilewright.frontend.frame import Frame
from tilewright.frontend.structure import is_static, leaves, type_text
from tilewright.ops.builtin import BUILTINS
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


def items_of(value: Any, what: str) -> Sequence[Any]:
    """The items of a compile-time sequence.

    Raises:
        LanguageTypeError: `value` is no such sequence; `what` names the function that needs it.
    """
    items = static_items(value, counted=True)
    if items is None:
        raise LanguageTypeError(
            f"{what}() takes a sequence whose length is known at compile time, not {type_text(value)}",
            hint="a tuple, a list, text, or range(...) of constants",
        )
    return [wrap(item) for item in items]


def _enumerate(frame: Frame, iterable: Any, start: Any = 0) -> Any:
    first = unwrap(start)
    return tile_tuple([tile_tuple([constexpr(first + n), v]) for n, v in enumerate(items_of(iterable, "enumerate"))])


def _zip(frame: Frame, *iterables: Any, strict: Any = False) -> Any:
    return tile_tuple([tile_tuple(row) for row in zip(*(items_of(v, "zip") for v in iterables), strict=unwrap(strict))])


def _reversed(frame: Frame, value: Any) -> Any:
    return tile_tuple(list(items_of(value, "reversed"))[::-1])


def _sorted(frame: Frame, value: Any, *, key: Any = None, reverse: Any = False) -> Any:
    items = items_of(value, "sorted")
    keys = [item if unwrap(key) is None else frame.builder.call(key, (item,)) for item in items]
    if any(leaves(k) for k in keys):
        raise LanguageTypeError("sorted() takes compile-time values only", hint="sort a tile with tl.sort")
    order = sorted(range(len(items)), key=lambda n: unwrap(keys[n]), reverse=bool(unwrap(reverse)))
    return tile_tuple([items[n] for n in order])


def _sum(frame: Frame, value: Any, start: Any = 0) -> Any:
    if isinstance(value, tensor):
        raise LanguageTypeError(
            f"sum() adds the items of a tuple, not of {type_text(value)}", hint="use tl.sum(x, axis)"
        )
    total: Any = wrap(start)
    for item in items_of(value, "sum"):
        total = item if is_static(total) and unwrap(total) == 0 else binary(frame, frame.node, ast.Add(), total, item)
    return total


def _combined(name: str, python: Callable[..., bool]) -> Callable[..., Any]:
    def call(frame: Frame, value: Any) -> Any:
        flags = [truth_of(frame, item) for item in items_of(value, python.__name__)]
        known = [flag for flag in flags if not isinstance(flag, tensor)]
        unknown = [flag for flag in flags if isinstance(flag, tensor)]
        if not unknown or python(known) is not python([]):
            return constexpr(python(known))
        result = unknown[0]
        for flag in unknown[1:]:
            result = BUILTINS[name].fn(frame.builder, result, flag)
        return result

    return call


def _map(frame: Frame, fn: Any, *iterables: Any) -> Any:
    rows = zip(*(items_of(v, "map") for v in iterables), strict=False)
    return tile_tuple([wrap(frame.builder.call(fn, row)) for row in rows])


def _filter(frame: Frame, fn: Any, iterable: Any) -> Any:
    kept = []
    for item in items_of(iterable, "filter"):
        flag = item if unwrap(fn) is None else frame.builder.call(fn, (item,))
        if leaves(flag):
            raise LanguageTypeError(
                f"filter() decides by compile-time values, not {type_text(flag)}", hint="use tl.where on the values"
            )
        if unwrap(flag):
            kept.append(item)
    return tile_tuple(kept)


def _sequence(frame: Frame, value: Any = ()) -> Any:
    if isinstance(value, tensor):
        raise LanguageTypeError(f"a tensor of type {value.type} is not a sequence")
    return tile_tuple(items_of(value, "tuple"))


def _dict(frame: Frame, *args: Any, **kwargs: Any) -> Any:
    pairs = dict(args[0]) if args and isinstance(args[0], dict) else {}
    if args and not pairs:
        pairs = {unwrap(key): value for key, value in (items_of(row, "dict") for row in items_of(args[0], "dict"))}
    return {**pairs, **kwargs}


SEQUENCE_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    enumerate: _enumerate, zip: _zip, reversed: _reversed, sorted: _sorted, sum: _sum, map: _map, filter: _filter,
    any: _combined("logical_or", any), all: _combined("logical_and", all), builtins.tuple: _sequence, list: _sequence,
    tile_tuple: _sequence, dict: _dict,
}  # fmt: skip
