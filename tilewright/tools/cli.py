"""The ``tilewright`` command.

One function per command, which reads the options and calls the module that does the work. An error of
the library becomes a message on stderr and exit status 1.
"""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.filesize import decimal

from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.runtime.disk_cache import DiskCache
from tilewright.tools import doctor
from tilewright.tools.tour import show


def _console() -> Console:
    """A console as wide as the terminal; 120 columns where there is none, so that tables do not wrap."""
    return Console() if sys.stdout.isatty() else Console(width=120)


class _Commands(click.Group):
    """Turns an error of the library into a message and exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TilewrightError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tilewright")
def main() -> None:
    """Tile kernels written in Python, compiled to native code."""


@main.command()
@click.option("--threads", type=click.IntRange(min=1), help="Threads for torch and Tilewright (default: torch's).")
@click.option("--quick", is_flag=True, help="Small sizes: a smoke test in a few seconds.")
@click.option("--only", default="", metavar="TEXT", help="Run just the kernels whose title contains TEXT.")
def tour(threads: int | None, quick: bool, only: str) -> None:
    """Compile, check and time six kernels on this machine."""
    if not show.tour(_console(), threads, quick, only):
        raise SystemExit(1)


@main.command("doctor")
def doctor_command() -> None:
    """Show the machine, the installed versions and every knob."""
    doctor.doctor(_console())


@main.group()
def cache() -> None:
    """Look at the disk cache of compiled kernels, or empty it."""


@cache.command()
def info() -> None:
    """Show the cache's folder, entries and size."""
    entries, size = _disk_cache().size()
    click.echo(f"{knobs.cache.dir}: {entries} entries, {decimal(size)} of at most {decimal(knobs.cache.size)}")


@cache.command()
def clear() -> None:
    """Remove every entry."""
    click.echo(f"{knobs.cache.dir}: removed {_disk_cache().clear()} entries")


def _disk_cache() -> DiskCache:
    return DiskCache(knobs.cache.dir, knobs.cache.size)


if __name__ == "__main__":
    main()
