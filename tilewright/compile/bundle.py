"""Bundles: compiled variants of kernels in one file, which runs with neither LLVM nor the compiler.

::

    write_bundle("k.twb", kernels)          header, checksum, index (JSON), machine code
    tilewright.load_bundle("k.twb")["add"][grid](x, y, out, n, BLOCK=1024)          (launch/bundled.py)

The file is an entry as the disk cache has them. Its index holds, for each kernel, its parameters and variants: target,
specialisation (as text: arguments of a call that give the same text are launched with it), options, facts. Beside the
kernels there is the code of Tilewright's own that launches need. What a bundle was made by is checked by that code: it
fits only the very text that this version would compile.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.features import CpuFeatures, describe, host
from tilewright.base.disk_cache import decode, encode
from tilewright.base.dtypes import dtype, scalar_from_signature
from tilewright.base.errors import ArgumentError, BundleError
from tilewright.base.target import Target
from tilewright.base.version import __version__
from tilewright.compile.function import KernelFunction
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.programs import Program, from_rows, to_rows
from tilewright.compile.specialize import Param
from tilewright.compile.variants import signature_texts
from tilewright.devices.registry import BACKENDS, backend_of

_KEY = "tilewright bundle 1"
_NOT_KEPT = frozenset({"decisions", "target", "hash", "tilewright_version"})
_PARAM_FLAGS = ("is_constexpr", "is_const", "fixed_type", "specialize", "specialize_alignment")


@dataclass(frozen=True, slots=True, eq=False)
class BundledVariant:
    """Compiled code in a bundle.

    Args:
        target: what it was compiled for.
        specialization: text of it.
        shown: the same for people.
        options: compile options by name.
        metadata: facts from the stages.
        hash: key of the kernel in the disk cache of who compiled it.
        binary: machine code.
    """

    target: Target
    specialization: str
    shown: str
    options: Mapping[str, Any]
    metadata: Mapping[str, Any]
    hash: str
    binary: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """What a bundle holds.

    Args:
        params: parameters of each kernel by its name.
        variants: of each kernel by its name.
        triple: of the host.
        helpers: code of our own, by `codegen.helper_key`.
        programs: host functions by their name.
    """

    params: Mapping[str, tuple[Param, ...]]
    variants: Mapping[str, tuple[BundledVariant, ...]]
    triple: str
    helpers: Mapping[str, bytes]
    programs: Mapping[str, Program]


def write_bundle(path: str | Path, kernels: Iterable[CompiledKernel], programs: Iterable[Program] = ()) -> None:
    """Write compiled kernels to one file.

    Args:
        path: of the file.
        kernels: as `kernel.precompile`, `kernel.warmup` and `compile` give them; variants of one kernel are found under
            the name of its function.
        programs: what calls of host functions do with them.

    Raises:
        ArgumentError: there are none; one was not made of a kernel; a constant has no content that another process
            could compare; the default of a parameter is none of Python's numbers, strings or data types.
    """
    payload = bytearray()

    def kept(data: bytes) -> list[int]:
        payload.extend(data)
        return [len(payload) - len(data), len(data)]

    made = [kernel.for_all_values() for kernel in kernels]
    if not made:
        raise ArgumentError("a bundle holds at least one kernel", hint="give it what kernel.precompile(...) returns")
    index: dict[str, Any] = {"version": __version__, "triple": host().triple, "kernels": {}, "helpers": {}}
    for kernel in made:
        fn = _function_of(kernel)
        blank = {"params": [_of_param(param) for param in fn.params], "variants": []}
        row = index["kernels"].setdefault(fn.fn.__name__, blank)
        if row["params"] != blank["params"]:
            raise ArgumentError(f"two kernels are called {fn.fn.__name__}", hint="rename one, or write two bundles")
        row["variants"].append({**_of_variant(kernel), "code": kept(kernel.binary)})
    index["programs"] = list(map(to_rows, programs))
    isa = describe(host().triple, _baseline(host()))
    for backend in {kernel.target.backend for kernel in made}:
        for name, text in BACKENDS[backend].backend.helpers(host().triple).items():
            image = codegen.compile_object(text, isa)
            index["helpers"][codegen.helper_key(name, text)] = {"name": name, "backend": backend, "code": kept(image)}
    Path(path).write_bytes(encode(_KEY, bytes(payload), index))


def _function_of(kernel: CompiledKernel) -> KernelFunction:
    fn = kernel.src if isinstance(kernel.src, KernelFunction) else getattr(kernel.src, "fn", None)
    if not isinstance(fn, KernelFunction) or kernel.specialization is None:
        raise ArgumentError(f"{kernel.name} was compiled from tile IR; a bundle holds kernels of Python functions")
    missing = kernel.specialization.without_content()
    if missing:
        raise ArgumentError(f"{kernel.name}: {missing} among its constants means nothing to another process")
    return fn


def read_bundle(path: str | Path) -> Contents:
    """The contents of a bundle.

    Raises:
        BundleError: it is not there, is no bundle, is damaged, or was made by another version or for other targets.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BundleError(f"the bundle {path} cannot be read: {error.strerror}") from error
    entry = decode(_KEY, data)
    if entry is None:
        raise BundleError(
            f"{path} is no bundle of this format, or it is damaged", hint="make it with `tilewright bundle`"
        )
    index, payload = entry.metadata, memoryview(entry.payload)
    try:
        helpers = {key: bytes(_part(payload, row["code"])) for key, row in index["helpers"].items()}
        params = {name: tuple(map(_param, row["params"])) for name, row in index["kernels"].items()}
        variants = {
            name: tuple(_variant(one, payload) for one in row["variants"]) for name, row in index["kernels"].items()
        }
        programs = {program.name: program for program in map(from_rows, index.get("programs", ()))}
        contents = Contents(params, variants, str(index["triple"]), helpers, programs)
        version = str(index["version"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{path} lies: its checksum is right and its contents are not those of a bundle") from error
    _check(path, contents, version)
    return contents


def _check(path: str | Path, contents: Contents, version: str) -> None:
    targets = {variant.target for variants in contents.variants.values() for variant in variants}
    for backend in sorted({target.backend for target in targets}):
        for name, text in BACKENDS[backend].backend.helpers(contents.triple).items():
            if codegen.helper_key(name, text) not in contents.helpers:
                raise BundleError(
                    f"{path} was made by Tilewright {version}, whose kernels are launched in another way than those of "
                    f"{__version__}",
                    hint="make the bundle anew with this version",
                )
    reasons = {str(target): backend_of(target).why_not(target) for target in sorted(targets, key=str)}
    if all(reasons.values()):
        said = "; ".join(f"{target}: {reason}" for target, reason in reasons.items())
        raise BundleError(
            f"{path} holds nothing that runs here ({said})", hint="make a bundle for this machine's target"
        )


def _baseline(isa: CpuFeatures) -> str:
    return "x86-64" if isa.is_x86 else "generic"


def _of_variant(kernel: CompiledKernel) -> dict[str, Any]:
    assert kernel.specialization is not None
    target = kernel.target
    if target.backend == "cpu" and not target.triple:
        target = replace(target, triple=host().triple)
    plain = {name: value for name, value in kernel.metadata.items() if name not in _NOT_KEPT and _is_plain(value)}
    shown = ", ".join(f"{name}: {kind}" for name, kind in signature_texts(kernel.specialization).items())
    return {
        "target": asdict(target),
        "specialization": kernel.specialization.text(),
        "shown": shown,
        "options": {name: plain[name] for name in _option_names(target) if name in plain},
        "metadata": plain,
        "hash": kernel.hash,
    }


def _option_names(target: Target) -> Iterable[str]:
    return BACKENDS[target.backend].options.__dataclass_fields__


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return isinstance(value, (bool, int, float, str, type(None)))


def _variant(row: Mapping[str, Any], payload: memoryview) -> BundledVariant:
    target = Target(**row["target"])
    if target.backend not in BACKENDS:
        raise ValueError(target.backend)
    return BundledVariant(
        target,
        str(row["specialization"]),
        str(row["shown"]),
        dict(row["options"]),
        dict(row["metadata"]),
        str(row["hash"]),
        bytes(_part(payload, row["code"])),
    )


def _part(payload: memoryview, place: list[int]) -> memoryview:
    start, size = place
    if not 0 <= start <= start + size <= len(payload):
        raise ValueError(place)
    return payload[start : start + size]


def _of_param(param: Param) -> dict[str, Any]:
    row = {"name": param.name, "index": param.index, "kind": int(param.kind)}
    row.update({flag: getattr(param, flag) for flag in _PARAM_FLAGS})
    if isinstance(param.default, dtype):
        row["dtype"] = param.default.signature
    elif param.has_default:
        if not isinstance(param.default, (bool, int, float, str, type(None))):
            raise ArgumentError(
                f"the default of parameter `{param.name}`, {param.default!r}, cannot be kept in a bundle",
                hint="use a number, a string, a data type or None, or let callers pass it",
            )
        row["default"] = param.default
    return row


def _param(row: Mapping[str, Any]) -> Param:
    default: Any = row.get("default", inspect.Parameter.empty)
    if "dtype" in row:
        default = scalar_from_signature(row["dtype"])
    flags = {flag: row[flag] for flag in _PARAM_FLAGS}
    return Param(row["index"], row["name"], inspect._ParameterKind(row["kind"]), default, **flags)
