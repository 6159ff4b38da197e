"""`and`, `or`, `not`, chained comparisons and conditional expressions over values of the device.

They are branches, as Python means them: what the first operand decides against is not computed. Where that could not be
seen, because it would only compare numbers, the truths are combined instead and no branch is left.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node, Region
from tilewright.hl.operands import operand
from tilewright.hl.symbols import ConfiguredTruth, Sym
from tilewright.hl.trace.branches import branch, condition
from tilewright.hl.trace.numbers import calculated
from tilewright.hl.trace.source import CHOSEN
from tilewright.hl.trace.statements import Interpreter

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
}
_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# What computing in vain costs next to nothing, and nobody sees.
_CHEAP = frozenset(("compare", "sym", "full", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "neg", "abs"))
_CHEAP |= {"bitwise_and", "bitwise_or", "bitwise_not", "logical_and", "logical_or", "logical_not", "_to_copy"}


class Choices:
    """What rewritten expressions call; see `trace.rewrite`.

    Args:
        interpreter: whose variables the expressions use.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def _is_late(self, value: Any) -> bool:
        """Whether the truth of a value is known only when the kernel runs, or is configured."""
        return self.interpreter.trace.on_device and isinstance(value, Sym | torch.Tensor | ConfiguredTruth)

    def truth(self, value: Any) -> Any:
        """Whether a value is true: a tensor of one element, or a bool where that is known after all."""
        if isinstance(value, ConfiguredTruth):
            value = value.on_device()
        elif isinstance(value, Sym):
            value = value != 0
        if not self._is_late(value):
            return bool(value)
        made = value if value.dtype == torch.bool else value != 0
        return made if made.dim() == 0 else self._sole(made)

    def _sole(self, truth: Any) -> Any:
        """The only element of a truth with dimensions."""
        trace = self.interpreter.trace
        value = condition(trace, truth)
        if value is trace.value(truth):
            return truth.reshape(())
        with trace.silence():
            made = torch.full((), True)
        trace.bind(made, value)
        return made

    def truth_by(self, function: Callable[..., Any], value: Any) -> Any:
        """`bool(value)`, if `bool` is still Python's."""
        return self.truth(value) if function is builtins.bool else function(value)

    def combined(self, op: str, left: Any, right: Any) -> Any:
        """`left op right`; a number lets a size that comes after it answer."""
        return calculated(op, left, right)

    def augmented(self, op: str, left: Any, right: Any) -> Any:
        """What `left op= right` assigns; likewise."""
        return calculated(op, left, right, in_place=True)

    def ordered(self, op: str, left: Any, right: Any) -> Any:
        """`left op right` of a comparison; likewise."""
        if isinstance(right, Sym) and op not in ("is", "is not"):
            left = operand(left)
            if type(left) is float:
                return _COMPARISONS[_FLIPPED[op]](right, left)
        return _COMPARISONS[op](left, right)

    def negated(self, value: Any) -> Any:
        """`not value`."""
        truth = self.truth(value) if self._is_late(value) else value
        return ~truth if isinstance(truth, torch.Tensor) else not truth

    def chain(self, stop: bool, test: bool, value: Any, *rest: Callable[[], Any]) -> Any:
        """`value and ...` or `value or ...`.

        Args:
            stop: the truth behind which nothing more is evaluated: False for `and`.
            test: whether nothing but the truth of the result counts.
            value: the first operand.
            rest: the others.
        """
        if not rest:
            return self.truth(value) if test else value
        truth = self.truth(value) if self._is_late(value) else value
        if not isinstance(truth, torch.Tensor):
            return value if bool(truth) is stop else self.chain(stop, test, rest[0](), *rest[1:])

        def decided() -> Any:
            return truth if test else value

        def undecided() -> Any:
            return self.chain(stop, test, rest[0](), *rest[1:])

        return self.choose(truth, *((decided, undecided) if stop else (undecided, decided)))

    def compared(self, test: bool, names: Sequence[str], left: Any, right: Any, *rest: Callable[[], Any]) -> Any:
        """`left < right < ...`."""
        first = self._contained(names[0], left, right) if names[0].endswith("in") else None
        if first is None:
            first = self.ordered(names[0], left, right)
        if not rest:
            return first
        return self.chain(False, test, first, lambda: self.compared(test, names[1:], right, rest[0](), *rest[1:]))

    def _contained(self, name: str, item: Any, container: Any) -> Any:
        """`item in container`, element by element where a value of the device is asked for."""
        if isinstance(container, tuple | list | set | frozenset | range):
            late = [other for other in container if self._is_late(item) or self._is_late(other)]
            if late:
                known = any(item == other for other in container if not any(other is one for one in late))
                found = self.chain(True, True, known, *(partial(self.ordered, "==", item, other) for other in late))
                return self.negated(found) if name == "not in" else found
        return item not in container if name == "not in" else item in container

    def choose(self, test: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """`then() if test else other()`."""
        truth = self.truth(test) if self._is_late(test) else test
        if not isinstance(truth, torch.Tensor):
            return then() if truth else other()
        interpreter = self.interpreter

        def arm(value: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                found = value()
                interpreter.scope[CHOSEN] = found

            return run

        made = branch(interpreter, interpreter.trace.line, truth, (arm(then), arm(other)))
        if CHOSEN not in interpreter.scope:
            raise exc.CantCombineTypesInControlFlow(
                "the two values of a conditional expression have different forms",
                hint="give them one form, or write an `if` statement",
            )
        region = interpreter.trace.region
        assert region is not None
        _simplify(region, made)
        return interpreter.scope.pop(CHOSEN)


def _simplify(region: Region, made: Node) -> None:
    """Combine two truths without a branch where the second may be computed in vain."""
    (test,), arms = made.args, made.regions
    if len(made.outs) != 1 or made.out.dtype != torch.bool or region.nodes[-1] is not made:
        return
    first, second = arms
    for arm, other, op in ((first, second, "bitwise_and"), (second, first, "bitwise_or")):
        if all(map(_is_cheap, arm.nodes)) and not other.nodes and other.results == [test]:
            region.nodes[-1:] = [*arm.nodes, Node(op, (test, arm.results[0]), {}, made.line, made.outs)]
            return


def _is_cheap(node: Node) -> bool:
    return node.op in _CHEAP and all(dim.is_one for out in node.outs for dim in out.dims)
