"""What the environment says: our variables, and Triton's in a process that poses as Triton.

`read` gives the text of a variable of ours. Once `heed_triton` has been called, one of Triton's stands in where ours is
not set; the table says which.
"""

from __future__ import annotations

import os
from pathlib import Path

from tilewright.base import system

TRITON_NAMES = {
    "TILEWRIGHT_ALWAYS_COMPILE": "TRITON_ALWAYS_COMPILE",
    "TILEWRIGHT_CACHE_AUTOTUNING": "TRITON_CACHE_AUTOTUNING",
    "TILEWRIGHT_CACHE_DIR": "TRITON_CACHE_DIR",
    "TILEWRIGHT_DEBUG": "TRITON_DEBUG",
    "TILEWRIGHT_DEFAULT_FP_FUSION": "TRITON_DEFAULT_FP_FUSION",
    "TILEWRIGHT_DUMP_DIR": "TRITON_DUMP_DIR",
    "TILEWRIGHT_F32_DEFAULT": "TRITON_F32_DEFAULT",
    "TILEWRIGHT_FORCE_DISABLE_FP_FUSION": "TRITON_FORCE_DISABLE_FP_FUSION",
    "TILEWRIGHT_INTERPRET": "TRITON_INTERPRET",
    "TILEWRIGHT_LIBCUDA_PATH": "TRITON_LIBCUDA_PATH",
    "TILEWRIGHT_LIBDEVICE_PATH": "TRITON_LIBDEVICE_PATH",
    "TILEWRIGHT_OVERRIDE_DIR": "TRITON_OVERRIDE_DIR",
    "TILEWRIGHT_PRINT_AUTOTUNING": "TRITON_PRINT_AUTOTUNING",
    "TILEWRIGHT_PRINT_LLVM": "LLVM_IR_ENABLE_DUMP",
    "TILEWRIGHT_PRINT_PASSES": "MLIR_ENABLE_DUMP",
    "TILEWRIGHT_PTXAS_PATH": "TRITON_PTXAS_PATH",
    "TILEWRIGHT_USE_IR_LOC": "USE_IR_LOC",
}
"""Triton's variable by ours."""

OLDER_NAMES = {"TILEWRIGHT_USE_IR_LOC": "USE_TTGIR_LOC"}
"""What older versions of Triton call it, where the newer name is not set."""

TRITON_SWITCHES = {
    "TILEWRIGHT_DUMP_DIR": ("TRITON_KERNEL_DUMP", "dump"),
    "TILEWRIGHT_OVERRIDE_DIR": ("TRITON_KERNEL_OVERRIDE", "override"),
}
"""Variables of Triton's that switch a folder on or off: by ours, with the name of the usual folder beside the cache."""

TRITON_HOME = "TRITON_HOME"
"""The folder in which Triton has `.triton/cache`."""

TRUE, FALSE = {"1", "true", "yes", "y", "on"}, {"0", "false", "no", "n", "off"}
_heeded = [False]


def heed_triton() -> None:
    """Let Triton's variables stand in for ours from now on."""
    _heeded[0] = True


def triton_variables() -> dict[str, str]:
    """Those of Triton's variables that are set, if they count; else none."""
    if not _heeded[0]:
        return {}
    switches = {name for name, _ in TRITON_SWITCHES.values()}
    known = {*TRITON_NAMES.values(), *OLDER_NAMES.values(), *switches, TRITON_HOME}
    return {name: os.environ[name] for name in sorted(known) if os.environ.get(name)}


def read(variable: str) -> tuple[str, str]:
    """The name and the text of what is set for a variable of ours; the text is "" if nothing is.

    Args:
        variable: "TILEWRIGHT_...".
    """
    own = os.environ.get(variable, "")
    theirs = {} if own else triton_variables()
    if not theirs:
        return variable, own
    name = TRITON_NAMES.get(variable, "")
    if name not in theirs:
        name = OLDER_NAMES.get(variable, name)
    text = theirs.get(name, "")
    if variable in TRITON_SWITCHES:
        switch, folder = TRITON_SWITCHES[variable]
        wanted = theirs.get(switch, "").strip().lower()
        if wanted in FALSE:
            return switch, ""
        if wanted in TRUE and not text:
            return switch, str(Path(read("TILEWRIGHT_CACHE_DIR")[1] or user_cache()).parent / folder)
    if variable == "TILEWRIGHT_CACHE_DIR":
        if _is_of_inductor(text):
            text = ""
        if not text and TRITON_HOME in theirs:
            return TRITON_HOME, str(Path(theirs[TRITON_HOME]) / ".triton" / "cache")
    return name, text


def _is_of_inductor(folder: str) -> bool:
    """Whether torch has set the folder, which it does in the midst of a process whose kernels lie elsewhere."""
    inductor = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    return bool(folder and inductor) and Path(folder).is_relative_to(inductor)


def user_cache() -> Path:
    """The folder for caches of this user; one for temporary files where the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright"
    except RuntimeError:
        import tempfile  # not needed to import the package

        return Path(tempfile.gettempdir()) / f"tilewright-{system.this().user()}"
