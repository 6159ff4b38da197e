"""Algebraic simplifications: the `fold` slots of the op specs.

A fold looks at an operation and the numbers its operands are known to be, and answers with an
operand that equals the result, with a number that every element of the result is, or ``None``.
Floats are left alone unless the result is the same for every input, NaN and -0.0 included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation, SSAValue

Number = bool | int | float
Fold = Callable[[Operation, Sequence[Number | None]], SSAValue | Number | None]


def unit(number: int, *, commutative: bool = False, zero: int | None = None) -> Fold:
    """``x op number = x``; with `zero`, also ``x op zero = zero``; from both sides if `commutative`."""

    def fold(op: Operation, known: Sequence[Number | None]) -> SSAValue | Number | None:
        lhs, rhs = known
        if rhs is not None and rhs == number:
            return op.operands[0]
        if commutative and lhs is not None and lhs == number:
            return op.operands[1]
        if zero is not None and (
            (rhs is not None and rhs == zero) or (commutative and lhs is not None and lhs == zero)
        ):
            return zero
        return None

    return fold


def remainder(op: Operation, known: Sequence[Number | None]) -> Number | None:
    """``x % 1 = 0``."""
    return 0 if known[1] is not None and known[1] == 1 else None


def choose(op: Operation, known: Sequence[Number | None]) -> SSAValue | None:
    """``select(true, a, b) = a`` and ``select(c, a, a) = a``."""
    _, a, b = op.operands
    if a is b:
        return a
    return None if known[0] is None else a if known[0] else b


def no_offset(op: Operation, known: Sequence[Number | None]) -> SSAValue | None:
    """``pointer + 0 = pointer``."""
    return op.operands[0] if known[1] is not None and known[1] == 0 else None


def no_change(op: Operation, known: Sequence[Number | None]) -> SSAValue | None:
    """A conversion to the type that its operand has."""
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


def idempotent(op: Operation, known: Sequence[Number | None]) -> SSAValue | None:
    """``x op x = x``."""
    return op.operands[0] if op.operands[0] is op.operands[1] else None


def first_of(*folds: Fold) -> Fold:
    """The answer of the first fold that has one."""

    def fold(op: Operation, known: Sequence[Number | None]) -> SSAValue | Number | None:
        for candidate in folds:
            found = candidate(op, known)
            if found is not None:
                return found
        return None

    return fold
