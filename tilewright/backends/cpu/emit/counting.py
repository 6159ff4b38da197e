"""Loops of the program as loops of LLVM: how they count, and the scalars that go from one iteration to the next."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.iterations import counter_of
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.llvm.types import I64, V, const
from tilewright.ir.values import is_tile
from tilewright.ops.control import ForOp


def scalars_of(ev: Evaluator, values: Sequence[SSAValue]) -> list[V]:
    """LLVM values of the scalars among `values`."""
    return [ev.scalar(value) for value in values if not is_tile(value)]


def bind(ev: Evaluator, names: Sequence[SSAValue], values: Sequence[V]) -> None:
    """Give the scalars among `names` their values."""
    ev.scalars.update(zip([name for name in names if not is_tile(name)], values, strict=True))


class Counting:
    """The counter of a loop, in 64 bits; the counter that the program has goes to its own end.

    Args:
        ev: values of the function.
        op: the loop.
        numbered: whether the number of the iteration is wanted, too.

    Attributes:
        ends: where LLVM's loop begins and ends, and its step.
        init: what it carries beside what the program's loop does.
    """

    def __init__(self, ev: Evaluator, op: ForOp, *, numbered: bool = False) -> None:
        self._ev, self._op, self._found = ev, op, counter_of(op)
        self._numbered = numbered or (self._found is not None and not self._found.alone)
        self.ends = bounds_of(ev, op)
        if (found := self._found) is not None:
            ends = (found.first, found.end, found.step)
            lo, hi, by = (const(I64, v) if isinstance(v, int) else ev.f.cast("sext", ev.scalar(v), I64) for v in ends)
            self.ends = lo, hi, by
        self.init = [const(I64, 0)] * self._numbered

    def begin(self, index: V, carried: Sequence[V]) -> list[V]:
        """Bind the counter in an iteration; gives what is carried on beside the program's."""
        ev, f, counter = self._ev, self._ev.f, self._op.induction_var
        t = ev.scalar(self._op.operands[0]).type
        index = f.cast("trunc", index, t) if t.bits < 64 else index
        ev.scalars[counter] = index
        if self._found is not None:
            ev.scalars.update(dict.fromkeys(self._found.values, index))
            if self._numbered:
                ev.scalars[counter] = f.cast("trunc", carried[-1], t)
        return [f.add(number, 1) for number in carried]


def bounds_of(ev: Evaluator, op: ForOp) -> tuple[V, V, V]:
    """First number, end and step of a loop, i64."""
    widen = "zext" if op.properties.get("unsignedCmp") is not None else "sext"
    lower, upper, step = (ev.f.cast(widen, ev.scalar(value), I64) for value in op.operands[:3])
    return lower, upper, step
