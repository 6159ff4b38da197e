"""The page itself: data, templates, style and script put together as one file; `kernel.report` and the command.

What the script draws travels as gzip in the page (browsers unpack it), so that the texts of all stages of ten kernels
stay well below 5 MB.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import html
import json
import os
import platform
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.checks import parse_checks
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.version import __version__
from tilewright.layouts import text as layout_text
from tilewright.tools.report import trace
from tilewright.tools.report.builds import Shown, median_of, seconds_of, shown_kernels
from tilewright.tools.report.layouts import layout_data
from tilewright.tools.report.recording import Recording, recorded
from tilewright.tools.report.roofline import measure_peaks, plot, table
from tilewright.tools.timing import duration

DEFAULT_TARGET = "cuda:90"  # whose layouts are shown where no kernel ran on a GPU


class Report:
    """A page about some kernels, in memory.

    Args:
        text: the page, HTML.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file; returns its path."""
        file = Path(path)
        file.write_text(self.text, encoding="utf-8", errors="replace")  # names of files may be no characters
        return file

    def _repr_html_(self) -> str:
        """The page in a frame, as notebooks show it."""
        inside = html.escape(self.text, quote=True)
        return f'<iframe srcdoc="{inside}" style="width:100%;height:80vh;border:0" title="Tilewright report"></iframe>'

    def __repr__(self) -> str:
        return f"<Report of {len(self.text):,} characters; .save(path) writes it>"


def report_of_launch(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grid: Any,
    targets: Sequence[str] | None,
    checks: str = "",
) -> Report:
    """Launch a kernel, and report on it.

    Args:
        kernel: anything that can be launched: a kernel, an autotuned one.
        args, kwargs: of the launch.
        grid: of the launch.
        targets: what else to compile for; None for cuda:90 if it does not run on a GPU.
        checks: names of checks, with which the launch is made once more; what they find stands at its line.
    """
    with recorded() as recording:
        for _ in range(3):
            kernel[grid](*args, **kwargs)
    return report_of(recording, str(getattr(getattr(kernel, "fn", kernel), "__name__", "kernel")), targets, checks)


def report_of_program(
    arguments: Sequence[str], is_module: bool, targets: Sequence[str] | None, checks: str = ""
) -> tuple[Report, Recording]:
    """Run a program as `python` would, and report on its kernels.

    Args:
        arguments: the file or the module, then the program's own arguments.
        is_module: it is a module.
        targets, checks: as for `report_of_launch`.

    Raises:
        ArgumentError: there is no such file or check, or no kernel was launched.
    """
    if not is_module and not Path(arguments[0]).is_file():
        raise ArgumentError(f"there is no file {arguments[0]}", hint="write tilewright report PROGRAM.py [ARGUMENTS]")
    if checks:
        parse_checks(checks)
    argv, path = sys.argv, list(sys.path)
    sys.argv = list(arguments)
    sys.path.insert(0, "" if is_module else str(Path(arguments[0]).resolve().parent))
    try:
        with recorded() as recording:
            try:
                if is_module:
                    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(arguments[0], run_name="__main__")
            except SystemExit as ended:
                if ended.code not in (None, 0):
                    print(f"the program ended with {ended.code}", file=sys.stderr)
        title = " ".join([arguments[0] if is_module else Path(arguments[0]).name, *arguments[1:]])
        return report_of(recording, title, targets, checks), recording
    finally:
        sys.argv, sys.path[:] = argv, path


def report_of(recording: Recording, title: str, targets: Sequence[str] | None, checks: str = "") -> Report:
    """The page of a recorded run; arguments as for `report_of_launch`.

    Raises:
        ArgumentError: no kernel was launched.
    """
    if not recording.variants:
        hint = "report on a program that launches one; interpreted launches do not count"
        raise ArgumentError("no kernel was launched", hint=hint)
    if targets is None:
        on_gpu = any(variant.kernel.target.backend == "cuda" for variant in recording.variants)
        targets = () if on_gpu else (DEFAULT_TARGET,)
    kernels = shown_kernels(recording, targets, checks)
    roofs = [_roof(backend, kernels) for backend in _backends(kernels)]
    data = {"kernels": [_data(kernel) for kernel in kernels], "trace": trace.trace_text(recording)}
    return Report(_render(
        "report.html.j2",
        title=title, kernels=kernels, recording=recording, roofs=roofs,
        bars=trace.bars(recording), data=_packed(data), about=_about(),
        launch_seconds=sum(kernel.seconds for kernel in kernels),
        compile_seconds=sum(event.seconds for event in recording.events if event.kind == "compile"),
    ))  # fmt: skip


def _backends(kernels: Sequence[Shown]) -> list[str]:
    """Where kernels ran whose operations and bytes are known; the CPU if there are none."""
    return sorted({kernel.point.backend for kernel in kernels if kernel.point is not None}) or ["cpu"]


def _roof(backend: str, kernels: Sequence[Shown]) -> dict[str, Any]:
    """What the page shows of one machine: its peaks, its plot, a row for each kernel."""
    peaks = measure_peaks(backend)
    points = [k.point for k in kernels if k.point is not None and k.point.backend == backend]
    return {"peaks": peaks, "plot": plot(peaks, points), "rows": table(peaks, points)}


def report_of_layout(text: str, bits: int = 32) -> Report:
    """A page with one layout, typed in.

    Args:
        text: see `layouts.text.read`.
        bits: of an element, for the banks of shared memory.
    """
    layout = layout_text.read(text)
    grid = {"name": "layout", **layout_data(layout, bits), "shapes": [], "lines": [], "values": []}
    return Report(
        _render("layout.html.j2", title=text, layout=str(layout), data=_packed({"layout": grid}), about=_about())
    )


def _data(kernel: Shown) -> dict[str, Any]:
    """What the script draws of a kernel."""
    programs = [", ".join(map(str, program)) for program in kernel.trace.programs] if kernel.trace else []
    return {
        "name": kernel.name,
        "builds": [
            {"target": b.target, "stages": b.stages, "passes": b.passes, "layouts": b.layouts} for b in kernel.builds
        ],
        "tensors": kernel.tensors,
        "programs": programs,
    }


def _packed(data: Mapping[str, Any]) -> str:
    """Data as gzip in base64, the same bytes for the same data."""
    return base64.b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0)).decode()


def _about() -> dict[str, str]:
    return {
        "version": __version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
    }


def _render(template: str, **values: Any) -> str:
    """A page of `templates/`.

    Raises:
        UnsupportedError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise UnsupportedError("a report needs jinja2", hint="pip install 'tilewright[report]'") from error
    folder = Path(__file__).parent / "templates"
    env = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=True, undefined=jinja2.StrictUndefined)
    env.trim_blocks = env.lstrip_blocks = True
    env.filters |= {"time": _time, "bytes": _bytes, "percent": _percent, "short": _short_path}
    env.globals |= {"median_of": median_of, "seconds_of": seconds_of}
    assets = {name: (folder / name).read_text(encoding="utf-8") for name in ("style.css", "script.js")}
    return str(env.get_template(template).render(**values, style=assets["style.css"], script=assets["script.js"]))


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _short_path(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else f"{path.parent.name}/{path.name}"
