"""A specialisation as text: what compile hooks are given, and `kernel.preload` takes in another process."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import dtype, scalar_from_signature
from tilewright.base.errors import ArgumentError
from tilewright.compile.function import KernelFunction
from tilewright.compile.request import Request, make_request
from tilewright.compile.sources import FunctionSource
from tilewright.compile.specialize import Specialization
from tilewright.devices.drivers import target_at
from tilewright.devices.registry import parse_target
from tilewright.ops.values import constexpr

_PLAIN = (type(None), bool, int, float, str)


def serialize(fn: BlockFunction, request: Request) -> str:
    """A request as JSON; "" if it has constants that no text stands for.

    Args:
        fn: the kernel.
        request: what is compiled.
    """
    specialization = request.specialization
    try:
        rows = {
            "name": full_name(fn),
            "target": str(request.target),
            "names": list(specialization.names),
            "types": [_written(kind) for kind in specialization.types],
            "keys": [_written(key) for key in specialization.keys],
            "options": {name: _written(value) for name, value in {**asdict(request.options), **request.asked}.items()},
        }
    except ArgumentError:
        return ""
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
    if isinstance(value, BlockFunction):
        return {"jit_function": [value.fn.__module__, value.fn.__qualname__]}
    raise ArgumentError(f"no text stands for a constant of type {type(value).__name__}")


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(_read(item) for item in content)
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
