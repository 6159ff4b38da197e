"""Prints profiles of `tuning/profiler.py`: `python -m triton.profiler.viewer -m time/ms,count FILE.hatchet`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.base.errors import ArgumentError

_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


def read(filename: str | Path) -> dict[str, Any]:
    """The tree of a profile, as hatchet has it: frame, metrics, children."""
    tree: dict[str, Any] = json.loads(Path(filename).read_bytes())[0]
    return tree


def metrics_of(tree: dict[str, Any]) -> list[str]:
    """Names of what was measured somewhere in the tree, with units."""
    own = [name for name, value in tree["metrics"].items() if not isinstance(value, str)]
    return sorted({*own, *(name for child in tree["children"] for name in metrics_of(child))})


def _sum(tree: dict[str, Any], metric: str) -> float:
    return float(tree["metrics"].get(metric, 0)) + sum([_sum(child, metric) for child in tree["children"]])


def value_of(tree: dict[str, Any], metric: str) -> float:
    """A number of a node with all that lies below it.

    Args:
        tree: the node.
        metric: "count", "bytes", ...; "time/ms" and "avg_time/us" are times, of all launches and of one.

    Raises:
        ArgumentError: no such unit.
    """
    name, slash, unit = metric.partition("/")
    if not slash:
        known = next((found for found in metrics_of(tree) if metric in (found, found.partition(" ")[0])), metric)
        return _sum(tree, known)
    if unit not in _UNITS or name not in ("time", "avg_time", "cpu_time"):
        raise ArgumentError(
            f"no metric {metric!r}", hint="time/s, time/ms, time/us, time/ns, avg_time/..., cpu_time/..."
        )
    total = _sum(tree, f"{name.removeprefix('avg_')} (ns)") / _UNITS[unit]
    return total / max(1, _sum(tree, "count")) if name == "avg_time" else total


def lines(tree: dict[str, Any], metrics: list[str], depth: int = 100, level: int = 0) -> Iterator[str]:
    """The tree as text: numbers, then the name, indented by its depth."""
    yield (
        " ".join(f"{value_of(tree, metric):12.3f}" for metric in metrics) + "  " * level + "  " + tree["frame"]["name"]
    )
    if level < depth:
        for child in tree["children"]:
            yield from lines(child, metrics, depth, level + 1)


def parse(metrics: str | list[str] | None, filename: str | Path, *, depth: int = 100, **ignored: Any) -> None:
    """Print a profile.

    Args:
        metrics: which numbers, as a list or separated by commas; "time/ms" by default.
        filename: of the profile.
        depth: how deep to go.
        ignored: filters of Proton's viewer, which are not there.
    """
    wanted = metrics.split(",") if isinstance(metrics, str) else list(metrics or ["time/ms"])
    print(" ".join(f"{metric:>12}" for metric in wanted))
    print("\n".join(lines(read(filename), wanted, depth)))


def show_metrics(filename: str | Path) -> None:
    """Print what a profile has measured."""
    print("\n".join(["Available metrics:", *(f"- {name.partition(' ')[0]}" for name in metrics_of(read(filename)))]))


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="prints a profile")
    parser.add_argument("-m", "--metrics", help="time/ms, avg_time/us, count, ...: separated by commas")
    parser.add_argument("-l", "--list", action="store_true", help="what was measured")
    parser.add_argument("-d", "--depth", type=int, default=100, help="how deep the tree is shown")
    parser.add_argument("file")
    given = parser.parse_args(arguments)
    if given.list:
        show_metrics(given.file)
    else:
        parse(given.metrics, given.file, depth=given.depth)
