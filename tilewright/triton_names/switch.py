"""The switch: from now on `import triton` means Tilewright, in this process and in those that it starts.

The folder of the posing package goes to the front of `sys.path`, which worker processes of torch and of
`multiprocessing` take over; a Triton that is only installed is shadowed by that and by nothing else.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.base.errors import PosingError
from tilewright.base.knobs import knobs

FOLDER = str(Path(__file__).parent / "path")
VARIABLE = "TILEWRIGHT_AS_TRITON"
SHARED = (
    "language", "compiler", "runtime", "testing", "tools.disasm", "tools.mxfp", "tools.ragged_tma",
    "tools.tensor_descriptor",
)  # fmt: skip
"""Modules that Tilewright has as Triton has them, with all below them: under both names they are one object."""
_RENAMED = {"tilewright.compiler.backends": "triton.backends.compiler"}

TESTED_TORCH = ("2.11", "2.13")
"""Versions of torch whose Inductor the tests run; of others it is told once that they are unknown."""

_TOO_LATE = ("torch._dynamo", "torch._inductor", "helion")
"""Modules that look once, when they are imported, whether there is a Triton."""


def as_triton() -> None:
    """Have `import triton` give Tilewright in this process and in the processes that it starts.

    Call it before anything that imports Triton is imported. A second call does nothing.

    Raises:
        PosingError: the real Triton has been imported already.
    """
    if poses():
        return
    if "triton" in sys.modules:
        raise PosingError(
            f"the real Triton is imported already, from {_origin(sys.modules['triton'])}",
            hint="call tilewright.as_triton() before the first import of triton, of torch._dynamo and of libraries "
            "that use them, or start the program as `python -m tilewright.as_triton program.py`",
        )
    early = [name for name in _TOO_LATE if name in sys.modules]
    if early:
        warnings.warn(
            f"tilewright.as_triton(): {early[0]} is imported already and may have noted that there is no Triton; "
            "call as_triton() first",
            RuntimeWarning,
            stacklevel=2,
        )
    if VARIABLE not in os.environ and (told := unknown_torch()):  # workers need not say again what was said
        warnings.warn(f"tilewright.as_triton(): {told}", RuntimeWarning, stacklevel=2)
    os.environ[VARIABLE] = "1"
    sys.path.insert(0, FOLDER)
    importlib.invalidate_caches()
    importlib.import_module("triton")
    if not poses():
        raise PosingError(
            f"`import triton` still finds {_origin(sys.modules['triton'])}",
            hint="an import hook of this process goes before sys.path; take it away",
        )


def poses() -> bool:
    """Whether `triton` in this process is Tilewright."""
    return getattr(sys.modules.get("triton"), "__tilewright__", False) is True


def unknown_torch() -> str:
    """What is to be said of the installed torch: nothing, if its Inductor has been tested or there is none."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if ".".join(version.split(".")[:2]) in TESTED_TORCH:
        return ""
    return f"torch {version} has not been tested with it ({' and '.join(TESTED_TORCH)} have); see docs/as_triton.md"


def describe() -> str:
    """Which Triton this process has, in a line, without importing one."""
    if poses():
        told = unknown_torch()
        return f"Tilewright poses as triton {sys.modules['triton'].__version__}{told and f'; {told}'}"
    if "triton" in sys.modules:
        return f"the real one, imported from {_origin(sys.modules['triton'])}"
    found = importlib.util.find_spec("triton")
    if found is None:
        return "not installed; tilewright.as_triton() would pose as it"
    if found.origin and Path(found.origin).is_relative_to(FOLDER):
        return "Tilewright poses as it once it is imported"
    return f"the real one is installed ({found.origin}) and not imported; tilewright.as_triton() would shadow it"


def _origin(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or module)


# --- one object under two names ------------------------------------------------------------------------


class SharedLoader:
    """The loader of a module with two names: it gives the module that is there instead of making a second one.

    Programs that load a module by hand (`module_from_spec`, then `exec_module`) would otherwise run its file again.

    Args:
        loader: the module's own, asked for everything else.
        module: what it has loaded.
    """

    def __init__(self, loader: Any, module: ModuleType) -> None:
        self._loader, self._module = loader, module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the module has run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def share() -> None:
    """Enter the shared modules under their second name; called by the posing package when it is imported.

    What is written for Triton waits for no kernel with assertions, unless the environment says that it should.
    """
    if "TILEWRIGHT_ASSERTIONS" not in os.environ:
        knobs.cuda.assertions = "trap"
    for name in (shared for root in SHARED for shared in _with_submodules(f"tilewright.{root}")):
        module = importlib.import_module(name)
        spec = module.__spec__
        if spec is not None and not isinstance(spec.loader, SharedLoader):
            spec.loader = SharedLoader(spec.loader, module)  # type: ignore[assignment]
        second = _RENAMED.get(name) or name.replace("tilewright", "triton", 1)
        sys.modules[second] = module
        parent, _, leaf = second.rpartition(".")
        if parent in sys.modules:  # where the name stands for something else (`runtime.driver`) it keeps doing so
            vars(sys.modules[parent]).setdefault(leaf, module)


def _with_submodules(name: str) -> Iterator[str]:
    yield name
    for found in pkgutil.walk_packages(getattr(importlib.import_module(name), "__path__", ()), f"{name}."):
        yield found.name
