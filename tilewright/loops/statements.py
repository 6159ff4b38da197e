"""What a kernel does to memory, in order: stores of expressions, and the loops and branches that hold them.

A loop without a store in it is no statement: what it computes stands in the expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation
from xdsl.traits import IsTerminator, MemoryEffectKind

from tilewright.ir.effect_traits import effects
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.ir.values import is_tile, operands_of
from tilewright.loops.arithmetic import conjunction
from tilewright.loops.attributes import attributes_of
from tilewright.loops.nest import ALWAYS, Attributes, Carried, Every, Load, Node, Parts, Range, range_of, walk
from tilewright.loops.normal import Normal, normalized, unrounded
from tilewright.loops.products import Term
from tilewright.loops.raising import Raising
from tilewright.loops.ranges import settled
from tilewright.ops.atomic import AtomicRMWOp
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import StoreOp
from tilewright.ops.program import AssumeOp


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Assignment(Node):
    """What a store writes, and where."""

    target: Load
    value: Node


@dataclass(frozen=True, slots=True)
class Store:
    """Elements that are stored.

    Args:
        op: the operation.
        target: where, as the load that would read it.
        value: what.
        ranges: for each number of which.
        condition: where it is done.
    """

    op: StoreOp
    target: Load
    value: Node
    ranges: tuple[Range, ...]
    condition: Every


@dataclass(frozen=True, slots=True)
class Update:
    """Elements that an atomic operation combines with values, which nobody asks for what was there before.

    Args:
        op: the operation.
        how: what it does.
        target: where, as the load that would read it.
        value: what with.
        ranges: for each number of which.
        condition: where it is done.
        attributes: how the accesses are ordered.
    """

    op: AtomicRMWOp
    how: str
    target: Load
    value: Node
    ranges: tuple[Range, ...]
    condition: Every
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Loop:
    """Statements that are done for each number of a range, in order.

    Args:
        iteration: the range.
        body: the statements.
        carried: what they need of the iterations before, as in a recurrence.
    """

    iteration: Range
    body: Sequence[Statement]
    carried: Parts = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """Statements that are done where a condition holds, and others where it does not."""

    condition: Node
    then: Sequence[Statement]
    otherwise: Sequence[Statement]


@dataclass(frozen=True, slots=True)
class While:
    """Statements of a loop that ends by a condition."""

    body: Sequence[Statement]


@dataclass(frozen=True, slots=True)
class Effect:
    """Another operation that does something: an atomic one, a print.

    Args:
        op: the operation.
        attributes: of it.
        operands: elements of its operands.
        ranges: for each number of which.
    """

    op: Operation
    attributes: Attributes
    operands: tuple[Node, ...]
    ranges: tuple[Range, ...]


Statement = Store | Update | Loop | Branch | While | Effect


def statements_of(function: FuncOp) -> list[Statement]:
    """What a function does."""
    return _Statements(Raising(function)).of(function.body.blocks[0])


class _Statements:
    def __init__(self, raising: Raising) -> None:
        self._raising = raising

    def of(self, block: Block) -> list[Statement]:
        """The statements of a block."""
        return [statement for op in block.ops for statement in self._op(op)]

    def _op(self, op: Operation) -> list[Statement]:
        if isinstance(op, StoreOp):
            return [self._store(op)]
        if isinstance(op, AtomicRMWOp) and op.results[0].first_use is None:
            return [self._update(op)]
        if isinstance(op, ForOp):
            return self._loop(op)
        if isinstance(op, IfOp):
            sides = [self.of(region.block) if region.blocks else [] for region in (op.then_region, op.else_region)]
            condition = normalized(self._raising.value(op.cond))
            return [Branch(condition, *sides)] if any(sides) else []
        if isinstance(op, WhileOp):
            body = self.of(op.before.block) + self.of(op.after.block)
            return [While(body)] if body else []
        return [self._effect(op)] if _does_something(op) else []

    def _loop(self, op: ForOp) -> list[Statement]:
        body, loops = self.of(op.body.block), self._raising.loops
        if not body:
            return []
        iteration = loops.of(op).iteration
        needed = {p.number for p in walk(tuple(_nodes(body))) if isinstance(p, Carried) and p.iteration is iteration}
        carried = [(n, d, normalized(a), normalized(b)) for n, d, a, b in loops.parts(op, sorted(needed))]
        return [Loop(iteration, body, tuple(carried))]

    def _store(self, op: StoreOp) -> Store:
        made, ranges, condition = self._written(op)
        return Store(op, made.target, made.value, ranges, condition)

    def _update(self, op: AtomicRMWOp) -> Update:
        made, ranges, condition = self._written(op)
        attributes = dict(attributes_of(op))
        how = str(attributes.pop("atomic_rmw_op"))
        return Update(op, how, made.target, made.value, ranges, condition, tuple(attributes.items()))

    def _written(self, op: StoreOp | AtomicRMWOp) -> tuple[Assignment, tuple[Range, ...], Every]:
        """What is written, for each number of which ranges, and where."""
        raising, operands = self._raising, operands_of(op)
        dims = raising.dims((op,), shape_of(operands[1].type))
        base, offset = raising.address(operands[0], dims)
        condition = raising.condition(operands[2], dims) if len(operands) > 2 else ALWAYS
        condition = conjunction([normalized(part) for part in condition.parts])
        normal = Normal(condition)
        value = unrounded(normal.of(raising.value(operands[1], dims)), ir_name(element_type(operands[1].type)))
        target = normal.of(Load.of(base, offset, ALWAYS, None, ir_name(element_type(operands[1].type)), ""))
        ranges = tuple([range_of(dim) for dim in dims if dim.atoms])
        whole = settled(Term.of(1, (Assignment.of(target, value),), ranges, condition, ()))
        (made,) = whole.factors
        assert isinstance(made, Assignment)
        return made, whole.ranges, whole.condition

    def _effect(self, op: Operation) -> Effect:
        raising = self._raising
        shape = max((shape_of(o.type) for o in operands_of(op)), key=len, default=())
        dims = raising.dims((op,), shape)
        operands = [normalized(raising.value(o, dims if is_tile(o) else ())) for o in operands_of(op)]
        ranges = tuple([range_of(dim) for dim in dims if dim.atoms])
        return Effect(op, attributes_of(op), tuple(operands), ranges)


def _nodes(statements: Sequence[Statement]) -> Iterator[object]:
    """The expressions of statements."""
    for statement in statements:
        if isinstance(statement, (Store, Update)):
            yield from (statement.target, statement.value, statement.ranges, statement.condition)
        elif isinstance(statement, Effect):
            yield from (statement.operands, statement.ranges)
        elif isinstance(statement, Branch):
            yield statement.condition
            yield from _nodes([*statement.then, *statement.otherwise])
        else:
            yield from _nodes(statement.body)
            yield from (statement.iteration, statement.carried) if isinstance(statement, Loop) else ()


def _does_something(op: Operation) -> bool:
    if op.has_trait(IsTerminator) or isinstance(op, AssumeOp):
        return False
    done = effects(op)
    return done is None or any(effect.kind is MemoryEffectKind.WRITE for effect in done)
