"""Integers that are known only when a kernel is launched or configured.

A `Sym` is a linear combination of atoms in normal form, so `begin * 2 + n - begin * 2` is `n`. It is an `int`, as
PyTorch's argument parser takes nothing else where a size is expected; its value as an `int` is the *sample* of the
trace (a small prime for a block size), which must never reach generated code. Products, quotients and remainders of
symbols are opaque atoms.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl import exc
from tilewright.hl.operands import operand

_RUN: dict[str, Callable[..., int]] = {
    "+": operator.add,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "min": min,
    "max": max,
    "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(),
}


@dataclass(frozen=True, eq=False, repr=False)
class Atom:
    """A symbol that is not made of others. Atoms are equal when they are written alike.

    Args:
        kind: "block" (size of a tile axis), "begin" (first index of the current tile), "valid" (how many of its lanes
            are valid), "host" (an expression of the host), "whole" (lanes of an extent that a tile spans whole), "all"
            (a size that the program chose, all of whose lanes are valid) or "op" (an opaque operation).
        key: number of the axis; name of the kernel argument; the extent; or the operator.
        text: for "host" the expression that the launcher passes.
        args: operands of an "op"; the number of lanes of a "whole"; the size of an "all".
        sample: the value in this trace; no part of the identity.
    """

    kind: str
    key: int | str
    text: str = ""
    args: tuple[Any, ...] = ()
    sample: int = 1
    written: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", _atom(self, _plain))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.written == other.written

    def __hash__(self) -> int:
        return hash(self.written)


class _Bits(int):
    """Bits of a symbol: shifts and low bits by constants are products, quotients and remainders."""

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other >= 0 and other & (other + 1) == 0 and is_natural(self):
            return self % (other + 1)
        return _opaque("&", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self if type(other) is int and other == 0 else _opaque("|", self, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return self if type(other) is int and other == 0 else _opaque("^", self, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other) if type(other) is int and other >= 0 else _opaque("<<", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _opaque("<<", other, self)

    def __rshift__(self, other: Any) -> Any:
        known = type(other) is int and other >= 0 and is_natural(self)
        return self // (1 << other) if known else _opaque(">>", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _opaque(">>", other, self)

    def __invert__(self) -> Any:
        return -self - 1


class _Powers(_Bits):
    """Powers of a symbol, and of a number by it."""

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return self**other % modulus
        if type(other) is int and other >= 0:
            return math.prod([self] * other)
        return self._power(other, self, other)

    def __rpow__(self, other: Any) -> Any:  # type: ignore[override]
        return self._power(other, other, self)

    def _power(self, other: Any, base: Any, exponent: Any) -> Any:
        if not isinstance(other, float):
            needed = number_needed(self)
            raise type(needed)(
                f"{base!r} ** {exponent!r} may be a fraction or too large for an integer",
                hint="a floating-point number has powers that are known when the kernel runs: 2.0 ** tile.id",
            )
        return _opaque("**", base, exponent)


class _Whole(_Powers):
    """What else an integer of Python can do: computed with the symbol, or refused where it reads digits."""

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __abs__(self) -> Any:
        return self if is_natural(self) else maximum(self, self * -1)

    def __pos__(self) -> Any:
        return self

    def conjugate(self) -> Any:
        """Itself, as of any integer; so are `real` and `numerator`."""
        return self

    real = numerator = property(__pos__)

    def bit_length(self) -> int:
        """Methods of `int` that read its digits: the trace has none."""
        raise number_needed(self)

    bit_count = bit_length

    def to_bytes(self, *length: Any, **order: Any) -> bytes:
        """As `bit_length`."""
        raise number_needed(self)

    def as_integer_ratio(self) -> Any:
        """As `bit_length`."""
        raise number_needed(self)


def _is_not_zero(value: Sym) -> bool:
    truth = compare("!=", value, 0)
    if isinstance(truth, bool):
        return truth
    raise number_needed(value)


class Sym(_Whole):
    """A linear combination of atoms plus a constant; see the module."""

    terms: dict[Atom, int]
    constant: int
    of_tile = False  # whether it was asked of something that a tile cuts

    def __new__(cls, terms: dict[Atom, int], constant: int = 0) -> Sym:
        self = int.__new__(cls, constant + sum(factor * atom.sample for atom, factor in terms.items()))
        self.terms, self.constant = terms, constant
        return self

    @staticmethod
    def of(atom: Atom) -> Sym:
        """The symbol that is `atom` itself."""
        return Sym({atom: 1})

    @property
    def sample(self) -> int:
        """The plain integer that stands for this symbol while tracing."""
        return int.__int__(self)

    def atoms(self) -> Iterator[Atom]:
        """Every atom, those inside opaque operations included."""
        for atom in self.terms:
            yield atom
            for arg in atom.args:
                if isinstance(arg, Sym):
                    yield from arg.atoms()

    @property
    def atom(self) -> Atom | None:
        """The atom that this symbol is, unless it is something else or more."""
        ((atom, factor), *rest) = self.terms.items()
        return None if rest or factor != 1 or self.constant else atom

    def is_multiple(self, factor: Sym | int) -> bool:
        """Whether `factor` provably divides this symbol."""
        if isinstance(factor, Sym):
            return self.constant == 0 and _common(self, factor)
        return all(n % factor == 0 for n in (*self.terms.values(), self.constant))

    # --- arithmetic ------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return _linear(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _linear(self, other, -1)

    def __rsub__(self, other: Any) -> Any:
        return _linear(-self, other, 1)

    def __neg__(self) -> Any:
        return self * -1

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return make({atom: n * other for atom, n in self.terms.items()}, self.constant * other)
        return _opaque("*", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is not int or not other:
            return _opaque("//", self, other)
        if other > 0 and (inner := self.atom) is not None and inner.key == "//" and type(inner.args[1]) is int:
            return inner.args[0] // (inner.args[1] * other) if inner.args[1] > 0 else _opaque("//", self, other)
        whole, rest = _divided(self, other)
        return whole + (_opaque("//", rest, other) if isinstance(rest, Sym) else rest // other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _opaque("//", other, self)

    def __mod__(self, other: Any) -> Any:
        rest = _divided(self, other)[1] if type(other) is int and other else self
        return _opaque("%", rest, other) if isinstance(rest, Sym) else rest % other

    def __rmod__(self, other: Any) -> Any:
        return _opaque("%", other, self)

    # --- comparison --------------------------------------------------------------------------------

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> Any:
        return compare("==", self, other)

    def __ne__(self, other: object) -> Any:
        return compare("!=", self, other)

    def __lt__(self, other: Any) -> Any:
        return compare("<", self, other)

    def __le__(self, other: Any) -> Any:
        return compare("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return compare(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return compare(">=", self, other)

    # --- what would turn a size into a plain number --------------------------------------------------

    def __float__(self) -> float:
        raise number_needed(self)

    __bool__ = _is_not_zero
    __int__ = __trunc__ = __ceil__ = __floor__ = __round__ = __float__  # type: ignore[assignment]

    def __truediv__(self, other: Any) -> Any:
        return divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return divide(other, self)

    def __repr__(self) -> str:
        return show(self)

    __str__ = __repr__


class ConfiguredTruth:
    """A comparison of the host whose truth each configuration decides; in a loop it is one of the device.

    Args:
        op: the comparison.
        left: its operands.
        right: the other one.
    """

    def __init__(self, op: str, left: Any, right: Any) -> None:
        self.op, self.left, self.right = op, left, right

    def on_device(self) -> Any:
        """The truth as a value of the loop that runs."""
        return compare(self.op, self.left, self.right)

    def __bool__(self) -> bool:
        raise number_needed(self.left if isinstance(self.left, Sym) else self.right)


class ChosenLater(exc.SizeUsedAsNumber):
    """A number is needed that the configuration chooses."""


def number_needed(value: object) -> exc.SizeUsedAsNumber:
    """The error for a symbol that is needed as a plain number."""
    kind = ChosenLater if isinstance(value, Sym) and is_chosen(value) else exc.SizeUsedAsNumber
    return kind(
        f"{value!r} is not known while the kernel is traced, and a Python number is needed here",
        hint="compute with it directly, decide with torch.where, or make it a constant with hl.specialize on the host",
    )


def is_chosen(value: Sym) -> bool:
    """Whether a configuration chooses something that `value` is made of."""
    return any(atom.kind in ("block", "tunable") for atom in value.atoms())


# Comparison and true division of symbols depend on whether host or device code is traced; `trace` puts them in.
_hooks: dict[str, Callable[..., Any]] = {"power": lambda value, power: power}


def set_hooks(
    compare: Callable[[str, Any, Any], Any],
    divide: Callable[[Any, Any], Any],
    mixed: Callable[[str, Any, Any], Any],
) -> None:
    """What comparing, dividing and arithmetic with floating-point numbers does while a kernel is traced."""
    _hooks["compare"], _hooks["divide"], _hooks["mixed"] = compare, divide, mixed


def set_power_hook(power: Callable[[Any, Any], Any]) -> None:
    """What the next power of two of a size is, from the size and the power, while a kernel is traced."""
    _hooks["power"] = power


def compare(op: str, left: Any, right: Any) -> Any:
    """`left op right`: decided where the normal forms decide it, else left to the trace."""
    left, right = operand(left), operand(right)
    if isinstance(left, Sym) and isinstance(right, float):
        return _compared_with_float(op, left, right)
    if not isinstance(left, int) or not isinstance(right, int):
        return NotImplemented
    difference = left - right
    if not isinstance(difference, Sym):
        return {
            "==": difference == 0,
            "!=": difference != 0,
            "<": difference < 0,
            "<=": difference <= 0,
            ">": difference > 0,
            ">=": difference >= 0,
        }[op]
    return _hooks["compare"](op, left, right)


def divide(left: Any, right: Any) -> Any:
    """`left / right` of symbols: a value of the device or the host."""
    left, right = operand(left), operand(right)
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return NotImplemented
    return _hooks["divide"](left, right)


def same(left: Any, right: Any) -> bool:
    """Whether two sizes are one and the same, without asking the trace."""
    if isinstance(left, Sym) or isinstance(right, Sym):
        return (
            isinstance(left, Sym)
            and isinstance(right, Sym)
            and (left.terms, left.constant) == (right.terms, right.constant)
        )
    return bool(left == right)


def make(terms: dict[Atom, int], constant: int) -> Sym | int:
    """The normal form: zero factors dropped, a plain `int` where no atom is left."""
    kept = {atom: n for atom, n in terms.items() if n}
    return Sym(kept, int(constant)) if kept else int(constant)


def sample(value: int) -> int:
    """The plain integer of a size while tracing."""
    return value.sample if isinstance(value, Sym) else value


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two sizes, as a symbol."""
    difference = left - right
    if not isinstance(difference, Sym):
        return left if difference <= 0 else right
    return _opaque("min", left, right)


def _compared_with_float(op: str, left: Sym, right: float) -> Any:
    """`left op right`: an integer is above 2.5 if it is above 2, and no number that has a fraction."""
    order = _ORDER[op]
    if type(right) is not float:  # the launcher's, whose value is not known here
        return order(left / 1, right)
    if not math.isfinite(right) or (op in ("==", "!=") and right % 1):
        return order(0, right)
    return order(left, math.ceil(right) if op in ("<", ">=") else math.floor(right))


_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def maximum(left: Any, right: Any) -> Any:
    """The larger of two sizes, as a symbol."""
    difference = left - right
    if not isinstance(difference, Sym):
        return left if difference >= 0 else right
    return _opaque("max", left, right)


def _linear(left: Sym, right: Any, sign: int) -> Any:
    right = operand(right)
    if type(right) is int:
        return make(left.terms, left.constant + sign * right)
    if isinstance(right, float):
        return _hooks["mixed"]("+" if sign > 0 else "-", left, right)
    if not isinstance(right, Sym):
        return NotImplemented
    terms = dict(left.terms)
    for atom, n in right.terms.items():
        terms[atom] = terms.get(atom, 0) + sign * n
    return make(terms, left.constant + sign * right.constant)


def _divided(value: Sym, by: int) -> tuple[Any, Any]:
    """(what `by` divides, divided; the rest); all is rest where that might be negative: kernels round to zero."""
    whole = make({atom: n // by for atom, n in value.terms.items() if n % by == 0}, 0)
    rest = value - whole * by
    if not isinstance(rest, Sym):
        return whole + rest // by, rest % by
    return (whole, rest) if is_natural(rest) else (0, value)


def _common(left: Sym, right: Sym) -> bool:
    if len(right.terms) != 1 or right.constant:
        return False
    ((atom, n),) = right.terms.items()
    return all(
        count % n == 0 and (term == atom or (term.key == "*" and any(same(arg, Sym.of(atom)) for arg in term.args)))
        for term, count in left.terms.items()
    )


def cdiv(value: Any, size: Any) -> Any:
    """How many parts of `size` cover `value`."""
    return (value + size - 1) // size


def next_power_of_2(value: Any) -> Any:
    """The smallest power of two that is not below a size."""
    made = _opaque("next_power_of_2", value) if isinstance(value, Sym) else _RUN["next_power_of_2"](value)
    return _hooks["power"](value, made)


def _opaque(op: str, *args: Any) -> Any:
    plain = [operand(arg) for arg in args]
    if any(one is not arg for one, arg in zip(plain, args, strict=True)):
        return (_hooks["mixed"] if op == "**" else _REBUILD[op])(*plain)
    if any(isinstance(arg, float) for arg in args):
        return NotImplemented if op in ("&", "|", "^", "<<", ">>") else _hooks["mixed"](op, *args)
    if not all(isinstance(arg, int) for arg in args):
        return NotImplemented
    samples = [sample(arg) for arg in args]
    if op in ("<<", ">>"):  # by invented counts a number could fill the memory
        samples[1] = abs(samples[1]) % 64
    return Sym.of(Atom("op", op, args=args, sample=_RUN[op](*samples)))


def at_least_zero(value: Any) -> bool:
    """Whether a size or index is provably not negative: atoms other than differences are not."""
    if not isinstance(value, Sym):
        return bool(value >= 0)
    return value.constant >= 0 and all(
        factor > 0 and (atom.kind != "op" or all(map(at_least_zero, atom.args))) for atom, factor in value.terms.items()
    )


def is_natural(value: Any) -> bool:
    """Whether a size or index is at least 0 whatever the call: numbers among the arguments may be negative."""
    hosts = [atom.text for atom in value.atoms() if atom.kind == "host"] if isinstance(value, Sym) else []
    return at_least_zero(value) and all(_SIZE.fullmatch(text) for text in hosts)


_SIZE = re.compile(r".*\.(size|stride)\(\d+\)")


# --- text --------------------------------------------------------------------------------------


def text(value: Any, name: Callable[[Atom], str], floors: bool = True) -> str:
    """An expression of Python for `value`, an operand of any operator; `name` says how atoms are written.

    `min` and `max` are written as calls of these names, which the block language has too; its `//` and `%` round to
    zero, and where `floors` is false what may be negative is written so that they round down. It has no powers of two:
    there `name` writes these as well.
    """
    if not isinstance(value, Sym):
        return str(value)
    parts = [_term(atom, n, name, floors) for atom, n in sorted(value.terms.items(), key=lambda term: term[0].written)]
    if value.constant:
        parts.append(str(value.constant))
    joined = " + ".join(parts).replace("+ -", "- ")
    return f"({joined})" if len(parts) > 1 or set(value.terms.values()) - {1, -1} else joined


def _term(atom: Atom, factor: int, name: Callable[[Atom], str], floors: bool) -> str:
    one = _atom(atom, name, floors)
    return one if factor == 1 else f"-{one}" if factor == -1 else f"{one} * {factor}"


def _atom(atom: Atom, name: Callable[[Atom], str], floors: bool = True) -> str:
    if atom.kind != "op" or (atom.key == "next_power_of_2" and not floors):
        return name(atom)
    args = [text(arg, name, floors) for arg in atom.args]
    if not floors and atom.key in ("//", "%") and not all(map(is_natural, atom.args)):
        left, right = args
        rest = f"(({left} % {right} + {right}) % {right})"
        return rest if atom.key == "%" else f"(({left} - {rest}) // {right})"
    if atom.key == "next_power_of_2":
        return f"tilewright.next_power_of_2({args[0]})"
    return f"{atom.key}({', '.join(args)})" if atom.key in ("min", "max") else f"({args[0]} {atom.key} {args[1]})"


def show(value: Any) -> str:
    """A symbol as messages and dumps write it."""
    return text(value, _plain)


def _plain(atom: Atom) -> str:
    return atom.text if atom.kind == "host" else f"{atom.kind}({atom.key})"


def substitute(value: Any, number: Callable[[Atom], int | None]) -> Any:
    """`value` with the atoms that `number` knows replaced by integers."""
    if not isinstance(value, Sym):
        return value
    total: Any = value.constant
    for atom, n in value.terms.items():
        known: Any
        if atom.kind == "op":
            args = [substitute(arg, number) for arg in atom.args]
            rebuilt = any(isinstance(arg, Sym) for arg in args)
            known = _REBUILD[str(atom.key)](*args) if rebuilt else _RUN[str(atom.key)](*args)
        else:
            found = number(atom)
            known = Sym.of(atom) if found is None else found
        total = total + known * n
    return total


_REBUILD: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "min": minimum,
    "max": maximum,
    "next_power_of_2": next_power_of_2,
}
