"""``tilewright compile`` and ``bundle``: kernels of files for written signatures, as files, with figures as a table."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

import tilewright.language as tl
from tilewright.base.dtypes import dtype
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.target import Target
from tilewright.compile.ast_source import ASTSource, compile
from tilewright.compile.bundle import write_bundle
from tilewright.compile.c_interface import write_c
from tilewright.compile.declared import is_type
from tilewright.compile.function import KernelFunction
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.specialize import ALIGNMENT, CONSTEXPR, DIVISIBLE
from tilewright.compile.specialize import Path as ArgumentPath
from tilewright.launch.jit import JITFunction
from tilewright.tools.modules import load_beside

_DIVISIBLE = [["tt.divisibility", 16]]


def compile_file(
    kernel: str, signature: str, target: Target | str | None, options: Mapping[str, Any]
) -> CompiledKernel:
    """Compile a kernel of a Python file.

    Args:
        kernel: path of the file and name of the function, `"add.py:add_kernel"`.
        signature: an entry per parameter, see `read_signature`.
        target: what to compile for; None for this machine.
        options: compile options.

    Raises:
        ArgumentError: no such file or kernel, or the signature does not fit it.
        CompilationError: the kernel is wrong.
    """
    return compile(source_for(_load(kernel), signature), target, options)


def source_for(fn: KernelFunction, signature: str) -> ASTSource:
    """A kernel with a written signature; arguments and errors as for `compile_file`."""
    entries = read_signature(signature)
    names = fn.arg_names
    _check_count(fn, len(entries))
    types = {name: kind for name, (kind, _, _) in zip(names, entries, strict=True) if kind}
    constants = {name: value for name, (kind, value, _) in zip(names, entries, strict=True) if not kind}
    facts: dict[ArgumentPath, list[list[Any]]] = {
        (index,): _DIVISIBLE for index, (_, _, divisible) in enumerate(entries) if divisible
    }
    return ASTSource(fn, types, constants, facts)


def bundle_file(
    kernels: Sequence[str], signatures: Sequence[str], targets: Sequence[str], options: Mapping[str, Any], out: Path
) -> list[CompiledKernel]:
    """Write variants of kernels of Python files to a bundle; returns what was compiled.

    Args:
        kernels: `"add.py:add_kernel"`, ...
        signatures: one for each kernel, or one for all; entries as for `read_signature`, alternatives apart by `|`.
        targets: what to compile for; none for this machine.
        options: compile options.
        out: the file.

    Raises:
        ArgumentError: no such file or kernel, or a signature does not fit it.
        CompilationError: a kernel is wrong.
    """
    if len(signatures) not in (1, len(kernels)):
        raise ArgumentError(f"there are {len(kernels)} kernels and {len(signatures)} signatures")
    made: list[CompiledKernel] = []
    for kernel, signature in zip(kernels, list(signatures) * (len(kernels) if len(signatures) == 1 else 1)):
        fn = _load(kernel)
        for target in targets or ("cpu",):
            made += fn.precompile(alternatives(fn, signature), target=target, **options)
    write_bundle(out, made)
    return made


def alternatives(fn: KernelFunction, signature: str) -> dict[str, list[Any]]:
    """A written signature as `precompile` takes it: a list of alternatives for each parameter."""
    parts = [part.strip() for part in signature.split(",") if part.strip()]
    _check_count(fn, len(parts))
    found: dict[str, list[Any]] = {}
    for name, part in zip(fn.arg_names, parts, strict=True):
        entries = [read_signature(entry)[0] for entry in part.split("|")]
        found[name] = [f"{kind}:16" if divisible else kind or value for kind, value, divisible in entries]
    return found


def _check_count(fn: KernelFunction, count: int) -> None:
    names = fn.arg_names
    if count != len(names):
        raise ArgumentError(
            f"the signature has {count} entries, {fn.fn.__name__} has {len(names)} parameters",
            hint=f"write one entry for each of {', '.join(names)}, "
            'as in --signature "*fp32, i32, 128": a pointer, an integer, the value of a constant',
        )


def signature_of(kernel: CompiledKernel) -> str:
    """What a variant was compiled for, written as `read_signature` reads it: "p: *fp32:16, n: i32, B: 64"."""
    assert kernel.specialization is not None
    entries = []
    for name, path, kind, key in kernel.specialization.leaves():
        shown = "".join([name, *(f"[{index}]" for index in path[1:])])
        entries.append(f"{shown}: {_entry(kind, key)}")
    return ", ".join(entries)


def _entry(kind: str, key: Any) -> str:
    if kind == CONSTEXPR:
        return f"tl.{repr(key).rpartition('.')[2]}" if isinstance(key, dtype) else repr(key)
    return f"{kind}:{ALIGNMENT}" if DIVISIBLE in str(key) else kind


def read_signature(text: str) -> list[tuple[str, Any, bool]]:
    """Entries of a written signature.

    Args:
        text: separated by commas: types (`*fp32`), types of what is divisible by 16 (`*fp32:16`), and constants: Python
            numbers, strings, True, False, None, data types (`tl.float32`).

    Returns:
        (type, None, divisible) or ("", constant, False) for each.

    Raises:
        ArgumentError: an entry is neither.
    """
    entries: list[tuple[str, Any, bool]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        kind, _, fact = entry.partition(":")
        if fact in ("", "16") and is_type(kind):
            entries.append((kind, None, bool(fact)))
            continue
        if isinstance(named := getattr(tl, entry.removeprefix("tl."), None), dtype) and entry.startswith("tl."):
            entries.append(("", named, False))
            continue
        try:
            entries.append(("", ast.literal_eval(entry), False))
        except (ValueError, SyntaxError):
            raise ArgumentError(
                f"{entry!r} is neither a type nor a constant", hint='write "*fp32:16, *bf16, i32:16, fp32, 64, True"'
            ) from None
    return entries


def _load(kernel: str) -> JITFunction:
    path, _, name = kernel.rpartition(":")
    if not path or not Path(path).is_file():
        raise ArgumentError(f"there is no file {path or kernel}", hint="write FILE.py:KERNEL")
    return kernel_of(load_beside(Path(path)), name)


def kernel_of(module: ModuleType, name: str) -> JITFunction:
    """The kernel that a module holds under a name; tuners and heuristics are looked through.

    Raises:
        ArgumentError: there is none.
    """
    found = getattr(module, name, None)
    while found is not None and not isinstance(found, JITFunction):
        found = getattr(found, "fn", None)  # autotuned kernels and kernels with heuristics
    if found is None:
        kernels = [key for key, value in vars(module).items() if isinstance(value, JITFunction)]
        hint = f"it has {', '.join(kernels)}" if kernels else "it has none that is decorated with @tilewright.jit"
        if hasattr(getattr(module, name, None), "bind"):
            hint = f"{name} is a kernel of hl, compiled for the arguments of a call: write tilewright report PROGRAM.py"
        raise ArgumentError(f"{module.__file__} has no kernel {name!r}", hint=hint)
    return found


def show_compiled(console: Console, kernel: CompiledKernel, out: Path | None) -> None:
    """Print the figures of a compiled kernel, and write its stages.

    Args:
        console: where to print.
        kernel: what was compiled.
        out: folder for one file per stage, or None.
    """
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    rows = {"kernel": kernel.name, "target": str(kernel.target), "binary": f"{len(kernel.binary)} bytes"}
    if kernel.target.backend == "cuda":
        rows["registers"] = f"{kernel.n_regs} per thread, {kernel.n_spills} bytes spilled"
        rows["shared memory"] = f"{kernel.metadata['shared']} bytes per program"
        rows["occupancy"] = f"{kernel.occupancy:.0%} of the warps of a multiprocessor"
    rows["time"] = "from the disk cache" if kernel.from_disk else f"{kernel.total_seconds * 1e3:.1f} ms"
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        kernel.asm["ttir"]  # a kernel from the disk cache has its binary only, until a text is asked for
        for extension, made in kernel.asm.items():
            (out / f"{kernel.name}.{extension}").write_bytes(made.encode() if isinstance(made, str) else made)
        console.print(f"stages written to {out}: {', '.join(kernel.asm)}")
        try:
            console.print(f"for C: {', '.join(path.name for path in write_c(kernel, out))}")
        except UnsupportedError as error:
            console.print(f"nothing for C: {error.message}")
