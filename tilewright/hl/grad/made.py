"""Kernels made of text."""

from __future__ import annotations

import ast
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
    settings.check_trace = settings.check_trace and has_numbers  # `leaks` has looked for sizes of samples
    scope: dict[str, Any] = {"__name__": file}
    exec(compile(text, file, "exec"), scope)
    made = scope[name]
    assert isinstance(made, Kernel)
    made.configs, made.settings, made.backward = [] if config is None else [config], settings, None
    _note_carried(made, made.source.tree.body, set())
    return made


def _note_carried(kernel: Kernel, statements: list[ast.stmt], before: set[str]) -> set[str]:
    """Say what loops carry, which a trace would find by a pass that it throws away: names from before that they assign.

    Args:
        kernel: a derived one, in whose text no name stands for two things.
        statements: of it.
        before: names that were assigned before these; takes those that they assign.

    Returns:
        The names that they assign.
    """
    found: set[str] = set()
    for statement in statements:
        known = set(before)
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            found.update(name.id for name in names if isinstance(name, ast.Name))
        if isinstance(statement, ast.For | ast.If):
            inside = _note_carried(kernel, [*statement.body, *statement.orelse], before)
            if isinstance(statement, ast.For):
                kernel.source.carried[id(statement)] = {(name,) for name in inside & known}
            found |= inside
        before |= found
    return found


def differentiable(made: Kernel) -> Kernel:
    """The same kernel, which takes part in autograd."""
    kernel = Kernel(made.fn, made.configs, made.settings)
    kernel.backward = "auto"
    return kernel
