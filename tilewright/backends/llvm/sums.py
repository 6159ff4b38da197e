"""Long chains of integer arithmetic, with their constants carried to the end instead of left in the middle.

    x = x * 3 + n + 1                     t = x0 * 3 + n          x = t + c
    x = x * 3 + n + 2          ->         t = t * 3 + n           x = t + c'         each c known here
    x = x * 3 + n + 3                     t = t * 3 + n           x = t + c''

LLVM's code generator for CPUs does the same, one constant past one instruction at a time, and looks at the whole chain
each time: 200 statements took it 2 s, 400 took 9 s; with the constants at the end they take 20 ms. In the order of
the program one step a link suffices. The first links stay as they are: short chains cost nothing, and so the code of
ordinary kernels is what they say.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.llvm.types import V, const, wrap_int

SHORT = 16
"""Links of a chain that are left alone."""
_OPCODES = frozenset({"add", "sub", "mul", "shl"})


@dataclass(frozen=True, slots=True)
class Sum:
    """What is known of a value: it is `base + constant`.

    Args:
        base: None where the value was not made by adding a constant.
        constant: of the width of the value.
        length: links of the chain that ends here.
    """

    base: V | None = None
    constant: int = 0
    length: int = 0


Plan = tuple[V, V, int]
"""An instruction rewritten: `left opcode right`, and then `+ constant`."""
_NOTHING = Sum()


class Sums:
    """The chains of one function, by the names of their values."""

    def __init__(self) -> None:
        self._known: dict[str, Sum] = {}

    def plan(self, opcode: str, a: V, b: V) -> Plan | None:
        """How integers `a opcode b` are to be computed with their constant last; None for as they stand."""
        if opcode not in _OPCODES:
            return None
        x, y = self._known.get(a.ref, _NOTHING), self._known.get(b.ref, _NOTHING)
        if max(x.length, y.length) < SHORT or (x.base is None and y.base is None):
            return None
        if opcode in ("mul", "shl"):
            return _scaled(opcode, a, b, x, y)
        bits = a.type.bits
        left, right = x.base or a, y.base or b
        total = x.constant + (y.constant if opcode == "add" else -y.constant)
        if opcode == "add" and a.const is not None:
            left, right = right, left
        literal = right.const
        if literal is not None:  # then only the constant grows
            total += int(literal) if opcode == "add" else -int(literal)
            right = const(a.type, 0)
        return left, right, wrap_int(total, bits)

    def note(self, opcode: str, a: V, b: V, result: V) -> None:
        """`result` is `a opcode b`, emitted as it stands."""
        if opcode not in _OPCODES:
            return
        x, y = self._known.get(a.ref, _NOTHING), self._known.get(b.ref, _NOTHING)
        base, constant = None, 0
        if opcode in ("add", "sub") and b.const is not None:
            base, constant = a, int(b.const) if opcode == "add" else -int(b.const)
        elif opcode == "add" and a.const is not None:
            base, constant = b, int(a.const)
        self._known[result.ref] = Sum(base, constant, max(x.length, y.length) + 1)


def _scaled(opcode: str, a: V, b: V, x: Sum, y: Sum) -> Plan | None:
    """`(base + c) * k` is `base * k + c * k`."""
    if opcode == "mul" and a.const is not None:
        a, b, x, y = b, a, y, x
    if b.const is None or x.base is None:
        return None
    if opcode == "shl" and not 0 <= int(b.const) < a.type.bits:
        return None
    factor = int(b.const) if opcode == "mul" else 1 << int(b.const)
    return x.base, b, wrap_int(x.constant * factor, a.type.bits)
