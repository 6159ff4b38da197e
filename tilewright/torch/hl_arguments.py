"""From the arguments of a kernel of `tilewright.hl` to tokens and run-time values, and what its results are made of.

A token says what an argument is in plain constants, which Dynamo may hand to code that it does not trace: ("t",) a
tensor, ("i",) an integer, ("f",) a float, ("constant", value) one of the compiled code, ("object", number) a function
or module, ("list", token, ...), ("tuple", ...), ("dict", (key, token), ...), ("named", class, token, ...) a named
tuple, ("data", class, (field, token), ...) a dataclass. `flatten` keeps to what Dynamo follows.

Results are told by tokens as well: ("a", i) is the i-th run-time value, ("o", i) the i-th tensor that the call made.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tilewright.base.callable import by_number, give_number
from tilewright.base.errors import ArgumentError
from tilewright.frontend.content import Content
from tilewright.hl import ConstExpr
from tilewright.hl.trace import carried
from tilewright.torch.arguments import class_number, untraced
from tilewright.torch.unguarded import unguarded

Token = tuple[Any, ...]
_number_of_class = untraced(class_number)
_objects: dict[int, tuple[str, Any]] = {}


@untraced
def object_number(value: Any) -> str:
    """A number for a function or module, by which `by_number` finds it."""
    known = _objects.get(id(value))
    if known is None:
        known = _objects[id(value)] = give_number(value), value  # kept, so that its identity stays its own
    return known[0]


@untraced
def _fields(cls: type) -> tuple[str, ...]:
    """Names of the fields of a dataclass; nothing for other classes."""
    return tuple(getattr(cls, "__dataclass_fields__", ()))


@untraced
def _refuse(kind: str, path: str) -> None:
    raise ArgumentError(
        f"a call of a kernel cannot be traced: `{path}` is a {kind}",
        hint="pass tensors, numbers, text, functions, and lists, tuples, dictionaries or dataclasses of these",
    )


@unguarded
def constant(value: Any) -> Token:
    """The token of a constant of the compiled code."""
    if isinstance(value, ConstExpr):
        value = value.value
    if isinstance(value, torch.SymBool):
        return ("constant", True if value else False)  # noqa: SIM210 (bool() keeps a symbol a symbol)
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return ("constant", operator.index(value))  # a symbol becomes the number that it is now, for this trace
    return ("constant", value)


@unguarded
def flatten(value: Any, path: str, values: list[Any]) -> Token:
    """The token of an argument; its run-time values are appended to `values`.

    Args:
        value: of a parameter that is no constant, or a part of one.
        path: where it stands, for errors.
        values: what the operator will be called with.
    """
    if isinstance(value, torch.Tensor):
        values.append(value)
        return ("t",)
    if value is None or isinstance(value, (bool, str, torch.dtype, torch.device, torch.SymBool, ConstExpr)):
        return constant(value)
    if isinstance(value, (int, torch.SymInt)):
        values.append(value)
        return ("i",)
    if isinstance(value, (float, torch.SymFloat)):
        values.append(value)
        return ("f",)
    if isinstance(value, dict):
        return ("dict", *[(key, flatten(item, f"{path}[{key!r}]", values)) for key, item in value.items()])
    if isinstance(value, (tuple, list)):
        number = _number_of_class(type(value))
        head = ("named", number) if number else ("list",) if isinstance(value, list) else ("tuple",)
        return (*head, *[flatten(item, f"{path}[{at}]", values) for at, item in enumerate(value)])
    names = _fields(type(value))
    if names:
        parts = [(name, flatten(getattr(value, name), f"{path}.{name}", values)) for name in names]
        return ("data", _number_of_class(type(value)), *parts)
    if callable(value):
        return ("object", object_number(value))
    _refuse(type(value).__name__, path)
    return ()


# --- in plain Python ------------------------------------------------------------------------------------------------

_TYPES = {"i": "SymInt", "f": "float"}


def leaves(token: Token, path: carried.Path) -> Iterator[tuple[carried.Path, str]]:
    """(path, type in a schema) of the run-time values of a token, in order."""
    kind, rest = token[0], token[1:]
    if kind in ("t", "i", "f"):
        yield path, _TYPES.get(kind, "Tensor")
    elif kind in ("list", "tuple", "named"):
        for at, item in enumerate(rest[kind == "named" :]):
            yield from leaves(item, (*path, at))
    elif kind in ("dict", "data"):
        for key, item in rest[kind == "data" :]:
            yield from leaves(item, (*path, key))


def rebuilt(token: Token, values: Iterator[Any]) -> Any:
    """The argument that a token stands for, made of its run-time values."""
    kind, rest = token[0], token[1:]
    if kind in ("t", "i", "f"):
        return next(values)
    if kind in ("list", "tuple"):
        items = [rebuilt(item, values) for item in rest]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: rebuilt(item, values) for key, item in rest}
    if kind == "named":
        return by_number(rest[0])._make([rebuilt(item, values) for item in rest[1:]])
    if kind == "data":
        fresh = object.__new__(by_number(rest[0]))
        for name, item in rest[1:]:
            object.__setattr__(fresh, name, rebuilt(item, values))
        return fresh
    return by_number(rest[0]) if kind == "object" else rest[0]


def maker(tokens: tuple[Token, ...]) -> Callable[..., tuple[Any, ...]]:
    """A function of the run-time values that gives the arguments."""
    if all(token[0] in ("t", "i", "f") for token in tokens):
        return lambda *values: values
    return lambda *values: tuple(map(functools.partial(rebuilt, values=iter(values)), tokens))


def lasting(token: Any) -> Any:
    """A token with functions and classes by content in place of their numbers."""
    if not isinstance(token, tuple):
        return repr(token)
    if token[:1] in (("object",), ("named",), ("data",)):
        return token[0], digest_of(by_number(token[1])), *map(lasting, token[2:])
    return tuple(map(lasting, token))


def digest_of(value: Any) -> str:
    """Hash of the content of a function, class or module: its text and what it reads."""
    content = Content()
    if isinstance(value, torch.nn.Module):
        content.text(str(getattr(value, "code", "")))
        content.value(type(value).forward)
    else:
        content.value(value)
    return content.lasting_digest()


# --- results --------------------------------------------------------------------------------------------------------


def told(result: Any, values: tuple[Any, ...], made: list[Any], kernel: str) -> Token:
    """The token of a result; the tensors that the call made are appended to `made`.

    Args:
        result: what a kernel returned, or a part of it.
        values: the run-time values of the call.
        made: tensors that share no memory with these or with one another.
        kernel: its name, for errors.

    Raises:
        ArgumentError: a result cannot be one of an operator.
    """
    if isinstance(result, torch.Tensor):
        for kind, known in (("a", values), ("o", made)):
            for at, value in enumerate(known):
                if value is result:
                    return (kind, at)
        for kind, known in (("a", values), ("o", made)):
            for at, value in enumerate(known):
                if isinstance(value, torch.Tensor) and _meet(value, result):
                    return ("view", (kind, at), *_place(value, result, kernel))
        made.append(result)
        return ("o", len(made) - 1)
    if isinstance(result, dict):
        return ("dict", *((key, told(item, values, made, kernel)) for key, item in result.items()))
    if isinstance(result, (list, tuple)):
        number = class_number(type(result))
        head = ("named", number) if number else ("list",) if isinstance(result, list) else ("tuple",)
        return (*head, *(told(item, values, made, kernel) for item in result))
    if result is None or isinstance(result, (bool, int, float, str, torch.dtype, torch.device)):
        return ("constant", result)
    raise ArgumentError(
        f"kernel `{kernel}` returns a {type(result).__name__}: an operator returns tensors and numbers",
        hint="compute it where the kernel is called",
    )


def _place(base: torch.Tensor, view: torch.Tensor, kernel: str) -> tuple[Any, ...]:
    """(sizes, strides, offset) of a view as seen from the tensor that an operator has, and elements of that.

    Raises:
        ArgumentError: the view has elements that are none of the tensor's, or of another type.
    """
    offset = view.storage_offset() - base.storage_offset()
    whole, part = (sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True)) for t in (base, view))
    inside = base.numel() == whole + 1 and 0 <= offset <= offset + part <= whole
    if view.dtype != base.dtype or (view.numel() and not inside):
        raise ArgumentError(
            f"kernel `{kernel}` returns a view of an argument or of another result that an operator cannot make",
            hint="return the whole tensor, before its parts, and make the view where the kernel is called",
        )
    return tuple(view.shape), view.stride(), offset, base.numel()


def is_fixed(token: Token) -> bool:
    """Whether a result has places or numbers, which are those of one set of sizes."""
    if token[0] == "dict":
        return any(is_fixed(item) for _, item in token[1:])
    inner = token[0] in ("list", "tuple", "named") and any(
        is_fixed(item) for item in token[1 + (token[0] == "named") :]
    )
    return inner or token[0] == "view" or (token[0] == "constant" and isinstance(token[1], (int, float)))


def is_told(token: Token, result: Any, values: tuple[Any, ...], made: list[Any]) -> bool:
    """Whether a result is what a token tells; the tensors that the call made are appended to `made`."""
    kind, rest = token[0], token[1:]
    if kind == "a":
        return result is values[rest[0]]
    if kind == "o":
        if rest[0] < len(made):
            return result is made[rest[0]]
        made.append(result)
        return isinstance(result, torch.Tensor) and not any(value is result for value in values)
    if kind == "view":
        base, *place = rest
        whole = (values if base[0] == "a" else made)[base[1]]
        offset = result.storage_offset() - whole.storage_offset()
        found = [tuple(result.shape), result.stride(), offset, whole.numel()]
        return bool(found == place) and _meet(whole, result)
    if kind == "constant":
        symbolic = isinstance(result, (torch.SymInt, torch.SymFloat))
        return (symbolic or type(result) is type(rest[0])) and bool(result == rest[0] or result != result)
    if kind == "dict":
        return (
            isinstance(result, dict)
            and list(result) == [key for key, _ in rest]
            and all(is_told(item, result[key], values, made) for key, item in rest)
        )
    items = rest[kind == "named" :]
    return (
        isinstance(result, (list, tuple))
        and len(result) == len(items)
        and all(is_told(item, part, values, made) for item, part in zip(items, result, strict=True))
    )


def _meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors share memory."""
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


@unguarded
def returned(token: Token, values: Any, made: Any) -> Any:
    """The result that a token tells; see `told`."""
    kind, rest = token[0], token[1:]
    if kind == "a":
        return values[rest[0]]
    if kind == "o":
        return made[rest[0]]
    if kind == "dict":
        return {key: returned(item, values, made) for key, item in rest}
    if kind == "list":
        return [returned(item, values, made) for item in rest]
    if kind == "tuple":
        return tuple([returned(item, values, made) for item in rest])
    if kind == "named":
        return by_number(rest[0])._make([returned(item, values, made) for item in rest[1:]])
    if kind == "view":
        flat = returned(rest[0], values, made).as_strided((rest[4],), (1,))  # Dynamo knows no offset of a tensor
        return flat[rest[3] :].as_strided(rest[1], rest[2])
    return rest[0]
