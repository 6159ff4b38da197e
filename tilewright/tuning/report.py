"""What an autotuner leaves behind: the timings of a search on disk, and a line about its choice.

A record holds one list of three times per candidate, in the order of the candidates; its key covers the kernel,
the candidates, the arguments that matter, the machine and the version, so a record never needs to be checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.base.disk_cache import DiskCache

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class TuningRecord:
    """Timings of one search in the disk cache.

    Args:
        cache: where.
        key: name of the entry.
    """

    cache: DiskCache
    key: str

    def load(self, candidates: Sequence[C]) -> dict[C, list[float]] | None:
        """The timings kept for these candidates, or None."""
        payload = self.cache.get_bytes(self.key)
        if payload is None:
            return None
        return dict(zip(candidates, json.loads(payload), strict=True))

    def store(self, candidates: Sequence[C], timings: Mapping[C, list[float]]) -> None:
        """Keep the timings."""
        self.cache.put_bytes(self.key, json.dumps([timings[candidate] for candidate in candidates]).encode())


def describe_choice(
    name: str, key: Any, config: C, timings: Mapping[C, list[float]], seconds: float, from_disk: bool
) -> str:
    """One line for the user: what was chosen, for which key, among how many, and how long that took."""
    how = "read from the cache" if from_disk else f"timed in {seconds:.2f} s"
    best = timings[config][0]
    return f"autotuning {name} for {key}: {config} ({best:.4g} ms, best of {len(timings)}; {how})"
