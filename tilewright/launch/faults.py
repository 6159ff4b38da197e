"""Faults that checks have found, as people and machines read them; who hears of them.

    out of bounds: program (3, 0, 0) loads x[1024] at add.py:12, but x has 1000 elements
      tile [24] of 128 · 24 elements, 1 program
     12 |     a = tl.load(x + at)
        |         ^

A fault is told once for a kernel, a line, a kind and an argument. Whoever collects faults hears of them; else a launch
that asked for checks raises, and the knob `sanitize` has them printed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilewright.base.errors import SanitizerError
from tilewright.base.location import Location

Key = tuple[str, str, int, str, str, str]


@dataclass(frozen=True, slots=True)
class Party:
    """The other program of a race.

    Args:
        program: its place in the grid; None if there are several.
        access: "load" or "store" (by an atomic too).
        lines: of the kernel, from which that may have come.
    """

    program: tuple[int, int, int] | None
    access: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """What a check found at a line of a kernel.

    Args:
        kind: "bounds", "race", "lanes" (elements of one tile stored different values to one place), "uninitialised",
            "never written", "overflow", "promise" (a hint that the data break), "deadlock", "view", "barrier" or "nan".
        kernel: its name.
        place: in the source, with the calls that led there; None for what is found outside of kernels.
        access: "load", "store", "atomic", the operation that wrapped or made no number, or what was promised.
        argument: name of the parameter that the address comes from, or "".
        program: place in the grid of the first program at fault.
        tile: shape of the access.
        element: coordinates in the tile of the first element at fault.
        index: of that element in the argument, counted in elements; of an overflow the exact number.
        extent: indices of the first element that the argument has, and of the one behind the last.
        times: elements at fault.
        programs: in how many programs, as they follow one another.
        other: of a race; of a barrier that is missing, the store.
        values: what was found: of a promise the value, then what it should have been, or the two sides of a comparison;
            of an operation the operands.
    """

    kind: str
    kernel: str
    place: Location | None
    access: str
    argument: str
    program: tuple[int, int, int]
    tile: tuple[int, ...] = ()
    element: tuple[int, ...] = ()
    index: int = 0
    extent: tuple[int, int] = (0, 0)
    times: int = 1
    programs: int = 1
    other: Party | None = None
    values: tuple[int | float, ...] = ()

    @property
    def key(self) -> Key:
        """What is told once."""
        place = self.place
        return (self.kind, "" if place is None else place.file, 0 if place is None else place.line, self.kernel,
                self.argument, self.access)  # fmt: skip

    def title(self) -> str:
        """One line."""
        where = "" if self.place is None else f" at {self.place.file}:{self.place.line}"
        who = f"program {self.program} of {self.kernel}"
        what = _VERBS.get(self.access, self.access)
        if self.kind == "bounds":
            return f"out of bounds: {who} {what} {self.argument}[{self.index}]{where}, but {self._extent()}"
        if self.kind == "race":
            return (
                f"race: {who} {what} an element of {self.argument}{where} that {self._other()}, and nothing orders them"
            )
        if self.kind == "lanes":
            return f"lanes: {who} stores different values to one element of {self.argument}{where}"
        if self.kind == "uninitialised":
            return f"uninitialised: {who} {what} an element of {self.argument}{where} that nobody has written"
        if self.kind == "overflow":
            return (
                f"overflow: {who} computes {self.index} in 32 bits by `{self.access}`{where}, for an address or a bound"
            )
        if self.kind in _FURTHER:
            return f"{self.kind}: {_FURTHER[self.kind](self, who, where)}"
        return f"{self.kind}: {self.times} elements of {self.argument}, which {self.kernel} was to write"

    def _extent(self) -> str:
        low, high = self.extent
        size = f"{self.argument} has {high} element{'s' * (high != 1)}"
        return f"{size} from there on, and {-low} before" if low else size

    def _other(self) -> str:
        other = self.other
        if other is None:
            return "another program accesses"
        who = "several other programs have" if other.program is None else f"program {other.program} has"
        lines = f" (line {', '.join(map(str, other.lines))})" if other.lines else ""
        return f"{who} {'loaded' if other.access == 'load' else 'stored'}{lines}"

    def render(self) -> str:
        """The title, where in the tile and how often, and the line of the kernel."""
        many = f"{self.times} element{'s' * (self.times != 1)}, {self.programs} program{'s' * (self.programs != 1)}"
        tile = f"tile {list(self.element)} of {' x '.join(map(str, self.tile))} · " if self.tile else ""
        source = "" if self.place is None else "\n" + self.place.render(context=0)
        return f"{self.title()}\n  {tile}{many}{source}"

    def record(self) -> dict[str, Any]:
        """As what JSON has."""
        found = {name: value for name, value in asdict(self).items() if name != "place"}
        place = self.place
        if place is not None:
            found.update(file=place.file, line=place.line, column=place.col + 1, source=place.source_line())
        return {**found, "message": self.title()}


def _promise(fault: Fault, who: str, where: str) -> str:
    values = ", ".join(map(str, fault.values[:1]))
    if fault.access.startswith("assume"):
        found = f": it compares {fault.values[0]} with {fault.values[1]}" if len(fault.values) == 2 else ""
        return f"what {who} assumes{where} does not hold{found}"
    rest = f", where {fault.values[1]} was to be" if len(fault.values) == 2 else ""
    return f"{who} breaks {fault.access}{where}: a value is {values}{rest}"


def _deadlock(fault: Fault, who: str, where: str) -> str:
    seen = f"sees {fault.values[0]} again and again" if fault.values else "sees one value again and again"
    about = f" in {fault.argument}" if fault.argument else ""
    return (
        f"{who} waits{where} and {seen}{about}: no program before it changes that, and later ones may not have started"
    )


def _view(fault: Fault, who: str, where: str) -> str:
    what = f"{_VERBS.get(fault.access, fault.access)} {fault.argument}[{fault.index}]"
    return f"{who} {what}{where}, which lies in the storage of {fault.argument} but not in the view"


def _barrier(fault: Fault, who: str, where: str) -> str:
    lines = fault.other.lines if fault.other is not None else ()
    stored = f" (line {', '.join(map(str, lines))})" if lines else ""
    return (
        f"{who} loads an element of {fault.argument}{where} that another thread of it may have stored{stored}: "
        f"Triton needs tl.debug_barrier() between them"
    )


def _nan(fault: Fault, who: str, where: str) -> str:
    operands = f" of {' and '.join(f'{value:g}' for value in fault.values)}" if fault.values else ""
    return f"{who} makes a NaN or an infinity by `{fault.access}`{operands}{where}"


_FURTHER: dict[str, Callable[[Fault, str, str], str]] = {
    "promise": _promise, "deadlock": _deadlock, "view": _view, "barrier": _barrier, "nan": _nan,
}  # fmt: skip
_VERBS = {"load": "loads", "store": "stores", "atomic": "changes"}


class Collected:
    """Faults in the order in which they were found, each once."""

    def __init__(self) -> None:
        self._found: dict[Key, Fault] = {}

    @property
    def faults(self) -> list[Fault]:
        return list(self._found.values())

    def add(self, fault: Fault) -> bool:
        """Keep a fault, or count it where it is known; says whether it is new."""
        known = self._found.get(fault.key)
        if known is None:
            self._found[fault.key] = fault
            return True
        programs = max(known.programs, fault.programs)
        self._found[fault.key] = replace(known, times=known.times + fault.times, programs=programs)
        return False


_collecting: list[Collected] = []
_printed = Collected()


@contextlib.contextmanager
def collect_faults() -> Iterator[Collected]:
    """A block in which faults are collected; nothing is raised or printed for them."""
    collected = Collected()
    _collecting.append(collected)
    try:
        yield collected
    finally:
        _collecting.remove(collected)


def tell_faults(faults: Sequence[Fault], *, asked: bool) -> None:
    """Tell of the faults of a launch.

    Args:
        faults: what was found.
        asked: the launch itself asked for checks.

    Raises:
        SanitizerError: it did, and nobody collects.
    """
    if _collecting:
        for fault in faults:
            _collecting[-1].add(fault)
    elif asked and faults:
        raise SanitizerError("\n".join(fault.render() for fault in faults), faults)
    else:
        for fault in faults:
            if _printed.add(fault):
                print(fault.render(), file=sys.stderr)
