"""Packed B panels kept from one program to the next: programs of a range that want the same columns pack them once.

The key holds every value on which the operand depends apart from the trip number: those of its addresses if it is read
where it lies, those of all that it is made of if it is computed. Programs of a grid run in no order,
so a kernel without atomics cannot see whether another program stored to B before or after it was packed; stores of the
same program must come after the loop. Memory is bounded: at most `tuning.KEPT_BYTES` bytes for each dot.
`emit/dot/kept.py` has the code that runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.uniform import is_invariant
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot_operands import MemoryOperand
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.steps import Buffer
from tilewright.base.assumptions import UNORDERED_PROGRAMS, holds
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import spoken
from tilewright.ir.effects import is_atomic
from tilewright.ir.values import is_inside, is_tile, owner_of
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, WhileOp
from tilewright.ops.function import CallOp, FuncOp
from tilewright.ops.memory import LoadOp, StoreOp


@dataclass(eq=False, slots=True)
class PackCache:
    """Where and when the packed B of one dot is kept.

    Args:
        loop: the loop that holds the dot.
        keys: scalars from outside of the loop on which B depends.
        slots: trips whose panels are kept.
        slot_bytes: packed bytes of a trip.
        panels: `slots + 1` slots.
        state: words: valid, filled, then the key.
    """

    loop: Operation
    keys: list[SSAValue]
    slots: int
    slot_bytes: int
    panels: Buffer
    state: Buffer


def plan_cache(operand: MemoryOperand | SSAValue, block: Block, slot_bytes: int, *, joined: bool) -> Answer[PackCache]:
    """A cache for an operand of a dot in `block`, where it can be kept and would be used again.

    Args:
        operand: packed B; the value itself if it is computed where it is packed.
        block: that of the dot.
        slot_bytes: packed bytes of a trip.
        joined: whether a slot holds several trips, and so depends on the number of trips that are left.
    """
    if not holds(UNORDERED_PROGRAMS):
        return No("other programs may store to the operand")
    loop = block.parent_op()
    if not isinstance(loop, ForOp):
        return No("it is not in the body of a for loop")
    no = _disturbed(loop)
    if no is not None:
        return no
    made_of = _addresses(operand) if isinstance(operand, MemoryOperand) else [operand]
    keys = _keys([*made_of, *([loop.ub] if joined else [])], loop)
    if isinstance(keys, No):
        return keys
    slots = min(tuning.KEPT_TRIPS, tuning.KEPT_BYTES // slot_bytes)
    if slots < 2:
        return No(f"two trips of {slot_bytes} packed bytes are more than the {tuning.KEPT_BYTES} that are kept")
    size = (slots + 1) * slot_bytes
    words = 8 * (2 + len(keys))
    panels, state = Buffer((size,), "i8", (1,), size), Buffer((words,), "i8", (1,), words)
    return Yes(PackCache(loop, keys, slots, slot_bytes, panels, state), f"of the first {slots} trips")


def _disturbed(loop: ForOp) -> No | None:
    """What is stored before the end of the loop in the same program, or lets programs synchronise; None if nothing."""
    function: Operation | None = loop
    while function is not None and not isinstance(function, FuncOp):
        function = function.parent_op()
    if not isinstance(function, FuncOp) or not function.is_kernel:
        return No("it is in a function that is called", instead="a function that is inlined")
    if len(function.body.blocks) > 1:
        return No("the kernel returns from its middle", instead="an if around what follows")
    before = True
    for op in walk(function):
        if is_atomic(op) or isinstance(op, CallOp) or (isinstance(op, LoadOp) and "isVolatile" in op.properties):
            return No(f"{spoken(op)} may wait for what other programs store", op)
        if op is loop:
            before = False
        if isinstance(op, StoreOp) and (before or is_inside(op, loop) or is_inside(loop, _outer_loop(op))):
            return No("a store before the end of the loop may change the operand", op, "stores after the loop")
    return None


def _outer_loop(op: Operation) -> Operation | None:
    """The outermost loop around an operation: a store in it comes before the next trip."""
    found, parent = None, op.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        if isinstance(parent, (ForOp, WhileOp)):
            found = parent
        parent = parent.parent_op()
    return found


def _addresses(operand: MemoryOperand) -> list[SSAValue]:
    """Scalars that say where an operand lies and what of it exists."""
    polys: list[Poly] = [operand.offset, *operand.strides, *(b for bounds in operand.bounds for b in bounds)]
    return [operand.base, *operand.conditions, *(atom for poly in polys for atom in poly.atoms())]


def _keys(values: list[SSAValue], loop: ForOp) -> list[SSAValue] | No:
    """Scalars from outside of the loop on which some values depend and which differ between programs.

    What is loaded is known by its address: nothing is stored before the loop ends (`_disturbed`).
    """
    stack, body = list(values), loop.body.block
    keys: dict[SSAValue, None] = {}
    seen: set[SSAValue] = set()
    invariants: dict[SSAValue, bool] = {}
    last = body.last_op
    assert last is not None
    if not all(is_invariant(bound, invariants) for bound in (loop.lb, loop.step)):
        return No("the loop starts elsewhere, or steps otherwise, in other programs", loop)
    while stack:
        value = stack.pop()
        if value in seen or constant_of(value) is not None:
            continue
        seen.add(value)
        op = owner_of(value)
        if value.owner is body:
            number = list(body.args).index(value)  # type: ignore[arg-type]
            if is_tile(value):
                return No("it depends on a tile that the loop carries")
            if number:
                stack += [loop.iter_args[number - 1], last.operands[number - 1]]
        elif op is not None and (op.parent is body or is_tile(value)):
            if op.regions or not is_lazy(op):
                return No(f"it depends on {spoken(op)}", op)
            stack += op.operands
        elif is_tile(value):
            return No("it depends on a tile that is handed in")
        elif not is_invariant(value, invariants):
            keys[value] = None
    return list(keys)
