"""What of a kernel takes part in its gradient: what depends on what is differentiated, and whose memory is whose.

    %x = tt.load %x_ptr + ..      varies, if the kernel is differentiated with respect to x_ptr
    %y = math.exp %x              varies: it is made of something that does
    %n = tt.load %n_ptr           does not

A gradient kernel runs the kernel again before it goes backward. So it can be made of a kernel that reads what it did
not write; what stands in the way is refused here, where it stands in the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.origins import origins_of
from tilewright.base.errors import NotDifferentiableError
from tilewright.base.location import Location
from tilewright.ir.effect_traits import access_of
from tilewright.ir.op import location_of
from tilewright.ir.types import element_type, is_float
from tilewright.ir.walk import among, enclosing, walk
from tilewright.ops.atomic import AtomicRMWOp, adds
from tilewright.ops.control import ControlOp, ForOp, WhileOp
from tilewright.ops.function import CallOp, FuncOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.spec import NoGradient, spec_of


@dataclass(slots=True)
class Activity:
    """What takes part.

    Args:
        varied: floats that depend on what is differentiated.
        homes: of each access to memory, the argument of the kernel that it goes through.
        outputs: arguments through which floats are stored.
        consumed: those of them whose elements may be stored more than once: the gradient of an earlier store is none.
    """

    varied: set[SSAValue] = field(default_factory=set)
    homes: dict[Operation, SSAValue] = field(default_factory=dict)
    outputs: set[SSAValue] = field(default_factory=set)
    consumed: set[SSAValue] = field(default_factory=set)


def refusal(op: Operation, message: str, hint: str) -> NotDifferentiableError:
    """The error that there is no gradient because of `op`, at its place in the source."""
    place = location_of(op)
    return NotDifferentiableError(message, place, hint=hint)


def place_text(op: Operation) -> str:
    """File and line of an operation, for a message about another one."""
    place: Location | None = location_of(op)
    return "elsewhere" if place is None else f"line {place.line}"


def activity_of(function: FuncOp, wrt: Iterable[SSAValue]) -> Activity:
    """What of `function` takes part in its gradient with respect to the arguments `wrt`.

    Raises:
        NotDifferentiableError: the kernel has no gradient that could be right.
    """
    found, wanted = Activity(), frozenset(wrt)
    ops = list(walk(function))
    for op in ops:
        _refuse_structure(op)
    _find_homes(found, ops, wanted)
    found.varied |= {value for value in wanted if is_float(element_type(value.type))}
    _spread(found, ops, wanted)
    for op in ops:
        _refuse_effects(found, op, wanted)
    return found


def _refuse_structure(op: Operation) -> None:
    if isinstance(op, WhileOp):
        raise refusal(
            op,
            "the iterations of this `while` are not known before it runs, so it cannot run backward",
            "write `for i in tl.range(n)` with a bound, and mask what comes after the end",
        )
    if isinstance(op, CallOp):
        raise refusal(op, "no gradient flows through a call that stays a call", "leave out noinline=True")


def _find_homes(found: Activity, ops: list[Operation], wanted: frozenset[SSAValue]) -> None:
    """Whose memory each access means, and which arguments are read and written."""
    stores: dict[SSAValue, list[Operation]] = {}
    loads: dict[SSAValue, list[Operation]] = {}
    for op in ops:
        access = access_of(op)
        if access is None:
            continue
        origins = origins_of(op.operands[0])
        if origins is None or len(origins) != 1:
            _refuse_unknown(op, origins, wanted)
            continue
        (home,) = origins
        found.homes[op] = home
        if access.writes:
            stores.setdefault(home, []).append(op)
        if access.reads and not access.writes:
            loads.setdefault(home, []).append(op)
    for home, readers in loads.items():
        if home in stores:
            raise refusal(
                readers[0],
                "the kernel reads here what it also writes "
                f"({place_text(stores[home][0])}): when its gradient runs, the values that were read are gone",
                "write to another tensor than the one that is read",
            )
    for home, writers in stores.items():
        floats = [op for op in writers if is_float(element_type(op.operands[1].type))]
        plain = among(floats, StoreOp)
        if floats:
            found.outputs.add(home)
        if len(plain) > 1 or (plain and len(floats) > 1) or any(_is_repeated(op) for op in plain):
            found.consumed.add(home)


def _refuse_unknown(op: Operation, origins: frozenset[SSAValue] | None, wanted: frozenset[SSAValue]) -> None:
    """An access that may go through several arguments, or through an address that was read from memory."""
    value = op.results[0] if isinstance(op, LoadOp) else op.operands[1] if len(op.operands) > 1 else op.operands[0]
    reads_constants = isinstance(op, LoadOp) and origins is not None and not origins & wanted
    if is_float(element_type(value.type)) and not reads_constants:
        raise refusal(
            op,
            "it is not known through which one argument this goes to memory",
            "make the address from one pointer argument, by `+`",
        )


def _is_repeated(op: Operation) -> bool:
    """Whether an operation stands in a loop."""
    return enclosing(op, ForOp) is not None


def _spread(found: Activity, ops: list[Operation], wanted: frozenset[SSAValue]) -> None:
    """Everything that is made of what varies, through loops and branches, until nothing is new."""
    before = -1
    while before != len(found.varied):
        before = len(found.varied)
        for op in ops:
            if isinstance(op, LoadOp):
                varies = found.homes.get(op) in wanted or any(v in found.varied for v in op.operands[1:])
                _note(found, list(op.results) if varies else [])
            elif isinstance(op, ControlOp):
                handed = (pair for flow in op.flows() for pair in zip(flow.sources, flow.targets, strict=True))
                _note(found, [target for source, target in handed if source in found.varied])
            elif any(operand in found.varied for operand in op.operands):
                _note(found, list(op.results))


def _note(found: Activity, values: list[SSAValue]) -> None:
    found.varied.update(value for value in values if is_float(element_type(value.type)))


def _refuse_effects(found: Activity, op: Operation, wanted: frozenset[SSAValue]) -> None:
    """What would change values behind the back of the gradient."""
    access = access_of(op)
    if access is not None and access.atomic:
        used = any(result.first_use is not None for result in op.results)
        varies = any(operand in found.varied for operand in op.operands[1:])
        if used or (varies and not adds(op)) or (not isinstance(op, AtomicRMWOp) and found.homes.get(op) in wanted):
            raise refusal(
                op,
                "no gradient flows through this atomic operation: what it gives depends on the order of programs",
                "only tl.atomic_add whose result is not used is differentiated",
            )
    if access is None and any(operand in found.varied for operand in op.operands):
        rule = spec_of(op).vjp if not op.regions else None
        is_last = not any(is_float(element_type(result.type)) for result in op.results)
        if isinstance(rule, NoGradient) and is_last:
            raise refusal(op, f"no gradient flows through {op.name}: {rule.reason}", rule.hint)
