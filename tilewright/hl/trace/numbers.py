"""Floating-point numbers of the host that the launcher passes to kernels: arguments, and what is computed of sizes.

A `Number` is a `float` whose value is invented, unlike any other number of the trace, so that it is known again where
PyTorch hands it to an aten operation. Arithmetic with it is the launcher's, and gives another one. Where its value is
needed (a comparison, `int`) the value of the call that binds counts, and other calls bind anew. What asks in C code
(`math.sqrt`) gets the invented value: two traces differ then, and the kernel is traced again with its floating-point
arguments as constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.hl import exc
from tilewright.hl.graph.nodes import HostNumber, leaves
from tilewright.hl.symbols import Sym, show, substitute
from tilewright.hl.trace.state import Trace, current

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Number(float):
    """See the module.

    Attributes:
        actual: the value in the call that binds.
        text: expression of the launcher.
        held: what graphs hold in its place.
    """

    actual: float
    text: str
    held: HostNumber

    def __new__(cls, sample: float, actual: float, text: str, name: str) -> Number:
        self = float.__new__(cls, sample)
        self.actual, self.text, self.held = actual, text, HostNumber(name, text)
        return self

    @property
    def sample(self) -> float:
        """The invented value."""
        return float.__float__(self)

    def _decided(self) -> float:
        """The value itself: other calls bind anew."""
        trace = current()
        if trace is not None:
            trace.guards.append((self.text, self.actual))
        return self.actual

    def __neg__(self) -> Any:
        return combined("*", self, -1)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Any:
        trace = current()
        return abs(self.actual) if trace is None else number(trace, f"abs({self.text})", abs(self.actual))

    def __bool__(self) -> bool:
        return bool(_compared("!=", self, 0))

    def __float__(self) -> float:
        return self._decided()

    def __int__(self) -> int:
        return int(self._decided())

    __trunc__ = __int__

    def __floor__(self) -> int:
        return int(self._decided() // 1)

    def __ceil__(self) -> int:
        return -int(-self._decided() // 1)

    def __round__(self, digits: Any = None) -> Any:
        return round(self._decided(), digits)

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__
    __hash__ = float.__hash__


def _parts(value: Any) -> tuple[float, str] | None:
    """(value in the call that binds, expression of the launcher) of an operand."""
    if isinstance(value, Number):
        return value.actual, value.text
    if isinstance(value, Sym):
        trace = current()
        actual = substitute(value, trace.actual.get) if trace is not None else value
        return None if isinstance(actual, Sym) else (actual, f"({show(value)})")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value, float_text(value)


def float_text(value: Any) -> str:
    """A number as Python reads it."""
    return repr(value) if value - value == 0 else f'float("{value}")'


def _compared(op: str, left: Any, right: Any) -> Any:
    pair = _parts(left), _parts(right)
    if pair[0] is None or pair[1] is None:
        return NotImplemented
    truth = _COMPARISONS[op](pair[0][0], pair[1][0])
    trace = current()
    if trace is not None:
        trace.guards.append((f"{pair[0][1]} {op} {pair[1][1]}", truth))
    return truth


def combined(op: str, left: Any, right: Any) -> Any:
    """`left op right` on the host, where one is a floating-point number or becomes one."""
    one, other, trace = _parts(left), _parts(right), current()
    if one is None or other is None:
        return NotImplemented
    assert trace is not None
    return number(trace, f"({one[1]} {op} {other[1]})", OPERATIONS[op](one[0], other[0]))


def _methods() -> None:
    names = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
    for op, name in names.items():
        setattr(Number, f"__{name}__", lambda self, other, op=op: combined(op, self, other))
        setattr(Number, f"__r{name}__", lambda self, other, op=op: combined(op, other, self))
    for op, name in {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}.items():
        setattr(Number, f"__{name}__", lambda self, other, op=op: _compared(op, self, other))


_methods()


def number(trace: Trace, text: str, actual: float, name: str = "") -> Number:
    """A number of the launcher.

    Args:
        trace: where it is known again.
        text: expression of the launcher.
        actual: what it is in the call that binds.
        name: the kernel's parameter.
    """
    for known in trace.numbers.values():
        if known.text == text:
            return known  # type: ignore[no-any-return]
    made = Number(trace.sampling.fraction(), actual, text, name or f"float_{len(trace.numbers)}")
    trace.numbers[made.sample] = made
    return made


def recognized(trace: Trace, tree: Any) -> Any:
    """Arguments of an aten operation with the numbers of the launcher in the place of their invented values."""
    if type(tree) is float:
        return trace.numbers.get(tree, tree)
    return [recognized(trace, item) for item in tree] if type(tree) is list else tree


def check_held(name: str, given: Any, held: Any) -> None:
    """Refuse a number of the launcher that an operation turns into a size, or whatever else graphs do not hold.

    Raises:
        ConstantNeeded: it must be a constant.
    """
    lost = {repr(leaf) for leaf in leaves(given) if isinstance(leaf, Number)}
    lost -= {repr(leaf) for leaf in leaves(held) if isinstance(leaf, Number)}
    if lost:
        raise exc.ConstantNeeded(
            f"the code of {name} depends on {', '.join(sorted(lost))}", hint="make it a constant with hl.constexpr"
        )
