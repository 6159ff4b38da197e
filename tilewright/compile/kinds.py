"""What arguments look like without their values: kinds, which a tracer knows of a call whose numbers it does not know.

::

    kind := "*fp32" | "int" | "float" | "bool" | Constant(value) | Described(...) | (kind, kind, ...)
    leaves: the run-time values of a kind, in order, each with a name:   ("x", "n.0", "n.1", ...)

An "int" is an integer of any value; a constant is a part of the kernel's key.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.compile.specialize import CONSTEXPR, Param, Path, Specialization, constant_of
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.ops.tensor_descriptor import tensor_descriptor

INT, FLOAT, BOOL = "int", "float", "bool"
_TYPES = {FLOAT: "fp32", BOOL: "u1"}


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument that is a part of the kernel's key: None, or the argument of a `constexpr` parameter.

    Args:
        value: what is passed.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Described:
    """A tensor descriptor; its run-time values are the base, then the sizes, then the strides but the last.

    Args:
        element: signature type of the elements ("fp32").
        block_shape: sizes of a block.
        padding: "zero" or "nan".
        round_f32_to_tf32: as `TensorDescriptor` has it.
    """

    element: str
    block_shape: tuple[int, ...]
    padding: str = "zero"
    round_f32_to_tf32: bool = False


Kind = str | Constant | Described | tuple["Kind", ...]
ArgumentKind = tuple[Param, Kind]


def leaves(kind: Kind, name: str) -> Iterator[tuple[str, str]]:
    """(name, kind) of each run-time value: a pointer ("*fp32"), "int", "float" or "bool".

    Args:
        kind: of an argument.
        name: of its parameter; parts have dots in their names.
    """
    if isinstance(kind, str):
        yield name, kind
    elif isinstance(kind, Described):
        rank = len(kind.block_shape)
        yield f"{name}.base", f"*{kind.element}"
        yield from ((f"{name}.size{axis}", INT) for axis in range(rank))
        yield from ((f"{name}.stride{axis}", INT) for axis in range(rank - 1))
    elif isinstance(kind, tuple):
        for index, item in enumerate(kind):
            yield from leaves(item, f"{name}.{index}")


def paths(kind: Kind, path: Path) -> Iterator[Path]:
    """Where each run-time value is, in the order of `leaves`: a specialisation knows them by these paths.

    Args:
        kind: of an argument.
        path: of the argument.
    """
    if isinstance(kind, str):
        yield path
    elif isinstance(kind, Described):
        rank = len(kind.block_shape)
        yield (*path, 0)
        yield from ((*path, 1, axis) for axis in range(rank))
        yield from ((*path, 2, axis) for axis in range(rank - 1))
    elif isinstance(kind, tuple):
        for index, item in enumerate(kind):
            yield from paths(item, (*path, index))


def arranged(kinds: Sequence[ArgumentKind], values: Iterable[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a call, from its run-time values in order.

    Args:
        kinds: of the arguments; parameters that somebody else gives (an autotuner) may be missing.
        values: as `leaves` names them.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    rest = iter(values)
    for number, (param, kind) in enumerate(kinds):
        value = rebuild(kind, rest)
        if param.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif param.index == number and param.kind is not inspect.Parameter.KEYWORD_ONLY:
            args.append(value)
        else:
            kwargs[param.name] = value
    return args, kwargs


def like(kind: tuple[Any, ...], items: Iterable[Any]) -> tuple[Any, ...]:
    """A tuple of the class of `kind`: named tuples keep the names of their fields, records their class."""
    make: Callable[[Iterable[Any]], tuple[Any, ...]] = getattr(kind, "_make", tuple)
    return make(items)


def rebuild(kind: Kind, values: Iterator[Any]) -> Any:
    """The argument of this kind whose run-time values come next."""
    if isinstance(kind, Constant):
        return kind.value
    if isinstance(kind, tuple):
        return like(kind, [rebuild(item, values) for item in kind])
    if isinstance(kind, Described):
        rank = len(kind.block_shape)
        base = next(values)
        sizes = [next(values) for _ in range(rank)]
        strides = [*(next(values) for _ in range(rank - 1)), 1]
        return TensorDescriptor(base, sizes, strides, kind.block_shape, kind.padding, kind.round_f32_to_tf32)
    return next(values)


def kinds_of(
    params: Sequence[Param], types: Mapping[str, Any], constants: Mapping[str, Any]
) -> tuple[ArgumentKind, ...]:
    """Each parameter with the kind of its argument.

    Args:
        params: of a kernel.
        types: kind by name; a `constexpr` parameter has none.
        constants: value by name.

    Raises:
        ArgumentError: a parameter has neither and no default, or there is no such parameter.
    """
    unknown = (types.keys() | constants.keys()) - {param.name for param in params}
    if unknown:
        raise ArgumentError(f"there is no parameter {', '.join(sorted(unknown))}")
    found: list[ArgumentKind] = []
    for param in params:
        if param.name in constants:
            found.append((param, Constant(constants[param.name])))
        elif param.name in types:
            found.append((param, types[param.name]))
        elif param.has_default:
            found.append((param, Constant(param.default)))
        else:
            raise ArgumentError(f"parameter `{param.name}` has neither a type nor a value")
    return tuple(found)


Integer = tuple[Any, Any]
"""Type and key that stand for an integer of any value."""
INTEGERS: tuple[Integer, ...] = (("i32", ""), ("i64", ""), (CONSTEXPR, 1))


def specialization_of(kinds: Sequence[ArgumentKind], integer: Integer) -> Specialization:
    """A specialisation that promises nothing: no alignment, and every "int" as `integer` says."""
    pairs = [_specialized(kind, param, integer) for param, kind in kinds]
    names = tuple(param.name for param, _ in kinds)
    return Specialization(names, tuple(kind for kind, _ in pairs), tuple(key for _, key in pairs))


def _specialized(kind: Kind, param: Param, integer: Integer) -> tuple[Any, Any]:
    if isinstance(kind, Constant):
        return CONSTEXPR, constant_of(kind.value)[1]
    if isinstance(kind, tuple):
        return _zipped(functools.partial(like, kind), [_specialized(item, param, integer) for item in kind])
    if isinstance(kind, Described):
        rank = len(kind.block_shape)
        sizes, strides = [("i32", "")] * rank, [*[("i64", "")] * (rank - 1), (CONSTEXPR, 1)]
        block = [(CONSTEXPR, size) for size in kind.block_shape]
        lists = [_zipped(tuple, pairs) for pairs in (sizes, strides, block)]
        flags = [(CONSTEXPR, kind.padding), (CONSTEXPR, kind.round_f32_to_tf32)]
        return _zipped(tensor_descriptor._make, [(f"*{kind.element}", ""), *lists, *flags])
    if kind == INT:
        fixed = param.fixed_type
        return (fixed, "" if fixed.startswith(("*", "i", "u")) and fixed != "u1" else None) if fixed else integer
    if kind.startswith("*"):
        const = param.is_const and not param.fixed_type
        return param.fixed_type or f"*{'k' if const else ''}{kind[1:]}", ""
    return param.fixed_type or _TYPES.get(kind, kind), None


def _zipped(make: Callable[[list[Any]], Any], pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    return make([kind for kind, _ in pairs]), make([key for _, key in pairs])
