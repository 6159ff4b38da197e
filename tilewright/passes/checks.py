"""Adds checks to a kernel: what it does to memory is compared with what the launch knows, and told in records.

    kernel(x, y, n)   ->   kernel(x, y, n, records, base, low and high of x, of y, shadow words of y ...)

The checks are tile IR like any other, so a kernel with checks is planned and compiled as the kernel is. This pass runs
behind all others. What it appends to the parameters, and what each check is about, is in `Checked`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue, Use

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.distinct import lie_apart
from tilewright.analysis.homes import homes_of
from tilewright.analysis.waiting import waiting_looks
from tilewright.base.checks import (
    BOUNDS,
    DEADLOCKS,
    HINTS,
    NAN,
    ORDERS,
    OVERFLOW,
    PORTABLE,
    RACES,
    UNINITIALISED,
    VIEWS,
)
from tilewright.base.location import Location
from tilewright.ir.decisions import Decisions
from tilewright.ir.effect_traits import is_atomic, is_plain_read, is_plain_write, mask_of
from tilewright.ir.op import location_of
from tilewright.ir.types import i8, i32, i64, pointee_bytes, pointer_type, shape_of
from tilewright.ir.values import is_tile
from tilewright.ir.walk import contains, every, walk
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicStoreOp, exchanges
from tilewright.ops.check import MOST_DIMS, MOST_SHOWN, CheckOp
from tilewright.ops.control import WhileOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.promise import PromiseOp
from tilewright.passes import check_barriers as barriers
from tilewright.passes import check_order as order
from tilewright.passes import check_shadow as shadow
from tilewright.passes.building import Builder
from tilewright.passes.carried_offsets import make_offsets_scalar
from tilewright.passes.check_barriers import Clock, is_barrier
from tilewright.passes.check_bounds import box_of, check_corner, lanes_inside
from tilewright.passes.check_code import Code
from tilewright.passes.check_finite import check_results, float_operations
from tilewright.passes.check_loops import run_checks_first
from tilewright.passes.check_order import Order
from tilewright.passes.check_overflow import arithmetic_below, bounds_of_loops, check_arithmetic
from tilewright.passes.check_promises import check_promises
from tilewright.passes.check_shadow import ATOMIC, LOAD, STORE, Stamps
from tilewright.passes.check_spins import check_look
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code


@dataclass(slots=True)
class Site:
    """What a check is about.

    Args:
        kind: "bounds", "race", "lanes" (two of a tile store different values to one element), "uninitialised",
            "overflow", "promise", "deadlock", "view", "barrier" or "nan".
        access: "load", "store", "atomic", the name of an operation of arithmetic, or what was promised.
        other: of a race, what the other program did; of a barrier, the lines that store.
        slot: number of the run-time parameter that the address comes from, or -1.
        size: bytes of an element.
        tile: shape of the access.
        place: file, line and column in the source, innermost first, then those that called it.
        shown: how many values a record of it has.
    """

    kind: str
    access: str
    other: str
    slot: int
    size: int
    tile: list[int]
    place: list[tuple[str, int, int]]
    shown: int = 0


@dataclass(slots=True)
class Checked:
    """What a launch of a kernel with checks has to know.

    Args:
        sites: of the checks, by number.
        tracked: slots of the parameters whose extents follow `records` and `base`, in order.
        shadowed: slots of the parameters whose shadow words follow, in order.
        granules: bytes of the elements that the words of each stand for.
        viewed: slots of the parameters for which the bytes that say what a view has follow, in order.
        staged: slots of the parameters whose words of stores follow, behind the clock, in order.
        looks: waiting loops look so often at memory; two words for each follow.
        follows: whether the words of the order by atomics, and their width, follow last.
        backwards: whether the last program of the grid comes first; records count programs as they come.
        unknown: accesses whose address comes from no argument, which are not checked.
        in_order: why races are not looked for, or "".
        tiers: accesses by the way in which their bounds are checked.
    """

    sites: list[Site] = field(default_factory=list)
    tracked: list[int] = field(default_factory=list)
    shadowed: list[int] = field(default_factory=list)
    granules: list[int] = field(default_factory=list)
    viewed: list[int] = field(default_factory=list)
    staged: list[int] = field(default_factory=list)
    looks: int = 0
    follows: bool = False
    backwards: bool = False
    unknown: int = 0
    in_order: str = ""
    tiers: dict[str, int] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As what JSON has, for the metadata of a kernel."""
        return asdict(self)


def add_checks(module: ModuleOp, wanted: Sequence[str], *, shared: bool = False) -> tuple[Checked, list[str]]:
    """Add checks to the kernel of a module, in place.

    Args:
        module: simplified tile IR.
        wanted: names of checks.
        shared: arguments may share memory: what is written through one may be read through another.

    Returns:
        what a launch has to know, and the signature types of the parameters that were appended.
    """
    kernel = FuncOp.kernel_of(module)
    make_offsets_scalar(kernel, Decisions())
    adder = _Adder(kernel, frozenset(wanted), shared)
    adder.run()
    if ORDERS in wanted:
        _run_backwards(module)
    run_checks_first(kernel)
    eliminate_common_subexpressions(module)
    eliminate_dead_code(module)
    return adder.checked, adder.types


def accesses_of(kernel: FuncOp) -> list[Operation]:
    """Loads, stores and atomics of a kernel, in order."""
    return [op for op in walk(kernel) if is_atomic(op) or isinstance(op, LoadOp | StoreOp)]


def access_kind(op: Operation) -> str:
    """What an access does, in a word."""
    return LOAD if is_plain_read(op) else STORE if is_plain_write(op) else ATOMIC


def waits_for_programs(kernel: FuncOp) -> bool:
    """Whether atomics may order what programs do: one waits in a loop, or acquires what another has released."""
    if contains(kernel, WhileOp):
        return True
    for op in walk(kernel):
        asked = is_atomic(op) and op.results and any(True for _ in op.results[0].uses)
        if asked and op.attr_values()["sem"] in ("acquire", "acq_rel"):  # type: ignore[attr-defined]
            return True
    return False


def atomics_that_decide(kernel: FuncOp) -> list[Operation]:
    """Atomics whose results are used: a program may do something else if it comes first. None where programs wait."""
    if contains(kernel, WhileOp):  # it may wait for a program that comes before it
        return []
    return [op for op in walk(kernel) if is_atomic(op) and op.results and any(True for _ in op.results[0].uses)]


def _run_backwards(module: ModuleOp) -> None:
    """The last program of the grid comes first."""
    for op in every(module, GetProgramIdOp):
        following, number = op.next_op, op.results[0]
        assert following is not None
        b = Builder(following)
        count = b.make(GetNumProgramsOp, i32, **op.attr_values())
        turned = b.sub(b.sub(count, b.number(1, i32)), number)
        number.replace_uses_with_if(turned, functools.partial(_is_not_of, turned))


def _is_not_of(made: SSAValue, use: Use) -> bool:
    return use.operation is not made.owner


class _Adder:
    """Adds the checks of one kernel.

    Args:
        kernel: the function.
        wanted: names of checks.
        shared: as for `add_checks`.
    """

    def __init__(self, kernel: FuncOp, wanted: frozenset[str], shared: bool) -> None:
        self.kernel, self.wanted = kernel, wanted
        self.checked, self.types = Checked(), list[str]()
        self.analysis = AffineAnalysis()
        self.entry = kernel.body.blocks[0]
        self.slots: dict[SSAValue, int] = {value: slot for slot, value in enumerate(self.entry.args)}
        self.accesses = accesses_of(kernel)
        self.homes = {op: homes_of(op.operands[0]) for op in self.accesses}
        self.waits = contains(kernel, WhileOp)
        self._read_and_written(shared)

    def _read_and_written(self, shared: bool) -> None:
        """The parameters of which races have to be looked for, and those whose readers count."""
        changed = {home for op, homes in self.homes.items() if not is_plain_read(op) for home in homes}
        read = {home for op, homes in self.homes.items() if is_plain_read(op) for home in homes}
        self.staged = changed & read if PORTABLE in self.wanted else set()
        if shared and changed:
            changed = read = changed | read
        else:  # atomics make no race among themselves
            changed &= read | {home for op, homes in self.homes.items() if is_plain_write(op) for home in homes}
        if RACES not in self.wanted:
            changed = set()
        elif changed and waits_for_programs(self.kernel):
            self.checked.in_order = order.why_not_followed(self.kernel, shared=shared)
            if self.checked.in_order:
                changed = set()
        self.follows = bool(changed) and order.follows(self.kernel)
        self.changed, self.read = changed, read

    def run(self) -> None:
        self._append_parameters()
        arithmetic: list[Operation] = []
        if OVERFLOW in self.wanted:
            reached = [value for op in self.accesses for value in (op.operands[0], mask_of(op)) if value is not None]
            arithmetic = arithmetic_below([*reached, *bounds_of_loops(walk(self.kernel))])
        for op in arithmetic:
            name = op.name.rpartition(".")[2].removesuffix("i")
            check_arithmetic(self._behind(op), op, self._site("overflow", op, name), self.analysis)
        if HINTS in self.wanted:
            check_promises(self.kernel, self._code, self._promise_site)
        if NAN in self.wanted:
            for op in list(float_operations(self.kernel)):
                check_results(self._behind(op), op, functools.partial(self._result_site, op))
        for op in self.accesses:
            self._access(op)
        for (op, loop), words in zip(self.looks.items(), self.looked, strict=True):
            site = self._site("deadlock", op, access_kind(op), self._home(op))
            check_look(self._code(loop), self._behind(op), op, words, site)
        if self.order is not None:
            for op in self.accesses:
                if (order.acquires(op) or order.releases(op)) and not is_tile(op.operands[0]):
                    self.order.follow(self._behind(op), op)
        if self.clock is not None:
            self._tick(self.clock)
        for op in every(self.kernel, CheckOp):
            self.checked.sites[op.attr_values()["site"]].shown = min(len(op.shown), MOST_SHOWN)

    def _tick(self, clock: Clock) -> None:
        """Count programs and barriers."""
        for op in list(walk(self.kernel)):
            if is_barrier(op):
                clock.tick(self._behind(op))
        first = self.entry.first_op
        assert first is not None
        clock.tick(self._code(first))

    # -- parameters --------------------------------------------------------------------------------------

    def _append_parameters(self) -> None:
        used = sorted({home for homes in self.homes.values() for home in homes}, key=lambda home: self.slots[home])
        self.checked.tracked = [self.slots[home] for home in used]
        first = self.entry.first_op
        assert first is not None
        self.records = self._parameter(pointer_type(i64), "*i64")
        base = self._parameter(i32, "i32")
        self.extents = {home: (self._parameter(i64, "i64"), self._parameter(i64, "i64")) for home in used}
        self.shadow: dict[SSAValue, tuple[SSAValue, SSAValue]] = {}
        words = pointer_type(i32)
        for home in used:
            if home in self.changed or UNINITIALISED in self.wanted:
                self.checked.shadowed.append(self.slots[home])
                self.checked.granules.append(pointee_bytes(home.type))
                self.shadow[home] = (self._parameter(words, "*i32"), self._parameter(words, "*i32"))
        self._append_further(used)
        self.checked.follows, self.checked.backwards = self.follows, ORDERS in self.wanted
        known = (self._parameter(words, "*i32"), self._parameter(i32, "i32")) if self.follows else None
        self._retype()
        self.stamps: Stamps | None = None
        self.order: Order | None = None
        if self.shadow:
            code = Code(first, self.records)
            ids, counts = ([code.axis(kind, n) for n in range(3)] for kind in (GetProgramIdOp, GetNumProgramsOp))
            self.stamps = shadow.stamps_of(code, base, ids, counts)
            if known is not None:
                place = shadow.place_of(code, ids, counts)
                self.order = Order(known[0], known[1], base, place)
                self.order.begin(code)

    def _append_further(self, used: Sequence[SSAValue]) -> None:
        """What the checks need that are asked for by name."""
        self.views: dict[SSAValue, SSAValue] = {}
        for home in used if VIEWS in self.wanted else ():
            self.checked.viewed.append(self.slots[home])
            self.views[home] = self._parameter(pointer_type(i8), "*i8")
        self.stored: dict[SSAValue, tuple[SSAValue, SSAValue]] = {}
        words = pointer_type(i32)
        self.clock = Clock.of(self._parameter(words, "*i32"), self.accesses) if self.staged else None
        for home in used:
            if home in self.staged:
                self.checked.staged.append(self.slots[home])
                self.stored[home] = (self._parameter(words, "*i32"), self._parameter(words, "*i32"))
        self.looks = waiting_looks(self.kernel) if DEADLOCKS in self.wanted else {}
        self.looked = [self._parameter(pointer_type(i64), "*i64") for _ in self.looks]
        self.checked.looks = len(self.looks)

    def _parameter(self, type_: Attribute, signature: str) -> SSAValue:
        self.types.append(signature)
        return self.entry.insert_arg(type_, len(self.entry.args))

    def _retype(self) -> None:
        """The type of the function, and a place for facts about each parameter."""
        inputs = [argument.type for argument in self.entry.args]
        outputs = list(self.kernel.function_type.outputs)
        self.kernel.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
        if self.kernel.arg_attrs is not None:
            known = list(self.kernel.arg_attrs.data)
            rest = [DictionaryAttr({})] * (len(inputs) - len(known))
            self.kernel.properties["arg_attrs"] = ArrayAttr([*known, *rest])

    # -- sites -------------------------------------------------------------------------------------------

    def _code(self, anchor: Operation) -> Code:
        return Code(anchor, self.records)

    def _behind(self, op: Operation) -> Code:
        following = op.next_op
        assert following is not None
        return self._code(following)

    def _home(self, op: Operation) -> SSAValue | None:
        return self.homes[op][0] if len(self.homes[op]) == 1 else None

    def _promise_site(self, op: PromiseOp, said: str) -> int:
        return self._site_of("promise", op, said, op.value)

    def _result_site(self, op: Operation, result: SSAValue) -> int:
        return self._site_of("nan", op, op.name.rpartition(".")[2], result)

    def _site_of(self, kind: str, op: Operation, access: str, value: SSAValue) -> int:
        """The site of a check of a value that no memory is concerned with."""
        tile = list(shape_of(value.type))
        self.checked.sites.append(Site(kind, access, "", -1, 0, tile, _places(location_of(op))))
        return len(self.checked.sites) - 1

    def _site(self, kind: str, op: Operation, access: str, home: SSAValue | None = None, other: str = "") -> int:
        address = op.operands[0] if home is not None else None
        size = pointee_bytes(address.type) if address is not None else 0
        slot = -1 if home is None else self.slots[home]
        tile = list(shape_of((address or op.results[0]).type))
        self.checked.sites.append(Site(kind, access, other, slot, size, tile, _places(location_of(op))))
        return len(self.checked.sites) - 1

    def _count(self, tier: str) -> None:
        self.checked.tiers[tier] = self.checked.tiers.get(tier, 0) + 1

    # -- accesses ----------------------------------------------------------------------------------------

    def _access(self, op: Operation) -> None:
        homes = self.homes[op]
        if not homes or len(shape_of(op.operands[0].type)) > MOST_DIMS:
            self.checked.unknown += 1
            return
        if BOUNDS in self.wanted:
            self._bounds(op, homes)
        if len(homes) == 1 and homes[0] in self.views:
            self._view(op, homes[0])
        if len(homes) == 1 and homes[0] in self.shadow and not isinstance(op, AtomicLoadOp):
            self._shadow(op, homes[0])
        if len(homes) == 1 and homes[0] in self.stored and self.clock is not None:
            self._staged(op, homes[0], self.clock)

    def _bounds(self, op: Operation, homes: Sequence[SSAValue]) -> None:
        address, mask, home = op.operands[0], mask_of(op), homes[0]
        code, site = self._code(op), self._site("bounds", op, access_kind(op), home)
        box = box_of(address, mask, home, self.analysis) if len(homes) == 1 and not self.waits else None
        if box is not None:
            check_corner(code, box, self.extents[home], pointee_bytes(address.type), site, ends=True)
            self._count("corner")
            return
        inside, offset = lanes_inside(code, address, home, self.extents[home])
        for other in homes[1:]:
            inside = code.either(inside, lanes_inside(code, address, other, self.extents[other])[0])
        holds = inside if mask is None else code.either(inside, code.negated(mask))
        code.check(site, holds, [offset], ends=not self.waits)
        self._count("lanes")
        if self.waits:  # somebody may wait for what this program has to say: it goes on, without the access
            _mask_with(op, inside, home, code)

    def _view(self, op: Operation, home: SSAValue) -> None:
        """Of an access inside of the storage: a byte says whether the view that was passed has the element."""
        code, address = self._code(op), op.operands[0]
        has = code.load(code.word_at(self.views[home], address, home), mask_of(op), 1)
        holds = code.compare("ne", has, code.number(0, has.type))
        code.check(self._site("view", op, access_kind(op), home), holds, [code.bytes_from(address, home)])

    def _staged(self, op: Operation, home: SSAValue, clock: Clock) -> None:
        code, address = self._code(op), op.operands[0]
        when, who = (code.word_at(words, address, home) for words in self.stored[home])
        if not is_plain_read(op):
            barriers.remember_store(code, clock, op, (when, who), mask_of(op))
            return
        stores = [each for each in self.accesses if not is_plain_read(each) and self.homes[each] == [home]]
        lines = sorted({places[-1][1] for places in map(_places, map(location_of, stores)) if places})
        site = self._site("barrier", op, LOAD, home, ", ".join(map(str, lines)))
        barriers.check_load(code, clock, op, (when, who), mask_of(op), site)

    def _shadow(self, op: Operation, home: SSAValue) -> None:
        assert self.stamps is not None
        code, mask = self._code(op), mask_of(op)
        races = home in self.changed
        words = shadow.words_of(code, op, mask, home, self.shadow[home], read=races and home in self.read)

        def new_site(name: str, other: str = "") -> int:
            return self._site(name, op, access_kind(op), home, other)

        if UNINITIALISED in self.wanted and _depends_on_memory(op):
            shadow.check_written(code, words, new_site("uninitialised"), mask)
        if races and self.order is not None:
            if is_plain_read(op):
                order.check_load(code, words, self.order, new_site)
            else:
                order.check_change(code, words, self.order, new_site, atomic=is_atomic(op))
        elif races and is_plain_read(op):
            shadow.check_load(code, words, self.stamps, new_site)
        elif races:
            shadow.check_change(code, words, self.stamps, new_site, atomic=is_atomic(op))
        elif not is_plain_read(op):
            shadow.mark_written(code, words, self.stamps)
        stores = is_plain_write(op) and races and shadow.is_comparable(op.operands[1])
        if stores and not lie_apart(op.operands[0], home, self.analysis):
            shadow.check_stored(self._behind(op), op.operands[0], op.operands[1], mask, new_site("lanes"))


def _depends_on_memory(op: Operation) -> bool:
    """Whether an access makes something of what was there."""
    return not exchanges(op) and not isinstance(op, StoreOp | AtomicStoreOp)


def _mask_with(op: Operation, inside: SSAValue, home: SSAValue, code: Code) -> None:
    """Have an access leave out what is not inside; one that has no mask goes to the first element instead."""
    mask = mask_of(op)
    if isinstance(op, AtomicCASOp):
        address = op.operands[0]
        op.operands[0] = code.choose(inside, address, code.like(home, address))
        return
    number = 1 if isinstance(op, LoadOp) else len(op.operands) - (mask is not None)
    both = inside if mask is None else code.both(mask, inside)
    operands = list(op.operands)
    operands[number : number + (mask is not None)] = [both]
    op.operands = operands


def _places(location: Location | None) -> list[tuple[str, int, int]]:
    found = []
    while location is not None:
        found.append((location.file, location.line, location.col))
        location = location.caller
    return found
