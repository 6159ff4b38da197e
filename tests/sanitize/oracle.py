"""What is wrong with a program, by an oracle that knows nothing of the checks: the interpreter holds every access
against the allocations of the arguments, and the sets of elements that its programs have read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewright
from tilewright.backends.reference.evaluate import Program
from tilewright.launch import interpret
from tilewright.ops import atomic

Array = np.ndarray[Any, Any]
READ, WRITTEN, CHANGED = 0, 1, 2  # the last one by atomics


@dataclass
class Verdict:
    """What is wrong.

    Args:
        bounds: the message of the first access out of bounds, or "".
        races: names of kernels of which programs meet.
        error: any other exception, or "".
    """

    bounds: str = ""
    races: list[str] = field(default_factory=list)
    error: str = ""


class _Accesses:
    """The elements that the programs of a launch have touched."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[int, Array]]] = {READ: [], WRITTEN: [], CHANGED: []}
        self.by_atomic = 0

    def note(self, program: tuple[int, int, int], addresses: Array, mask: Array | None, *, written: bool) -> None:
        flat = np.asarray(addresses).reshape(-1)
        if mask is not None:
            flat = flat[np.broadcast_to(mask, np.shape(addresses)).reshape(-1)]
        if self.by_atomic and not written:
            return
        number = program[0] + (program[1] << 20) + (program[2] << 40)
        self.rows[CHANGED if self.by_atomic else WRITTEN if written else READ].append((number, np.unique(flat)))

    def race(self) -> bool:
        """Whether two programs meet at an element that one of them writes, but for two atomics."""
        sides = {kind: self._programs(kind) for kind in self.rows}
        plain, read, changed = sides[WRITTEN], sides[READ], sides[CHANGED]
        if any(first != last for first, last in plain.values()):
            return True
        others = [(plain, read), (plain, changed), (changed, read)]
        return any(
            (*one[at], *other[at]) != (one[at][0],) * 4 for one, other in others for at in one.keys() & other.keys()
        )

    def _programs(self, kind: int) -> dict[int, tuple[int, int]]:
        """The least and the greatest program that touched each element."""
        found: dict[int, tuple[int, int]] = {}
        for number, addresses in self.rows[kind]:
            for at in addresses.tolist():
                low, high = found.get(at, (number, number))
                found[at] = min(low, number), max(high, number)
        return found


@contextmanager
def _traced(verdict: Verdict) -> Iterator[None]:
    """Have the interpreter note accesses, launch by launch."""
    accesses = _Accesses()

    class Traced(Program):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            load, store = self.load, self.store

            def noted_load(addresses: Array, dtype: Any, mask: Array | None) -> Array:
                result = load(addresses, dtype, mask)
                accesses.note(self._index, addresses, mask, written=False)
                return result

            def noted_store(addresses: Array, values: Array, mask: Array | None) -> None:
                store(addresses, values, mask)
                accesses.note(self._index, addresses, mask, written=True)

            self.load, self.store = noted_load, noted_store

    def as_atomic(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            accesses.by_atomic += 1
            try:
                return function(*arguments)
            finally:
                accesses.by_atomic -= 1

        return run

    launch = interpret.launch

    def noted_launch(fn: Any, *arguments: Any) -> None:
        accesses.__init__()  # type: ignore[misc]
        launch(fn, *arguments)
        if accesses.race():
            verdict.races.append(fn.fn.__name__)

    before = interpret.Program, atomic.load_elements, atomic.store_elements
    interpret.Program, interpret.launch = Traced, noted_launch  # type: ignore[misc]
    atomic.load_elements, atomic.store_elements = as_atomic(before[1]), as_atomic(before[2])
    try:
        yield
    finally:
        interpret.Program, atomic.load_elements, atomic.store_elements = before  # type: ignore[misc]
        interpret.launch = launch


def judge(run: Callable[[], Any]) -> Verdict:
    """Run a program as Python and say what is wrong with it."""
    verdict = Verdict()
    with tilewright.knobs.runtime.scope(), _traced(verdict):
        tilewright.knobs.runtime.interpret = True
        try:
            run()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            past = ("outside every argument", "past its", "before its first element")
            if any(words in text for words in past):
                verdict.bounds = text.splitlines()[0]
            else:
                verdict.error = text
    return verdict
