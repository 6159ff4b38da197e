"""Members of a kernel that runtimes and libraries know from Triton, and that need the launcher."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.base.callable import every_block_function
from tilewright.base.refusal import Refusal
from tilewright.base.syntax import parse
from tilewright.compile import ast_source
from tilewright.compile import kernel as compiled
from tilewright.compile.backend_face import make_backend
from tilewright.compile.serialized import deserialize
from tilewright.compile.specialize import Path
from tilewright.devices.drivers import driver
from tilewright.frontend.source import replace_source, source_of
from tilewright.launch import binding, older
from tilewright.launch.bind import Binder
from tilewright.ops.value_types import constexpr_type

if TYPE_CHECKING:
    from tilewright.compile.request import Request


class KernelMembers:
    """Members of a kernel by Triton's names.

    Attributes:
        cache_hook, compiled_hook: hooks around compilations under their older names; the knobs `jit_cache_hook` and
            `jit_post_compile_hook` come first.
        ASTSource, CompiledKernel, compile: what a kernel is compiled with, and to.
    """

    cache_hook: ClassVar[Callable[..., Any] | None] = None
    compiled_hook: ClassVar[Callable[..., Any] | None] = None

    ASTSource = ast_source.ASTSource
    CompiledKernel = compiled.CompiledKernel
    compile = staticmethod(ast_source.compile)
    __class_getitem__: Any = classmethod(GenericAlias)  # `JITFunction[T]`, as annotations for Triton have it

    fn: Any
    constexprs: list[int]
    repr: Callable[[Any], str]
    _kernels: dict[Any, compiled.CompiledKernel]
    _binder: Binder | None

    def preload(self, specialization_data: str) -> compiled.CompiledKernel | None:
        """Compile, or load from the disk cache, what a compile hook has been told of in another process.

        Args:
            specialization_data: that entry of what the hook was given.

        Raises:
            ArgumentError: it is of another kernel, for another device, or no such text.
        """
        request = deserialize(self, specialization_data)  # type: ignore[arg-type]
        return self._kernel_for(request, True)

    def _kernel_for(self, request: Request, warmup: bool) -> compiled.CompiledKernel | None:
        raise NotImplementedError

    def _make_binder(self) -> Binder:
        raise NotImplementedError

    def clear(self) -> None:
        """Forget every compiled variant held in memory."""
        raise NotImplementedError

    @property
    def _repr(self) -> Callable[[Any], str]:
        return self.repr

    def parse(self) -> ast.Module:
        """The syntax tree of the function."""
        return parse(self.src)

    @property
    def src(self) -> str:
        """Source text of the function; setting it has the kernel, and all that call it, compiled anew."""
        return source_of(self).text if self.fn is not None else self.text_without_function()  # type: ignore

    @src.setter
    def src(self, text: str) -> None:
        replace_source(self, text)  # type: ignore[arg-type]
        for function in every_block_function():
            for known in ("_kernel_hash", "hash", "used_global_vals", "_python_form"):
                function.__dict__.pop(known, None)
            if isinstance(function, KernelMembers):
                function.clear()

    def _unsafe_update_src(self, new_src: str) -> None:
        self.src = new_src

    _call_hook = Refusal("JITFunction._call_hook", "`warmup`, `preload` and the launches call the hooks")
    _hash_lock = Refusal("JITFunction._hash_lock", "hashes are made without a lock")
    kernel: Any = None  # Triton has the name, and never anything in it

    @property
    def type(self) -> constexpr_type:
        """The type of a kernel as a value in kernels: it is a constant."""
        return constexpr_type(self)

    def create_binder(
        self, backend: Any = None
    ) -> tuple[dict[str, Any], dict[Any, str], Any, Any, binding.TritonBinder]:
        """(compiled variants by key, texts of keys, target, back end, binder) of the device in use.

        The binder gives the arguments of a call by name, type and key of each, and options; `compute_cache_key` makes
        the key of a variant of the latter two. `backend` is taken as older versions take it: it is that of the device.
        """
        target, texts = driver.active.get_current_target(), dict[Any, str]()
        kernels = older.Forgetting({}, self.clear)
        for (specialization, options, made_for), made in list(self._kernels.items()):
            if made_for == target:
                kernels[binding.compute_cache_key(texts, binding.pairs_of(specialization), options)] = made
        return kernels, texts, target, make_backend(target), self.binder

    @property
    def device_caches(self) -> dict[Any, tuple[Any, ...]]:
        """What `create_binder` gives, by device."""
        rows = {driver.active.get_current_device(): self.create_binder()}
        return older.Forgetting(rows, self.clear, self.create_binder)

    @property
    def cache(self) -> dict[Any, dict[str, compiled.CompiledKernel]]:
        """Compiled variants by device and key."""
        rows = {device: found[0] for device, found in self.device_caches.items()}
        return older.Forgetting(rows, self.clear, dict)

    @property
    def binder(self) -> binding.TritonBinder:
        """The binder of `create_binder`."""
        return binding.TritonBinder(self._binder or self._make_binder())

    _key_of = staticmethod(older.key_of)
    _type_of = staticmethod(older.type_of)

    def _make_constants(self, constexpr_key: Iterable[Any]) -> dict[int, Any]:
        return dict(zip(self.constexprs, constexpr_key, strict=True))

    def _pack_args(
        self, backend: Any, kwargs: Mapping[str, Any], bound_args: Mapping[str, Any], specialization: Any, options: Any
    ) -> tuple[Any, dict[str, Any], dict[Path, Any], dict[Path, list[list[Any]]]]:
        return backend.parse_options(dict(options)), *binding.pack_args(list(bound_args), specialization)

    def _do_compile(
        self, key: str, signature: Any, device: Any, constexprs: Any, options: Any, attrs: Any, warmup: bool
    ) -> compiled.CompiledKernel:
        source = ast_source.ASTSource(self, signature, constexprs, attrs)  # type: ignore[arg-type]
        return ast_source.compile(source, options=binding.completed(options))

    @property
    def def_file_line_number(self) -> tuple[str, int]:
        """File and line of the `def`."""
        return source_of(self).file, source_of(self).first_line  # type: ignore[arg-type]

    def get_capture_scope(self) -> dict[str, Any]:
        """The names that the function sees: globals, and those of enclosing functions."""
        return {**self.fn.__globals__, **inspect.getclosurevars(self.fn).nonlocals}

    @staticmethod
    def is_gluon() -> bool:
        """False: kernels are written in the block language."""
        return False
