"""Rounds that are under way, and what may be known while they are.

Where compiling and measuring do not disturb each other, as for a GPU, a round compiles while the one before is timed:

    strategy      0, 1          2: of 0        3: of 0, 1
    compilers        | round 0 | round 1 | round 2 | round 3 | ...
    the GPU                  | round 0 | round 1 | round 2 | ...
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from tilewright.hl.config import Config

_TOGETHER = 2  # rounds at once, where compiling and measuring do not disturb each other


class UnderWay:
    """The rounds of a search.

    Args:
        together: compiling and measuring do not disturb each other.
    """

    def __init__(self, together: bool) -> None:
        self.depth = _TOGETHER if together else 1
        self._rounds: list[tuple[Sequence[Config], set[Config]]] = []  # what was asked for, and has no outcome yet

    def add(self, wanted: Sequence[Config], fresh: Sequence[Config]) -> None:
        """A round begins.

        Args:
            wanted: what was asked for.
            fresh: what of it has no outcome.
        """
        self._rounds.append((wanted, set(fresh)))

    def last(self) -> Sequence[Config]:
        """What was asked for last."""
        return self._rounds[-1][0]

    def has_room(self) -> bool:
        """Whether another round may begin."""
        return len(self._open()) < self.depth

    def left(self) -> set[Config]:
        """What has no outcome yet."""
        return set[Config]().union(*self._open())

    def settle(self, config: Config) -> None:
        """Something has an outcome."""
        for left in self._open():
            left.discard(config)

    def give_up(self) -> None:
        """Nothing comes any more: time is up."""
        for left in self._open():
            left.clear()

    def known(self, times: Mapping[Config, float]) -> dict[Config, float]:
        """Milliseconds of what was tried, and the median of these for what is under way: a strategy neither proposes it
        again nor learns anything of it. What that is does not depend on who was done first, so that the same times
        have the same proposals.

        Args:
            times: of what was tried, infinity for what does not work.
        """
        seen = len(self._rounds) - self.depth + 1
        found = {config: times[config] for wanted, _ in self._rounds[:seen] for config in wanted if config in times}
        usual = statistics.median([ms for ms in found.values() if math.isfinite(ms)] or [math.inf])
        return {config: usual for wanted, _ in self._rounds[seen:] for config in wanted} | found

    def _open(self) -> list[set[Config]]:
        """From the first round that has not ended."""
        everything = [left for _, left in self._rounds]
        return everything[next((at for at, left in enumerate(everything) if left), len(everything)) :]
