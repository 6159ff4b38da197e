"""Runs of host code whose loops are not what they are in a call: not launched, or with results that are given."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Place = tuple[int, str]
"""Number of a top-level loop, and the name of a tensor that it reads or writes."""


@dataclass
class Run:
    """What loops do in a run.

    Args:
        launching: whether they are launched.
        given: tensors that are saved in the place of those that the run has.

    Attributes:
        loops: how many have been passed.
        is_step: whether a loop is under way: what PyTorch saves then is the loop's.
        saved: tensors that loops save and that no argument's value is known to be in, and their versions.
    """

    launching: bool = True
    given: Mapping[Place, Any] = field(default_factory=dict)
    loops: int = 0
    is_step: bool = False
    saved: dict[Place, tuple[Any, int]] = field(default_factory=dict)

    def step(self, at: int, launch: Callable[[], None], names: list[str]) -> tuple[Callable[[], None], dict[str, Any]]:
        """Called before a loop: how it is launched, and what it saves in the place of its own tensors."""
        self.is_step = True
        found = {name: self.given[at, name] for name in names if (at, name) in self.given}
        return launch if self.launching else _nothing, found

    def passed(self, at: int, named: Mapping[str, Any], saved: list[str], written: Container[str]) -> None:
        """Called after a loop, with its tensors, and the names of those that it saves and of those that it writes."""
        for name in saved:
            if name in named and (self.loops or name in written):
                self.saved[at, name] = named[name], named[name]._version
        self.loops, self.is_step = self.loops + 1, False


class _State(threading.local):
    run: Run | None = None
    args: tuple[Any, ...] = ()


_state = _State()


def current() -> Run | None:
    """The run of this thread; None where calls are plain calls."""
    return _state.run


@contextlib.contextmanager
def running(run: Run) -> Iterator[Run]:
    """Inside, host code of this thread runs so."""
    before, _state.run = _state.run, run
    try:
        yield run
    finally:
        _state.run = before


@contextlib.contextmanager
def called_with(args: tuple[Any, ...]) -> Iterator[None]:
    """Inside, a kernel runs with these arguments in this thread."""
    before, _state.args = _state.args, args
    try:
        yield
    finally:
        _state.args = before


def arguments() -> tuple[Any, ...]:
    """The arguments of the kernel that runs in this thread."""
    return _state.args


def _nothing() -> None:
    """The launch of a loop that is not launched."""
