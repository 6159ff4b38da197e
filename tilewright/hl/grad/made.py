"""Kernels made of text."""

from __future__ import annotations

import copy
import hashlib
import linecache
from typing import Any

from tilewright.hl.config import Config
from tilewright.hl.runtime.kernel import Kernel
from tilewright.hl.settings import Settings


def kernel_of(
    text: str,
    name: str,
    settings: Settings,
    config: Config | None = None,
    has_numbers: bool = True,
    static: bool = True,
) -> Kernel:
    """The kernel `name` of a module's text.

    Args:
        text: the module.
        name: of the function.
        settings: how the kernel is treated.
        config: its configuration; None where it is chosen as for any kernel.
        has_numbers: whether parameters are numbers, which two traces tell from constants.
        static: whether sizes are constants of it.
    """
    file = f"<hl {name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    settings = copy.copy(settings)
    settings.static_shapes = static
    settings.check_trace = settings.check_trace and has_numbers  # two derivations have been compared
    scope: dict[str, Any] = {"__name__": file}
    exec(compile(text, file, "exec"), scope)
    made = scope[name]
    assert isinstance(made, Kernel)
    made.configs, made.settings, made.backward = [] if config is None else [config], settings, None
    return made


def differentiable(made: Kernel) -> Kernel:
    """The same kernel, which takes part in autograd."""
    kernel = Kernel(made.fn, made.configs, made.settings)
    kernel.backward = "auto"
    return kernel
