"""Variables that a run-time loop hands from one iteration to the next.

Those are the names that the body assigns and that have a value before the loop. Their types must not change;
one that the body leaves alone is taken out again before the operation is made.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Attribute, Block, SSAValue

from tilewright.base.errors import CompilationError
from tilewright.base.naming import package
from tilewright.frontend.exits import HIDDEN, UNDEFINED, Exit
from tilewright.frontend.expressions import decay
from tilewright.frontend.frame import Frame
from tilewright.frontend.names import assigned_at
from tilewright.frontend.scopes import Scope
from tilewright.frontend.structure import is_same, leaves, map_leaves, name_leaves, parts_of, rebuild, type_text
from tilewright.ops.builtin import literal_dtype
from tilewright.ops.values import constexpr, tensor, unwrap


@dataclass(slots=True)
class Carried:
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


class Retry(Exception):
    """A constant turned out to be carried: it must be a tensor from the start."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def collect(
    frame: Frame, node: ast.For | ast.While, names: Sequence[str], as_tensors: set[str], given: Mapping[str, Any]
) -> Carried:
    """The variables among `names` that are carried, with their first values.

    Args:
        frame: at the place before the loop.
        node: the loop.
        names: what the loop assigns.
        as_tensors: constants that must be tensors.
        given: first values that differ from those of the scope.
    """
    initial = {}
    values = {**frame.scope.values, **given}
    for name in names:
        if name in values:
            value = values[name]
            if name in as_tensors:
                value = map_leaves(value, lambda leaf: decay(frame, node, leaf))
            initial[name] = value
    return Carried(node, initial, frame.scope.constants.copy())


def next_values(frame: Frame, carried: Carried, way: Exit) -> list[tensor]:
    """The tensors that the variables hold at the end of a body; checks that their types have not changed.

    Raises:
        Retry: a constant must be a tensor from the start.
        CompilationError: a type changes.
    """
    result: list[tensor] = []
    count = len(carried.initial)
    after_all = [HIDDEN] * count if way.variables is UNDEFINED else way.variables[:count]
    for (name, before), after in zip(carried.initial.items(), after_all, strict=True):
        if after is HIDDEN or after is UNDEFINED:  # nothing reads it any more
            result.extend(leaves(before))
        elif isinstance(before, tensor) and isinstance(after, tensor) and before.type == after.type:
            result.append(after)
        elif not leaves(before) and is_same(before, after):
            pass
        else:
            result.extend(_next_value(frame, carried, name, before, after))
    return result


def _next_value(frame: Frame, carried: Carried, name: str, before: Any, after: Any) -> list[tensor]:
    if _shape(before) == _shape(after):
        return leaves(after)
    wanted = _shape(map_leaves(before, _as_tensor_type))
    if name in carried.declared or wanted != _shape(map_leaves(after, _as_tensor_type)):
        raise _type_changed(frame, carried, name, before, after)
    if _shape(before) != wanted:
        raise Retry(name)
    return leaves(map_leaves(after, lambda leaf: decay(frame, carried.node, leaf)))


def _shape(value: Any) -> Any:
    """What must not change about a carried value: types of tensors, and constants themselves."""
    if isinstance(value, tensor):
        return value.type
    parts = parts_of(value)
    if parts is not None:
        return (type(value), *(value if isinstance(value, dict) else ()), *(_shape(part) for part in parts))
    constant = unwrap(value)
    return (type(constant), constant)


def _as_tensor_type(leaf: Any) -> Any:
    """Stand-in that :func:`_shape` takes for the tensor that a number becomes."""
    if isinstance(leaf, constexpr) and isinstance(leaf.value, (bool, int, float)):
        return tensor(None, literal_dtype(leaf.value))  # type: ignore[arg-type]
    return leaf


def _type_changed(frame: Frame, carried: Carried, name: str, before: Any, after: Any) -> CompilationError:
    place = assigned_at(carried.node.body, name) or carried.node
    if isinstance(before, tensor) and isinstance(after, tensor):
        return frame.error(
            place,
            f"Loop-carried variable {name} has initial type {type_text(before)} but is re-assigned to "
            f"{type_text(after)} in loop! Please make sure that the type stays consistent.",
            f"give `{name}` the type {type_text(after)} before the loop, or {_way_back(before, after)}",
        )
    return frame.error(
        place,
        f"Loop carried variable {name} changed type, was {type_text(before)} but is now {type_text(after)}",
        f"assign `{name}` a run-time value of the final type before the loop; a constexpr cannot change in a loop",
    )


def _dims(value: tensor) -> tuple[int, ...]:
    return value.block_shape


def _way_back(before: tensor, after: tensor) -> str:
    """What to do with a value in order that it has the type that it had before."""
    if before.dtype.is_ptr() or after.dtype.is_ptr():
        return "use another name for the new value"
    shape = " and keep its shape" if _dims(before) != _dims(after) else ""
    return f"convert the new value with .to({repr(before.dtype).replace(f'{package()}.language.', 'tl.')}){shape}"


@dataclass(frozen=True, slots=True)
class Kept:
    """The tensors that really change in a loop.

    Args:
        indices: which of the carried tensors they are.
        handed: for each region the handles of these that it hands on.
        replaced: what stands for the block arguments of the others.
    """

    indices: list[int]
    handed: list[list[Any]]
    replaced: Mapping[Any, Any]

    def now(self, handle: Any) -> Any:
        """`handle`, or what stands for it."""
        return self.replaced.get(handle, handle)


def drop_unchanged(carried: Carried, *bodies: tuple[Sequence[SSAValue], list[tensor]]) -> Kept:
    """Find the tensors that really change, and put the first values in place of the others.

    Args:
        carried: the variables.
        bodies: for each region its arguments and the tensors that it hands on.
    """
    first = [leaf.handle for leaf in carried.flat]
    kept: list[int] = []
    replaced: dict[SSAValue, Any] = {}
    for k, value in enumerate(first):
        if all(following[k].handle in (args[k], value) for args, following in bodies):
            for args, _ in bodies:
                replaced[args[k]] = value
        else:
            kept.append(k)
    for arg, value in replaced.items():
        arg.replace_all_uses_with(value)
    handed: list[list[Any]] = []
    for _, following in bodies:
        handles: list[Any] = [following[k].handle for k in kept]
        handed.append([replaced.get(handle, handle) for handle in handles])
    return Kept(kept, handed, replaced)


def erase_args(block: Block, kept: Sequence[int], skip: int) -> None:
    """Take the arguments away that are not among `kept`, counted from argument `skip` on."""
    for index in reversed(builtins.range(skip, len(block.args))):
        if index - skip not in kept:
            block.erase_arg(block.args[index])
