"""Warps of a simulated block that go their own ways: who runs next, and what each of them knows of the others.

A block has agents, each some warps in lockstep. They run together until all of an agent are at one place and the agents
are at different ones; from there on the order of a test decides, and an agent runs until it waits for a phase that
has not ended. When all of them wait, nobody can go on: a deadlock.

What is ordered in shared memory is told by vector clocks: `known[w, v]` is the time of warp v up to which warp w knows
what v did. Barriers of the hardware join clocks; arriving at an mbarrier leaves a warp's there, and whoever sees the
phase end takes them along.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.backends.nvidia.simt_memory import SimtError

Array = np.ndarray
FIRST, LAST, RANDOM = "first", "last", "random"  # which agent goes on, of those that can


class Agents:
    """Who of a block runs next.

    Args:
        warps: of each agent, in order.
        order: FIRST, LAST or RANDOM.
        early: copies arrive as soon as they are started, instead of when somebody waits for them.
    """

    def __init__(self, warps: Sequence[int], order: str = FIRST, *, early: bool = False) -> None:
        self.count, self.order, self.early = len(warps), order, early
        self.agent = np.repeat(np.arange(len(warps)), [32 * n for n in warps])
        self.waits_for = np.full(self.agent.size, -1)  # of a thread that waits: byte of the barrier
        self.apart = False
        self._random = np.random.default_rng(7)

    def next(self, at: Array) -> Array:
        """The threads that run next, all at one block of code.

        Args:
            at: number of the block of code of each thread; -1 for those that have ended.
        """
        ready = (at >= 0) & (self.waits_for < 0)
        if not ready.any():
            places = sorted({int(place) for place in self.waits_for[at >= 0]})
            raise SimtError(f"a thread waits for a phase that does not end: deadlock at the barriers {places}")
        if self.count > 1:
            self.apart = self.apart or self._separated(at)
            if self.apart:
                ready &= self.agent == self._chosen(np.unique(self.agent[ready]))
        return ready & (at == at[ready].min())

    def _separated(self, at: Array) -> bool:
        places = [np.unique(at[self.agent == number]) for number in range(self.count)]
        return all(len(p) == 1 for p in places) and len({int(p[0]) for p in places}) == self.count

    def _chosen(self, able: Array) -> int:
        if self.order == RANDOM:
            return int(self._random.choice(able))
        return int(able[0] if self.order == FIRST else able[-1])

    def wake(self) -> None:
        """Something happened at a barrier: everybody looks again."""
        self.waits_for[:] = -1


class Clocks:
    """What the warps of a block know of each other.

    Args:
        warps: of the block.
        size: bytes of shared memory.
    """

    def __init__(self, warps: int, size: int) -> None:
        self.now = np.ones(warps, np.int32)
        self.known = np.zeros((warps, warps), np.int32)
        self._wrote = np.zeros(size, np.int32)
        self._read = np.zeros((warps, size), np.int32)

    def join(self, warps: Array) -> None:
        """These warps have waited for each other."""
        latest = self.known[warps].max(axis=0)
        latest[warps] = self.now[warps]
        self.known[warps] = latest
        self.now[warps] += 1

    def leave(self, warp: int) -> Array:
        """What a warp knows, left at a barrier."""
        left = self.known[warp].copy()
        left[warp] = self.now[warp]
        self.now[warp] += 1
        return left

    def take(self, warps: Array, left: Array) -> None:
        """These warps have seen a phase end at which that was left."""
        self.known[warps] = np.maximum(self.known[warps], left)

    def note_write(self, warps: Array, places: Array) -> None:
        """These warps write these places, rows of bytes."""
        self._wrote[places] = self.now[warps][:, None]

    def note_read(self, warps: Array, places: Array) -> None:
        """These warps read these places."""
        self._read[warps[:, None], places] = self.now[warps][:, None]

    def unordered_writes(self, warps: Array, writers: Array, places: Array) -> Array:
        """Where a warp does not know of the last write, by warp `writers` (negative: by nobody)."""
        unknown = self._wrote[places] > self.known[warps[:, None], writers]
        return unknown & (writers >= 0) & (writers != warps[:, None])

    def unordered_reads(self, warps: Array, places: Array) -> Array:
        """Where a warp does not know of a read by another one."""
        found = np.zeros(places.shape, bool)
        for other in range(len(self.now)):
            unknown = self._read[other, places] > self.known[warps, other][:, None]
            found |= unknown & (warps != other)[:, None]
        return found
