"""The ``tilewright`` command.

One function per command, which reads the options and calls the module that does the work. An error of
the library becomes a message on stderr and exit status 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal

import tilewright
from tilewright.base.disk_cache import DiskCache
from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.tools import cache as caches
from tilewright.tools import doctor
from tilewright.tools import tuned as searches
from tilewright.tools.aot import bundle_file, compile_file, show_compiled, signature_of
from tilewright.tools.explain import show_explained, show_proof
from tilewright.tools.learn.command import learn
from tilewright.tools.report import command as report
from tilewright.tools.sanitize import sanitize
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


class _NewFile(click.Path):
    """A file to write: that its folder is there is found out ahead of the work that it would take down with it."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path = Path(str(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}", param, ctx)
        return path


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tilewright")
@click.option("--as-triton", is_flag=True, help="What the command runs means Tilewright by `import triton`.")
@click.option("--as-helion", is_flag=True, help="What the command runs means Tilewright by `import helion`.")
def main(as_triton: bool, as_helion: bool) -> None:
    """Tile kernels written in Python, compiled to native code."""
    for asked, switch in ((as_triton, tilewright.as_triton), (as_helion, tilewright.as_helion)):
        if asked:
            switch()


@main.command()
@click.option("--threads", type=click.IntRange(min=1), help="Threads for torch and Tilewright (default: torch's).")
@click.option("--quick", is_flag=True, help="Small sizes: a smoke test in a few seconds.")
@click.option("--only", default="", metavar="TEXT", help="Run just the kernels whose title contains TEXT.")
def tour(threads: int | None, quick: bool, only: str) -> None:
    """Compile, check and time six kernels on this machine."""
    if not show.tour(_console(), threads, quick, only):
        raise SystemExit(1)


@main.command("doctor")
@click.option("--report", is_flag=True, help="Print what an issue needs, as text to paste into it.")
def doctor_command(report: bool) -> None:
    """Show the machine, the installed versions and every knob."""
    if report:
        click.echo(doctor.report())
    else:
        doctor.doctor(_console())


@main.command("compile")
@click.argument("kernel", metavar="FILE.py:KERNEL")
@click.option("--signature", "-s", default="", help='One entry per parameter: "*fp32:16, i32, 1024".')
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
@click.option("--out", "-o", required=True, type=_NewFile(), help="The file to write.")
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
        click.echo(f"{kernel.name} for {kernel.target}: {signature_of(kernel)}")
    click.echo(f"{out}: {decimal(out.stat().st_size)}")


@main.command("explain")
@click.argument("kernel", metavar="FILE.py:KERNEL")
@click.option("--signature", "-s", default="", help='One entry per parameter: "*fp32:16, i32, 1024".')
@click.option("--target", "-t", default=None, help="cuda:80, cuda:90, cpu:x86-64-v4, ...; default: this machine.")
@click.option("--num-warps", type=int, default=None, help="Warps of a program (GPU).")
@click.option("--num-stages", type=int, default=None, help="Depth of software pipelines (GPU).")
@click.option("--no", "only_no", is_flag=True, help="Only what is not done.")
@click.option("--given", default=None, help='And what is proved for arguments up to a size: "x=1000, n=1000".')
@click.option("--grid", default="1", show_default=True, help='Programs, for the proof: "8, 4".')
def explain_command(
    kernel: str, signature: str, target: str | None, num_warps: int | None, num_stages: int | None,
    only_no: bool, given: str | None, grid: str,
) -> None:  # fmt: skip
    """Show what the compiler does to a kernel, line by line; where it does not, why, and what to write instead.

    The signature is written as for `tilewright compile`. The target need not be on this machine.

    \b
    tilewright explain matmul.py:matmul_kernel --target cuda:90 -s "*fp16:16, *fp16:16, ..., 128, 128, 64"
    """
    compiled = compile_file(kernel, signature, target, _options(num_warps, num_stages))
    show_explained(_console(), compiled, only_no=only_no)
    if given is not None:
        show_proof(_console(), compiled, given, grid)


@main.command("sanitize", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--checks",
    "-c",
    default="bounds,races,deadlocks",
    show_default=True,
    help="Further ones are overflow, uninitialised, hints (with these: all), views, portable, nan and orders.",
)
@click.option(
    "--orders",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="2: launches in which an atomic decides are made with the last program first, too (the check orders).",
)
@click.option("--module", "-m", "as_module", is_flag=True, help="PROGRAM is the name of a module, as of python -m.")
@click.option("--json", "as_json", is_flag=True, help="Print the faults as JSON; the program prints to stderr.")
@click.argument("program", metavar="PROGRAM")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sanitize_command(
    checks: str, orders: int, as_module: bool, as_json: bool, program: str, arguments: tuple[str, ...]
) -> None:
    """Run a program whose kernels are checked: exit status 1 if there are faults.

    Kernels run compiled, on the CPU; tensors on a GPU are copied there and back. What stands behind PROGRAM are its own
    arguments.

    \b
    tilewright sanitize train.py --steps 3
    tilewright sanitize -c bounds,races,overflow -m pytest tests
    """
    checks += ",orders" if orders > 1 else ""
    raise SystemExit(sanitize(program, arguments, checks, as_module=as_module, as_json=as_json))


@main.command("report", context_settings={"ignore_unknown_options": True})
@click.option("--module", "-m", "is_module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("--out", "-o", default="report.html", type=_NewFile(), help="The page.")
@click.option("--trace", type=_NewFile(), help="Write the trace (Perfetto) here too.")
@click.option("--target", "-t", "targets", multiple=True, help="What else to compile for; default: cuda:90. Or: none.")
@click.option("--checks", "-c", default="", help="Show what these checks find: bounds,races (see sanitize).")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def report_command(
    is_module: bool,
    out: Path,
    trace: Path | None,
    targets: tuple[str, ...],
    checks: str,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program, and write one page about its kernels: decisions, stages, layouts, accesses, roofline, trace.

    Options may stand before or behind PROGRAM; what is no option of this command, and all behind --, are the program's
    arguments. The page needs no network and no server.

    \b
    tilewright report matmul.py 512 -o report.html
    tilewright report -o report.html matmul.py -- --trace
    """
    click.echo(report.write_report([program, *arguments], is_module, out, trace, report.targets_of(targets), checks))


@main.command("layout")
@click.argument("layout")
@click.option("--bits", type=click.Choice(["8", "16", "32", "64"]), default="32", help="Of an element, for banks.")
@click.option("--out", "-o", type=_NewFile(), help="Write a page with the tile.")
def layout_command(layout: str, bits: str, out: Path | None) -> None:
    """Show a layout: its bases, and who holds each element.

    LAYOUT is what laid-out tile IR prints, or a call of a constructor:

    \b
    tilewright layout "register=(0,1); lane=(0,2) (0,4) (1,0) (2,0) (4,0); warp=(8,0) : 16x8"
    tilewright layout "hardware_swizzled((8, 64), element_bits=16, swizzle_bytes=128)" --bits 16 -o layout.html
    """
    click.echo(report.shown_layout(layout, int(bits), out))


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
@click.argument("archive", type=_NewFile())
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


@main.group()
def tuned() -> None:
    """What searches of hl kernels have measured and found."""


def _searches() -> Path:
    return knobs.cache.dir / "hl"


@tuned.command("list")
@click.argument("text", default="")
def tuned_list(text: str) -> None:
    """List the searches of kernels whose name contains TEXT, the last one first."""
    searches.show(_console(), _searches(), text)


@tuned.command("show")
@click.argument("id")
@click.option("--plot", type=_NewFile(), help="Write a picture of the search (SVG).")
def tuned_show(id: str, plot: Path | None) -> None:
    """Show what the search ID, or the last one of the kernel ID, found: the decorator to paste, what keys are worth."""
    searches.explain(_console(), searches.found(_searches(), id), plot)


@tuned.command("compare")
@click.argument("one")
@click.argument("other")
def tuned_compare(one: str, other: str) -> None:
    """Show what two searches found beside each other."""
    searches.compare(_console(), searches.found(_searches(), one), searches.found(_searches(), other))


@tuned.command("export")
@click.argument("file", type=_NewFile())
@click.option("--only", default="", metavar="TEXT", help="Kernels whose name contains TEXT.")
def tuned_export(file: Path, only: str) -> None:
    """Write searches to FILE, for colleagues."""
    click.echo(f"{file}: {searches.export(_searches(), file, only)} searches")


@tuned.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def tuned_import(file: Path) -> None:
    """Take the searches of FILE that are not here: other searches begin with what they found."""
    click.echo(f"{_searches()}: took {searches.take(_searches(), file)} searches")


@tuned.command("prune")
@click.option("--days", type=click.FloatRange(min=0), help="Drop searches that are older, and what they found.")
def tuned_prune(days: float | None) -> None:
    """Drop all but the last search of each question."""
    click.echo(f"{_searches()}: dropped {searches.prune(_searches(), days)} searches")


@tuned.command("ahead")
@click.argument("file", metavar="FILE.py[:KERNEL]")
@click.option("--effort", type=click.Choice(["quick", "full"]), default="quick", help="Of the search for each set.")
def tuned_ahead(file: str, effort: str) -> None:
    """Tune the kernels of FILE.py that are made with hl.aot_kernel, and write their tables beside it."""
    for path in searches.tune_ahead(file, effort):
        click.echo(str(path))


@tuned.command("check")
@click.argument("file", metavar="FILE.py[:KERNEL]")
@click.option("--time", "timed", is_flag=True, help="Also time the choices beside the defaults, on this machine.")
def tuned_check(file: str, timed: bool) -> None:
    """Hold the tables of kernels that are made with hl.aot_kernel against FILE.py; exit status 1 if they do not fit."""
    wrong = searches.check_ahead(file, timed)
    if wrong:
        raise click.ClickException("\n".join([*wrong, f"`tilewright tuned ahead {file}` makes them anew"]))
    click.echo("the tables fit")


main.add_command(learn)


def _disk_cache() -> DiskCache:
    return DiskCache(knobs.cache.dir, knobs.cache.size)


if __name__ == "__main__":
    main()
