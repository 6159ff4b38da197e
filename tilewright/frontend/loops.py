"""Loops: `for` over `range`/`tl.range` and `while` at run time, everything else unrolled.

    %r = scf.for %i = %lb to %ub step %s iter_args(%x = %x0) { ...; scf.yield %x1 }
    %r = scf.while (%x = %x0) { %c = ...; scf.condition(%c) %x } do { ^bb0(%x): ...; scf.yield %x1 }

`continue` ends an iteration as an early `return` ends a function. A loop that `break` or `return` leaves carries a
flag, and what is returned, beside its variables; `return` goes on after the loop under that flag:

    for i in range(n): A; if c: break; B    =>    scf.while (%i, %x, %go) { %c = %i < %n and %go; scf.condition(%c) .. }
                                                  do { A; %x1, %go1 = scf.if %c { yield %x, false } else { B; .. } .. }
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import BoolAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import Pure

from tilewright.base import dtypes
from tilewright.frontend.builder import Position
from tilewright.frontend.carried import Carried, Kept, Retry, collect, drop_unchanged, erase_args, next_values
from tilewright.frontend.control import branch, close_exits, open_if, truth
from tilewright.frontend.exits import HIDDEN, UNDEFINED, YES, Exit, LoopContext, is_no, is_yes
from tilewright.frontend.expressions import bind_target, static_items, wrap
from tilewright.frontend.frame import Frame, OpenIf, visit, visit_all, visits
from tilewright.frontend.names import assigned_names, is_read_behind
from tilewright.frontend.ranges import Limits, read_range
from tilewright.frontend.scopes import Scope
from tilewright.frontend.structure import leaves, rebuild, type_text
from tilewright.ops.builtin import BUILTINS, to_tensor
from tilewright.ops.control import ANY_STEP, ConditionOp, ForOp, IfOp, WhileOp, YieldOp, condition
from tilewright.ops.control import range as run_time_range
from tilewright.ops.elementwise import DivFOp, DivSIOp, DivUIOp, RemFOp, RemSIOp, RemUIOp
from tilewright.ops.values import constexpr, tensor, unwrap


@visits(ast.For)
def _for(frame: Frame, node: ast.For) -> bool:
    iterator = visit(frame, node.iter)
    if isinstance(iterator, run_time_range):
        return _range_loop(frame, node, iterator)
    items = static_items(iterator)
    if items is None:
        raise frame.error(
            node.iter,
            f"Only `range` and `static_range` iterators are currently supported, not {type_text(iterator)}",
            "loop over range(n) at run time, or over tl.static_range(N) or a tuple to unroll",
        )
    return _unrolled(frame, node, items)


def _behind(frame: Frame, node: ast.For | ast.While, way: Exit, *, ends: bool = False) -> bool:
    """What follows a loop that was left on `way`: a `return`, then `else`; tells whether control ends here.

    Args:
        frame: at the place after the loop.
        node: the loop.
        way: how it was left; flags and values are those after the loop.
        ends: whether the loop is left by `return` only.
    """
    if is_yes(way.returned) or ends:
        frame.value = frame.returned(way.value)
        return True
    frame.at(node)
    if isinstance(way.returned, tensor):
        open_if(frame, node, way.returned, frame.returned(way.value))
    if not node.orelse or is_no(way.go):
        return False
    if is_yes(way.go):
        return visit_all(frame, node.orelse)
    without_break = ast.copy_location(ast.If(ast.Constant(True), node.orelse, []), node.orelse[0])
    return branch(frame, without_break, way.go)


_MANY = 1000  # iterations of an unrolled loop that are worth a warning


# --- unrolled -----------------------------------------------------------------------------------------------


def _unrolled(frame: Frame, node: ast.For, items: Iterable[Any]) -> bool:
    """Visit the body once per item; ways out at run time leave branches open to the end of the loop."""
    if isinstance(items, Sized) and len(items) > _MANY:
        text = f"this loop is unrolled {len(items):,} times, each time compiled anew: tl.range(n) counts at run time"
        warnings.warn_explicit(text, UserWarning, frame.source.file, frame.line(node))  # now: it may take for ever
    outside, opens = frame.loop, frame.opens
    loop = LoopContext(node, assigned_names(node, [node.target, *node.body]), fixed=False)
    pending: list[OpenIf] = []
    frame.loop, way = loop, None
    for item in items:
        bind_target(frame, node.target, wrap(item))
        way = _iteration(frame, loop, pending)
        if way is not None:
            break
    if way is None:
        way = loop.exit(frame.scope, go=True)
    if all(is_yes(one.value.returned) for one in pending):  # these leave the loops around it, or the function, too
        frame.loop = outside
        opens = opens + [replace(one, value=_return_of(frame, one.value)) for one in pending]
    else:
        frame.opens = pending
        way = close_exits(frame, way)
        _restore(frame, loop, way)
    frame.loop, frame.opens = outside, opens
    return _behind(frame, node, way)


def _return_of(frame: Frame, way: Exit) -> Any:
    """A `return` inside a loop as one in what is around it, where nobody looks at variables any more."""
    return way.value if frame.loop is None else way._replace(variables=UNDEFINED)


def _iteration(frame: Frame, loop: LoopContext, pending: list[OpenIf]) -> Exit | None:
    """Visit the body once; `None` if the next iteration follows at the place where the frame is then.

    Branches left open by `break` or `return` alone stay open, in `pending`; `continue` closes them.
    """
    frame.opens = []
    ended = visit_all(frame, loop.node.body)
    way: Exit | None = frame.value if ended else None
    if all(is_no(one.value.go) for one in frame.opens):
        pending += frame.opens
    else:
        way = close_exits(frame, way or loop.exit(frame.scope, go=True))
    if way is None:
        return None
    _restore(frame, loop, way)
    if is_no(way.go):
        return way
    if isinstance(way.go, tensor):
        frame.opens = []
        frame.at(loop.node)
        open_if(frame, loop.node, way.go, way._replace(go=constexpr(False)), leaves_if=False)
        pending += frame.opens
    return None


def _restore(frame: Frame, loop: LoopContext, way: Exit) -> None:
    """Give the variables the values that they have on a way out."""
    if way.variables is UNDEFINED:
        return
    scope, line = frame.scope, frame.line(loop.node)
    for name, value in zip(loop.names, way.variables, strict=True):
        if value is HIDDEN:
            scope.hide([name], f"not every way through the loop at line {line} gives it a value of one type")
        elif value is not scope.values.get(name):
            scope.bind(name, value)
            if isinstance(value, tensor):
                scope.constants.pop(name, None)


# --- run time -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Body:
    """The visited body of a run-time loop.

    Args:
        block: its block; the arguments end with those of the carried variables.
        end: where it ends.
        way: the way out, all ways joined.
        following: the tensors that the carried variables hold then.
        after: the variables.
        loop: what was known of the loop.
    """

    block: Block
    end: Position
    way: Exit
    following: list[tensor]
    after: Scope
    loop: LoopContext


def _visit_body(
    frame: Frame,
    node: ast.For | ast.While,
    carried: Carried,
    block: Block,
    base: Scope,
    outer: Position,
    fresh: Sequence[str] = (),
) -> _Body:
    """Visit a loop body and join all ways out of it; on a retry, everything built for it is taken back.

    `fresh` are names that only the body gives a value, wanted after the loop.
    """
    outside, opens = frame.loop, frame.opens
    loop = frame.loop = LoopContext(node, [*carried.initial, *fresh], fixed=True, fresh=len(fresh))
    frame.opens = []
    try:
        ended = visit_all(frame, node.body)
        way = close_exits(frame, frame.value if ended else loop.exit(frame.scope, go=True))
        following = next_values(frame, carried, way)
        return _Body(block, frame.builder.position, way, following, frame.scope, loop)
    except Retry:
        block.erase(safe_erase=False)
        frame.scope, frame.builder.position = base, outer
        raise
    finally:
        frame.loop, frame.opens = outside, opens


def _retried(frame: Frame, attempt: Callable[[set[str]], bool]) -> bool:
    """Build a loop, again with more constants as tensors as long as one turns out to change."""
    as_tensors: set[str] = set()
    while True:
        try:
            return attempt(as_tensors)
        except Retry as retry:
            as_tensors.add(retry.name)


def _leave(frame: Frame, carried: Carried, kept: Kept, results: Sequence[SSAValue], after: Scope) -> None:
    """Variables after the loop: results for what changed; what only the body assigns is hidden."""
    handles: list[Any] = [leaf.handle for leaf in carried.flat]
    for index, result in zip(kept.indices, results, strict=True):
        handles[index] = result
    carried.bind(frame.scope, handles)
    line = frame.line(carried.node)
    lost = [n for n in carried.initial if n not in after.values]
    lost += [n for n in after.values if n not in frame.scope.values]
    if isinstance(carried.node, ast.For) and isinstance(carried.node.target, ast.Name):
        counter = carried.node.target.id
        if counter not in carried.initial:
            lost.append(counter)
    frame.scope.hide(lost, f"it gets its value inside the loop at line {line} only")


class _Flags:
    """What a loop that may be left early carries beside its variables: whether it goes on, whether and what it returns.

    Args:
        frame: at the end of the body.
        body: the body.
        kept: what stands for block arguments that have been taken out.
    """

    def __init__(self, frame: Frame, body: _Body, kept: Kept) -> None:
        builder, way = frame.builder, body.way
        self.way = way
        self.inside = [to_tensor(builder, way.go)]
        if not is_no(way.returned):
            self.inside.append(to_tensor(builder, way.returned))
        self.inside += leaves(way.value)
        self.names = body.loop.names[len(body.loop.names) - body.loop.fresh :]
        self.fresh = () if way.variables is UNDEFINED else way.variables[len(body.loop.names) - body.loop.fresh :]
        self.inside += leaves(self.fresh)
        self.handles: list[Any] = [kept.now(leaf.handle) for leaf in self.inside]

    @property
    def types(self) -> list[Attribute]:
        return [handle.type for handle in self.handles]

    def first(self, frame: Frame) -> list[Any]:
        """Values before the first iteration."""
        builder = frame.builder
        flags = [builder.constant(True, dtypes.int1), builder.constant(False, dtypes.int1)]
        known = 1 if is_no(self.way.returned) else 2
        return [leaf.handle for leaf in (*flags[:known], *(builder.poison(v.type) for v in self.inside[known:]))]

    def behind(self, results: Sequence[SSAValue]) -> Exit:
        """The way out, seen from after the loop."""
        found = [tensor(r, leaf.type) for r, leaf in zip(results, self.inside, strict=True)]
        returned = self.way.returned if is_no(self.way.returned) else found[1]
        values = iter(found[1 if is_no(self.way.returned) else 2 :])
        value = rebuild(self.way.value, values)
        self.fresh = rebuild(self.fresh, values)
        return Exit(found[0], returned, value, UNDEFINED)

    def bind(self, scope: Scope) -> None:
        """Give the names their values that the loop alone assigns, behind it."""
        for name, value in zip(self.names, self.fresh, strict=False):
            if value is not HIDDEN and value is not UNDEFINED:
                scope.bind(name, value)


def _while_op(
    frame: Frame, firsts: Sequence[Any], before: Block, after: Block, attributes: dict[str, Attribute]
) -> Sequence[SSAValue]:
    op = WhileOp.create(
        operands=list(firsts),
        result_types=[arg.type for arg in after.args],
        attributes=attributes,
        regions=[Region(before), Region(after)],
    )
    frame.builder.append(op)
    return op.results


def _add_args(block: Block, types: Sequence[Attribute]) -> list[SSAValue]:
    return [block.insert_arg(type_, len(block.args)) for type_ in types]


# --- for ----------------------------------------------------------------------------------------------------


def _range_loop(frame: Frame, node: ast.For, loop: run_time_range) -> bool:
    if not isinstance(node.target, ast.Name):
        raise frame.unsupported(node.target, "the variable of a run-time loop must be a name")
    counter = node.target.id
    limits = read_range(frame, node.iter, loop)
    names = [n for n in assigned_names(node, node.body) if n != counter]
    first: dict[str, Any] = {}
    if is_read_behind(frame.source.tree, node, counter):
        names.append(counter)
        first[counter] = limits.counter_before(frame, counter)
    return _retried(frame, lambda t: _emit_for(frame, node, limits, collect(frame, node, names, t, first)))


def _emit_for(frame: Frame, node: ast.For, limits: Limits, carried: Carried) -> bool:
    builder, base, outer = frame.builder, frame.scope, frame.builder.position
    block = builder.enter([limits.lower.handle.type, *carried.types])
    frame.scope = base.copy()
    carried.bind(frame.scope, block.args[1:])
    frame.at(node)
    limits.bind_counter(frame, node, block)
    body = _visit_body(frame, node, carried, block, base, outer)
    kept = drop_unchanged(carried, (block.args[1:], body.following))
    frame.at(node)
    if not is_yes(body.way.go):
        return _emit_for_with_exits(frame, carried, limits, body, kept, base, outer)
    erase_args(block, kept.indices, 1)
    builder.finish(YieldOp, kept.handed[0])
    builder.position, frame.scope = outer, base
    operands: list[Any] = [b.handle for b in (limits.lower, limits.upper, limits.step)]
    op = ForOp.create(
        operands=operands + [carried.flat[k].handle for k in kept.indices],
        result_types=[carried.flat[k].handle.type for k in kept.indices],
        attributes=limits.attributes,
        properties={"unsignedCmp": BoolAttr.from_bool(True)} if limits.unsigned else {},
        regions=[Region(block)],
    )
    builder.append(op)
    _leave(frame, carried, kept, op.results, body.after)
    return _behind(frame, node, Exit(YES, constexpr(False), UNDEFINED, UNDEFINED))


def _emit_for_with_exits(
    frame: Frame, carried: Carried, limits: Limits, body: _Body, kept: Kept, base: Scope, outer: Position
) -> bool:
    """A counted loop that may be left early, as a `scf.while` of the counter, the variables and the flags."""
    builder, block = frame.builder, body.block
    flags = _Flags(frame, body, kept)
    counter = tensor(block.args[0], limits.lower.type)
    following = BUILTINS["add"].fn(builder, counter, limits.step, False)
    builder.finish(YieldOp, [following.handle, *kept.handed[0], *flags.handles])
    erase_args(block, kept.indices, 1)
    _add_args(block, flags.types)
    builder.position = outer
    before = builder.enter([arg.type for arg in block.args])
    inside = limits.goes_on(frame, tensor(before.args[0], counter.type))
    go = tensor(before.args[1 + len(kept.indices)], dtypes.int1)
    builder.finish(ConditionOp, [BUILTINS["logical_and"].fn(builder, inside, go).handle, *before.args])
    builder.position, frame.scope = outer, base
    firsts = [limits.lower.handle, *(carried.flat[k].handle for k in kept.indices), *flags.first(frame)]
    options = {name: value for name, value in limits.attributes.items() if name != ANY_STEP}
    results = _while_op(frame, firsts, before, block, options)
    split = 1 + len(kept.indices)
    _leave(frame, carried, kept, results[1:split], body.after)
    return _behind(frame, carried.node, flags.behind(results[split:]))


# --- while --------------------------------------------------------------------------------------------------


@visits(ast.While)
def _while(frame: Frame, node: ast.While) -> bool:
    names = assigned_names(node, [node.test, *node.body])
    return _retried(frame, lambda as_tensors: _emit_while(frame, node, collect(frame, node, names, as_tensors, {})))


def _emit_while(frame: Frame, node: ast.While, carried: Carried) -> bool:
    builder, base, outer = frame.builder, frame.scope, frame.builder.position
    before = builder.enter(carried.types)
    frame.scope = base.copy()
    carried.bind(frame.scope, before.args)
    test, options = _while_condition(frame, node)
    if test is False:
        frame.scope, builder.position = base, outer
        before.erase(safe_erase=False)
        return visit_all(frame, node.orelse)
    condition_end, fresh = builder.position, [n for n in frame.scope.values if n not in base.values]
    passed_way = LoopContext(node, list(carried.initial), fixed=True).exit(frame.scope, go=True)
    try:
        passed = next_values(frame, carried, passed_way)
        builder.position = outer
        after = builder.enter(carried.types)
        frame.scope = base.copy()
        carried.bind(frame.scope, after.args)
        frame.scope.hide(fresh, "a name that the condition of `while` assigns must have a value before the loop")
        new = _wanted_behind(frame, node, base) if test is True else []
        body = _visit_body(frame, node, carried, after, base, outer, new)
    except Retry:
        frame.scope, builder.position = base, outer
        before.erase(safe_erase=False)
        raise
    kept = drop_unchanged(carried, (before.args, passed), (after.args, body.following))
    frame.at(node)
    if test is True and is_yes(body.way.go):
        raise frame.error(
            node.test,
            "the condition of `while` is a compile-time constant that holds, and nothing leaves the loop",
            "leave it with `break` or `return`, or compare run-time values",
        )
    flags = None if is_yes(body.way.go) else _Flags(frame, body, kept)
    builder.finish(YieldOp, [*kept.handed[1], *([] if flags is None else flags.handles)])
    erase_args(after, kept.indices, 0)
    erase_args(before, kept.indices, 0)
    builder.position = condition_end
    handed = kept.handed[0]
    firsts: list[Any] = [carried.flat[k].handle for k in kept.indices]
    if flags is None:
        assert isinstance(test, tensor)
        builder.finish(ConditionOp, [kept.now(test.handle), *handed])
    else:
        test_handle = kept.now(test.handle) if isinstance(test, tensor) else test
        _guard_condition(frame, before, test_handle, handed, _add_args(before, flags.types), outer)
        _add_args(after, flags.types)
        builder.position = outer
        firsts += flags.first(frame)
    builder.position, frame.scope = outer, base
    results = _while_op(frame, firsts, before, after, options)
    split = len(kept.indices)
    _leave(frame, carried, kept, results[:split], body.after)
    if flags is None:
        return _behind(frame, node, Exit(YES, constexpr(False), UNDEFINED, UNDEFINED))
    way = flags.behind(results[split:])
    flags.bind(frame.scope)
    return _behind(frame, node, way, ends=test is True and not body.loop.broken)


def _wanted_behind(frame: Frame, node: ast.While, base: Scope) -> list[str]:
    """Names that the body of ``while True`` gives their first value, read behind it."""
    names = [name for name in assigned_names(node, [node.test, *node.body]) if name not in base.values]
    return [name for name in names if is_read_behind(frame.source.tree, node, name)]


def _guard_condition(
    frame: Frame, before: Block, test: Any, handed: Sequence[Any], flags: Sequence[SSAValue], outer: Position
) -> None:
    """End the first body of a `while` that may be left early: the test is not evaluated after a `break`.

        { %c = scf.if %go -> (i1) { test; yield %t } else { yield false }; scf.condition(%c) .. }

    Args:
        frame: at the end of the test.
        before: the block; `flags` are its last arguments.
        test: what the test gave, or True.
        handed: the variables behind the test.
        flags: the flags, first of them whether the loop goes on.
        outer: position of the loop.
    """
    builder, go = frame.builder, flags[0]
    if test is True:
        builder.finish(ConditionOp, [go, *handed, *flags])
        return
    args = list(before.args[: len(before.args) - len(flags)])
    if list(handed) == args and all(_is_free(op) for op in before.ops):
        both = BUILTINS["logical_and"].fn(builder, tensor(go, dtypes.int1), tensor(test, dtypes.int1))
        builder.finish(ConditionOp, [both.handle, *handed, *flags])
        return
    then = Block()
    for op in list(before.ops):
        op.detach()  # type: ignore[no-untyped-call]
        then.add_op(op)
    builder.position = Position(then)
    builder.finish(YieldOp, [test, *handed])
    builder.position = Position(before, outer)
    otherwise = builder.enter()
    builder.finish(YieldOp, [builder.constant(False, dtypes.int1).handle, *args])
    builder.position = Position(before, outer)
    types = [SSAValue.get(value).type for value in (test, *handed)]
    op = IfOp.create(operands=[go], result_types=types, regions=[Region(then), Region(otherwise)])
    builder.append(op)
    builder.finish(ConditionOp, [*op.results, *flags])


_DIVISIONS = (DivSIOp, DivUIOp, DivFOp, RemSIOp, RemUIOp, RemFOp)


def _is_free(op: Operation) -> bool:
    """Whether an operation may run although nobody asks for its result."""
    return op.has_trait(Pure) and not isinstance(op, _DIVISIONS)


def _while_condition(frame: Frame, node: ast.While) -> tuple[bool | tensor, dict[str, Attribute]]:
    value = visit(frame, node.test)
    options: dict[str, Attribute] = {}
    if isinstance(value, condition):
        if unwrap(value.disable_licm):
            options["tt.disable_licm"] = UnitAttr()
        value = value.condition
    return truth(frame, node.test, value), options
