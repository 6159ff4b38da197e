"""What a tile value is made of: costs, loads and steps in the cone of lazy operations above it.

The cone of a value ends at scalars and at values that live in scratch (`placed`). Walks are memoised until a value is
placed, which changes cones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xdsl.ir import Operation, SSAValue

from tilewright.backends.cpu.plan.index import Index
from tilewright.backends.cpu.plan.recompute import CAP, cost_of, is_lazy, is_tile, operand_indices, owner_of
from tilewright.backends.cpu.plan.steps import Buffer, Step
from tilewright.base.errors import InternalError


class Demands:
    """Cones of tile values under the current placement.

    Args:
        is_address: says of a tile whether it is affine arithmetic, which addresses and masks get for nothing.

    Attributes:
        placed: values that live in scratch; change it only through `place` and `drop`.
    """

    def __init__(self, is_address: Callable[[SSAValue], bool] = lambda value: False) -> None:
        self._is_address = is_address
        self.placed: dict[SSAValue, Buffer] = {}
        self._costs: dict[SSAValue, float] = {}
        self._loads: dict[SSAValue, frozenset[Operation]] = {}
        self._leaves: dict[SSAValue, frozenset[SSAValue]] = {}

    def place(self, value: SSAValue, buffer: Buffer) -> None:
        """From now on `value` is read from `buffer`."""
        self.placed[value] = buffer
        self._forget()

    def place_all(self, values: dict[SSAValue, Buffer]) -> None:
        """`place` for several values."""
        self.placed.update(values)
        self._forget()

    @contextmanager
    def computing(self, step: Step) -> Iterator[None]:
        """While the step is looked at, what it writes to its place is computed, not read."""
        own = {value: self.placed[value] for value in step.computed(self.placed)}
        if own:
            self.drop(list(own))
        yield
        if own:
            self.place_all(own)

    def drop(self, values: Iterator[SSAValue] | list[SSAValue]) -> None:
        """Undo `place`."""
        for value in values:
            self.placed.pop(value, None)
        self._forget()

    def _forget(self) -> None:
        self._costs.clear()
        self._loads.clear()
        self._leaves.clear()

    def operands(self, value: SSAValue) -> list[SSAValue]:
        """Operands of the lazy operation behind a tile value; none for scalars and placed values."""
        if not is_tile(value) or value in self.placed:
            return []
        op = owner_of(value)
        if op is None or not is_lazy(op.name):
            raise InternalError(f"the tile {value} of {op.name if op else 'a block'} has no place in scratch")
        return list(op.operands[1:] if op.name == "tt.gather" else op.operands)

    def cost(self, value: SSAValue) -> float:
        """Cost of computing one element of `value` anew (shared parts are counted each time), capped."""
        found = self._costs.get(value)
        if found is None:
            if not is_tile(value):
                found = 0.0
            elif value in self.placed:
                found = 1.0
            elif self._is_address(value):
                found = 0.0
            else:
                below = sum(self.cost(operand) for operand in self.operands(value))
                found = min(CAP, cost_of(value.owner) + below)  # type: ignore[arg-type]
            self._costs[value] = found
        return found

    def loads(self, value: SSAValue) -> frozenset[Operation]:
        """Loads that computing `value` performs."""
        found = self._loads.get(value)
        if found is None:
            out: set[Operation] = set()
            for operand in self.operands(value):
                out |= self.loads(operand)
            op = owner_of(value)
            if is_tile(value) and value not in self.placed and op is not None and op.name == "tt.load":
                out.add(op)
            found = self._loads[value] = frozenset(out)
        return found

    def leaves(self, value: SSAValue) -> frozenset[SSAValue]:
        """Scalars and placed values that computing `value` reads."""
        found = self._leaves.get(value)
        if found is None:
            operands = self.operands(value)
            out: set[SSAValue] = set()
            for operand in operands:
                out |= self.leaves(operand)
            if not is_tile(value) or value in self.placed:
                out.add(value)
            elif value.owner.name == "tt.gather":  # type: ignore[union-attr]
                out.add(value.owner.operands[0])  # type: ignore[union-attr]
            found = self._leaves[value] = frozenset(out)
        return found

    def walk(self, value: SSAValue, index: Index) -> Iterator[tuple[SSAValue, Index]]:
        """Every (value, index) evaluated to compute `value` at `index`, the tile values of its cone."""
        seen: set[tuple[SSAValue, Index]] = set()
        stack = [(value, index)]
        while stack:
            key = stack.pop()
            if key in seen or not is_tile(key[0]):
                continue
            seen.add(key)
            yield key
            if key[0] not in self.placed:
                stack.extend(operand_indices(*key))
