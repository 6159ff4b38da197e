"""Loops: `for` over `range`/`tl.range` and `while` at run time, everything else unrolled.

The names that a body assigns are known from its syntax; those that have a value before the loop are
carried from one iteration to the next, and their types must not change:

    %r = scf.for %i = %lb to %ub step %s iter_args(%x = %x0) { ...; scf.yield %x1 }
    %r = scf.while (%x = %x0) { %c = ...; scf.condition(%c) %x } do { ^bb0(%x): ...; scf.yield %x1 }

A carried value that the body leaves alone is taken out again before the operation is made.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, UnitAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.base.dtypes import dtype
from tilewright.base.errors import CompilationError, LanguageTypeError
from tilewright.frontend.builder import Position
from tilewright.frontend.control import truth
from tilewright.frontend.expressions import bind_target, decay, wrap
from tilewright.frontend.frame import Frame, visit, visit_all, visits
from tilewright.frontend.names import assigned_at, assigned_names
from tilewright.frontend.scopes import Scope
from tilewright.frontend.structure import is_same, leaves, map_leaves, name_leaves, rebuild, type_text
from tilewright.ir.types import i32
from tilewright.ops.builtin import BUILTINS, literal_dtype, to_tensor
from tilewright.ops.control import ConditionOp, ForOp, WhileOp, YieldOp, condition, static_range
from tilewright.ops.control import range as run_time_range
from tilewright.ops.operators import BINARY
from tilewright.ops.values import constexpr, tensor, unwrap


@visits(ast.For)
def _for(frame: Frame, node: ast.For) -> bool:
    if node.orelse:
        raise frame.unsupported(node.orelse[0], "`else` of a loop is not supported", hint="put it behind the loop")
    iterator = visit(frame, node.iter)
    if isinstance(iterator, run_time_range):
        _range_loop(frame, node, iterator)
        return False
    if isinstance(iterator, static_range):
        items: Iterable[Any] = builtins.range(iterator.start, iterator.end, iterator.step)
    elif isinstance(iterator, builtins.tuple) or isinstance(unwrap(iterator), (builtins.tuple, list)):
        items = iterator if isinstance(iterator, builtins.tuple) else unwrap(iterator)
    else:
        raise frame.error(
            node.iter,
            f"Only `range` and `static_range` iterators are currently supported, not {type_text(iterator)}",
            "loop over range(n) at run time, or over tl.static_range(N) or a tuple to unroll",
        )
    for item in items:
        bind_target(frame, node.target, wrap(item))
        if visit_all(frame, node.body):
            return True
    return False


# --- carried values ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Carried:
    """The variables that a loop hands from one iteration to the next.

    Args:
        node: the loop.
        initial: their values before the loop.
        declared: those declared constexpr, which cannot be carried.
        flat: the tensors in them.
    """

    node: ast.For | ast.While
    initial: dict[str, Any]
    declared: Container[str]
    flat: list[tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.flat = [leaf for value in self.initial.values() for leaf in leaves(value)]

    @property
    def types(self) -> list[Attribute]:
        return [leaf.handle.type for leaf in self.flat]

    def bind(self, scope: Scope, handles: Sequence[SSAValue]) -> None:
        """Make the variables stand for block arguments or results."""
        tensors = iter([tensor(h, leaf.type) for h, leaf in zip(handles, self.flat, strict=True)])
        for name, value in self.initial.items():
            now = rebuild(value, tensors)
            scope.bind(name, now)
            name_leaves(now, name)


class _Retry(Exception):
    """A constant turned out to be carried: it must be a tensor from the start."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _collect(frame: Frame, node: ast.For | ast.While, names: Iterable[str], as_tensors: set[str]) -> _Carried:
    initial = {}
    for name in names:
        if name in frame.scope.values:
            value = frame.scope.values[name]
            initial[name] = decay(frame, node, value) if name in as_tensors else value
    return _Carried(node, initial, frame.scope.constants.copy())


def _next_values(frame: Frame, carried: _Carried) -> list[tensor]:
    """The tensors that the variables hold at the end of a body; checks that their types have not changed."""
    result: list[tensor] = []
    for name, before in carried.initial.items():
        after = frame.scope.values.get(name)
        if after is None:  # hidden inside the body: nothing reads it any more
            result.extend(leaves(before))
        elif isinstance(before, tensor) and isinstance(after, tensor) and before.type == after.type:
            result.append(after)
        elif not leaves(before) and is_same(before, after):
            pass
        else:
            result.extend(_next_value(frame, carried, name, before, after))
    return result


def _next_value(frame: Frame, carried: _Carried, name: str, before: Any, after: Any) -> list[tensor]:
    if _shape(before) != _shape(after):
        if name not in carried.declared and _shape(map_leaves(before, _as_tensor_type)) == _shape(after):
            raise _Retry(name)
        raise _type_changed(frame, carried, name, before, after)
    return leaves(after)


def _shape(value: Any) -> Any:
    """What must not change about a carried value: types of tensors, and constants themselves."""
    if isinstance(value, tensor):
        return value.type
    if isinstance(value, builtins.tuple):
        return (type(value), *(_shape(part) for part in value))
    constant = unwrap(value)
    return (type(constant), constant)


def _as_tensor_type(leaf: Any) -> Any:
    """Stand-in that :func:`_shape` takes for the tensor that a number becomes."""
    if isinstance(leaf, constexpr) and isinstance(leaf.value, (bool, int, float)):
        return tensor(None, literal_dtype(leaf.value))  # type: ignore[arg-type]
    return leaf


def _type_changed(frame: Frame, carried: _Carried, name: str, before: Any, after: Any) -> CompilationError:
    place = assigned_at(carried.node.body, name) or carried.node
    if isinstance(before, tensor) and isinstance(after, tensor):
        return frame.error(
            place,
            f"Loop-carried variable {name} has initial type {type_text(before)} but is re-assigned to "
            f"{type_text(after)} in loop! Please make sure that the type stays consistent.",
            f"give `{name}` the type {type_text(after)} before the loop, or convert the new value with "
            f".to({_dtype_text(before)})" + (" and keep its shape" if _dims(before) != _dims(after) else ""),
        )
    return frame.error(
        place,
        f"Loop carried variable {name} changed type, was {type_text(before)} but is now {type_text(after)}",
        f"assign `{name}` a run-time value of the final type before the loop; a constexpr cannot change in a loop",
    )


def _dims(value: tensor) -> tuple[int, ...]:
    return value.block_shape


def _dtype_text(value: tensor) -> str:
    return repr(value.dtype).replace("tilewright.language.", "tl.")


def _drop_unchanged(
    carried: _Carried, *bodies: tuple[Sequence[SSAValue], list[tensor]]
) -> tuple[list[int], list[list[Any]]]:
    """Find the tensors that really change, and put the first values in place of the others.

    Args:
        carried: the variables.
        bodies: for each region its arguments and the tensors that it hands on.

    Returns:
        Indices of the tensors that change, and for each region the handles of these that it hands on.
    """
    first = [leaf.handle for leaf in carried.flat]
    kept, replaced = [], {}
    for k, value in enumerate(first):
        if all(following[k].handle in (args[k], value) for args, following in bodies):
            for args, _ in bodies:
                replaced[args[k]] = value
        else:
            kept.append(k)
    for arg, value in replaced.items():
        arg.replace_all_uses_with(value)  # type: ignore[arg-type]
    handed: list[list[Any]] = []
    for _, following in bodies:
        handles: list[Any] = [following[k].handle for k in kept]
        handed.append([replaced.get(handle, handle) for handle in handles])
    return kept, handed


def _erase_args(block: Block, kept: Sequence[int], skip: int) -> None:
    for index in reversed(builtins.range(skip, len(block.args))):
        if index - skip not in kept:
            block.erase_arg(block.args[index])


def _leave(frame: Frame, carried: _Carried, kept: Sequence[int], results: Sequence[SSAValue], after: Scope) -> None:
    """Variables behind the loop: results for what changed; what only the body assigns is hidden."""
    handles: list[Any] = [leaf.handle for leaf in carried.flat]
    for index, result in zip(kept, results, strict=True):
        handles[index] = result
    carried.bind(frame.scope, handles)
    line = frame.line(carried.node)
    lost = [n for n in carried.initial if n not in after.values]
    lost += [n for n in after.values if n not in frame.scope.values]
    if isinstance(carried.node, ast.For):
        lost.append(carried.node.target.id)  # type: ignore[attr-defined]
    frame.scope.hide(lost, f"it gets its value inside the loop at line {line} only")


# --- for ----------------------------------------------------------------------------------------------------


def _range_loop(frame: Frame, node: ast.For, loop: run_time_range) -> None:
    if not isinstance(node.target, ast.Name):
        raise frame.unsupported(node.target, "the variable of a run-time loop must be a name")
    bounds, reverse = _bounds(frame, node.iter, loop)
    names = [n for n in assigned_names(node, node.body) if n != node.target.id]
    as_tensors: set[str] = set()
    while True:
        try:
            _emit_for(frame, node, loop, bounds, reverse, _collect(frame, node, names, as_tensors))
            return
        except _Retry as retry:
            as_tensors.add(retry.name)


def _bounds(frame: Frame, node: ast.AST, loop: run_time_range) -> tuple[list[tensor], bool]:
    """Lower bound, upper bound and step as integers of one type; whether to count down."""
    values = [loop.start, loop.end, loop.step]
    for value in values:
        scalar = value.type if isinstance(value, tensor) else type(unwrap(value))
        ok = (isinstance(scalar, dtype) and scalar.is_int()) or scalar in (int, bool)
        if not ok:
            texts = ", ".join(type_text(wrap(v)) for v in values)
            raise frame.error(
                node,
                f"For loop bounds and step must all be ints, are ({texts})",
                "convert them with .to(tl.int32); a tile must be reduced to a scalar first",
            )
    step = unwrap(loop.step)
    reverse = isinstance(step, int) and step < 0
    if isinstance(step, int) and step == 0:
        raise frame.error(node, "the step of a loop must not be zero")
    if reverse:
        values = [loop.end, loop.start, -step]
    frame.at(node)
    builder = frame.builder
    tensors = [to_tensor(builder, v) for v in values]
    counter = tensors[0].dtype
    for other in tensors[1:]:
        counter = _promote(counter, other.dtype)
    return [BUILTINS["cast"].fn(builder, t, counter) for t in tensors], reverse


def _promote(a: dtype, b: dtype) -> dtype:
    """C's integer promotion: the wider type; of one width, the unsigned one."""
    if a.int_bitwidth != b.int_bitwidth and a.int_signedness == b.int_signedness:
        return a if a.int_bitwidth > b.int_bitwidth else b
    if a.int_signedness == b.int_signedness:
        return a
    unsigned, signed = (a, b) if a.is_int_unsigned() else (b, a)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def _emit_for(
    frame: Frame, node: ast.For, loop: run_time_range, bounds: list[tensor], reverse: bool, carried: _Carried
) -> None:
    builder, base, outer = frame.builder, frame.scope, frame.builder.position
    assert isinstance(node.target, ast.Name)
    counter = bounds[0].type
    block = builder.enter([bounds[0].handle.type, *carried.types])
    frame.scope = base.copy()
    carried.bind(frame.scope, block.args[1:])
    frame.at(node)
    value = tensor(block.args[0], counter)
    if reverse:
        up = BINARY[ast.Sub].fn(builder, bounds[1], value)
        value = BINARY[ast.Add].fn(builder, up, bounds[0])
    frame.scope.bind(node.target.id, value)
    name_leaves(value, node.target.id)
    following = _visit_body(frame, node, carried, block, base, outer, "for")
    kept, (handed,) = _drop_unchanged(carried, (block.args[1:], following))
    _erase_args(block, kept, 1)
    frame.at(node)
    builder.finish(YieldOp, handed)
    builder.position, after, frame.scope = outer, frame.scope, base
    op = ForOp.create(
        operands=[*(b.handle for b in bounds), *(carried.flat[k].handle for k in kept)],  # type: ignore[list-item]
        result_types=[carried.flat[k].handle.type for k in kept],
        attributes=_loop_attributes(loop),
        regions=[Region(block)],
    )
    builder.append(op)
    _leave(frame, carried, kept, op.results, after)


def _visit_body(
    frame: Frame, node: ast.For | ast.While, carried: _Carried, block: Block, base: Scope, outer: Position, word: str
) -> list[tensor]:
    """Visit a loop body; on a retry, everything built for it is taken back."""
    outside = frame.in_loop
    frame.in_loop = word
    try:
        visit_all(frame, node.body)
        return _next_values(frame, carried)
    except _Retry:
        block.erase(safe_erase=False)
        frame.scope, frame.builder.position = base, outer
        raise
    finally:
        frame.in_loop = outside


def _loop_attributes(loop: run_time_range) -> dict[str, Attribute]:
    """Options of tl.range as attributes of the loop."""
    attributes: dict[str, Attribute] = {}
    for name in ("num_stages", "loop_unroll_factor"):
        value = unwrap(getattr(loop, name))
        if value is not None:
            if not isinstance(value, int):
                raise LanguageTypeError(f"{name} of tl.range must be a compile-time int, not {value!r}")
            attributes[f"tt.{name}"] = IntegerAttr(value, i32)
    for name in ("disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm"):
        if unwrap(getattr(loop, name)):
            attributes[f"tt.{name}"] = UnitAttr()
    return attributes


# --- while --------------------------------------------------------------------------------------------------


@visits(ast.While)
def _while(frame: Frame, node: ast.While) -> bool:
    if node.orelse:
        raise frame.unsupported(node.orelse[0], "`else` of a loop is not supported", hint="put it behind the loop")
    names = assigned_names(node, [node.test, *node.body])
    as_tensors: set[str] = set()
    while True:
        try:
            _emit_while(frame, node, _collect(frame, node, names, as_tensors))
            return False
        except _Retry as retry:
            as_tensors.add(retry.name)


def _emit_while(frame: Frame, node: ast.While, carried: _Carried) -> None:
    builder, base, outer = frame.builder, frame.scope, frame.builder.position
    before = builder.enter(carried.types)
    frame.scope = base.copy()
    carried.bind(frame.scope, before.args)
    try:
        cond, options = _while_condition(frame, node)
        passed = _next_values(frame, carried)
        condition_end, fresh = builder.position, [n for n in frame.scope.values if n not in base.values]
        builder.position = outer
        after = builder.enter(carried.types)
        frame.scope = base.copy()
        carried.bind(frame.scope, after.args)
        frame.scope.hide(fresh, "a name that the condition of `while` assigns must have a value before the loop")
        following = _visit_body(frame, node, carried, after, base, outer, "while")
    except _Retry:
        frame.scope, builder.position = base, outer
        before.erase(safe_erase=False)
        raise
    kept, handed = _drop_unchanged(carried, (before.args, passed), (after.args, following))
    frame.at(node)
    builder.finish(YieldOp, handed[1])
    builder.position = condition_end
    builder.finish(ConditionOp, [cond.handle, *handed[0]])
    _erase_args(before, kept, 0)
    _erase_args(after, kept, 0)
    builder.position, body_scope, frame.scope = outer, frame.scope, base
    op = WhileOp.create(
        operands=[carried.flat[k].handle for k in kept],  # type: ignore[misc]
        result_types=[carried.flat[k].handle.type for k in kept],
        attributes=options,
        regions=[Region(before), Region(after)],
    )
    builder.append(op)
    _leave(frame, carried, kept, op.results, body_scope)


def _while_condition(frame: Frame, node: ast.While) -> tuple[tensor, dict[str, Attribute]]:
    value = visit(frame, node.test)
    options: dict[str, Attribute] = {}
    if isinstance(value, condition):
        if unwrap(value.disable_licm):
            options["tt.disable_licm"] = UnitAttr()
        value = value.condition
    cond = truth(frame, node.test, value)
    if not isinstance(cond, tensor):
        raise frame.error(
            node.test,
            f"the condition of `while` is the compile-time constant {unwrap(value)!r}: it would run forever or never",
            "compare run-time values; to repeat code a fixed number of times use tl.static_range",
        )
    return cond, options
