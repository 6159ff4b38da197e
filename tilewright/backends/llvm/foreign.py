"""Libraries of others that kernels call (`extern_libs`): LLVM's bitcode or text, object files, shared objects.

    declare float @bump(float)  --link-->  its definition and what that calls, internal to the module     bitcode, text
                                --load-->  an address                                                      .o, .so (CPU)

A library is read once per process; a module gets only the functions that it needs.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.elf import UNDEFINED, read_object
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.options import ExternLibrary

_BITCODE, _WRAPPED, _ELF = b"BC\xc0\xde", b"\xde\xc0\x17\x0b", b"\x7fELF"
_SHARED = 3  # e_type of an ELF file: ET_DYN
_SPACES = re.compile(r"\s+")


def is_bitcode(library: ExternLibrary) -> bool:
    """Whether it is LLVM's bitcode or text, and no object file."""
    return not _start(library).startswith(_ELF)


def signatures(library: ExternLibrary) -> Mapping[str, str]:
    """Type in LLVM's text of each function that bitcode defines: `"float (float)"`.

    Raises:
        ArgumentError: the file is no bitcode that LLVM reads.
    """
    return _signatures(library)


def link(module: Any, libraries: Iterable[ExternLibrary]) -> None:
    """Add what a module declares and bitcode defines, and what that calls in turn, in place.

    Args:
        module: of llvmlite, with triple and data layout; the passes must still run.
        libraries: bitcode.
    """
    left = list(libraries)
    while left:
        wanted = {f.name for f in module.functions if f.is_declaration}
        now = [library for library in left if wanted & signatures(library).keys()]
        for library in now:
            link_bitcode(module, functions_of(library, frozenset(wanted & signatures(library).keys())))
            left.remove(library)
        if not now:
            return


def link_bitcode(module: Any, bitcode: bytes) -> None:
    """Add bitcode to a module, in place; its functions become internal.

    Args:
        module: of llvmlite, with triple and data layout.
        bitcode: the functions, or nothing.
    """
    import llvmlite.binding as llvm

    if not bitcode:
        return
    part = llvm.parse_bitcode(bitcode, context=module._context)
    part.triple, part.data_layout = module.triple, module.data_layout
    names = {function.name for function in part.functions if not function.is_declaration}
    module.link_in(part)
    for function in module.functions:
        if function.name in names:
            function.linkage = "internal"


@functools.lru_cache(maxsize=64)
def functions_of(library: ExternLibrary, symbols: frozenset[str]) -> bytes:
    """Bitcode of some functions of a library and of what they call."""
    import llvmlite.binding as llvm

    part = _parsed(library).clone()
    for function in part.functions:
        if not function.is_declaration and function.name not in symbols:
            function.linkage = "internal"
    machine = llvm.Target.from_default_triple().create_target_machine()
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(part, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(part.as_bitcode())


def check(symbol: str, signature: str, libraries: Collection[ExternLibrary], objects: bool = False) -> None:
    """See that some library has a function, and that bitcode has it with these types.

    Args:
        symbol: of the function.
        signature: its type in LLVM's text, as it is called.
        libraries: where it may be.
        objects: they may be object files and shared objects.

    Raises:
        UnsupportedError: none has it.
        ArgumentError: it takes or gives others; an object file for a GPU.
    """
    for library in libraries:
        if not is_bitcode(library):
            if not objects:
                raise ArgumentError(f"extern_libs: {library.path} is no bitcode of LLVM, which GPUs take")
            if _has(library, symbol):
                return
        elif found := signatures(library).get(symbol):
            if _SPACES.sub("", found) != _SPACES.sub("", signature):
                raise ArgumentError(f"external function {symbol} of {library.path} is {found}, called as {signature}")
            return
    names = ", ".join(library.name for library in libraries)
    raise UnsupportedError(
        f"external function {symbol} is in no library" + (f" of extern_libs ({names})" if names else ""),
        hint="pass the library: kernel[grid](..., extern_libs={'name': 'path of the bitcode'})",
    )


def addresses(symbols: Iterable[str], libraries: Collection[ExternLibrary]) -> tuple[dict[str, int], list[Any]]:
    """Addresses of functions of object files and shared objects, and what keeps them loaded.

    Raises:
        UnsupportedError: no library has one of them.
    """
    wanted, found, kept = set(symbols), dict[str, int](), list[Any]()
    for library in libraries:
        names = set() if is_bitcode(library) else {name for name in wanted if _has(library, name)}
        if not names:
            continue
        if _is_shared(library):
            shared = ctypes.CDLL(library.path)
            found |= {name: ctypes.cast(getattr(shared, name), ctypes.c_void_p).value or 0 for name in names}
            kept.append(shared)
        else:
            mapped = _load(Path(library.path).read_bytes(), sorted(names))
            found |= {name: mapped.address(name) for name in names}
            kept.append(mapped)
        wanted -= names
    if wanted:
        raise UnsupportedError(f"external function {', '.join(sorted(wanted))} is in no library of extern_libs")
    return found, kept


def _load(image: bytes, names: list[str]) -> codegen.Library:
    try:
        return codegen.load(image, names)
    except UnsupportedError:  # the user vouches for it
        return codegen.load_with_llvm(image, names)


def _start(library: ExternLibrary) -> bytes:
    with open(library.path, "rb") as file:
        return file.read(20)


def _is_shared(library: ExternLibrary) -> bool:
    return int.from_bytes(_start(library)[16:18], "little") == _SHARED


def _has(library: ExternLibrary, symbol: str) -> bool:
    """Whether an object file or a shared object has a function."""
    return hasattr(ctypes.CDLL(library.path), symbol) if _is_shared(library) else symbol in _defined(library)


@functools.lru_cache(maxsize=64)
def _defined(library: ExternLibrary) -> frozenset[str]:
    found = read_object(Path(library.path).read_bytes())
    rows = enumerate(found.symbols[found.first_global :], found.first_global)
    return frozenset(found.name(index) for index, row in rows if row[3] != UNDEFINED)


@functools.lru_cache(maxsize=64)
def _signatures(library: ExternLibrary) -> Mapping[str, str]:
    defined = [function for function in _parsed(library).functions if not function.is_declaration]
    return {function.name: str(function.global_value_type) for function in defined}


@functools.lru_cache(maxsize=16)
def _parsed(library: ExternLibrary) -> Any:
    """The whole library."""
    import llvmlite.binding as llvm

    image, context = Path(library.path).read_bytes(), llvm.create_context()
    try:
        if image.startswith((_BITCODE, _WRAPPED)):
            return llvm.parse_bitcode(image, context=context)
        return llvm.parse_assembly(image.decode(), context=context)
    except (RuntimeError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"extern_libs: LLVM does not read {library.name} from {library.path}: {str(error).strip()}",
            hint="libraries are bitcode or text of LLVM (clang -c -emit-llvm); on CPUs objects (.o, .so) too",
        ) from None
