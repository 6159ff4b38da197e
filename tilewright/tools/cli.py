"""The ``tilewright`` command.

One function per command, which reads the options and calls the module that does the work. An error of
the library becomes a message on stderr and exit status 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.filesize import decimal

from tilewright.base.disk_cache import DiskCache
from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.tools import cache as caches
from tilewright.tools import doctor
from tilewright.tools.aot import bundle_file, compile_file, show_compiled
from tilewright.tools.explain import show_explained
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


@main.command("compile")
@click.argument("kernel", metavar="FILE.py:KERNEL")
@click.option("--signature", "-s", required=True, help='One entry per parameter: "*fp32:16, i32, 1024".')
@click.option("--target", "-t", default=None, help="cuda:80, cuda:90, cpu:x86-64-v3, ...; default: this machine.")
@click.option("--num-warps", type=int, default=None, help="Warps of a program (GPU).")
@click.option("--num-stages", type=int, default=None, help="Depth of software pipelines (GPU).")
@click.option(
    "--out", "-o", type=click.Path(file_okay=False, path_type=Path), help="Folder for the text of each stage."
)
def compile_command(
    kernel: str, signature: str, target: str | None, num_warps: int | None, num_stages: int | None, out: Path | None
) -> None:
    """Compile a kernel for a written signature; the target need not be on this machine.

    Each entry of the signature is a type (*fp32, i32, fp64, ...), with :16 behind it for addresses and integers that
    are divisible by 16, or the value of a compile-time constant.
    """
    show_compiled(_console(), compile_file(kernel, signature, target, _options(num_warps, num_stages)), out)


@main.command("bundle")
@click.argument("kernels", metavar="FILE.py:KERNEL...", nargs=-1, required=True)
@click.option("--signature", "-s", "signatures", multiple=True, required=True, help='"*fp32:16, i32|i32:16, 64|128".')
@click.option("--target", "-t", "targets", multiple=True, help="cpu, cuda:90, ...; give it once for each.")
@click.option("--num-warps", type=int, default=None, help="Warps of a program (GPU).")
@click.option("--num-stages", type=int, default=None, help="Depth of software pipelines (GPU).")
@click.option("--out", "-o", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write.")
def bundle_command(
    kernels: tuple[str, ...], signatures: tuple[str, ...], targets: tuple[str, ...],
    num_warps: int | None, num_stages: int | None, out: Path,
) -> None:  # fmt: skip
    """Write compiled variants of kernels to one file that runs without the compiler and LLVM.

    Signatures are written as for `tilewright compile`, one for all kernels or one for each; alternatives are separated
    by |, and every combination is compiled. Load the file with tilewright.load_bundle(FILE)["KERNEL"][grid](...).
    """
    options = _options(num_warps, num_stages)
    for kernel in bundle_file(kernels, signatures, targets, options, out):
        assert kernel.specialization is not None
        types = ", ".join(f"{name}: {kind}" for name, kind in kernel.specialization.signature.items())
        click.echo(f"{kernel.name} for {kernel.target}: {types}")
    click.echo(f"{out}: {decimal(out.stat().st_size)}")


@main.command("explain")
@click.argument("kernel", metavar="FILE.py:KERNEL")
@click.option("--signature", "-s", required=True, help='One entry per parameter: "*fp32:16, i32, 1024".')
@click.option("--target", "-t", default=None, help="cuda:80, cuda:90, cpu:x86-64-v4, ...; default: this machine.")
@click.option("--num-warps", type=int, default=None, help="Warps of a program (GPU).")
@click.option("--num-stages", type=int, default=None, help="Depth of software pipelines (GPU).")
@click.option("--no", "only_no", is_flag=True, help="Only what is not done.")
def explain_command(
    kernel: str, signature: str, target: str | None, num_warps: int | None, num_stages: int | None, only_no: bool
) -> None:
    """Show what the compiler does to a kernel, line by line; where it does not, why, and what to write instead.

    The signature is written as for `tilewright compile`. The target need not be on this machine.

    \b
    tilewright explain matmul.py:matmul_kernel --target cuda:90 -s "*fp16:16, *fp16:16, ..., 128, 128, 64"
    """
    show_explained(
        _console(), compile_file(kernel, signature, target, _options(num_warps, num_stages)), only_no=only_no
    )


def _options(num_warps: int | None, num_stages: int | None) -> dict[str, int]:
    """The options that are given."""
    wanted = {"num_warps": num_warps, "num_stages": num_stages}
    return {name: value for name, value in wanted.items() if value is not None}


@main.group()
def cache() -> None:
    """Look at the disk cache of compiled kernels, check it, shrink it, carry it elsewhere."""


@cache.command()
def info() -> None:
    """Show the cache's folder, entries and size."""
    entries, size = _disk_cache().size()
    click.echo(f"{knobs.cache.dir}: {entries} entries, {decimal(size)} of at most {decimal(knobs.cache.size)}")


@cache.command("ls")
@click.argument("text", default="")
def list_command(text: str) -> None:
    """List the entries, the last used first; only kernels whose name contains TEXT."""
    caches.show(_console(), _disk_cache(), text)


@cache.command()
@click.option("--max-bytes", type=click.IntRange(min=0), help="Keep no more than this; default: the cache's cap.")
@click.option("--days", type=click.FloatRange(min=0), help="Drop what was not used for so long.")
def gc(max_bytes: int | None, days: float | None) -> None:
    """Drop the entries that were not used for the longest time."""
    dropped, size = caches.collect(_disk_cache(), max_bytes, days)
    click.echo(f"{knobs.cache.dir}: dropped {dropped} entries, {decimal(size)}")


@cache.command()
@click.option("--remove", is_flag=True, help="Remove what is damaged.")
def verify(remove: bool) -> None:
    """Check every entry against its checksum; exit status 1 if one is damaged and stays."""
    count, damaged = caches.verify(_disk_cache(), remove)
    for key in damaged:
        click.echo(f"damaged{', removed' if remove else ''}: {key}")
    click.echo(f"{knobs.cache.dir}: {count} entries, {len(damaged)} damaged")
    if damaged and not remove:
        raise SystemExit(1)


@cache.command("export")
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
def export_command(archive: Path) -> None:
    """Write all entries and tuning results to the tar file ARCHIVE."""
    entries, results = caches.export(_disk_cache(), archive)
    click.echo(f"{archive}: {entries} entries, {results} files of tuning results")


@cache.command("import")
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_command(archive: Path) -> None:
    """Take what is whole in ARCHIVE, and merge its tuning results. It is machine code: trust it first."""
    entries, results, refused = caches.import_archive(_disk_cache(), archive)
    for name in refused:
        click.echo(f"not taken: {name}", err=True)
    click.echo(f"{knobs.cache.dir}: took {entries} entries, {results} files of tuning results")
    if refused:
        raise SystemExit(1)


@cache.command()
def clear() -> None:
    """Remove every entry."""
    click.echo(f"{knobs.cache.dir}: removed {_disk_cache().clear()} entries")


def _disk_cache() -> DiskCache:
    return DiskCache(knobs.cache.dir, knobs.cache.size)


if __name__ == "__main__":
    main()
