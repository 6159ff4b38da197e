"""Floating-point numbers of the host that the launcher passes to kernels: arguments, and what is computed of sizes.

A `Number` is a `float` whose value is invented, unlike any other number of the trace, so that it is known again where
PyTorch hands it to an aten operation. Arithmetic with it is the launcher's, and gives another one. Where its value is
needed (a comparison, `int`) the value of the call that binds counts, and other calls bind anew; a number that the host
reads from a tensor has none while the kernel is traced. What asks in C code
(`math.sqrt`) gets the invented value: two traces differ then, and the kernel is traced again with its floating-point
arguments as constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.hl import exc
from tilewright.hl.graph.nodes import HostNumber, Value, leaves
from tilewright.hl.operands import operand
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
_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
_BITS = {"<<": "lshift", ">>": "rshift", "&": "and_", "|": "or_", "^": "xor"}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Number(float):
    """See the module.

    Attributes:
        actual: the value in the call that binds; None where it is not known.
        text: expression of the launcher.
        held: what graphs hold in its place.
    """

    actual: float | None
    text: str
    held: HostNumber

    def __new__(cls, sample: float, actual: float | None, text: str, name: str) -> Number:
        self = float.__new__(cls, sample)
        self.actual, self.text, self.held = actual, text, HostNumber(name, text)
        return self

    @property
    def sample(self) -> float:
        """The invented value."""
        return float.__float__(self)

    def _decided(self) -> float:
        """The value itself: other calls bind anew."""
        if self.actual is None:
            raise _unknown(self.text)
        trace = current()
        if trace is not None:
            trace.guards.append((self.text, self.actual))
        return self.actual

    def __neg__(self) -> Any:
        return combined("*", self, -1)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Any:
        return called("abs", abs, [self])

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


def _unknown(text: str) -> exc.Error:
    return exc.HostValueNotAvailable(
        f"the value of {text}, which the host reads from a tensor, is needed while the kernel is compiled",
        hint="give the number as an argument, or decide in the loop",
    )


def _parts(value: Any) -> tuple[float | None, str] | None:
    """(value in the call that binds, None where it is not known; expression of the launcher) of an operand."""
    if isinstance(value, Number):
        return value.actual, value.text
    if isinstance(value, Sym):
        trace = current()
        actual = substitute(value, trace.actual.get) if trace is not None else value
        return None if isinstance(actual, Sym) else actual, f"({show(value)})"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value, float_text(value)


def float_text(value: Any) -> str:
    """A number as Python reads it."""
    return repr(value) if value - value == 0 else f'float("{value}")'


def wanted(trace: Trace, tensor: Any) -> Any:
    """The number, or the truth, that code of PyTorch or of a function wants of a value made of nothing but what the
    launcher knows: that of the call that binds; None for any other value."""
    value = trace.value(tensor)
    node = None if value is None else trace.of_sizes.get(value.id)
    if node is None:
        return None
    args = node.args
    if node.op in _SIGNS:  # of PyTorch, which compares 0-d tensors that stand for symbols
        args = (_SIGNS[node.op], *(_symbol(trace, arg) for arg in args))
    if not all(map(_on_host, args)):
        return None
    found = trace.decide(*args) if node.op == "sym" else _compared(*args)
    return None if found is NotImplemented else found  # a tile is compared


def _symbol(trace: Trace, arg: Any) -> Any:
    """The symbol that a value is; whatever else it may be as it is."""
    node = trace.of_sizes.get(arg.id) if isinstance(arg, Value) else None
    return node.args[0] if node is not None and node.op == "sym" else arg


def _compared(op: str, left: Any, right: Any) -> Any:
    one, other = _parts(left), _parts(right)
    if one is None or other is None or not (_on_host(left) and _on_host(right)):
        return NotImplemented
    text = f"{one[1]} {op} {other[1]}"
    if one[0] is None or other[0] is None:
        raise _unknown(text)
    truth = _COMPARISONS[op](one[0], other[0])
    trace = current()
    if trace is not None:
        trace.guards.append((text, truth))
    return truth


def combined(op: str, left: Any, right: Any) -> Any:
    """`left op right` on the host, where one is a floating-point number or becomes one."""
    one, other, trace = _parts(left), _parts(right), current()
    if one is None or other is None or not (_on_host(left) and _on_host(right)):
        return NotImplemented
    assert trace is not None
    known = None if one[0] is None or other[0] is None else OPERATIONS[op](one[0], other[0])
    return number(trace, f"({one[1]} {op} {other[1]})", known)


def calculated(op: str, left: Any, right: Any, in_place: bool = False) -> Any:
    """`left op right`; after other numbers than integers Python would take a symbol for the one that it invents."""
    if isinstance(right, Sym):
        left = operand(left)
    name = _NAMES.get(op) or _BITS[op]
    led = type(left) is float and isinstance(right, Sym)
    made = getattr(right, f"__r{name.rstrip('_')}__")(left) if led else NotImplemented
    if made is not NotImplemented:
        return made
    return getattr(operator, f"i{name.rstrip('_')}" if in_place else name)(left, right)


def called(name: str, function: Callable[..., Any], values: list[Any]) -> Any:
    """What a built-in function of Python gives for numbers of which one is the launcher's: another one of these.

    Args:
        name: of the function, as the launcher calls it.
        function: it.
        values: its arguments.
    """
    parts, trace = [_parts(value) for value in values], current()
    if trace is None or None in parts or not all(map(_on_host, values)):
        return NotImplemented
    known = [part[0] for part in parts if part is not None]
    actual = None if None in known else function(*known)
    return number(trace, f"{name}({', '.join(part[1] for part in parts if part is not None)})", actual)


def _on_host(value: Any) -> bool:
    """Whether the launcher knows a number: no size or index of a tile."""
    return not isinstance(value, Sym) or all(atom.kind in ("host", "op") for atom in value.atoms())


def _methods() -> None:
    for op, name in _NAMES.items():
        setattr(Number, f"__{name}__", lambda self, other, op=op: combined(op, self, other))
        setattr(Number, f"__r{name}__", lambda self, other, op=op: combined(op, other, self))
    for name, op in _SIGNS.items():
        setattr(Number, f"__{name}__", lambda self, other, op=op: _compared(op, self, other))


_methods()


def number(trace: Trace, text: str, actual: float | None, name: str = "") -> Number:
    """A number of the launcher.

    Args:
        trace: where it is known again.
        text: expression of the launcher.
        actual: what it is in the call that binds; None where that is not known.
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
