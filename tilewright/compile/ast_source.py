"""Compiling without a launch: a kernel and a written signature instead of arguments.

compile(ASTSource(kernel, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64})) -> CompiledKernel
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.compile.build import compile_request
from tilewright.compile.function import KernelFunction
from tilewright.compile.ir_source import IRSource
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.request import compile_target, make_request
from tilewright.compile.sources import FunctionSource
from tilewright.compile.specialize import CONSTEXPR, Path, Specialization, from_signature
from tilewright.compile.walk import Walk, walk_of
from tilewright.ops.values import constexpr


class ASTSource:
    """A kernel with the types of its parameters.

    Args:
        fn: the kernel.
        signature: type by parameter name: `"*fp32"`, `"i32"`, `"constexpr"`, ...; or those of the parameters without a
            value in order, as one text: `"*fp32, i32"`.
        constexprs, constants: compile-time values, by name or by path (`(2,)` is the third parameter).
        attrs: facts by path, as `{(0,): [["tt.divisibility", 16]]}`.

    Attributes:
        constants: compile-time values by path.
        name: of the kernel.
    """

    def __init__(
        self,
        fn: KernelFunction,
        signature: Mapping[str, Any] | str,
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Path, list[list[Any]]] | None = None,
        *,
        constants: Mapping[Any, Any] | None = None,
    ) -> None:
        constexprs = {**(constants or {}), **(constexprs or {})}
        if isinstance(signature, str):
            signature = _in_order(fn, signature, {_name(fn, key) for key in constexprs})
        self.fn, self.signature, self.attrs = fn, dict(signature), dict(attrs or {})
        self.name, self.ext = fn.fn.__name__, "ttir"
        self._values = {_name(fn, key): _plain(value) for key, value in (constexprs or {}).items()}
        self.constants: dict[Path, Any] = {(fn.arg_names.index(name),): v for name, v in self._values.items()}

    def specialization(self) -> Specialization:
        """The types and keys that a launch would have found.

        Raises:
            ArgumentError: a parameter has neither a type nor a value.
        """
        typed = {name: kind for name, kind in self.signature.items() if kind != CONSTEXPR}
        return from_signature(self.fn.params, typed, self._values, self.attrs)

    def make_ir(self, target: Any, options: Any, codegen_fns: Any, module_map: Any, context: Any) -> Walk:
        """What torch walks to see which arguments the kernel mutates; the parameters are Triton's and mean nothing."""
        return walk_of(self.fn, self.signature, self._values)

    def hash(self) -> str:
        """Content hash of the kernel and its types."""
        text = f"{self.fn.cache_key}\0{self.specialization().text()}"
        return hashlib.sha256(text.encode()).hexdigest()


def _name(fn: KernelFunction, key: Any) -> str:
    names = fn.arg_names
    if isinstance(key, str) and key in names:
        return key
    index = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    if isinstance(index, int) and 0 <= index < len(names):
        return names[index]
    raise ArgumentError(f"{fn.fn.__name__} has no parameter {key!r}", hint=f"its parameters are {', '.join(names)}")


def _in_order(fn: KernelFunction, text: str, given: set[str]) -> dict[str, str]:
    """A signature in one text by parameter: of those that have no value, or of all."""
    kinds = [kind.strip() for kind in text.split(",") if kind.strip()]
    names = fn.arg_names if len(kinds) == len(fn.arg_names) else [name for name in fn.arg_names if name not in given]
    if len(kinds) != len(names):
        raise ArgumentError(
            f"{fn.fn.__name__}: the signature {text!r} has {len(kinds)} types for {len(names)} parameters",
            hint=f"one each for {', '.join(names)}",
        )
    return dict(zip(names, kinds, strict=True))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


def compile(
    src: ASTSource | IRSource | str | pathlib.Path | KernelFunction,
    target: Target | str | None = None,
    options: Mapping[str, Any] | Options | None = None,
    *,
    signature: Mapping[str, Any] | str | None = None,
    constants: Mapping[Any, Any] | None = None,
    **more: Any,
) -> CompiledKernel:
    """Compile a kernel for a written signature (or load it from the disk cache), or a file of tile IR.

    Args:
        src: kernel and signature; or the file of a stage, as a source or as its path (`.ttir`, `.llir`, `.ptx`, ...).
        target: as a `Target` or as text ("cuda:90"); default is that of the active driver. It need not be here.
        options: compile options, as a launch takes them.
        signature, constants, more: the older form, `compile(kernel, signature="*fp32, i32", constants={"BLOCK": 64},
            num_warps=8)`: those of an `ASTSource`, and options.

    Raises:
        CompilationError: the kernel is wrong.
        ArgumentError: `src` is none of these.
        UnsupportedError: the target has no such stage, or there is no back end for `target`.
    """
    if isinstance(src, (str, pathlib.Path)):
        src = IRSource(src)
    if isinstance(src, KernelFunction) and signature is not None:
        src = ASTSource(src, signature, constants)
    if more:
        options = {**(options if isinstance(options, Mapping) else {}), **more}
    if not isinstance(src, (ASTSource, IRSource)):
        raise ArgumentError(
            f"compile() takes an ASTSource or the file of a stage, got {type(src).__name__}",
            hint="to compile for actual arguments write kernel.warmup(*args, grid=...)",
        )
    source = FunctionSource(src.fn) if isinstance(src, ASTSource) else src
    for_target = None if target is None else compile_target(target)
    kernel = compile_request(make_request(source, src.specialization(), options, for_target))
    kernel.src = src
    return kernel
