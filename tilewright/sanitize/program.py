"""Runs a Python program with checks in all of its kernels: what `tilewright sanitize` does."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.checks import parse_checks
from tilewright.base.errors import ArgumentError
from tilewright.launch.faults import Fault
from tilewright.sanitize.checking import checking

_USAGE = (
    "write tilewright sanitize [OPTIONS] PROGRAM.py [ARGUMENTS]; --help tells the options, -c all,views chooses checks"
)


def run_program(
    name: str, arguments: Sequence[str], wanted: str, *, as_module: bool = False, quiet: bool = False
) -> tuple[list[Fault], int]:
    """Run a program as `python` would, with checks.

    Args:
        name: path of a file, or the name of a module.
        arguments: what the program finds in `sys.argv` behind its name.
        wanted: names of checks.
        as_module: `name` is a module's.
        quiet: what the program prints goes to stderr.

    Returns:
        the faults, and the exit status of the program by itself: 1 where it ended with an exception, which is printed.

    Raises:
        ArgumentError: there is no such file or check.
    """
    if not as_module and not Path(name).is_file():
        raise ArgumentError(f"there is no file {name}", hint=_USAGE)
    before = sys.argv[:], sys.path[:]
    sys.argv = [name, *arguments]
    sys.path.insert(0, "" if as_module else str(Path(name).resolve().parent))
    os.environ["TILEWRIGHT_SANITIZE"] = ",".join(parse_checks(wanted))  # for processes that the program starts
    status = 0
    try:
        with checking(wanted) as found, contextlib.redirect_stdout(sys.stderr if quiet else sys.stdout):
            try:
                runpy.run_module(name, run_name="__main__", alter_sys=True) if as_module else runpy.run_path(
                    name, run_name="__main__"
                )
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
                status = 1
    finally:
        sys.argv, sys.path[:] = before
    return found.faults, status
