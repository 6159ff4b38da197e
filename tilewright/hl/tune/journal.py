"""Everything that searches measured, as it came: `<hash>.search.jsonl` beside the file of the best configuration.

A line that begins a search says what it is about; one line follows per measurement, and one ends it::

    {"search": "<id>", "kernel": "matmul", "structure": "...", "source": "...", "machine": "...", "versions": "..."}
    {"config": {...}, "ms": 0.41, "low": 0.40, "high": 0.43, "rounds": 36, "compile": 0.31, "at": 1.2, ...}
    {"config": {...}, "failed": "wrong result", "why": "...", "at": 1.9}
    {"end": "interrupted", "best": {...}, "ms": 0.41, "default_ms": 0.55, "seconds": 6.1}

Each is written with one write to a file opened for appending, so a process that is killed loses none that was made. A
line that cannot be read is passed over.
"""

from __future__ import annotations

import datetime
import json
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.hl.config import Config
from tilewright.hl.tune.outcomes import Compiled, Failed, Timed

SUFFIX = ".search.jsonl"
Row = dict[str, Any]


@dataclass
class Search:
    """A search that a journal tells of.

    Args:
        head: its first line.
        rows: its measurements.
        end: its last line; None of one that was not ended.
    """

    head: Row
    rows: list[Row] = field(default_factory=list)
    end: Row | None = None

    @property
    def timed(self) -> list[Row]:
        """The measurements that are times, the fastest first."""
        return sorted((row for row in self.rows if "ms" in row and "part" not in row), key=lambda row: float(row["ms"]))

    @property
    def best(self) -> Row | None:
        """What was chosen, or the fastest so far, with its time."""
        if self.end is not None and self.end.get("best"):
            return {"config": self.end["best"], "ms": self.end.get("ms")}
        return next(iter(self.timed), None)

    @property
    def goes_on(self) -> bool:
        """Whether a later start takes it up where it was left."""
        return self.end is None or self.end.get("end") == "interrupted"

    def lines(self) -> list[Row]:
        """All lines, for another file."""
        return [self.head, *self.rows, *([self.end] if self.end is not None else [])]


def read(path: Path) -> list[Search]:
    """The searches in a file; none if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(searches(_rows(text.splitlines())))


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def searches(rows: Iterable[Row]) -> Iterator[Search]:
    """Lines put together to searches; an ended one may have been taken up again."""
    found: dict[str, Search] = {}
    current: Search | None = None
    for row in rows:
        if "search" in row:
            current = found.setdefault(str(row["search"]), Search(row))
            current.end = None
        elif current is not None and "end" in row:
            current.end = row
        elif current is not None and isinstance(row.get("config"), dict) and ("ms" in row or "failed" in row):
            current.rows.append(row)
    yield from found.values()


def everything(folder: Path) -> list[tuple[Path, Search]]:
    """The searches of all files in a folder, the last one first."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    found = [(path, search) for path in files for search in reversed(read(path))]
    return sorted(found, key=lambda pair: str(pair[1].head.get("when", "")), reverse=True)


class Journal:
    """Writes what a search measures.

    Args:
        path: the file; None keeps nothing.
        head: what the search is about.
        anew: begin a new search even if the last one can be taken up.

    Attributes:
        id: of the search.
        known: what an earlier start of this search measured, by configuration.
        spent: seconds that it took.
    """

    def __init__(self, path: Path | None, head: Mapping[str, Any], anew: bool = False) -> None:
        self.path = path
        self.known: dict[Config, Row] = {}
        self.spent = 0.0
        last = next(reversed(read(path)), None) if path is not None and not anew else None
        if last is not None and last.goes_on and all(last.head.get(key) == head[key] for key in head):
            self.known = {Config(**row["config"]): row for row in last.rows if "part" not in row}
            self.spent = max((float(row.get("at", 0)) for row in last.rows), default=0.0)
            self.id = str(last.head["search"])
            self._write(last.head)
        else:
            self.id = uuid.uuid4().hex[:12]
            when = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
            self._write({"search": self.id, **head, "when": when})

    def timed(self, config: Config, ms: float, outcome: Timed, compiled: Compiled | None, **more: Any) -> None:
        """Write a time: `ms` relates it to the reference's; quantiles and rounds are as they were measured."""
        low, high = outcome.spread()
        facts = {"low": _short(low), "high": _short(high), "rounds": len(outcome.rounds)}
        if compiled is not None:
            facts |= {"compile": round(compiled.seconds, 4)}
            facts |= {"registers": compiled.registers, "spills": compiled.spills} if compiled.registers else {}
        self._write({"config": config.config, "ms": _short(ms), **facts, **more})

    def failed(self, config: Config, outcome: Failed, **more: Any) -> None:
        """Write why a configuration is out."""
        self._write({"config": config.config, "failed": outcome.kind, "why": outcome.why, **more})

    def ended(self, how: str, best: Config | None, **more: Any) -> None:
        """Write that the search is over.

        Args:
            how: "complete", "deadline" or "interrupted".
            best: what was chosen.
            more: what else is said.
        """
        self._write({"end": how, "best": None if best is None else best.config, **more})

    def _write(self, row: Mapping[str, Any]) -> None:
        if self.path is not None and not append(self.path, [row]):
            self.path = None


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Add lines to a file; that it cannot be written costs a warning."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    except OSError as error:
        warnings.warn(f"what was measured could not be kept in {path}: {error}", stacklevel=2)
        return False
    return True


def _short(ms: float) -> float:
    return float(f"{ms:.6g}")
