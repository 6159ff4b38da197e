"""A specialisation as text: what compile hooks are given, and `kernel.preload` takes in another process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import dtype, scalar_from_signature
from tilewright.base.errors import ArgumentError
from tilewright.base.library import json
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.compile.function import KernelFunction
from tilewright.compile.request import Request, make_request
from tilewright.compile.sources import FunctionSource
from tilewright.compile.specialize import Path, Specialization, from_paths
from tilewright.devices.drivers import target_at
from tilewright.devices.registry import parse_target
from tilewright.ops.values import constexpr

_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES: dict[str, Callable[[Iterable[Any]], Any]] = {kind.__name__: kind for kind in (tuple, list, set, frozenset)}


def serialize(fn: BlockFunction, request: Request) -> str:
    """A request as JSON; "" if it has constants that no text stands for.

    Args:
        fn: the kernel.
        request: what is compiled.
    """
    options = {**asdict(request.options), **request.asked}
    try:
        return _as_text(full_name(fn), request.target, request.specialization, options)
    except ArgumentError:
        return ""


def serialize_specialization_data(
    name: str, signature: Mapping[str, Any], constants: Mapping[Path, Any], attrs: Mapping[Path, list[list[Any]]],
    options: Any, key: Any, target: Target,
) -> str:  # fmt: skip
    """What is compiled as the text that `kernel.preload` takes, from the parts that Triton has of it.

    Args:
        name: module and qualified name of the kernel.
        signature: type by parameter name, "constexpr" for constants.
        constants: value of each constant by path.
        attrs: facts by path, as `{(0,): [["tt.divisibility", 16]]}`.
        options: complete options, as a mapping or as attributes.
        key: taken as Triton takes it; the rest says what it would.
        target: what to compile for.

    Raises:
        ArgumentError: no text stands for a constant.
    """
    found = from_paths(signature, constants, attrs)
    given = asdict(options) if isinstance(options, Options) else options
    return _as_text(name, target, found, given if isinstance(given, Mapping) else vars(given))


def _as_text(name: str, target: Target, specialization: Specialization, options: Mapping[str, Any]) -> str:
    rows = {
        "name": name,
        "target": str(target),
        "names": list(specialization.names),
        "types": [_written(kind) for kind in specialization.types],
        "keys": [_written(key) for key in specialization.keys],
        "options": {option: _written(value) for option, value in options.items()},
    }
    return json.dumps(rows)


def deserialize(fn: KernelFunction, text: str) -> Request:
    """The request that `serialize` has written.

    Args:
        fn: the kernel.
        text: the JSON.

    Raises:
        ArgumentError: it is of another kernel or for another device, or no such text.
    """
    try:
        rows: Mapping[str, Any] = json.loads(text)
        name, target = rows["name"], parse_target(rows["target"])
        types, keys = ([_read(value) for value in rows[part]] for part in ("types", "keys"))
        options = {option: _read(value) for option, value in rows["options"].items()}
        specialization = Specialization(tuple(rows["names"]), tuple(types), tuple(keys))
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{fn.fn.__name__}: this is no specialisation: {error}") from None
    if name != full_name(fn):
        raise ArgumentError(f"Specialization data is for {name} but trying to preload for {full_name(fn)}")
    here = target_at(None)
    if str(target) != str(here):
        raise ArgumentError(
            f"Specialization data is for {target} but trying to preload for {here}",
            hint="compile ahead of time for other targets: tilewright.compiler.compile(source, target=...)",
        )
    return make_request(FunctionSource(fn), specialization, options, here)


def full_name(fn: BlockFunction) -> str:
    """Module and qualified name of a kernel."""
    return f"{fn.fn.__module__}.{fn.fn.__qualname__}"


def _written(value: Any) -> Any:
    if isinstance(value, constexpr):
        return _written(value.value)
    if (isinstance(value, float) and value.hex() and value != value) or value in (float("inf"), float("-inf")):
        return {"float": repr(value)}
    if isinstance(value, _PLAIN):
        return value
    if type(value) is tuple:
        return {"tuple": [_written(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[_written(key), _written(item)] for key, item in value.items()]}
    if isinstance(value, dtype):
        return {"dtype": value.signature}
    if type(value) is list or isinstance(value, (set, frozenset)):
        return {type(value).__name__: [_written(item) for item in value]}
    if isinstance(value, BlockFunction):
        return {"jit_function": [value.fn.__module__, value.fn.__qualname__]}
    raise ArgumentError(f"no text stands for a constant of type {type(value).__name__}")


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_read(item) for item in content)
    if kind == "dict":
        return {_read(key): _read(item) for key, item in content}
    if kind == "dtype":
        return scalar_from_signature(content)
    if kind == "float":
        return float(content)
    found: Any = importlib.import_module(content[0])
    for part in content[1].split("."):
        found = getattr(found, part)
    return found
