"""Operators by name, in processes that have not traced their launches: saved programs and graphs found in caches.

Each operator leaves a small file beside the disk cache, `operators/<name>.json`, that says in which module its kernel
is and what the signature was. When PyTorch asks for an operator that is not defined, the namespace looks there, imports
the module, and defines the operator anew. If the kernel has changed since, its name is another one: old code is never
called under a new name, nor new code under an old one.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch._ops import _OpNamespace

from tilewright.base.callable import BlockFunction, by_number
from tilewright.base.disk_cache import write_whole
from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.hl import Kernel
from tilewright.launch.interface import KernelInterface
from tilewright.torch import hl_gradients, hl_operators, operators
from tilewright.torch.arguments import class_number
from tilewright.torch.hl_arguments import object_number
from tilewright.torch.hl_operators import HlOperator
from tilewright.torch.signature import NAMESPACE, KernelOperator, Signature

log = logging.getLogger("tilewright.torch")


class MissingKernelError(TilewrightError, AttributeError):
    """A saved program or a cached graph calls a kernel that is not there, or not there any more."""


class _NoContent(Exception):
    """A signature holds what cannot be written down."""


def _file(name: str) -> Path:
    return knobs.cache.dir / "operators" / f"{name}.json"


def write(operator: KernelOperator) -> None:
    """Leave word of where the kernel of an operator is; quietly not where that cannot be said.

    Args:
        operator: just defined.
    """
    signature = operator.signature
    parts = {name: getattr(signature, name) for name in ("tokens", "options", "computed", "rank")}
    _write(operator.name, operator.base.fn, parts)


def write_hl(operator: HlOperator) -> None:
    """The same of an operator that calls a kernel of `tilewright.hl`."""
    names = ("tokens", "written", "result", "count", "is_random")
    _write(operator.name, operator.kernel.fn, {name: getattr(operator, name) for name in names})


def _write(name: str, fn: Any, parts: dict[str, Any]) -> None:
    try:
        text = json.dumps({**_place(fn), **{part: _encoded(value) for part, value in parts.items()}})
    except (_NoContent, TypeError, ValueError):
        return
    file = _file(name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())
    except OSError as error:  # a full or read-only disk is no reason to fail
        log.warning("cannot write %s: %s", file, error)


def resolve(name: str) -> bool:
    """Define the operator `name` by what its file says.

    Returns:
        False where there is no file.

    Raises:
        MissingKernelError: its kernel cannot be found, or has changed.
    """
    try:
        entry = json.loads(_file(name).read_bytes())
    except (OSError, ValueError):
        return False
    is_hl = "result" in entry
    kernel = _found_at(entry, name, Kernel if is_hl else KernelInterface)
    parts = {key: _decoded(value, name) for key, value in entry.items() if key not in ("module", "name")}
    try:
        if is_hl:
            found = hl_operators.define(HlOperator(kernel, **parts)).name
        else:
            found = operators.define(Signature(kernel.number, **parts)).name
    except TilewrightError as error:
        raise _changed(entry, name) from error
    if found != name:
        raise _changed(entry, name)
    return True


def _changed(entry: dict[str, Any], name: str) -> MissingKernelError:
    return MissingKernelError(
        f"{NAMESPACE}::{name} launches kernel `{entry['name']}` of module {entry['module']} as it was when the graph "
        "was made; the kernel has changed since",
        hint="compile or export anew; where a cache still holds the graph, remove the folder of "
        "TORCHINDUCTOR_CACHE_DIR. Call the object that triton_op returned, not torch.ops: then caches notice",
    )


def _found_at(entry: dict[str, Any], name: str, kind: type) -> Any:
    """What an entry names: a kernel, a function or a class."""
    value: Any = sys.modules.get(entry["module"])
    try:
        value = importlib.import_module(entry["module"]) if value is None else value
        for part in entry["name"].split("."):
            value = getattr(value, part)
    except Exception as error:  # whatever the import of a user's module raises
        raise MissingKernelError(
            f"{NAMESPACE}::{name} launches kernel `{entry['name']}` of module {entry['module']}, which cannot be "
            f"found: {error}",
            hint=f"put the module on the path, or import {entry['module']} before this program is loaded",
        ) from error
    if not isinstance(value, kind):
        raise _changed(entry, name)
    return value


def _place(thing: Any) -> dict[str, str]:
    """Module and name of a function or class that can be found by them."""
    if "<locals>" in thing.__qualname__:
        raise _NoContent
    return {"module": thing.__module__, "name": thing.__qualname__}


def _encoded(token: Any) -> Any:
    """Tokens as JSON has them: functions by their place, and tuples as lists."""
    if isinstance(token, tuple):
        if token[:2] == ("c", "function"):
            return {"function": _place(by_number(token[2]).fn)}
        if token[:1] in (("named",), ("data",)):
            return [token[0], {"class": _place(by_number(token[1]))}, *map(_encoded, token[2:])]
        if token[:1] == ("object",):
            return ["object", {"object": _place(by_number(token[1]))}]
        if token[:2] == ("c", "object"):
            raise _NoContent
        return [_encoded(part) for part in token]
    if token is None or isinstance(token, (bool, int, float, str)):
        return token
    if isinstance(token, (torch.dtype, torch.device)):
        return {"torch": str(token).removeprefix("torch."), "kind": type(token).__name__}
    raise _NoContent


def _decoded(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(part, name) for part in value)
    if isinstance(value, dict):
        if "class" in value:
            return class_number(_found_at(value["class"], name, type))
        if "object" in value:
            return object_number(_found_at(value["object"], name, object))
        if "torch" in value:
            return getattr(torch, value["torch"]) if value["kind"] == "dtype" else torch.device(value["torch"])
        return ("c", "function", _found_at(value["function"], name, BlockFunction).number)
    return value


class _Namespace(_OpNamespace):  # type: ignore[misc]  # torch is not checked
    """`torch.ops.tilewright_kernels`: it knows operators that other processes defined."""

    __module__ = _OpNamespace.__module__  # the names of operators are made of it, and saved

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or name in operators.begun or not _resolve_aloud(name):
                raise
        return super().__getattr__(name)


def _resolve_aloud(name: str) -> bool:
    """`resolve`, whose errors are logged too: loaders of programs drop them and say that there is no operator."""
    try:
        return hl_gradients.define(name) or resolve(name)
    except MissingKernelError as error:
        log.error("%s", error)
        raise


def define_operators(package: str | Path) -> list[str]:
    """Define the operators of kernels that an AOTInductor package calls: its loader is C++, and asks nobody for them.

    Args:
        package: path of the package.

    Returns:
        Their names.

    Raises:
        MissingKernelError: the kernel of one cannot be found or has changed, or nothing says which kernel it is.
    """
    with zipfile.ZipFile(package) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".json")]
    names = sorted(set(re.findall(rf"{NAMESPACE}::(\w+)", " ".join(texts))))
    for name in names:
        if name not in operators.begun and not resolve(name):
            raise MissingKernelError(
                f"{package} calls {NAMESPACE}::{name}, of which nothing is known here",
                hint=f"bring {_file(name)} along from where the package was made, or trace a launch like that one",
            )
    return names


def install() -> None:
    """Have operators written down as they are defined, and looked up when PyTorch asks."""
    operators.on_definition.append(write)
    hl_operators.on_definition.append(write_hl)
    setattr(torch.ops, NAMESPACE, _Namespace(NAMESPACE))
