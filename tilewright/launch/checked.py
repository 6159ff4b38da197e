"""Launches with checks: the kernel is compiled with them for the CPU, and told what the launch knows of its arguments.

    extents of storages, shadow words  ->  kernel with checks, on the host  ->  records  ->  faults

Tensors on a GPU are copied to the host and back (`host_copies.py`). Races are looked for with one thread: the programs
run one after the other, and the shadow words say which of them meet.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.checks import BOUNDS, DEADLOCKS, EVERY, NAN, ORDERS, PORTABLE, RACES, UNINITIALISED, VIEWS, Checks
from tilewright.base.errors import ArgumentError
from tilewright.base.knobs import knobs
from tilewright.base.location import Location
from tilewright.base.target import Placement
from tilewright.compile.build import compile_request
from tilewright.compile.checked_source import CheckedSource
from tilewright.compile.function import KernelFunction
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.request import make_request
from tilewright.compile.slots import at_path
from tilewright.compile.specialize import Specialization, is_ranged
from tilewright.devices.arrays import HOST, Array
from tilewright.devices.drivers import target_at
from tilewright.devices.ranges import element_bytes
from tilewright.launch.bind import Call, Prepared
from tilewright.launch.extents import Extent, extent_of
from tilewright.launch.faults import Fault, Party, tell_faults
from tilewright.launch.finite import Before
from tilewright.launch.host_copies import on_host
from tilewright.launch.meeting import pairs_that_count, shared_memory
from tilewright.launch.proved import Proof, provable
from tilewright.launch.shadow import shadow
from tilewright.launch.views import Map, view_map
from tilewright.ops.check import COUNT, PLACE, PROGRAM, PROGRAMS, ROW, SHOWN
from tilewright.passes.check_order import PLACES, UNIT, width_for

Grid = tuple[int, int, int]
_ANYWHERE = 1 << 62
_BESIDE = frozenset({RACES, UNINITIALISED, VIEWS, PORTABLE})
"""Checks that keep words beside the elements of arguments."""
_kernels: weakref.WeakKeyDictionary[KernelFunction, dict[Any, CompiledKernel]] = weakref.WeakKeyDictionary()


def prepare(
    fn: KernelFunction, call: Call, options: Mapping[str, Any], resolve: Callable[[Call], Prepared]
) -> Prepared:
    """What launches a call with checks. It serves this call alone, so nothing of it is remembered.

    Args:
        fn: the kernel.
        call: bound and specialised, with `checks`.
        options: compile options by name.
        resolve: compiles the kernel as it is, which runs where all that is asked for is proved.
    """
    plain = resolve(replace(call, checks=())) if call.place.device in (HOST, None) else None
    compiled = (
        compile_checked(fn, call.specialization, call.checks, options, shared=False) if plain is None else plain.kernel
    )

    def launch(gx: int, gy: int, gz: int, *values: Any) -> None:
        grid = (gx, gy, gz)
        with on_host(call) as staged, shadow.lock:
            checks = _Checks(fn, staged, grid, options, _stored(compiled))
            now = checks.wanted - {NAN, ORDERS}
            before = checks.memory() if {NAN, ORDERS} & checks.wanted else None
            if now or plain is None:
                faults = checks.run(now)
            else:
                faults = []
                plain.launch(gx, gy, gz, *values)
            if before is not None and NAN in checks.wanted and not before.leaves_numbers():
                before.restore()
                faults += checks.run({NAN})
            if before is not None and ORDERS in checks.wanted:
                after = checks.memory()
                before.restore()
                faults += checks.run({BOUNDS, RACES, ORDERS})
                after.restore()
        tell_faults(faults, asked=not knobs.runtime.sanitize)

    return Prepared(compiled, launch, frozenset(compiled.metadata["stored"]), lasting=False)


def _stored(kernel: CompiledKernel) -> frozenset[int] | None:
    """Slots that a kernel stores through; None for any."""
    return None if kernel.metadata["stores_anywhere"] else frozenset(kernel.metadata["stored"])


class _Checks:
    """The checks of one launch, but for what is proved.

    Args:
        fn: the kernel.
        call: with arrays in host memory.
        grid: programs along x, y and z.
        options: compile options by name.
        stored: slots that the kernel stores through; None for any.
    """

    def __init__(
        self, fn: KernelFunction, call: Call, grid: Grid, options: Mapping[str, Any], stored: frozenset[int] | None
    ) -> None:
        self.fn, self.call, self.grid, self.options, self.stored = fn, call, grid, options, stored
        self.slots = slots_of(call)
        proof = _proof(fn, call, self.slots, grid, options)
        self.wanted = {check for check in call.checks if not proof.holds((check,))}
        if VIEWS in self.wanted and not any(_map_of(slot) is not None for slot in self.slots):
            self.wanted.discard(VIEWS)
        if not any(slot.extent is not None and slot.extent[0] in shadow.watched for slot in self.slots):
            self.wanted.discard(UNINITIALISED)  # all of them are known to be written
        if stored is None:  # what is written by addresses of memory cannot be put back for a second launch
            self.wanted -= {NAN, ORDERS}
        if options.get("launch_cooperative_grid"):  # all programs run at once: each may wait for any other
            self.wanted.discard(DEADLOCKS)
            if provable(fn, call.specialization, options).waits:
                self.wanted.discard(RACES)

    def run(self, wanted: set[str]) -> list[Fault]:
        """Launch the kernel with these checks."""
        names = tuple(check for check in EVERY if check in wanted)
        kernel = _for_arguments(self.fn, self.call, self.slots, self.stored, names, self.options)
        return CheckedLaunch(kernel, self.call, self.slots, self.grid).run()

    def memory(self) -> Before:
        """What the kernel may write, as it is now."""
        kinds = self.call.specialization.runtime_types
        numbers = range(len(kinds)) if self.stored is None else sorted(self.stored)
        rows = [(kinds[number], self.slots[number]) for number in numbers]
        return Before([(kind, slot.value, slot.extent) for kind, slot in rows if slot.extent is not None])


def prove(
    fn: KernelFunction, call: Call, grid: Grid, options: Mapping[str, Any], up_to: frozenset[str] = frozenset()
) -> Proof:
    """What is known of a launch without making it; see `proved.py`.

    Args:
        fn: the kernel.
        call: bound and specialised.
        grid: programs along x, y and z.
        options: compile options by name.
        up_to: parameters that may be any number from 0 to what is passed.
    """
    with on_host(call) as staged:
        slots = slots_of(staged)
        missing = up_to - {slot.name for slot in slots if isinstance(slot.value, int) and slot.extent is None}
        if missing:
            raise ArgumentError(
                f"{', '.join(sorted(missing))}: no number of the launch is named so",
                hint="`up_to` names integer parameters that are no constants; 1 and what `tl.constexpr` takes are",
            )
        return _proof(fn, staged, slots, grid, options, up_to)


def _proof(
    fn: KernelFunction,
    call: Call,
    slots: Sequence[Slot],
    grid: Grid,
    options: Mapping[str, Any],
    up_to: frozenset[str] = frozenset(),
) -> Proof:
    extents = {
        number: (slot.extent[0] - slot.value, slot.extent[1] - slot.value)
        for number, slot in enumerate(slots)
        if slot.extent is not None
    }
    storages: dict[Extent, int] = {}
    where = {
        number: storages.setdefault(slot.extent, len(storages))
        for number, slot in enumerate(slots)
        if slot.extent is not None
    }
    kinds = call.specialization.runtime_types
    numbers: list[int | range | None] = []
    for slot, kind in zip(slots, kinds, strict=True):
        number = int(slot.value) if is_ranged(kind) or kind in ("u1", "i1") else None
        numbers.append(range(number + 1) if number is not None and slot.name in up_to else number)
    return provable(fn, call.specialization, options).prove(numbers, extents, where, grid)


@dataclass(frozen=True, slots=True)
class Slot:
    """A run-time parameter of a call.

    Args:
        name: of the argument that it is, or is a part of.
        value: address or number.
        extent: of the storage of an array; None where it is not known.
        granule: bytes of an element that the parameter points to.
        owner: the array.
    """

    name: str
    value: Any
    extent: Extent | None
    granule: int = 1
    owner: Any = None


def slots_of(call: Call) -> list[Slot]:
    """The run-time parameters of a call."""
    names, found = call.specialization.names, []
    kinds = call.specialization.runtime_types
    for path, kind in zip(call.specialization.runtime_paths, kinds, strict=True):
        argument = at_path(call.arguments, path)
        name = names[path[0]] + "".join(f"[{index}]" for index in path[1:])
        extent = extent_of(argument, name) if isinstance(argument, Array) else None
        if isinstance(argument, Array) and not argument.address:
            extent = (0, 0)
        if isinstance(argument, Array):
            found.append(Slot(name, argument.address, extent, element_bytes(kind), argument.owner))
        else:
            found.append(Slot(name, argument, extent))
    return found


def _map_of(slot: Slot) -> Map | None:
    """The elements that the view of an argument has, where those are not all of its storage."""
    if slot.extent is None or slot.extent == (0, 0):
        return None
    return view_map(slot.owner, slot.value, slot.extent, slot.granule)


def _for_arguments(
    fn: KernelFunction,
    call: Call,
    slots: Sequence[Slot],
    stored: frozenset[int] | None,
    wanted: Checks,
    options: Mapping[str, Any],
) -> CompiledKernel:
    """The kernel for what the arguments of a call are to each other."""
    specialization = call.specialization
    if any(
        slot.extent is None for slot, kind in zip(slots, specialization.runtime_types, strict=True) if kind[0] == "*"
    ):
        wanted = tuple(check for check in wanted if check not in _BESIDE)  # a bare address has no shadow
    same, meeting = shared_memory(pairs_that_count(specialization, call.arguments, stored))
    if same or meeting:
        specialization = replace(specialization, same=same, meeting=meeting)
    known = [slot.extent for slot in slots if slot.extent is not None and slot.extent != (0, 0)]
    shared = bool(same or meeting) or len(set(known)) < len(known)
    return compile_checked(fn, specialization, wanted, options, shared=shared)


def compile_checked(
    fn: KernelFunction, specialization: Specialization, wanted: Checks, options: Mapping[str, Any], *, shared: bool
) -> CompiledKernel:
    """The kernel with checks; compiled once.

    Args:
        fn: the kernel.
        specialization: of its arguments.
        wanted: names of checks.
        options: compile options by name.
        shared: arguments may share memory.
    """
    request = make_request(CheckedSource(fn, wanted, shared), specialization, options, target_at(HOST))
    key = (specialization, wanted, shared, request.options)
    request.check()
    known = _kernels.setdefault(fn, {})
    if key not in known:
        known[key] = compile_request(request)
    return known[key]


class CheckedLaunch:
    """One launch of a kernel with checks.

    Args:
        kernel: compiled with checks.
        call: with arrays in host memory.
        slots: its run-time parameters.
        grid: programs along x, y and z.
    """

    def __init__(self, kernel: CompiledKernel, call: Call, slots: Sequence[Slot], grid: Grid) -> None:
        self.kernel, self.call, self.slots, self.grid = kernel, call, slots, grid
        self.facts: Mapping[str, Any] = kernel.metadata["checked"]
        self.sites: Sequence[Mapping[str, Any]] = self.facts["sites"]
        self.records: NDArray[np.int64] = np.zeros((max(len(self.sites), 1), ROW), np.int64)

    def run(self) -> list[Fault]:
        """Launch, and give what was found."""
        self.programs = self.grid[0] * self.grid[1] * self.grid[2]
        self.unit = UNIT if self.facts["follows"] else 2
        self.base = shadow.begin(self.programs * self.unit // 2)
        ordered = self.facts["shadowed"] or self.facts["staged"] or self.facts["looks"]
        threads = 1 if ordered or any(site["kind"] == "nan" for site in self.sites) else self.call.num_threads
        launch = self.kernel.launcher(Placement(HOST, None, threads))
        launch(*self.grid, *[slot.value for slot in self.slots], *self._further())
        found = [self._fault(site, row) for site, row in zip(self.sites, self.records, strict=False) if row[COUNT]]
        return sorted(found, key=lambda fault: fault.program[::-1])  # of what follows from what, the first comes first

    def _further(self) -> list[int]:
        """What follows the arguments: see `passes/checks.py`."""
        values = [self.records.ctypes.data, self.base]
        for number in self.facts["tracked"]:
            slot = self.slots[number]
            low, high = slot.extent or (-_ANYWHERE, _ANYWHERE)
            values += [low - slot.value, high - slot.value] if slot.extent else [low, high]
        numbers: dict[Extent, int] = {}
        stored = frozenset(self.kernel.metadata["stored"])
        for number, granule in zip(self.facts["shadowed"], self.facts["granules"], strict=True):
            slot = self.slots[number]
            assert slot.extent is not None
            which = numbers.setdefault(slot.extent, len(numbers))
            writer, reader = shadow.pair(which, slot.extent, granule)
            first = 4 * ((slot.value - slot.extent[0]) // granule)
            values += [writer.ctypes.data + first, reader.ctypes.data + first]
            watched = shadow.watched.get(slot.extent[0])
            if watched is not None and number in stored:
                watched.kernel, watched.argument = self.kernel.name, slot.name
        return values + self._asked_by_name()

    def _asked_by_name(self) -> list[int]:
        """What the checks need that are asked for by name; it is kept until the launch is over."""
        values: list[int] = []
        self._kept: list[NDArray[Any]] = []
        for number in self.facts["viewed"]:
            slot = self.slots[number]
            low, high = slot.extent or (0, 0)
            made = _map_of(slot)
            has = np.ones((high - low) // slot.granule + 1, np.int8) if made is None else made
            self._kept.append(has)
            values.append(has.ctypes.data + (slot.value - low) // slot.granule)
        numbers: dict[Extent, int] = {}
        for number in self.facts["staged"]:
            slot = self.slots[number]
            assert slot.extent is not None
            if not numbers:
                values.append(shadow.clock.ctypes.data)
            which = numbers.setdefault(slot.extent, len(numbers))
            first = 4 * ((slot.value - slot.extent[0]) // slot.granule)
            values += [words.ctypes.data + first for words in shadow.stores(which, slot.extent, slot.granule)]
        for _ in range(self.facts["looks"]):
            self._kept.append(np.zeros(2, np.int64))
            values.append(self._kept[-1].ctypes.data)
        if self.facts["follows"]:
            width = width_for(self.programs)
            self._kept.append(np.zeros((PLACES + 2) * width + PLACES, np.int32))
            values += [self._kept[-1].ctypes.data, width]
        return values

    # -- faults --------------------------------------------------------------------------------------------

    def _fault(self, site: Mapping[str, Any], row: NDArray[np.int64]) -> Fault:
        words = [int(word) for word in row]
        x, y, z = words[PROGRAM : PROGRAM + 3]
        if self.facts["backwards"]:
            x, y, z = (count - 1 - at for count, at in zip(self.grid, (x, y, z), strict=True))
        shown, kind, number, size = words[SHOWN], site["kind"], site["slot"], max(site["size"], 1)
        slot = self.slots[number] if number >= 0 else None
        low, high = (0, 0) if slot is None or slot.extent is None else slot.extent
        first = 0 if slot is None or slot.extent is None else slot.value
        return Fault(
            kind=kind,
            kernel=self.kernel.name,
            place=_location(site["place"]),
            access=site["access"],
            argument="" if slot is None else slot.name,
            program=(x, y, z),
            tile=tuple(site["tile"]),
            element=tuple(words[PLACE : PLACE + len(site["tile"])]),
            index=shown // size if kind in ("bounds", "view") else shown if kind == "overflow" else 0,
            extent=(-((first - low) // size), (high - first) // size),
            times=words[COUNT],
            programs=words[PROGRAMS],
            other=self._party(site, shown) if kind == "race" else _storing(site) if kind == "barrier" else None,
            values=_values(kind, words[SHOWN : SHOWN + site["shown"]]),
        )

    def _party(self, site: Mapping[str, Any], word: int) -> Party:
        """The program that a shadow word names, and the lines where it may have done it."""
        access = site["other"]
        number, (gx, gy, gz) = (word - self.base) // self.unit, self.grid
        program = (number % gx, number // gx % gy, number // (gx * gy)) if number < gx * gy * gz else None
        does = {"load"} if access == "load" else {"store", "atomic"}
        lines = {
            _line(*other["place"][-1][:2])
            for other in self.sites
            if other["slot"] == site["slot"] and other["access"] in does and other["place"]
        }
        return Party(program, access, tuple(sorted(lines)))


def _storing(site: Mapping[str, Any]) -> Party:
    """Another element of the same tile, which may have stored at these lines."""
    file = site["place"][-1][0] if site["place"] else ""
    return Party(None, "store", tuple(sorted({_line(file, int(line)) for line in site["other"].split(", ") if line})))


def _values(kind: str, words: Sequence[int]) -> tuple[int | float, ...]:
    """What a record shows of values, as numbers."""
    if kind == "nan":
        return tuple(struct.unpack(f"{len(words)}d", struct.pack(f"{len(words)}q", *words)))
    return tuple(words) if kind in ("promise", "deadlock") else ()


def _location(places: Sequence[Sequence[Any]]) -> Location | None:
    """The innermost place that somebody wrote, with the calls that led there."""
    found: Location | None = None
    for file, line, column in reversed(places):
        place = Location(file, line, column)
        user = place.written()
        found = replace(place, caller=found) if user is place else user
    return found


def _line(file: str, line: int) -> int:
    """The line that somebody wrote."""
    return Location(file, line).written().line
