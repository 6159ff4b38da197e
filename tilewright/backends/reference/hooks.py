"""What the Python form of a block function calls where kernels and Python differ; `rewrite.py` puts the calls in.

Each function does at run time what the front end does while it compiles: plain assignment turns numbers into
tensors, `and` combines tensors and decides on constants, `range` counts with tensors.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tilewright.backends.reference.value import EagerValue
from tilewright.base.builtin import active_emitter
from tilewright.base.dtypes import dtype
from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.frontend.structure import same_constant, type_text
from tilewright.ir.types import to_ir
from tilewright.ops.builtin import BUILTINS, literal_dtype
from tilewright.ops.control import condition, range, static_range
from tilewright.ops.functions.operators import not_
from tilewright.ops.functions.subscript import with_item as _with_item
from tilewright.ops.promotion import promote_integers
from tilewright.ops.value_types import type_of as type_of_value
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple

_NUMBERS = frozenset((bool, int, float))
_LOGICAL_AND, _LOGICAL_OR = BUILTINS["logical_and"], BUILTINS["logical_or"]


# --- assignment ---------------------------------------------------------------------------------------


def assigned(value: Any) -> Any:
    """What plain assignment stores: numbers become tensors, tuples and lists item by item; the rest stays."""
    kind = value.__class__
    if kind is tensor:
        return value
    if kind is constexpr:
        kind, inner = value.value.__class__, value.value
        return active_emitter("=").constant(inner, literal_dtype(inner)) if kind in _NUMBERS else value
    if kind in _NUMBERS:
        return active_emitter("=").constant(value, literal_dtype(value))
    if kind is tile_tuple or kind is tuple:
        return tile_tuple([assigned(part) for part in value])
    if kind is list:
        return [assigned(part) for part in value]
    return value


def arm(test: Any, value: Any) -> Any:
    """One side of a conditional expression: on a run-time condition both sides are tensors."""
    return assigned(value) if _at_run_time(test) else value


def _at_run_time(test: Any) -> bool:
    """Whether a test is of run time; then a new stretch of the program begins (`products.py`)."""
    if not isinstance(test, tensor):
        return False
    _new_stretch()
    return True


def _new_stretch() -> None:
    emitter: Any = active_emitter("if")
    emitter.stretch += 1


def decides(test: Any) -> Any:
    """The test of an `if`, at its start."""
    _at_run_time(test)
    return test


def decided(test: Any) -> None:
    """The end of a branch that this test led to."""
    _at_run_time(test)


def entered() -> int:
    """The stretch of the program in which a function is entered."""
    emitter: Any = active_emitter("def")
    stretch: int = emitter.stretch
    return stretch


def returned(since: int, value: Any) -> Any:
    """What a function with several ways out returns: where run-time tests may have chosen it, it is no product."""
    if entered() != since:
        _new_stretch()
    return value


class _Index:
    """Gives the index that it is indexed with: ``INDEX[1:3, None]``."""

    def __getitem__(self, index: Any) -> Any:
        return index


INDEX = _Index()


def with_item(holder: Any, index: Any, value: Any) -> Any:
    """``holder[index] = value``; a tile is replaced by a new one."""
    if isinstance(holder, tensor):
        return _with_item(holder, index, value)
    holder[unwrap(index)] = value
    return holder


# --- logic ----------------------------------------------------------------------------------------------


def true_so_far(value: Any) -> bool:
    """Whether `value and ...` looks at its right side: always for a tensor."""
    return isinstance(value, tensor) or bool(value)


def false_so_far(value: Any) -> bool:
    """Whether `value or ...` looks at its right side: always for a tensor."""
    return isinstance(value, tensor) or not value


def both(left: Any, right: Any) -> Any:
    """``left and right`` where :func:`true_so_far` holds for `left`."""
    if not isinstance(left, tensor):
        return right
    if isinstance(right, tensor):
        return _LOGICAL_AND(left, right)
    return left if right else right


def either(left: Any, right: Any) -> Any:
    """``left or right`` where :func:`false_so_far` holds for `left`."""
    if not isinstance(left, tensor):
        return right
    if isinstance(right, tensor):
        return _LOGICAL_OR(left, right)
    return right if right else left


def negation(value: Any) -> Any:
    """``not value``."""
    return not_(value) if isinstance(value, tensor) else not value


def same(left: Any, right: Any) -> bool:
    """``left is right``, as the compiler decides it: by identity of tensors and equality of constants."""
    a, b = unwrap(left), unwrap(right)
    if a is b:
        return True
    return not isinstance(a, tensor) and a is not None and b is not None and same_constant(a, b)


def different(left: Any, right: Any) -> bool:
    """``left is not right``."""
    return not same(left, right)


def check(test: Any, message: Any) -> None:
    """``assert test, message``: a Python assertion, or that of the language on tensors."""
    if isinstance(test, tensor):
        BUILTINS["device_assert"](test, str(unwrap(message)))
    elif not test:
        raise AssertionError(*([unwrap(message)] if unwrap(message) != "" else []))


# --- loops ------------------------------------------------------------------------------------------------


def each(iterator: Any) -> Iterable[Any]:
    """What a `for` statement runs over.

    Raises:
        LanguageTypeError: a tensor, or bounds that are not integers.
    """
    if isinstance(iterator, range):
        return _counted(iterator)
    if isinstance(iterator, static_range):
        return builtins.range(iterator.start, iterator.end, iterator.step)
    if isinstance(iterator, tensor):
        raise LanguageTypeError(
            f"a tensor of type {iterator.type} is not a sequence",
            hint="loop over range(n) at run time, or over tl.static_range(N) or a tuple to unroll",
        )
    found: Iterable[Any] = unwrap(iterator) if isinstance(iterator, constexpr) else iterator
    return found


def items(iterator: Any) -> Iterable[Any]:
    """What a comprehension runs over: ``range(...)`` counts with constants there."""
    return iterator if isinstance(iterator, range) else each(iterator)


def _counted(loop: range) -> Iterable[tensor]:
    """The values of the counter of a run-time loop, an integer of the promoted type of its bounds."""
    emitter = active_emitter("range")
    bounds = [value if isinstance(value, tensor) else unwrap(value) for value in (loop.start, loop.end, loop.step)]
    types = [value.type if isinstance(value, tensor) else _literal(value) for value in bounds]
    for type_ in types:
        if not isinstance(type_, dtype) or not type_.is_int():
            shown = ", ".join(type_text(v) for v in bounds)
            raise LanguageTypeError(
                f"For loop bounds and step must all be ints, are ({shown})",
                hint="convert them with .to(tl.int32); a tile must be reduced to a scalar first",
            )
    counter = types[0]
    for type_ in types[1:]:
        counter = promote_integers(counter, type_)
    start, end, step = (int(v) for v in bounds)
    if step == 0 and isinstance(bounds[2], tensor):
        BUILTINS["device_assert"](False, "the step of a loop must not be zero")
        return []
    if step == 0:
        raise LanguageValueError("the step of a loop must not be zero")
    ir, work = to_ir(counter), emitter.constant(0, counter).handle.data.dtype
    numbers = builtins.range(start, end, step)
    return _iterations(tensor(EagerValue(ir, np.asarray(number).astype(work)), counter) for number in numbers)


def _iterations(counters: Iterable[tensor]) -> Iterable[tensor]:
    """The counters; each iteration, and what follows the last, however the loop is left, is a stretch of its own."""
    try:
        for counter in counters:
            _new_stretch()
            yield counter
    finally:
        _new_stretch()


def _literal(value: Any) -> Any:
    return literal_dtype(value) if isinstance(value, int) else None


def condition_of(value: Any) -> Any:
    """The condition of a `while` loop, taken out of ``tl.condition(...)``."""
    return decides(value.condition if isinstance(value, condition) else value)


# --- names of Python that a kernel reads otherwise ------------------------------------------------------------


def _extreme(name: str, python: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        values = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple) else list(args)
        if not any(isinstance(v, tensor) for v in values):
            return python(*args, **kwargs)
        result = values[0]
        for value in values[1:]:
            result = BUILTINS[name](result, value)
        return result

    return function


min = _extreme("minimum", builtins.min)
max = _extreme("maximum", builtins.max)


def abs(value: Any) -> Any:
    """Python's `abs`, and that of the language on tensors."""
    return BUILTINS["abs"](value) if isinstance(value, tensor) else builtins.abs(value)


def isinstance_(value: Any, classes: Any) -> bool:
    """As Python's; a compile-time value counts as a `constexpr`, though it is a plain value here."""
    flat = classes if builtins.isinstance(classes, tuple) else (classes,)
    if constexpr in flat and not builtins.isinstance(value, (tensor, tuple)):
        return True
    return builtins.isinstance(unwrap(value) if builtins.isinstance(value, constexpr) else value, classes)


def type_of(value: Any) -> Any:
    """As Python's `type` of one argument; of a tensor, its type in the language."""
    return value.type if isinstance(value, tensor) else type(unwrap(value))


PYTHON_NAMES: dict[str, str] = {
    "range": "range", "min": "min", "max": "max", "abs": "abs", "isinstance": "isinstance_", "type": "type_of",
}  # fmt: skip
"""Python's name, and what stands for it in a kernel."""


def type_attribute(value: Any) -> Any:
    """``value.type``: compile-time values and tuples have one too."""
    return value.type if hasattr(value, "type") else type_of_value(value)


def value_of(value: Any) -> Any:
    """``value.value``: compile-time values are plain here, and are their own value."""
    if value is None or isinstance(value, (bool, int, float, str, dtype)):
        return value
    return value.value
