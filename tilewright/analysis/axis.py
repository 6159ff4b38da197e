"""Axis analysis: contiguity, divisibility and constancy of every integer and pointer tile.

The transfer functions are the `facts` slots of the op specs (`ops/facts.py`); an op without
one says nothing about its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.solver import Facts
from tilewright.ir.values import is_tile, users_of
from tilewright.ir.walk import among
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.elementwise_base import CompareOp
from tilewright.ops.facts import AxisFacts, of_argument, unknown
from tilewright.ops.program import AssumeOp
from tilewright.ops.spec import REGISTRY

_HINTS = {"tt.contiguity": 0, "tt.divisibility": 1, "tt.constancy": 2}


class AxisAnalysis:
    """The lattice of `AxisFacts` for the solver."""

    def unknown(self, type_: Attribute) -> AxisFacts:
        return unknown(type_)

    def argument(self, function: FuncOp, index: int) -> AxisFacts:
        if is_tile(function.body.blocks[0].args[index]):
            return unknown(function.body.blocks[0].args[index].type)
        promise = function.arg_attributes(index).get("tt.divisibility")
        divisor = int(promise.value.data) if isinstance(promise, IntegerAttr) else 1
        return _with_assumptions(function.body.block.args[index], of_argument(divisor))

    def transfer(self, op: Operation, operands: Sequence[AxisFacts]) -> Sequence[AxisFacts]:
        spec = REGISTRY.get(op.name)
        if spec is None or spec.facts is None:
            return [unknown(result.type) for result in op.results]
        facts = spec.facts(op, operands)
        results = [facts] if isinstance(facts, AxisFacts) else list(facts)
        return [
            _with_assumptions(value, self.hinted(op, fact)) for value, fact in zip(op.results, results, strict=True)
        ]

    def hinted(self, op: Operation, facts: AxisFacts) -> AxisFacts:
        """What is known of a result with what the user promises of it."""
        return _with_hints(op, facts)

    def carried(self, facts: Sequence[AxisFacts], values: Sequence[SSAValue]) -> Sequence[AxisFacts]:
        """What may be said of values with which a loop begins."""
        return facts

    def induction(self, loop: ForOp, bounds: Sequence[AxisFacts]) -> AxisFacts:
        lower, _, step = bounds
        return AxisFacts((1,), (math.gcd(lower.divisibility[0], step.divisibility[0]),), (1,), None, lower.nonnegative)


def _with_hints(op: Operation, facts: AxisFacts) -> AxisFacts:
    """Promises of the user (`tl.multiple_of` and its kin) replace what was found when they say more."""
    if not op.attributes:
        return facts
    runs = [facts.contiguity, facts.divisibility, facts.constancy]
    for name, slot in _HINTS.items():
        hint = op.attributes.get(name)
        if isinstance(hint, DenseIntOrFPElementsAttr):
            values = [int(v) for v in hint.get_values()]
            if len(values) == facts.rank:
                runs[slot] = tuple(max(a, b) for a, b in zip(runs[slot], values, strict=True))
    return AxisFacts(runs[0], runs[1], runs[2], facts.constant, facts.nonnegative)


def _with_assumptions(value: SSAValue, facts: AxisFacts) -> AxisFacts:
    """A scalar of which the user assumes that it is not negative: `tl.assume(x >= 0)`, where x is computed."""
    if facts.nonnegative or is_tile(value):
        return facts
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    for use in value.uses:
        test = use.operation
        if isinstance(test, CompareOp) and use.index == 0 and _means_nonnegative(test):
            users = users_of(test.result)
            if any(user.parent_block() is block for user in among(users, AssumeOp)):
                return replace(facts, nonnegative=True)
    return facts


def _means_nonnegative(test: CompareOp) -> bool:
    """Whether the left side of a comparison that holds is not negative."""
    bound = constant_of(test.rhs)
    least = {"sge": 0, "sgt": -1}.get(test.attr_values()["predicate"])  # of integers: those of floats have other names
    return least is not None and bound is not None and bound >= least


class _ElementFacts(AxisAnalysis):
    """Facts for who computes elements of tiles alone, at places of its choosing.

    Only what is proven counts: kernels promise contiguous runs of indices that wrap in the middle of a block. And
    nothing is known of tiles that loops carry: an element may have been replaced when another is asked for.
    """

    def hinted(self, op: Operation, facts: AxisFacts) -> AxisFacts:
        return facts if is_tile(op.results[0]) else _with_hints(op, facts)

    def carried(self, facts: Sequence[AxisFacts], values: Sequence[SSAValue]) -> Sequence[AxisFacts]:
        return [unknown(v.type) if is_tile(v) else fact for v, fact in zip(values, facts, strict=True)]


class ElementFacts:
    """Axis facts of the elements of a function's tiles, found when the first is asked for.

    Args:
        function: a `tt.func`; of one with several blocks nothing is known.
    """

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self._facts: Facts[AxisFacts] | None = None

    def __getitem__(self, value: SSAValue) -> AxisFacts:
        if len(self.function.body.blocks) > 1:
            return unknown(value.type)
        if self._facts is None:
            self._facts = Facts(self.function, _ElementFacts())
        return self._facts[value]


def axis_facts(function: FuncOp) -> Facts[AxisFacts]:
    """Axis facts of every value of a function."""
    return Facts(function, AxisAnalysis())
