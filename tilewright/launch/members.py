"""Members of a kernel that runtimes and libraries know from Triton, and that need the launcher."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.base.callable import every_block_function
from tilewright.compile import ast_source, kernel
from tilewright.compile.serialized import deserialize
from tilewright.devices.drivers import driver
from tilewright.frontend.source import replace_source, source_of

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
    CompiledKernel = kernel.CompiledKernel
    compile = staticmethod(ast_source.compile)

    fn: Any
    repr: Callable[[Any], str]
    _kernels: dict[Any, kernel.CompiledKernel]

    def preload(self, specialization_data: str) -> kernel.CompiledKernel | None:
        """Compile, or load from the disk cache, what a compile hook has been told of in another process.

        Args:
            specialization_data: that entry of what the hook was given.

        Raises:
            ArgumentError: it is of another kernel, for another device, or no such text.
        """
        request = deserialize(self, specialization_data)  # type: ignore[arg-type]
        return self._kernel_for(request, True)

    def _kernel_for(self, request: Request, warmup: bool) -> kernel.CompiledKernel | None:
        raise NotImplementedError

    def clear(self) -> None:
        """Forget every compiled variant held in memory."""
        raise NotImplementedError

    @property
    def _repr(self) -> Callable[[Any], str]:
        return self.repr

    def parse(self) -> ast.Module:
        """The syntax tree of the function."""
        return ast.parse(self.src)

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

    @property
    def device_caches(self) -> dict[Any, tuple[Any, ...]]:
        """(compiled variants by key, {}, target, None, None) of each device, as Triton arranges them."""
        active = driver.active
        return {active.get_current_device(): (dict(self._kernels), {}, active.get_current_target(), None, None)}

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
