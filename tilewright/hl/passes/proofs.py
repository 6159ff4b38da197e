"""What holds of sizes whatever the call."""

from __future__ import annotations

from typing import Any

from tilewright.hl.symbols import Sym, at_least_zero


def at_most(value: Any, bound: Any) -> bool:
    """Whether `value <= bound` provably: the smaller of two is at most either."""
    difference = value - bound
    if not isinstance(difference, Sym):
        return bool(difference <= 0)
    if isinstance(value, Sym) and len(value.terms) == 1 and not value.constant:
        ((atom, factor),) = value.terms.items()
        if atom.kind == "op" and atom.key == "min" and factor == 1:
            return any(at_most(arg, bound) for arg in atom.args)
    return at_least_zero(-difference)
