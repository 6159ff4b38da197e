"""The forward solver: facts of every SSA value of structured tile IR.

Blocks are walked in order; loops are walked again until the facts of their carried values
stop changing::

    carried = init
    repeat: walk body with carried;  carried = join(init, yielded)   until nothing changes

A lattice supplies `join` through its elements and the transfer function of each op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.base.errors import InternalError
from tilewright.ir.values import operands_of
from tilewright.ir.walk import operations
from tilewright.ops.control import ConditionOp, ForOp, FuncOp, IfOp, WhileOp

MAX_ROUNDS = 64


class Element(Protocol):
    """An element of a lattice."""

    def join(self: _E, other: _E) -> _E: ...


_E = TypeVar("_E", bound=Element)


class Analysis(Protocol[_E]):
    """What the solver needs of an analysis."""

    def unknown(self, type_: Attribute) -> _E: ...
    def argument(self, function: FuncOp, index: int) -> _E: ...
    def transfer(self, op: Operation, operands: Sequence[_E]) -> Sequence[_E]: ...
    def carried(self, facts: Sequence[_E], values: Sequence[SSAValue]) -> Sequence[_E]: ...
    def induction(self, loop: ForOp, bounds: Sequence[_E]) -> _E: ...


class Facts(Generic[_E]):
    """Facts of the values of one function.

    Args:
        function: a `tt.func`.
        analysis: lattice and transfer functions.
    """

    def __init__(self, function: FuncOp, analysis: Analysis[_E]) -> None:
        self._analysis = analysis
        self._known: dict[SSAValue, _E] = {}
        block = function.body.block
        for index, argument in enumerate(block.args):
            self._known[argument] = analysis.argument(function, index)
        self._walk(block)

    def __getitem__(self, value: SSAValue) -> _E:
        found = self._known.get(value)
        return self._analysis.unknown(value.type) if found is None else found

    def _all(self, values: Sequence[SSAValue]) -> list[_E]:
        return [self[value] for value in values]

    def _walk(self, block: Block) -> None:
        for op in operations(block):
            rule = _CONTROL.get(type(op))
            if rule is not None:
                rule(self, op)
            elif op.results:
                self._set(op.results, self._analysis.transfer(op, self._all(operands_of(op))))

    def _set(self, values: Sequence[SSAValue], facts: Sequence[_E]) -> None:
        self._known.update(zip(values, facts, strict=True))

    def _for(self, loop: ForOp) -> None:
        body = loop.body.block
        bounds = self._all(loop.operands[:3])
        self._known[body.args[0]] = self._analysis.induction(loop, bounds)
        initial = list(self._analysis.carried(self._all(loop.operands[3:]), loop.operands[3:]))
        carried = self._fixpoint(body, body.args[1:], initial)
        self._set(loop.results, carried)

    def _fixpoint(self, body: Block, arguments: Sequence[SSAValue], initial: list[_E]) -> list[_E]:
        carried = initial
        for _ in range(MAX_ROUNDS):
            self._set(arguments, carried)
            self._walk(body)
            joined = [a.join(b) for a, b in zip(initial, self._all(_yielded(body)), strict=True)]
            if joined == carried:
                return carried
            carried = [a.join(b) for a, b in zip(carried, joined, strict=True)]
        raise InternalError("the facts of a loop do not settle")

    def _if(self, op: IfOp) -> None:
        branches = [region.block for region in op.regions if region.blocks]
        for block in branches:
            self._walk(block)
        if op.results:
            then, other = (self._all(_yielded(block)) for block in branches)
            self._set(op.results, [a.join(b) for a, b in zip(then, other, strict=True)])

    def _while(self, loop: WhileOp) -> None:
        """Nothing is assumed of what a while loop carries."""
        for region in loop.regions:
            self._walk(region.block)


def _yielded(block: Block) -> Sequence[SSAValue]:
    last = block.last_op
    assert last is not None
    return last.operands[1:] if isinstance(last, ConditionOp) else last.operands


_CONTROL: dict[type[Operation], Callable[[Facts[Any], Any], None]] = {
    ForOp: Facts._for,
    IfOp: Facts._if,
    WhileOp: Facts._while,
}
