"""What an autotuner leaves behind: the results of its searches in a file for people and programs, and a line to print.

A file `tuning/<kernel>-<hash>.json` beside the disk cache holds all searches of one kernel for one target::

    {"kernel": "matmul", "target": "cpu:znver5", "source": "...", "tilewright": "...",
     "results": {"<id>": {"key": [...], "threads": 2, "when": "2026-01-31T12:00:00",
                          "configs": [{"config": {"BLOCK": 64, "num_warps": 4}, "ms": [0.41, 0.40, 0.43]},
                                      {"config": {...}, "failed": "out of resources", "why": "..."}]}}}

The id covers everything that a result depends on, so files of several machines and runs are merged by taking the union;
of two results with one id the later counts. `ms` are median, 20 % and 80 % quantile.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tilewright.base.disk_cache import locked, write_whole
from tilewright.base.errors import ArgumentError, AutotunerError, OutOfResources

C = TypeVar("C")
_HEAD = ("kernel", "target", "source", "tilewright")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate has no time.

    Args:
        kind: "out of resources", "compile error", "slow compilation" or "wrong result".
        why: what was said.
    """

    kind: str
    why: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The failure that an error is."""
        if isinstance(error, OutOfResources):
            return cls("out of resources", str(error))
        if isinstance(error, SlowCompilationError):
            return cls("slow compilation", str(error))
        return cls("wrong result" if isinstance(error, WrongResultError) else "compile error", str(error))


class WrongResultError(ArgumentError):
    """The user's check did not accept what a candidate computed."""


class SlowCompilationError(AutotunerError):
    """A candidate takes so much longer to compile than the others that nobody waited for it."""


Outcome = list[float] | Failure


class TuningResults:
    """The file with the results of a kernel for a target.

    Args:
        path: of the file.
        head: "kernel", "target", "source" and "tilewright"; what a new file says of itself.
    """

    def __init__(self, path: Path, head: Mapping[str, str] | None = None) -> None:
        self.path, self.head = path, dict(head or {})

    def load(self, id: str, count: int) -> list[Outcome] | None:
        """Outcomes of the `count` candidates of a search, in their order; None if the file has none that is whole."""
        found = self._read().get("results", {}).get(id)
        try:
            outcomes = [_outcome(row) for row in found["configs"]]
        except (TypeError, KeyError, ValueError):
            return None
        return outcomes if len(outcomes) == count else None

    def store(self, id: str, facts: Mapping[str, Any], rows: Sequence[tuple[Mapping[str, Any], Outcome]]) -> None:
        """Add the result of a search.

        Args:
            id: of the result.
            facts: what people want to know of it: the values of the key, threads.
            rows: each candidate's parameters with what came of it.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        configs = [{"config": {k: _plain(v) for k, v in config.items()}, **_row(outcome)} for config, outcome in rows]
        self.merge({**self.head, "results": {id: {**facts, "when": now, "configs": configs}}})

    def merge(self, more: Mapping[str, Any]) -> None:
        """Add results; where an id is there already the later one stays. That it cannot be written is no error."""
        with locked(self.path.parent / ".lock"):  # others may add theirs meanwhile
            mine = self._read()
            results = dict(mine.get("results", {}))
            for id, result in more["results"].items():
                if id not in results or str(results[id].get("when", "")) <= str(result.get("when", "")):
                    results[id] = result
            head = {name: more.get(name, mine.get(name, "")) for name in _HEAD}
            text = json.dumps({**head, "results": results}, indent=1) + "\n"
            with contextlib.suppress(OSError):  # a full or read-only disk is no reason to fail
                self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
                write_whole(self.path, text.encode())

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError):
            return results_of(self.path.read_bytes()) or {}
        return {}


def results_of(text: bytes) -> dict[str, Any] | None:
    """The contents of a file of results; None if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and isinstance(found.get("results"), dict)
    return found if whole and all(isinstance(result, dict) for result in found["results"].values()) else None


def id_of(parts: Sequence[str]) -> str:
    """The id of a result, from everything that it depends on."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)


def _row(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Failure):
        return {"failed": outcome.kind, "why": outcome.why}
    return {"ms": outcome}


def _outcome(row: Mapping[str, Any]) -> Outcome:
    if "failed" in row:
        return Failure(str(row["failed"]), str(row["why"]))
    median, low, high = row["ms"]
    return [float(median), float(low), float(high)]


def describe_choice(
    name: str, key: Any, config: C, timings: Mapping[C, list[float]], seconds: float, from_disk: bool
) -> str:
    """One line for the user: what was chosen, for which key, among how many, and how long that took."""
    how = "read from the cache" if from_disk else f"timed in {seconds:.2f} s"
    best = timings[config][0]
    return f"autotuning {name} for {key}: {config} ({best:.4g} ms, best of {len(timings)}; {how})"


def describe_failures(failures: Mapping[C, Failure]) -> list[str]:
    """A line for each kind of failure: how many configurations, and what the first of them said."""
    lines = []
    for kind in dict.fromkeys(failure.kind for failure in failures.values()):
        configs = [config for config, failure in failures.items() if failure.kind == kind]
        said = next(iter(failures[configs[0]].why.strip().splitlines()[::-1]), "")
        lines.append(f"  {kind}: {len(configs)} of the configurations, first {configs[0]}: {said}")
    return lines
