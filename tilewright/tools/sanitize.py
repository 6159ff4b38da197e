"""What `tilewright sanitize` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from tilewright.sanitize import Fault
from tilewright.sanitize.program import run_program


def sanitize(name: str, arguments: Sequence[str], wanted: str, *, as_module: bool, as_json: bool) -> int:
    """Run a program with checks and tell of the faults; gives the exit status.

    Args:
        name: path of the program, or the name of a module.
        arguments: of the program.
        wanted: names of checks.
        as_module: `name` is a module's.
        as_json: print a list of faults as JSON; the output of the program goes to stderr.
    """
    faults, status = run_program(name, arguments, wanted, as_module=as_module, quiet=as_json)
    if as_json:
        click.echo(json.dumps([fault.record() for fault in faults], indent=1))
    else:
        click.echo(_report(faults, status), err=True)
    return 1 if faults else status


def _report(faults: Sequence[Fault], status: int) -> str:
    count = f"{len(faults) or 'no'} fault{'s' * (len(faults) != 1)}"
    count += f" until the program ended with status {status}" if status else ""
    return "\n".join(["", *[f"{fault.render()}\n" for fault in faults], f"tilewright sanitize: {count}"])
