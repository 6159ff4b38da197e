"""Branches: `if` on a run-time condition, conditional expressions, and early `return`.

A branch that returns while the other goes on leaves the `if` open: what follows is built inside the other
branch, so that no code is copied and no flag is tested.

    if c: A; return x          r = scf.if c { A; yield x } else { B; yield y }
    B; return y          =>    return r

Where a branch returns on some of its own paths only, it hands out a flag beside its variables:

    if c:                      f, x = scf.if c { f1 = scf.if d {yield true} else {C; yield false}; yield f1, .. }
        if d: return     =>           else { D; yield false, .. }
        C                      scf.if f { } else { B }
    else: D
    B
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Attribute

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType
from tilewright.frontend.builder import Position, Side
from tilewright.frontend.exits import HIDDEN, NOTHING, UNDEFINED, Exit, LoopContext, is_yes
from tilewright.frontend.expressions import decay
from tilewright.frontend.frame import Frame, OpenIf, visit, visit_all, visits
from tilewright.frontend.merge import Merge, Mismatch, fill
from tilewright.frontend.names import assigned_at
from tilewright.frontend.scopes import Scope
from tilewright.frontend.structure import is_same, remake, shaped_text, type_text
from tilewright.ops.builtin import BUILTINS
from tilewright.ops.values import tensor, unwrap


def truth(frame: Frame, node: ast.AST, value: Any) -> bool | tensor:
    """A condition: decided now if it is a constant, else a scalar int1 tensor.

    Raises:
        CompilationError: neither a constant of type bool, int or None nor a scalar tensor.
    """
    if not isinstance(value, tensor):
        constant = unwrap(value)
        if constant is None or type(constant) in (bool, int):
            return bool(constant)
        raise frame.error(
            node,
            "`if` conditionals can only accept values of type {NoneType, bool, int}, "
            f"not objects of type {type(constant).__name__}",
            "compare it with something: the comparison of constants is a bool",
        )
    frame.at(node)
    if isinstance(value.type, BlockType):
        if value.type.numel != 1:
            raise frame.error(
                node,
                f"Boolean value of Tensor with more than one value is ambiguous: the condition has type {value.type}",
                "choose element by element with tl.where, or reduce it to a scalar, e.g. tl.max(x, axis=0) != 0",
            )
        value = _language(frame, "reshape", value, ())
    return value if value.dtype == dtypes.int1 else _language(frame, "cast", value, dtypes.int1)


def _language(frame: Frame, name: str, *args: Any) -> tensor:
    """A function of the language that gives one tensor."""
    result = BUILTINS[name].fn(frame.builder, *args)
    assert isinstance(result, tensor)
    return result


@dataclass(slots=True)
class _Branch:
    """One visited branch.

    Args:
        side: its blocks.
        scope: the variables at its end.
        ended: every path returned.
        value: what was returned, if anything.
        opens: branches inside it that an early return left open.
        flag: whether the branch has returned, where only run time knows.
    """

    side: Side
    scope: Scope
    ended: bool
    value: Any
    opens: list[OpenIf] = field(default_factory=list)
    flag: tensor | None = None


def _branch(frame: Frame, base: Scope, outer: Position, body: Callable[[], bool]) -> _Branch:
    frame.builder.position = outer
    frame.scope, frame.opens, frame.value = base.copy(), [], UNDEFINED
    block = frame.builder.enter()
    ended = body()
    side = Side(block, frame.builder.position)
    return _Branch(side, frame.scope, ended, frame.value if ended else UNDEFINED, frame.opens)


# --- if ----------------------------------------------------------------------------------------------------


@visits(ast.If)
def _if(frame: Frame, node: ast.If) -> bool:
    return branch(frame, node, truth(frame, node.test, visit(frame, node.test)))


def branch(frame: Frame, node: ast.If, cond: bool | tensor) -> bool:
    """Visit the branches of an `if` whose condition is `cond`; tells whether both end."""
    if not isinstance(cond, tensor):
        return visit_all(frame, node.body if cond else node.orelse)
    frame.at(node)
    location, base, outer, opens = frame.builder.location, frame.scope, frame.builder.position, frame.opens
    then = _branch(frame, base, outer, lambda: visit_all(frame, node.body))
    other = _branch(frame, base, outer, lambda: visit_all(frame, node.orelse))
    frame.scope, frame.opens, frame.builder.position = base, opens, outer
    for side in (then, other):
        if side.ended:
            _close_all(frame, side)
    site = _Site(node, cond, outer, location, base)
    if then.ended and other.ended:
        value = _close_return(frame, site, then.side, other.side, then.value, other.value)
        frame.value = value
        return True
    if then.ended or other.ended:
        _leave_open(frame, site, then, other)
        return False
    if then.opens or other.opens:
        return _join_partly_returned(frame, site, then, other)
    merge = Merge(frame.builder, then.side, other.side)
    merged = _merge_scopes(frame, site, merge, then.scope, other.scope)
    _rebind(frame, merged, merge.build(cond, outer, location))
    return False


@dataclass(frozen=True, slots=True)
class _Site:
    """An `if` being joined: the statement, its condition, and what was there before it."""

    node: ast.AST
    cond: tensor
    outer: Position
    location: Attribute
    base: Scope


def _merge_scopes(frame: Frame, site: _Site, merge: Merge, then: Scope, other: Scope) -> Scope:
    """The variables after an `if`; those of one branch only become hidden."""
    result = site.base.copy()
    result.constants = {k: v for k, v in then.constants.items() if k in other.constants}
    line = frame.line(site.node)
    for name in dict.fromkeys([*then.values, *other.values]):
        a, b = then.values.get(name, UNDEFINED), other.values.get(name, UNDEFINED)
        if a is UNDEFINED or b is UNDEFINED:
            which = "else" if a is UNDEFINED else "then"
            result.hide([name], f"it has a value only in the {which} branch of the `if` at line {line}")
        elif a is b:
            result.values[name] = a
        else:
            declared = name in then.constants or name in other.constants
            try:
                merged = merge.value(a, b)
                if declared and merged is not a:
                    raise Mismatch
            except Mismatch:
                raise _branch_mismatch(frame, site, name, a, b) from None
            result.bind(name, merged)
    result.hidden = {**then.hidden, **other.hidden, **result.hidden}
    for name in result.values:
        result.hidden.pop(name, None)
    return result


def _branch_mismatch(frame: Frame, site: _Site, name: str, a: Any, b: Any) -> Exception:
    node = site.node
    assert isinstance(node, ast.If)
    initial = site.base.values.get(name)
    parts = ((a, "then", node.body), (b, "else", node.orelse))
    hint = f"convert one with .to(...), or use another name than `{name}`"
    for value, which, body in parts:
        if initial is not None and value is not initial and type_text(value) != type_text(initial):
            return frame.error(
                assigned_at(body, name) or node,
                f"initial value for `{name}` is of type {shaped_text(initial)}, but the {which} block redefines it "
                f"as {shaped_text(value)}",
                hint,
            )
    return frame.error(
        assigned_at(node.orelse, name) or assigned_at(node.body, name) or node,
        f"Mismatched type for {name} between then block ({type_text(a)}) and else block ({type_text(b)})",
        hint,
    )


def _rebind(frame: Frame, merged: Scope, results: list[tensor]) -> None:
    if results:
        merged.values = {name: fill(value, results) for name, value in merged.values.items()}
    frame.scope = merged


# --- early return ---------------------------------------------------------------------------------------------


def _leave_open(frame: Frame, site: _Site, then: _Branch, other: _Branch) -> None:
    """One branch returned: go on inside the other one."""
    returned, going_on = (then, other) if then.ended else (other, then)
    block, value = going_on.side.block, returned.value
    frame.opens.append(OpenIf(site.cond, site.outer, returned.side, block, value, then.ended, site.location, site.node))
    frame.opens.extend(going_on.opens)
    frame.builder.position = going_on.side.end
    frame.scope = going_on.scope


def close_exits(frame: Frame, value: Any) -> Any:
    """Close every branch that is still open when the function, or a loop body, ends on the way `value`."""
    for way in reversed(frame.opens):
        value = _close_one(frame, way, value)
    frame.opens = []
    return value


def _close_all(frame: Frame, branch: _Branch) -> None:
    """Close what is open in a branch that returns at its end."""
    frame.builder.position = branch.side.end
    for way in reversed(branch.opens):
        branch.value = _close_one(frame, way, branch.value)
    branch.opens = []
    branch.side.end = frame.builder.position


def _sides(way: OpenIf, end: Position) -> tuple[Side, Side]:
    going_on = Side(way.going_on, end)
    return (way.returned, going_on) if way.then_returned else (going_on, way.returned)


def _close_one(frame: Frame, way: OpenIf, value: Any) -> Any:
    then_side, else_side = _sides(way, frame.builder.position)
    values = (way.value, value) if way.then_returned else (value, way.value)
    site = _Site(way.node, way.cond, way.outer, way.location, frame.scope)
    return _close_return(frame, site, then_side, else_side, *values)


def _close_return(frame: Frame, site: _Site, then_side: Side, else_side: Side, a: Any, b: Any) -> Any:
    """The value of a function whose two branches return `a` and `b`."""
    merge = Merge(frame.builder, then_side, else_side)
    merged = _merge_exits(frame, merge, site.node, a, b)
    results = merge.build(site.cond, site.outer, site.location)
    return merged if merged is UNDEFINED else fill(merged, results)


def _merge_exits(frame: Frame, merge: Merge, node: ast.AST, a: Any, b: Any) -> Any:
    """Two ways out as one."""
    if isinstance(a, Exit) and isinstance(b, Exit):
        go, returned = merge.value(a.go, b.go), merge.value(a.returned, b.returned)
        value = _merge_returned(frame, merge, node, a.value, b.value)
        return Exit(go, returned, value, _merge_variables(frame, merge, a, b))
    return _merge_returned(frame, merge, node, a, b)


def _merge_returned(frame: Frame, merge: Merge, node: ast.AST, a: Any, b: Any) -> Any:
    try:
        return merge.value(a, b)
    except Mismatch:
        raise return_mismatch(frame, node, a, b) from None


def _merge_variables(frame: Frame, merge: Merge, a: Exit, b: Exit) -> Any:
    """The variables of the loop on two ways out; behind a `return` nobody looks at them."""
    if a.variables is UNDEFINED or b.variables is UNDEFINED:
        return merge.value(a.variables, b.variables)
    loop = frame.loop
    assert loop is not None
    merged: list[Any] = []
    fixed = len(loop.names) - loop.fresh if loop.fixed else 0
    for name, x, y in zip(loop.names, a.variables, b.variables, strict=True):
        if not is_same(x, y):
            x, y = (UNDEFINED if is_yes(e.returned) else v for e, v in ((a, x), (b, y)))
        try:
            merged.append(merge.value(x, y))
        except Mismatch:
            if len(merged) < fixed:
                raise _way_mismatch(frame, loop, name, x, y) from None
            merged.append(HIDDEN)
    return remake(a.variables, merged)


def _way_mismatch(frame: Frame, loop: LoopContext, name: str, a: Any, b: Any) -> Exception:
    return frame.error(
        assigned_at(loop.node.body, name) or loop.node,
        f"Mismatched type for {name} between two ways through the loop ({type_text(a)} and {type_text(b)})",
        f"convert one with .to(...), or use another name than `{name}`",
    )


def return_mismatch(frame: Frame, node: ast.AST, a: Any, b: Any) -> Exception:
    """The error for two `return`s that disagree."""
    types = ", ".join(type_text(value) for _, value in frame.returns)
    place = frame.returns[-1][0] if frame.returns else node
    return frame.error(
        place,
        f"Return type mismatch: {type_text(a)} and {type_text(b)}. Note all return types were: {types}",
        "make every `return` of the function give values of the same types",
    )


def _join_partly_returned(frame: Frame, site: _Site, then: _Branch, other: _Branch) -> bool:
    """Neither branch returns on all of its paths, but at least one does on some: test a flag behind the `if`."""
    builder = frame.builder
    for branch in (then, other):
        _collapse(frame, site.base, branch)
    merge = Merge(builder, then.side, other.side)
    merged = _merge_scopes(frame, site, merge, then.scope, other.scope)
    flag = merge.value(then.flag, other.flag)
    value = _merge_exits(frame, merge, site.node, then.value, other.value)
    results = merge.build(site.cond, site.outer, site.location)
    _rebind(frame, merged, results)
    open_if(frame, site.node, fill(flag, results), fill(value, results))
    return False


def open_if(frame: Frame, node: ast.AST, flag: tensor, value: Any, *, leaves_if: bool = True) -> None:
    """Take the way out `value` if `flag` is `leaves_if`; what follows is built for the other case."""
    builder = frame.builder
    outer = builder.position
    side = Side(builder.enter(), builder.position)
    builder.position = outer
    going_on = builder.enter()
    frame.opens.append(OpenIf(flag, outer, side, going_on, value, leaves_if, builder.location, node))


def _collapse(frame: Frame, base: Scope, branch: _Branch) -> None:
    """Close what is open in a branch that goes on: its variables, a flag and the returned value come out."""
    builder = frame.builder
    builder.position = branch.side.end
    flag: Any = builder.constant(False, dtypes.int1)
    value: Any = UNDEFINED
    scope = branch.scope
    for way in reversed(branch.opens):
        then_side, else_side = _sides(way, builder.position)
        merge = Merge(builder, then_side, else_side)

        def pick(returned: Any, going_on: Any, merge: Merge = merge, way: OpenIf = way) -> Any:
            return merge.value(*((returned, going_on) if way.then_returned else (going_on, returned)))

        builder.position = way.returned.end
        flag = pick(builder.constant(True, dtypes.int1), flag)
        ways = (way.value, value) if way.then_returned else (value, way.value)
        value = _merge_exits(frame, merge, way.node, *ways)
        changed = [name for name, v in scope.values.items() if base.values.get(name) is not v]
        merged = {name: pick(UNDEFINED, scope.values[name]) for name in changed}
        results = merge.build(way.cond, way.outer, way.location)
        flag, value = fill(flag, results), fill(value, results)
        for name, template in merged.items():
            scope.values[name] = fill(template, results)
    branch.opens, branch.flag, branch.value = [], flag, value
    branch.side.end = builder.position


# --- conditional expressions --------------------------------------------------------------------------------------


@visits(ast.IfExp)
def _ternary(frame: Frame, node: ast.IfExp) -> Any:
    cond = truth(frame, node.test, visit(frame, node.test))
    if not isinstance(cond, tensor):
        return visit(frame, node.body if cond else node.orelse)
    frame.at(node)
    builder, base, opens = frame.builder, frame.scope, frame.opens
    outer, location = builder.position, builder.location
    values: list[Any] = []

    def body(expression: ast.expr) -> bool:
        values.append(decay(frame, expression, visit(frame, expression)))
        return False

    then = _branch(frame, base, outer, lambda: body(node.body))
    other = _branch(frame, base, outer, lambda: body(node.orelse))
    frame.scope, frame.opens = base, opens
    merge = Merge(builder, then.side, other.side)
    try:
        merged = merge.value(*values)
    except Mismatch:
        raise frame.error(
            node,
            "Ternary expression with dynamic condition has inconsistent types "
            f"{type_text(values[0])} and {type_text(values[1])}",
            "convert one side with .to(...), so that both have one type",
        ) from None
    return fill(merged, merge.build(cond, outer, location))


def finish_function(frame: Frame, ended: bool) -> Any:
    """The value of a function whose body has been visited; `NOTHING` if it returns none."""
    if not ended and any(value is not NOTHING for _, value in frame.returns):
        frame.builder.warn(
            f"{frame.source.name} returns a value on some ways and ends without one on others, where the result is "
            "undefined: return a value at its end"
        )
    value = close_exits(frame, frame.value if ended else UNDEFINED)
    return NOTHING if value is UNDEFINED else value
