"""The gradient of a function of tile IR, emitted: the function again, then its operations in reverse.

::

    y = f(x)                       y = f(x)                    as it was, without what it stores
    z = g(y)              ->       z = g(y)
    store z                        dz = load (shadow of z)
                                   dy = vjp of g (x, y, dz)
                                   dx = vjp of f (x, y, dy)
                                   atomic add dx (shadow of x)

A loop goes backward in a loop of its own, each iteration of which computes the values of that iteration again. What an
iteration was given by the one before is then wanted only where that is no sum: it is a known number (an offset), or it
is kept by the loop that goes forward (`tape.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsTerminator

from tilewright.base.errors import LanguageValueError
from tilewright.frontend.builder import IRBuilder
from tilewright.gradients.activity import Activity, refusal
from tilewright.gradients.shadows import Shadows
from tilewright.gradients.tape import Tape
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.types import element_type, is_float
from tilewright.ir.walk import operations
from tilewright.ops.atomic import AtomicRMWOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.ops.elementwise import AddFOp, SubIOp
from tilewright.ops.function import FuncOp, PoisonOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.reverse import Reverse, Tiles
from tilewright.ops.scan import ScanOp
from tilewright.ops.spec import NoGradient, call_of, spec_of

Values = dict[SSAValue, SSAValue]


@dataclass(slots=True)
class Scope:
    """What has been emitted of a block and of those around it.

    Args:
        values: of the function, as they are here.
        loops: of the function, each as the loop that goes forward here.
    """

    values: Values
    loops: dict[ForOp, ForOp] = field(default_factory=dict)

    def inner(self) -> Scope:
        """A scope inside of this one."""
        return Scope(dict(self.values), dict(self.loops))


class Adjoints:
    """Gradients of values, as far as they are known.

    Args:
        b: where sums are emitted.
        varied: values that have gradients.
    """

    def __init__(self, b: IRBuilder, varied: set[SSAValue]) -> None:
        self._b, self._varied = b, varied
        self.known: Values = {}

    def add(self, value: SSAValue, grad: SSAValue | None) -> None:
        """Add to the gradient of a value."""
        if grad is None or value not in self._varied:
            return
        before = self.known.get(value)
        self.known[value] = grad if before is None else self._b.op(AddFOp, before, grad)[0]  # type: ignore[assignment]

    def take(self, value: SSAValue) -> SSAValue | None:
        """The whole gradient of a value, whose users have all been seen."""
        return self.known.pop(value, None)


class Emission:
    """Emits the gradient of a function.

    Args:
        b: where it goes.
        activity: of the function.
        shadows: gradients in memory.
        tape: what loops keep.
    """

    def __init__(self, b: IRBuilder, activity: Activity, shadows: Shadows, tape: Tape) -> None:
        self.b, self.activity, self.shadows, self.tape = b, activity, shadows, tape
        self.counted: dict[ForOp, SSAValue] = {}  # loops whose iterations are counted, with where

    def zero(self, type_: Attribute) -> SSAValue:
        """The number 0 of a type."""
        return self.b.append(ConstantOp.of(0.0, type_)).results[0]

    # --- forward ----------------------------------------------------------------------------------------------------

    def forward(self, block: Block, scope: Scope) -> None:
        """Emit what a block computes, without what it does to memory."""
        for op in operations(block):
            self.b.location = op.location
            rule = _FORWARD.get(type(op))
            if rule is not None:
                rule(self, op, scope)
            elif (not op.has_trait(IsTerminator) and is_without_effects(op)) or _combines(op):
                self._again(op, scope)

    def _again(self, op: Operation, scope: Scope) -> None:
        made = self.b.append(op.clone(dict(scope.values)))
        scope.values.update(zip(op.results, made.results, strict=True))

    def _forward_load(self, op: LoadOp, scope: Scope) -> None:
        """Where it leaves lanes undefined they are 0 here, as products of gradients have sums over all lanes."""
        if op.mask is None or op.other is not None:
            self._again(op, scope)
            return
        type_ = op.results[0].type
        operands = [scope.values[operand] for operand in op.operands]
        if is_float(element_type(type_)):
            operands.append(self.zero(type_))
        made = LoadOp.create(operands=operands, result_types=[type_], properties=dict(op.properties))
        scope.values[op.results[0]] = self.b.append(made).results[0]

    def _forward_for(self, op: ForOp, scope: Scope) -> None:
        outer, inner = self.b.position, scope.inner()
        operands = [scope.values[operand] for operand in op.operands]
        if op in self.counted:
            self.tape.count(self.b, self.counted[op], operands[1])
        block = self.b.enter([arg.type for arg in op.body.block.args])
        inner.values.update(zip(op.body.block.args, block.args, strict=True))
        self.forward(op.body.block, inner)
        self.b.finish(YieldOp, [inner.values[v] for v in _yielded(op.body)])
        self.b.position = outer
        made = ForOp.create(
            operands=operands,
            result_types=list(op.result_types),
            properties=dict(op.properties),
            regions=[Region(block)],
        )
        self.b.append(made)
        scope.loops[op] = made
        scope.values.update(zip(op.results, made.results, strict=True))

    def _forward_if(self, op: IfOp, scope: Scope) -> None:
        outer, regions = self.b.position, []
        for region in op.regions:
            block = self.b.enter()
            inner = scope.inner()
            values: Sequence[SSAValue] = ()
            if region.blocks:
                self.forward(region.block, inner)
                values = _yielded(region)
            self.b.finish(YieldOp, [inner.values[v] for v in values])
            regions.append(Region(block))
            self.b.position = outer
        condition = scope.values[op.operands[0]]
        made = IfOp.create(operands=[condition], result_types=list(op.result_types), regions=regions)
        self.b.append(made)
        scope.values.update(zip(op.results, made.results, strict=True))

    # --- backward ---------------------------------------------------------------------------------------------------

    def backward(self, block: Block, scope: Scope, adjoints: Adjoints) -> None:
        """Emit the gradients of a block that has been emitted forward in this scope."""
        for op in reversed(operations(block)):
            self.b.location = op.location
            if not op.has_trait(IsTerminator):
                _BACKWARD.get(type(op), Emission._backward_op)(self, op, scope, adjoints)

    def _backward_op(self, op: Operation, scope: Scope, adjoints: Adjoints) -> None:
        grads = tuple(adjoints.take(result) for result in op.results)
        if all(grad is None for grad in grads):
            return
        rule = spec_of(op).vjp
        if not callable(rule):
            rule = rule or NoGradient("it has no rule", "compute it in another way")
            raise refusal(op, f"no gradient flows through {op.name}: {rule.reason}", rule.hint)
        operands = tuple(scope.values[operand] for operand in op.operands)
        results = tuple(scope.values[result] for result in op.results)
        assert hasattr(op, "attr_values")
        reverse = Reverse(self.b, call_of(op), operands, results, grads, _combining(op))  # type: ignore[arg-type]
        try:
            answers = rule(reverse)
        except LanguageValueError as error:
            raise refusal(op, error.message, error.hint or "") from None
        for operand, grad in zip(op.operands, answers, strict=True):
            adjoints.add(operand, grad)

    def _backward_load(self, op: LoadOp, scope: Scope, adjoints: Adjoints) -> None:
        grad = adjoints.take(op.results[0])
        if grad is None:
            return
        mask = None if op.mask is None else scope.values[op.mask]
        if op.other is not None and mask is not None:
            outside = Tiles(self.b).where(mask, self.zero(grad.type), grad)
            adjoints.add(op.other, outside)
        self.shadows.accumulate(self.b, op, self.activity.homes.get(op), grad, mask, scope.values)

    def _backward_store(self, op: StoreOp | AtomicRMWOp, scope: Scope, adjoints: Adjoints) -> None:
        home, value = self.activity.homes.get(op), op.operands[1]
        if home is None or home not in self.activity.outputs or home not in self.shadows.of:
            return
        overwrites = isinstance(op, StoreOp) and home in self.activity.consumed
        if value not in self.activity.varied and not overwrites:
            return
        mask = None if op.mask is None else scope.values[op.mask]
        grad = self.shadows.read(self.b, op, home, mask, scope.values, element_type(value.type), take=overwrites)
        adjoints.add(value, grad)

    # --- loops and branches backward --------------------------------------------------------------------------------

    def _backward_for(self, op: ForOp, scope: Scope, adjoints: Adjoints) -> None:
        active = [n for n, argument in enumerate(op.carried) if argument in self.activity.varied]
        outs = [adjoints.take(op.results[n]) for n in active]
        if all(out is None for out in outs) and not self._has_seeds(op):
            return
        outer, ub = self.b.position, scope.values[op.ub]
        firsts = [self.zero(op.results[n].type) if o is None else o for n, o in zip(active, outs, strict=True)]
        block = self.b.enter([ub.type, *(first.type for first in firsts)])
        number, wanted, inner = self._enter_iteration(op, block, ub, scope)
        found = Adjoints(self.b, self.activity.varied)
        for n, argument in zip(active, block.args[1:], strict=True):
            found.add(_yielded(op.body)[n], argument)
        self.backward(op.body.block, inner, found)
        nexts = [found.take(op.carried[n]) for n in active]
        nexts = [self.zero(f.type) if v is None else v for v, f in zip(nexts, firsts, strict=True)]
        captured = list(found.known)
        for value in captured:  # their gradients are sums over the iterations
            sum_so_far = block.insert_arg(value.type, len(block.args))
            nexts.append(self.b.op(AddFOp, sum_so_far, found.known[value])[0])  # type: ignore[arg-type]
        self.b.finish(YieldOp, nexts)  # type: ignore[arg-type]
        self.b.position = outer
        firsts += [self.zero(value.type) for value in captured]
        made = ForOp.create(
            operands=[scope.values[op.lb], ub, scope.values[op.step], *firsts],
            result_types=[first.type for first in firsts],
            properties=dict(op.properties),
            regions=[Region(block)],
        )
        self.b.append(made)
        for value, result in zip([op.iter_args[n] for n in active] + captured, made.results, strict=True):
            adjoints.add(value, result)
        self.tape.settle(self.b, op, made, number, wanted, scope.values, scope.loops[op])

    def _enter_iteration(
        self, op: ForOp, block: Block, ub: SSAValue, scope: Scope
    ) -> tuple[SSAValue, list[SSAValue], Scope]:
        """Compute the values of an iteration again: its number, what it was given (to be settled later), and all."""
        last = self.b.op(SubIOp, ub, scope.values[op.step])[0]
        number: SSAValue = self.b.op(SubIOp, last, block.args[0])[0]  # type: ignore[assignment]
        wanted = [self.b.append(PoisonOp.create(result_types=[arg.type])).results[0] for arg in op.carried]
        inner = scope.inner()
        inner.values[op.induction_var] = number
        inner.values.update(zip(op.carried, wanted, strict=True))
        self.forward(op.body.block, inner)
        return number, list(wanted), inner

    def _backward_if(self, op: IfOp, scope: Scope, adjoints: Adjoints) -> None:
        outs = [adjoints.take(result) for result in op.results]
        if all(out is None for out in outs) and not self._has_seeds(op):
            return
        outer, sides = self.b.position, []
        for region in op.regions:
            block, inner = self.b.enter(), scope.inner()
            found = Adjoints(self.b, self.activity.varied)
            if region.blocks:
                self.forward(region.block, inner)
                for value, out in zip(_yielded(region), outs, strict=True):
                    found.add(value, out)
                self.backward(region.block, inner, found)
            sides.append((block, self.b.position, found.known))
            self.b.position = outer
        captured = list(dict.fromkeys(value for _, _, known in sides for value in known))
        for _, end, known in sides:
            self.b.position = end
            self.b.finish(YieldOp, [known[v] if v in known else self.zero(v.type) for v in captured])
        self.b.position = outer
        made = IfOp.create(
            operands=[scope.values[op.operands[0]]],
            result_types=[value.type for value in captured],
            regions=[Region(block) for block, _, _ in sides],
        )
        self.b.append(made)
        for value, result in zip(captured, made.results, strict=True):
            adjoints.add(value, result)

    def _has_seeds(self, op: Operation) -> bool:
        """Whether gradients of outputs are read inside of a loop or branch."""
        homes = self.activity.homes
        return any(
            isinstance(inner, StoreOp | AtomicRMWOp) and homes.get(inner) in self.shadows.of
            for region in op.regions
            for block in region.blocks
            for inner in block.walk()
        )


_FORWARD: dict[type[Operation], Callable[[Emission, Any, Scope], None]] = {
    ForOp: Emission._forward_for,
    IfOp: Emission._forward_if,
    LoadOp: Emission._forward_load,
}
_BACKWARD: dict[type[Operation], Callable[[Emission, Any, Scope, Adjoints], None]] = {
    ForOp: Emission._backward_for,
    IfOp: Emission._backward_if,
    LoadOp: Emission._backward_load,
    StoreOp: Emission._backward_store,
    AtomicRMWOp: Emission._backward_store,
}


def _yielded(region: Region) -> Sequence[SSAValue]:
    last = region.block.last_op
    assert last is not None
    return list(last.operands)


def _combines(op: Operation) -> bool:
    return isinstance(op, ReduceOp | ScanOp)


def _combining(op: Operation) -> str:
    """The one operation by which a reduction or scan combines; "" for others."""
    single = single_operation(op.combine.block) if isinstance(op, ReduceOp | ScanOp) else None
    return "" if single is None else single.name


def emit_gradient(
    b: IRBuilder, function: FuncOp, arguments: Sequence[SSAValue], activity: Activity, shadows: Shadows, tape: Tape
) -> None:
    """Emit the gradient of `function` where `b` is.

    Args:
        arguments: of `function`, as they are there.
    """
    block = function.body.block
    emission = Emission(b, activity, shadows, tape)
    scope = Scope(dict(zip(block.args, arguments, strict=True)))
    emission.forward(block, scope)
    adjoints = Adjoints(b, activity.varied)
    emission.backward(block, scope, adjoints)
    for argument in block.args:  # numbers that were passed
        grad = adjoints.take(argument)
        if grad is not None and argument in shadows.of:
            shadows.accumulate_number(b, argument, grad)


def emit_counts(
    b: IRBuilder, function: FuncOp, arguments: Sequence[SSAValue], activity: Activity, tape: Tape, at: SSAValue
) -> None:
    """Emit what finds the greatest number of iterations among the loops that keep something, into memory at `at`."""
    emission = Emission(b, activity, Shadows({}), tape)
    emission.counted = dict.fromkeys(tape.loops(), at)
    block = function.body.block
    emission.forward(block, Scope(dict(zip(block.args, arguments, strict=True))))
