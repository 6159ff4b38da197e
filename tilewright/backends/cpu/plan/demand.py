"""What a tile value is made of: costs, loads and steps in the cone of lazy operations above it.

The cone of a value ends at scalars and at values that live in scratch (`placed`). Walks are memoised until a value is
placed, which changes cones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.elements import At, operand_indices, tiles_behind
from tilewright.analysis.index import Index
from tilewright.backends.cpu.plan.recompute import CAP, cost_of, is_lazy
from tilewright.backends.cpu.plan.steps import Buffer, Step
from tilewright.base.errors import InternalError
from tilewright.base.order import operands_first
from tilewright.ir.values import defining_op, is_tile, operands_of
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp

_AS_IT_IS = nullcontext()
_S = TypeVar("_S")


class Demands:
    """Cones of tile values under the current placement.

    Args:
        is_address: says of a tile whether it is affine arithmetic, which addresses and masks get for nothing.
        run: of how many neighbours in a tile one is computed for all, because they are equal.

    Attributes:
        placed: values that live in scratch; change it only through `place` and `drop`.
    """

    def __init__(
        self,
        is_address: Callable[[SSAValue], bool] = lambda value: False,
        run: Callable[[SSAValue], int] = lambda value: 1,
    ) -> None:
        self._is_address, self._run = is_address, run
        self.placed: dict[SSAValue, Buffer] = {}
        self._costs: dict[SSAValue, float] = {}
        self._loads: dict[SSAValue, frozenset[Operation]] = {}
        self._leaves: dict[SSAValue, frozenset[SSAValue]] = {}
        self._walked: set[SSAValue] = set()  # by `loads` and `leaves`

    def place(self, values: Mapping[SSAValue, Buffer]) -> None:
        """From now on `values` are read from their buffers."""
        self.placed.update(values)
        self._moved(values)

    def computing(self, step: Step) -> AbstractContextManager[None]:
        """While the step is looked at, what it writes to its place is computed, not read."""
        own = {value: self.placed[value] for value in step.computed(self.placed)}
        return self._without(own) if own else _AS_IT_IS

    @contextmanager
    def _without(self, own: dict[SSAValue, Buffer]) -> Iterator[None]:
        self.drop(own)
        yield
        self.place(own)

    def drop(self, values: Collection[SSAValue]) -> None:
        """Undo `place`."""
        for value in values:
            self.placed.pop(value, None)
        self._moved(values)

    def forget_costs(self) -> None:
        """Other values than before are addresses."""
        self._costs.clear()

    def _moved(self, values: Collection[SSAValue]) -> None:
        """Forget what walks have found of cones, if they came to one of `values`."""
        if not self._costs.keys().isdisjoint(values):
            self._costs.clear()
        if not self._walked.isdisjoint(values):
            for found in (self._walked, self._loads, self._leaves):
                found.clear()

    def operands(self, value: SSAValue) -> Sequence[SSAValue]:
        """Operands of the lazy operation behind a tile value; none for scalars and placed values."""
        if not is_tile(value) or value in self.placed:
            return ()
        op = defining_op(value)
        if op is None or not is_lazy(op):
            raise InternalError(f"the tile {value} of {op.name if op else 'a block'} has no place in scratch")
        return operands_of(op)[1:] if type(op) is GatherOp else operands_of(op)

    def cost(self, value: SSAValue) -> float:
        """Cost of computing one element of `value` anew (shared parts are counted each time), capped."""
        if value not in self._costs:
            for part in operands_first(value, self._costed, self._costs):
                self._costs[part] = self._cost(part)
        return self._costs[value]

    def _costed(self, value: SSAValue) -> Sequence[SSAValue]:
        """Operands whose cost is part of that of `value`."""
        return () if not is_tile(value) or value in self.placed or self._is_address(value) else self.operands(value)

    def _cost(self, value: SSAValue) -> float:
        if not is_tile(value):
            return 0.0
        if value in self.placed:
            return 1.0
        if self._is_address(value):
            return 0.0
        below = sum(self._costs[operand] for operand in self.operands(value))
        return min(CAP, cost_of(value.owner) / self._run(value) + below)  # type: ignore[arg-type]

    def loads(self, value: SSAValue) -> frozenset[Operation]:
        """Loads that computing `value` performs."""
        return self._gathered(value, self._loads, self._loaded)

    def _loaded(self, part: SSAValue) -> Iterator[Operation]:
        op = defining_op(part)
        if isinstance(op, LoadOp) and is_tile(part) and part not in self.placed:
            yield op

    def leaves(self, value: SSAValue) -> frozenset[SSAValue]:
        """Scalars and placed values that computing `value` reads."""
        return self._gathered(value, self._leaves, self._read)

    def _read(self, part: SSAValue) -> Iterator[SSAValue]:
        if not is_tile(part) or part in self.placed:
            yield part
        elif isinstance(op := defining_op(part), GatherOp):
            yield operands_of(op)[0]

    def _gathered(
        self, value: SSAValue, known: dict[SSAValue, frozenset[_S]], own: Callable[[SSAValue], Iterator[_S]]
    ) -> frozenset[_S]:
        """What the parts of a cone have of their own. Kept for the values that are asked for alone: of each link of a
        chain it would take as many times the memory as the chain is long."""
        if value not in known:
            found: set[_S] = set()
            stack, entered = [value], {value}
            while stack:
                part = stack.pop()
                if part in known:
                    found |= known[part]
                    continue
                found.update(own(part))
                below = [operand for operand in self.operands(part) if operand not in entered]
                entered.update(below)
                stack += below
            self._walked |= entered
            known[value] = frozenset(found)
        return known[value]

    def walk(self, value: SSAValue, index: Index) -> Iterator[At]:
        """Every (value, index) evaluated to compute `value` at `index`, the tile values of its cone."""
        return tiles_behind([(value, index)], lambda v, at: () if v in self.placed else operand_indices(v, at))
