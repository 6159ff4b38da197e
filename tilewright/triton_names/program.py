"""`python -m tilewright.as_triton program.py arguments`, or `-m module arguments`: a program with the switch on."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from tilewright.triton_names.switch import as_triton

USAGE = "usage: python -m tilewright.{} (program.py | -m module) [arguments]"


def run(arguments: list[str], switch: Callable[[], None] = as_triton) -> None:
    """Run a program as `python` would, after the switch.

    Args:
        arguments: those of the command: a file or `-m` and a module, then the program's own.
        switch: what is called first.

    Raises:
        SystemExit: nothing to run.
    """
    is_module = arguments[:1] == ["-m"]
    program = arguments[is_module : is_module + 1]
    if not program or program[0] in ("-h", "--help"):
        usage = USAGE.format(switch.__name__)
        raise SystemExit(usage if not program else print(usage))
    switch()
    sys.argv = arguments[is_module:]
    if is_module:
        sys.path.insert(1, "")
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(1, str(Path(program[0]).resolve().parent))
        runpy.run_path(program[0], run_name="__main__")
