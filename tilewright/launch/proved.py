"""Launches that need no checks: what holds for all contents of memory, with the numbers of the launch.

kernel.prove(x, y, n, BLOCK=64, grid=(16,))   ->   Proof: every access, and why there is none where there is none
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.analysis.homes import homes_of
from tilewright.analysis.launch_proofs import Access, Extents, LaunchProofs
from tilewright.analysis.launch_space import Numbers
from tilewright.analysis.waiting import waiting_looks
from tilewright.base.checks import BOUNDS, DEADLOCKS, HINTS, ORDERS, OVERFLOW, PORTABLE, RACES, Checks
from tilewright.base.errors import ArgumentError
from tilewright.compile.function import KernelFunction
from tilewright.compile.request import make_request
from tilewright.compile.sources import FunctionSource
from tilewright.compile.specialize import Specialization, is_ranged
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.ranges import element_bytes
from tilewright.ir.decisions import Decisions
from tilewright.ir.effect_traits import is_plain_read, mask_of
from tilewright.ir.op import location_of
from tilewright.ir.walk import walk
from tilewright.ops.function import FuncOp
from tilewright.passes.carried_offsets import make_offsets_scalar
from tilewright.passes.check_overflow import arithmetic_below, bounds_of_loops
from tilewright.passes.check_promises import promises_of
from tilewright.passes.checks import access_kind, accesses_of, atomics_that_decide, waits_for_programs

if TYPE_CHECKING:
    from xdsl.ir import Operation

Grid = tuple[int, int, int]
_PROVABLE = frozenset({BOUNDS, RACES, OVERFLOW})
_MOST_PROOFS = 64
_MOST_OPERATIONS = 400


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of an access, of arithmetic, or of the kernel as a whole.

    Args:
        check: "bounds", "races" or "overflow".
        what: "load", "store", "atomic", the name of an operation, or "programs".
        line: of the kernel; 0 for the kernel as a whole.
        why: there is no proof; "" if there is one.
    """

    check: str
    what: str
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What holds for every launch with these sizes, strides and grid.

    Args:
        kernel: its name.
        assumed: numbers that the proof goes by, or what they may be, by parameter.
        grid: programs along x, y and z.
        answers: about each access, each sum on the way to an address, and the programs.
        idle: checks that find nothing to look at in the kernel.
    """

    kernel: str
    assumed: Mapping[str, int | range]
    grid: Grid
    answers: tuple[Answer, ...]
    idle: frozenset[str] = frozenset()

    def holds(self, wanted: Checks = (BOUNDS, RACES, OVERFLOW)) -> bool:
        """Whether there is a proof for all checks of these names."""
        asked = set(wanted) - self.idle
        return asked <= _PROVABLE and all(not answer.why for answer in self.answers if answer.check in asked)

    def __str__(self) -> str:
        numbers = ", ".join(
            f"{name} = {value}" if isinstance(value, int) else f"{name} <= {value.stop - 1}"
            for name, value in self.assumed.items()
        )
        given = f"with {numbers + ', ' if numbers else ''}grid {self.grid}"
        said = {
            BOUNDS: "cannot leave its arguments, whatever they hold",
            RACES: "has no two programs that touch one element which one of them writes",
            OVERFLOW: "computes no index that wraps",
        }
        lines = [f"{self.kernel} {text}, {given}" for check, text in said.items() if self.holds((check,))]
        for answer in self.answers:
            if answer.why:
                where = f" in line {answer.line}" if answer.line else ""
                lines.append(f"no proof of {answer.check}: {answer.what}{where}: {answer.why}")
        return "\n".join(lines)


class Provable:
    """A kernel, compiled as far as proofs look at it, and what was proved of its launches.

    Args:
        fn: the kernel.
        specialization: of its arguments.
        options: compile options by name.
    """

    def __init__(self, fn: KernelFunction, specialization: Specialization, options: Mapping[str, Any]) -> None:
        source = FunctionSource(fn)
        source.keeps_promises = True
        request = make_request(source, specialization, options, target_at(HOST))
        module = request.source.stages(request, {})["ttir"].run(request.source, {"name": request.name})
        self.name, self.names = request.name, [row[0] for row in specialization.leaves() if row[2] != "constexpr"]
        self.kernel = FuncOp.kernel_of(module)
        make_offsets_scalar(self.kernel, Decisions())
        self.accesses = [Access(op, mask_of(op)) for op in accesses_of(self.kernel)]
        ends = [value for each in self.accesses for value in (each.op.operands[0], each.mask) if value is not None]
        self.arithmetic = arithmetic_below([*ends, *bounds_of_loops(walk(self.kernel))])
        self.waits = waits_for_programs(self.kernel)
        self.idle = self._idle()
        self._proofs: dict[Any, Proof] = {}

    def _idle(self) -> frozenset[str]:
        """The checks for which the kernel has nothing to look at."""
        stored = {
            home for each in self.accesses if not is_plain_read(each.op) for home in homes_of(each.op.operands[0])
        }
        loaded = {home for each in self.accesses if is_plain_read(each.op) for home in homes_of(each.op.operands[0])}
        found = {
            HINTS: promises_of(self.kernel),
            DEADLOCKS: waiting_looks(self.kernel),
            PORTABLE: stored & loaded,
            ORDERS: atomics_that_decide(self.kernel),
        }
        return frozenset(check for check, things in found.items() if not things)

    def prove(self, numbers: Numbers, extents: Extents, storages: Mapping[int, int], grid: Grid) -> Proof:
        """What holds for launches with these numbers.

        Args:
            numbers: value of each run-time parameter that is an integer, or what it may be; None for others.
            extents: bytes from each array to the start and the end of its memory, by number of the parameter.
            storages: number of the storage of each array, by number of the parameter.
            grid: programs along x, y and z.
        """
        key = (tuple(numbers), tuple(extents.items()), tuple(storages.items()), grid)
        if key not in self._proofs:
            if len(self._proofs) >= _MOST_PROOFS:
                self._proofs.clear()
            self._proofs[key] = self._proved(numbers, extents, storages, grid)
        return self._proofs[key]

    def _proved(self, numbers: Numbers, extents: Extents, storages: Mapping[int, int], grid: Grid) -> Proof:
        proofs = LaunchProofs(self.kernel, numbers, extents, grid)
        if len(self.arithmetic) + len(self.accesses) > _MOST_OPERATIONS:
            answers = [Answer(check, "kernel", 0, "it is too large") for check in (BOUNDS, RACES, OVERFLOW)]
            return Proof(self.name, {}, grid, tuple(answers), self.idle)
        answers = [Answer(OVERFLOW, op.name, _line(op), proofs.fits(op)) for op in self.arithmetic]
        exact = not any(answer.why for answer in answers)  # proofs of addresses take it that no index wraps
        for access in self.accesses:
            why = proofs.stays_inside(access) if exact else "an index may wrap"
            answers.append(Answer(BOUNDS, access_kind(access.op), _line(access.op), why))
        why = "programs wait for each other" if self.waits else "an index may wrap"
        if exact and not self.waits:
            why = proofs.never_meet(self.accesses, storages)
        answers.append(Answer(RACES, "programs", 0, why))
        assumed = {name: n for name, n in zip(self.names, numbers, strict=True) if n is not None}
        return Proof(self.name, assumed, grid, tuple(answers), self.idle)


_known: weakref.WeakKeyDictionary[KernelFunction, dict[Any, Provable]] = weakref.WeakKeyDictionary()


def provable(fn: KernelFunction, specialization: Specialization, options: Mapping[str, Any]) -> Provable:
    """The kernel for these arguments, as proofs see it; made once."""
    rows = _known.setdefault(fn, {})
    key = (specialization, tuple(sorted((name, repr(value)) for name, value in options.items())))
    if key not in rows:
        rows[key] = Provable(fn, specialization, options)
    return rows[key]


def prove_for(fn: KernelFunction, specialization: Specialization, given: Mapping[str, int], grid: Grid) -> Proof:
    """What holds for all launches of a variant with arguments up to a size.

    Args:
        fn: the kernel.
        specialization: what it is compiled for.
        given: by parameter, how many elements an array has, and the largest value of an integer that is not negative.
        grid: programs along x, y and z.

    Raises:
        ArgumentError: a size is missing, or belongs to no parameter.
    """
    names = [specialization.names[path[0]] for path in specialization.runtime_paths]
    kinds = specialization.runtime_types
    asked = {name for name, kind in zip(names, kinds, strict=True) if kind.startswith("*") or is_ranged(kind)}
    wrong = sorted(asked ^ given.keys())
    if wrong:
        raise ArgumentError(
            f"a proof needs a size for {', '.join(sorted(asked))}: {', '.join(wrong)} is missing or no such parameter",
            hint="elements of each array, and the largest value of each integer: x=1000, n=1000",
        )
    rows = list(enumerate(zip(names, kinds, strict=True)))
    numbers = [range(given[name] + 1) if is_ranged(kind) else None for _, (name, kind) in rows]
    extents = {n: (0, given[name] * element_bytes(kind)) for n, (name, kind) in rows if kind.startswith("*")}
    return provable(fn, specialization, {}).prove(numbers, extents, {n: n for n in extents}, grid)


def _line(op: Operation) -> int:
    place = location_of(op)
    while place is not None and place.caller is not None:
        place = place.caller
    return 0 if place is None else place.line
