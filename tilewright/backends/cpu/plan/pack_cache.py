"""Packed operands kept from one program to the next: programs of a range that want the same pack it once.

The key holds every value on which the operand depends apart from the iteration number: those of its addresses if it is
read where it lies, those of all that it is made of if it is computed. Several keys have their panels side by side, so
that the order of programs, and the loops around the product, matter little. Programs of a grid run in no order,
so a kernel without atomics cannot see whether another program stored to an operand before or after it was packed;
stores of the same program must come after the product and its loop, or go to other tensors. Memory is bounded: at most
`tuning.KEPT_BYTES` bytes for each operand. `emit/dot/kept.py` has the code that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.matrices import MemoryOperand
from tilewright.analysis.origins import may_meet, parameters_apart
from tilewright.analysis.uniform import is_invariant
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.steps import Buffer
from tilewright.base.assumptions import UNORDERED_PROGRAMS, holds
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.effect_traits import is_atomic
from tilewright.ir.values import defining_op, is_inside, is_tile, property_int
from tilewright.ir.walk import among, ancestors, every, walk
from tilewright.ops.control import ForOp, LoopOp
from tilewright.ops.elementwise import DivSIOp, MaxSIOp, MinSIOp, RemSIOp
from tilewright.ops.function import CallOp, FuncOp
from tilewright.ops.memory import LoadOp, StoreOp, is_volatile
from tilewright.ops.program import GetProgramIdOp
from tilewright.ops.spec import ring_of


@dataclass(eq=False, slots=True)
class PackCache:
    """Where and when a packed operand of one dot is kept.

    Args:
        place: the loop that holds the dot, or the dot where no loop does.
        keys: scalars from outside of the loop on which the operand depends.
        entries: keys of which panels are kept at one time, at most.
        slots: iterations whose panels are kept, of all keys.
        slot_bytes: packed bytes of an iteration.
        apart: pairs of parameters of the kernel, pointers; where two are equal, nothing is kept.
        panels: `slots + 1` slots.
        state: what `emit/dot/kept.py` notes.
    """

    place: Operation
    keys: list[SSAValue]
    entries: int
    slots: int
    slot_bytes: int
    apart: list[tuple[SSAValue, SSAValue]]
    panels: Buffer
    state: Buffer


def plan_cache(
    name: Literal["a", "b"], operand: MemoryOperand | SSAValue, dot: Operation, slot_bytes: int, *, joined: bool
) -> Answer[PackCache]:
    """A cache for an operand of a dot, where it can be kept and would be used again.

    Args:
        name: which operand it is.
        operand: what is packed; the value itself if it is computed where it is packed.
        dot: the product.
        slot_bytes: packed bytes of an iteration.
        joined: whether a slot holds several iterations, and so depends on the number of iterations that are left.
    """
    if not holds(UNORDERED_PROGRAMS):
        return No("other programs may store to the operand")
    loop = dot.parent_op()
    place = loop if isinstance(loop, ForOp) else dot
    function = _function_of(place)
    if function is None:
        return No("it is in a function that is called", instead="a function that is inlined")
    made_of = _addresses(operand) if isinstance(operand, MemoryOperand) else [operand]
    room = tuning.KEPT_BYTES // slot_bytes
    if isinstance(loop, ForOp):
        found = _keys([*made_of, *([loop.ub] if joined else []), loop.lb, loop.step], loop.body.block)
    else:
        found = _keys(made_of, None)
    if isinstance(found, No):
        return found
    keys, loads = found
    if isinstance(operand, MemoryOperand):
        loads.append(operand.load)
    apart = _undisturbed(place, function, loads)
    if isinstance(apart, No):
        return apart
    entries = _entries(keys, place, function)
    if not entries:
        return No("no other program wants the same")
    slots = min(room, tuning.KEPT_ITERATIONS if place is loop else entries)
    if room < 2:
        return No(f"two iterations of {slot_bytes} packed bytes are more than the {tuning.KEPT_BYTES} that are kept")
    size = (slots + 1) * slot_bytes
    words = 8 * (HEAD_WORDS + entries * (1 + len(keys)))
    panels, state = Buffer((size,), "i8", (1,), size), Buffer((words,), "i8", (1,), words)
    what = "rows of a" if name == "a" else "columns of b"
    iterations = f"{what}, of the first {slots} iterations" if place is loop else what
    also = "" if entries == 1 else f", at up to {entries} places"
    return Yes(PackCache(place, keys, entries, slots, slot_bytes, apart, panels, state), iterations + also)


HEAD_WORDS = 4
"""Words of a cache's state before those of its keys."""


def _function_of(place: Operation) -> FuncOp | None:
    """The kernel that an operation stands in; None if it is another function."""
    function = FuncOp.around(place)
    return function if function.is_kernel else None


def _undisturbed(
    place: Operation, function: FuncOp, loads: Sequence[Operation]
) -> list[tuple[SSAValue, SSAValue]] | No:
    """Pairs of parameters that must differ at run time, if nothing else in the same program can change an operand.

    What is stored before the end of `place`, or in a loop around it, goes to tensors of other parameters than what is
    loaded. Nothing lets programs wait for each other.
    """
    if len(function.body.blocks) > 1:
        return No("the kernel returns from its middle", instead="an if around what follows")
    before, pairs = True, dict[tuple[SSAValue, SSAValue], None]()
    for op in walk(function):
        if is_atomic(op) or isinstance(op, CallOp) or is_volatile(op):
            return No(f"{describe_op(op)} may wait for what other programs store", op)
        if op is place:
            before = False
        if isinstance(op, StoreOp) and (before or is_inside(op, place) or is_inside(place, _outer_loop(op))):
            for load in loads:
                if may_meet(op.operands[0], load.operands[0]):
                    return No("a store before the end of the loop may change the operand", op, "stores after the loop")
                pairs |= dict.fromkeys(parameters_apart(op.operands[0], load.operands[0]))
    return list(pairs)


def _outer_loop(op: Operation) -> Operation | None:
    """The outermost loop around an operation: a store in it comes before the next iteration."""
    loops = among(ancestors(op), LoopOp)
    return loops[-1] if loops else None


def _addresses(operand: MemoryOperand) -> list[SSAValue]:
    """Scalars that say where an operand lies and what of it exists."""
    polys: list[Poly] = [operand.offset, *operand.strides, *(b for bounds in operand.bounds for b in bounds)]
    return [operand.base, *operand.conditions, *(atom for poly in polys for atom in poly.atoms())]


def _keys(values: list[SSAValue], body: Block | None) -> tuple[list[SSAValue], list[Operation]] | No:
    """Scalars on which some values depend and which differ between programs, or between iterations of outer loops; and
    the loads that are made for them.

    Those of the loop's `body` stand for what they are made of outside of it. What is loaded is known by its address:
    nothing stores there (`_undisturbed`).
    """
    stack = list(values)
    keys: dict[SSAValue, None] = {}
    loads: list[Operation] = []
    seen: set[SSAValue] = set()
    invariants: dict[SSAValue, bool] = {}
    while stack:
        value = stack.pop()
        if value in seen or constant_of(value) is not None:
            continue
        seen.add(value)
        op = defining_op(value)
        if value.owner is body:
            assert body is not None and body.last_op is not None
            loop, number = body.parent_op(), list(body.args).index(value)  # type: ignore[arg-type]
            if is_tile(value):
                return No("it depends on a tile that the loop carries")
            if number:
                stack += [loop.operands[number + 2], body.last_op.operands[number - 1]]  # type: ignore[union-attr]
        elif op is not None and ((body is not None and op.parent is body) or is_tile(value)):
            if op.regions or not is_lazy(op):
                return No(f"it depends on {describe_op(op)}", op)
            loads += [op] if isinstance(op, LoadOp) else []
            stack += op.operands
        elif is_tile(value):
            return No("it depends on a tile that is handed in")
        elif not is_invariant(value, invariants):
            keys[value] = None
    return list(keys), loads


_RUNS = (
    DivSIOp,
    MinSIOp,
    MaxSIOp,
)  # each run of numbers of programs has a number; by arithmetic, every one has another


def _entries(keys: Sequence[SSAValue], place: Operation, kernel: FuncOp) -> int:
    """How many keys are worth keeping at one time; none where nobody wants the same again.

    Programs run in the order of their numbers along axis 0, then 1, then 2: what is made of the last axis alone that a
    kernel asks for goes on and on, so one is enough; what else there is may come again after others.
    """
    axes: dict[SSAValue, int] = {op.results[0]: property_int(op, "axis") for op in every(kernel, GetProgramIdOp)}
    last = max(axes.values(), default=0)
    again = last > 0 or _outer_loop(place) is not None  # other programs, or the same one later
    if not again and axes.keys() & _told(keys):
        return 0
    own, invariants = False, dict[SSAValue, bool]()
    for key in keys:
        stack, runs = [key], again
        while stack:
            value = stack.pop()
            op = defining_op(value)
            if is_invariant(value, invariants):
                continue
            if axes.get(value) == last:
                continue
            if op is None or (ring_of(op) is None and not isinstance(op, _RUNS)):
                return tuning.KEPT_KEYS
            runs |= isinstance(op, _RUNS)
            stack += op.operands
        own |= not runs
    return 0 if own else 1


def _told(keys: Sequence[SSAValue]) -> set[SSAValue]:
    """Keys, and what they tell: the numbers that they are made of by arithmetic, as places in memory are, and a number
    whose quotient and remainder are told."""
    told, halves, stack = set[SSAValue](), dict[tuple[SSAValue, object], type[Operation]](), list(keys)
    while stack:
        value = stack.pop()
        op = defining_op(value)
        if value in told or op is None:
            continue
        told.add(value)
        if isinstance(op, DivSIOp | RemSIOp):
            number, divisor = op.operands
            known = constant_of(divisor)
            half = halves.setdefault((number, divisor if known is None else known), type(op))
            stack += [number] if half is not type(op) else []
        elif ring_of(op) is not None:
            stack += op.operands
    return told
