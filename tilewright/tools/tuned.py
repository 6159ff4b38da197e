"""What searches of hl kernels found: listing, comparing, sending to others, dropping.

The files are the journals of `tilewright.hl.tune.journal`, in the folder `hl` of the disk cache.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tilewright.base.errors import ArgumentError
from tilewright.base.lazy import lazy_module
from tilewright.tools.modules import load_beside

if TYPE_CHECKING:
    from tilewright.hl import config as configs
    from tilewright.hl.runtime import kernel as kernels
    from tilewright.hl.tune import ahead, cache, journal, plot
else:  # torch is loaded with them, and no other command needs it
    ahead = lazy_module("tilewright.hl.tune.ahead")
    kernels = lazy_module("tilewright.hl.runtime.kernel")
    cache = lazy_module("tilewright.hl.tune.cache")
    configs = lazy_module("tilewright.hl.config")
    journal = lazy_module("tilewright.hl.tune.journal")
    plot = lazy_module("tilewright.hl.tune.plot")

_NAME = re.compile(r"[0-9a-f]{64}")


def show(console: Console, folder: Path, text: str = "") -> None:
    """List the searches, the last one first.

    Args:
        console: where.
        folder: of the journals.
        text: part of the name of a kernel; "" for all.
    """
    table = Table("id", "kernel", "arguments", "tried", "out", "best ms", "of the default", "when", "end", box=None)
    for _, search in journal.everything(folder):
        if text in str(search.head.get("kernel", "")):
            table.add_row(*_row(search))
    console.print(table)


def _row(search: journal.Search) -> tuple[str, ...]:
    head, best = search.head, search.best
    tried = {json.dumps(row["config"], sort_keys=True) for row in search.rows}
    out = sum("failed" in row for row in search.rows)
    ms, default = best and best["ms"], search.end and search.end.get("default_ms")
    return (
        str(head["search"]),
        str(head.get("kernel", "")),
        " ".join(re.findall(r"torch\.Size\((\[.*?\])\)", str(head.get("key", "")))),
        str(len(tried)),
        str(out),
        f"{ms:.4g}" if ms else "-",
        f"{ms / default:.2f}" if ms and default else "-",
        str(head.get("when", "")),
        str(search.end["end"]) if search.end is not None else "unfinished",
    )


def found(folder: Path, id: str) -> journal.Search:
    """The search whose id begins so, or the last one of the kernel that is called so.

    Raises:
        ArgumentError: there is none.
    """
    for _, search in journal.everything(folder):
        if str(search.head["search"]).startswith(id) or search.head.get("kernel") == id:
            return search
    raise ArgumentError(f"no search {id!r} in {folder}", hint="`tilewright tuned list` shows what there is")


def explain(console: Console, search: journal.Search, picture: Path | None) -> None:
    """Show what a search found: the decorator to paste, what each key is worth, failures; with a picture if wanted."""
    best = search.best
    for name in ("kernel", "key", "machine", "versions", "when"):
        console.print(f"{name}: {search.head.get(name, '')}", highlight=False)
    if best is None:
        console.print("nothing was timed")
        return
    config = configs.Config(**best["config"])
    console.print(f"@hl.kernel(config={config!r})", highlight=False, soft_wrap=True)
    for key, ratio in sorted((search.end or {}).get("worth", {}).items(), key=lambda pair: -float(pair[1])):
        console.print(f"  {key}={config.get(key)!r}: {ratio:.3f} times as long with the default's", highlight=False)
    reasons = [row for row in search.rows if "failed" in row]
    for kind in dict.fromkeys(row["failed"] for row in reasons):
        of_kind = [row for row in reasons if row["failed"] == kind]
        console.print(f"  {kind}: {len(of_kind)}, first: {of_kind[0].get('why', '')}", highlight=False)
    if picture is not None and search.timed:
        picture.write_text(plot.svg(search), encoding="utf-8")
        console.print(str(picture))


def compare(console: Console, one: journal.Search, other: journal.Search) -> None:
    """Show what two searches found beside each other: keys that differ, and times of what both have measured."""
    table = Table("", str(one.head["search"]), str(other.head["search"]), box=None)
    bests = [search.best or {"config": {}, "ms": None} for search in (one, other)]
    table.add_row("ms", *(str(best["ms"]) for best in bests))
    for key in sorted({*bests[0]["config"], *bests[1]["config"]}):
        values = [best["config"].get(key) for best in bests]
        if values[0] != values[1]:
            table.add_row(key, *map(str, values))
    console.print(table)
    times: list[dict[str, float]] = [
        {json.dumps(row["config"], sort_keys=True): float(row["ms"]) for row in search.timed} for search in (one, other)
    ]
    both = times[0].keys() & times[1].keys()
    if both:
        mean = math.exp(sum(math.log(times[1][key] / times[0][key]) for key in both) / len(both))
        console.print(f"{len(both)} configurations are in both; the second takes {mean:.3f} of the first's time")


def export(folder: Path, target: Path, text: str = "") -> int:
    """Write the searches of kernels whose name contains a text to one file; how many those are."""
    rows: list[dict[str, Any]] = []
    chosen = [(path, search) for path, search in journal.everything(folder) if text in str(search.head.get("kernel"))]
    for path, search in chosen:
        first, *rest = search.lines()
        rows += [{**first, "file": path.name.removesuffix(journal.SUFFIX)}, *rest]
    target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(chosen)


def take(folder: Path, source: Path) -> int:
    """Take the searches of a file that `export` wrote, if they are not there; how many were taken.

    Their best configurations are used where this machine, the versions and the arguments are the same, and tried first
    in searches of kernels that are like theirs.
    """
    count = 0
    there = {str(search.head["search"]) for _, search in journal.everything(folder)}
    for search in journal.read(source):
        name = str(search.head.pop("file", ""))
        if not _NAME.fullmatch(name) or str(search.head["search"]) in there:
            continue
        journal.append(folder / f"{name}{journal.SUFFIX}", search.lines())
        best, path = search.best, folder / f"{name}.best_config"
        if best is not None and not search.goes_on and not path.exists():
            about = {"kernel": search.head.get("kernel"), "milliseconds": best["ms"]}
            cache.write(path, configs.Config(**best["config"]), about)
        count += 1
    return count


def prune(folder: Path, days: float | None) -> int:
    """Drop all but the last search of each file, and files whose last search is older, with the configuration that it
    found; how many searches were dropped."""
    now, dropped = datetime.datetime.now(datetime.UTC), 0
    by_path: dict[Path, list[journal.Search]] = {}
    for path, search in journal.everything(folder):
        by_path.setdefault(path, []).append(search)
    for path, searches in by_path.items():
        if days is not None and _age(searches[0], now) > days:
            path.unlink()
            path.with_name(path.name.removesuffix(journal.SUFFIX) + ".best_config").unlink(missing_ok=True)
            dropped += len(searches)
        elif len(searches) > 1:
            lines = "".join(json.dumps(row) + "\n" for row in searches[0].lines())
            path.write_text(lines, encoding="utf-8")
            dropped += len(searches) - 1
    return dropped


def _age(search: journal.Search, now: datetime.datetime) -> float:
    """Days since a search began."""
    try:
        return (now - datetime.datetime.fromisoformat(str(search.head.get("when")))).total_seconds() / 86400
    except (ValueError, TypeError):
        return math.inf


def tune_ahead(file: str, effort: str) -> list[Path]:
    """Tune the kernels of a file that have tables, "softmax.py" or "softmax.py:softmax"; the files written."""
    return list(dict.fromkeys(kernel.aot(effort=effort) for kernel in _with_tables(file)))


def check_ahead(file: str, timed: bool) -> list[str]:
    """What is wrong with the tables of a file's kernels; `timed`: also where they choose what is slower than the
    default."""
    wrong = []
    for kernel in _with_tables(file):
        assert kernel.tables is not None
        sets = kernel.declared()
        found = ahead.check(kernel, kernel.tables, sets)
        wrong += found or (ahead.slower(kernel, kernel.tables, sets) if timed and sets else [])
    return wrong


def _with_tables(file: str) -> list[kernels.Kernel]:
    """The kernels of a file that have tables.

    Raises:
        ArgumentError: there are none.
    """
    path, _, name = file.partition(".py:")
    module = load_beside(Path(f"{path}.py" if name else file))
    found = [one for one in vars(module).values() if isinstance(one, kernels.Kernel) and one.tables is not None]
    chosen = [kernel for kernel in dict.fromkeys(found) if kernel.name == name or not name]
    if not chosen:
        raise ArgumentError(f"{file} has no kernel with a table", hint="decorate it with @hl.aot_kernel(shapes=...)")
    return chosen
