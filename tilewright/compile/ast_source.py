"""Compiling without a launch: a kernel and a written signature instead of arguments.

compile(ASTSource(kernel, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64})) -> CompiledKernel
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.base.library import hashlib
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.base.tracebacks import shortened
from tilewright.compile.build import compile_request
from tilewright.compile.function import KernelFunction
from tilewright.compile.ir_source import IRSource
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.lazy_compiler import walk
from tilewright.compile.request import compile_target, make_request
from tilewright.compile.sources import FunctionSource
from tilewright.compile.specialize import (
    ALIGNMENT,
    CONSTEXPR,
    STAND_IN,
    VALUE,
    Path,
    Specialization,
    from_signature,
    is_ranged,
)
from tilewright.devices.drivers import target_at
from tilewright.devices.places import Place, placed
from tilewright.ops.values import constexpr

NO_DESCRIPTOR_HERE = "torch takes this for an older version where it has one; it is `triton.compiler.AttrsDescriptor`"


class AttrsDescriptor:
    """Facts about parameters as Triton 3.1 and older had them.

    Args:
        divisible_by_16: indices of the parameters that are.
        equal_to_1: indices of those that are 1, and so are constants.
    """

    def __init__(self, divisible_by_16: Iterable[int] | None = None, equal_to_1: Iterable[int] | None = None) -> None:
        self.divisible_by_16, self.equal_to_1 = set(divisible_by_16 or ()), set(equal_to_1 or ())

    def to_dict(self) -> dict[str, list[int]]:
        """Both as lists, by name."""
        return {name: sorted(indices) for name, indices in vars(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Iterable[int]]) -> AttrsDescriptor:
        """What `to_dict` gave."""
        return cls(**data)

    def hash(self) -> str:
        """Text that differs where the facts do."""
        return hashlib.sha256(str(list(self.to_dict().values())).encode()).hexdigest()


class ASTSource:
    """A kernel with the types of its parameters.

    Args:
        fn: the kernel.
        signature: type by parameter name, or by its index: `"*fp32"`, `"i32"`, `"constexpr"`, ...; or those of the
            parameters without a value in order, as one text: `"*fp32, i32"`.
        constexprs, constants: compile-time values, by name or by path (`(2,)` is the third parameter).
        attrs: facts by path, as `{(0,): [["tt.divisibility", 16]]}`, or as an `AttrsDescriptor`.

    Attributes:
        constants: compile-time values by path.
        name: of the kernel.
    """

    def __init__(
        self,
        fn: KernelFunction,
        signature: Mapping[Any, Any] | str,
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Any = None,
        *,
        constants: Mapping[Any, Any] | None = None,
    ) -> None:
        constexprs = {**(constants or {}), **(constexprs or {})}
        if hasattr(attrs, "divisible_by_16"):
            constexprs = {**dict.fromkeys(attrs.equal_to_1 or (), 1), **constexprs}
            attrs = {(index,): [["tt.divisibility", ALIGNMENT]] for index in attrs.divisible_by_16 or ()}
        if isinstance(signature, str):
            signature = _in_order(fn, signature, {_name(fn, key) for key in constexprs})
        self.fn, self.attrs = fn, dict(attrs or {})
        self.signature = {_name(fn, key): kind for key, kind in signature.items()}
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

    def make_ir(self, target: Any, options: Any, codegen_fns: Any, module_map: Any, context: Any) -> walk.Walk:
        """What torch walks to see which arguments the kernel mutates; the parameters are Triton's and mean nothing."""
        return walk.walk_of(self.fn, self.signature, self._values, self._integers())

    def _integers(self) -> dict[str, int]:
        """Integers among the arguments that torch has, by name; where it has a symbol it writes `STAND_IN`.

        torch keeps the facts of keys that are text, which those of all pointers are. The key of 1 is no text, so of
        that integer nothing is there.
        """
        values: dict[str, int] = {}
        from_torch = True
        for param in self.fn.params:
            kind, path = self.signature.get(param.name), (param.index,)
            if not isinstance(kind, str) or param.name in self._values:
                continue
            if kind.startswith("*"):
                from_torch = from_torch and (path in self.attrs or not param.specialize)
            elif is_ranged(kind) and param.specialize:
                values[param.name] = next((value for fact, value in self.attrs.get(path, ()) if fact == VALUE), 1)
        return {name: value for name, value in values.items() if value != STAND_IN} if from_torch else {}

    def parse_options(self) -> dict[str, Any]:
        """Options that the source itself names: none."""
        return {}

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


@shortened
def compile(
    src: ASTSource | IRSource | str | pathlib.Path | KernelFunction,
    target: Target | str | None = None,
    options: Mapping[str, Any] | Options | None = None,
    *,
    signature: Mapping[Any, Any] | str | None = None,
    constants: Mapping[Any, Any] | None = None,
    device: Any = None,
    configs: Sequence[Any] | None = None,
    cc: int | None = None,
    **more: Any,
) -> CompiledKernel:
    """Compile a kernel for a written signature (or load it from the disk cache), or a file of tile IR.

    Args:
        src: kernel and signature; or the file of a stage, as a source or as its path (`.ttir`, `.llir`, `.ptx`, ...).
        target: as a `Target` or as text ("cuda:90"); default is that of the active driver. It need not be here.
        options: compile options, as a launch takes them.
        signature, constants, more: the older form, `compile(kernel, signature="*fp32, i32", constants={"BLOCK": 64},
            num_warps=8)`: those of an `ASTSource`, and options.
        device: of the older form: number of the GPU, or the CPU, for which `target` is then not needed.
        configs: of the older form: facts about the parameters, as one `AttrsDescriptor` or what reads like it.
        cc: of the older form: compute capability of the target.

    Raises:
        CompilationError: the kernel is wrong.
        ArgumentError: `src` is none of these.
        UnsupportedError: the target has no such stage, or there is no back end for `target`.
    """
    if isinstance(src, (str, pathlib.Path)):
        src = IRSource(src)
    if isinstance(src, KernelFunction) and signature is not None:
        src = ASTSource(src, signature, constants, next(iter(configs or ()), None))
    if cc is not None and target is None:
        target = f"cuda:{cc}"
    if device is not None and target is None:
        target = target_at(placed(Place(None), device, None).device)
    if more:
        options = {**(options if isinstance(options, Mapping) else {}), **more}
    if not isinstance(src, (ASTSource, IRSource)):
        raise ArgumentError(
            f"compile() takes an ASTSource or the file of a stage, got {type(src).__name__}",
            hint="to compile for actual arguments write kernel.warmup(*args, grid=...)",
        )
    if named := src.parse_options():
        options = {**(options if isinstance(options, Mapping) else {}), **named}
    source = FunctionSource(src.fn) if isinstance(src, ASTSource) else src
    for_target = None if target is None else compile_target(target)
    kernel = compile_request(make_request(source, src.specialization(), options, for_target))
    kernel.src = src
    return kernel
