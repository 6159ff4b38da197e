"""Order among the accesses of one program to global memory.

A program means what it says in sequence, but its threads run side by side: one may store what another has yet to load.
Where two accesses may touch the same memory from different threads, and one of them writes, a barrier stands between:

    %x = tt.load %p + 1          thread t reads the element that thread t - 1 writes
    ttg.barrier global           <- inserted
    tt.store %p, ...

Accesses are told apart by the kernel argument that their addresses come from: arguments are taken not to overlap, and
so are the places that one store writes on different iterations of a loop. Two accesses through the very same pointers
need no barrier if each element is held by one thread, and no two elements have one address (`analysis/distinct.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.distinct import PROVED, Bounds, common, distinct, mask_bounds
from tilewright.analysis.flow import sources_of
from tilewright.analysis.index import Index, identity
from tilewright.analysis.origins import origins_of
from tilewright.analysis.states import Loop, StateWalk
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.subjects import UNORDERED
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.assumptions import NO_OVERLAP, holds
from tilewright.base.decision import No, Yes
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions, describe_op, user_place
from tilewright.ir.effect_traits import access_of, is_atomic, is_plain_read, is_plain_write, mask_of
from tilewright.ir.types import pointee_bytes, shape_of
from tilewright.ir.values import defining_op
from tilewright.ir.walk import walk
from tilewright.ops.debug import BarrierOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp

_ANYWHERE = None


@dataclass(frozen=True, slots=True)
class _Access:
    """What threads may have done to memory since they last waited for each other.

    Args:
        base: the argument that addresses come from; None if it is not known.
        by: the operation.
        pointer: the tile of pointers, if each address is accessed by one thread and no iteration of a loop lies
            between.
    """

    base: SSAValue | None
    by: Operation
    pointer: SSAValue | None

    def conflicts(self, other: _Access) -> bool:
        """Whether a barrier must stand between two accesses."""
        ops = (self.by, other.by)
        if (
            all(map(is_plain_read, ops))
            or all(map(is_atomic, ops))
            or (self.by is other.by and is_plain_write(self.by))
        ):
            return False
        if self.base is not other.base and _ANYWHERE not in (self.base, other.base) and holds(NO_OVERLAP):
            return False
        return self.pointer is None or self.pointer is not other.pointer


_State = frozenset[_Access]


def order_memory(module: ModuleOp, decisions: Decisions) -> None:
    """Insert the barriers that accesses to global memory need, in place.

    Args:
        module: laid-out tile IR, all calls inlined.
        decisions: take the answers.
    """
    for function in FuncOp.all_of(module):
        order = _Walk(function)
        if order.is_needed():
            order.block(function.body.block, frozenset())
        for op, earlier in order.late.items():
            decisions.note(UNORDERED, op, _waits(op, earlier))
            Builder(op).effect(BarrierOp, space="global")
        if not order.late:
            decisions.note(UNORDERED, function, Yes(None, "none touches what another thread writes"))


def _waits(op: Operation, earlier: _Access) -> No:
    """Why a barrier stands in front of an access."""
    array = "the same array" if earlier.base is not _ANYWHERE else "memory that may be the same"
    return No(f"{describe_op(op)} must follow what other threads did to {array}", earlier.by)


class _Walk(StateWalk[_State]):
    """Finds the operations that need a barrier in front.

    Args:
        function: the kernel.
    """

    def __init__(self, function: FuncOp) -> None:
        self.late: dict[Operation, _Access] = {}  # in order; an access with which the operation conflicts
        own = _Own(function)
        self.accesses = {op: found for op in walk(function) if (found := _accesses_of(op, own))}

    def is_needed(self) -> bool:
        """Whether any two accesses could conflict: most kernels read some arguments and write others, once."""
        everything = [access for group in self.accesses.values() for access in group]
        writes = [access for access in everything if not is_plain_read(access.by)]
        return any(a.conflicts(_later(b)) for a in writes for b in everything)

    def operation(self, op: Operation, state: _State) -> _State:
        if isinstance(op, BarrierOp):
            return frozenset()
        return self._access(op, state) if op in self.accesses else state

    def join(self, first: _State, second: _State) -> _State:
        return first | second

    def entering(self, loop: Loop, state: _State) -> _State:
        return frozenset(map(_later, state))

    next_iteration = entering

    def _access(self, op: Operation, state: _State) -> _State:
        mine = self.accesses[op]
        conflicts = [b for b in state if any(a.conflicts(b) for a in mine)]
        if conflicts:
            self.late[op] = min(conflicts, key=_rank)
        return mine if op in self.late else state | mine


def _rank(access: _Access) -> tuple[object, ...]:
    """Which of several conflicts is told: the same one in every process."""
    return user_place(access.by), access.by.name, access.base is _ANYWHERE


def _later(access: _Access) -> _Access:
    """An access of an earlier iteration of a loop: the same pointers may hold other addresses by now."""
    return _Access(access.base, access.by, None)


def _accesses_of(op: Operation, is_own: _Own) -> _State:
    if access_of(op) is None:
        return frozenset()
    pointer = op.operands[0]
    bases = origins_of(pointer)
    own = pointer if _held_once(pointer) and is_own(pointer) else None
    return frozenset(_Access(base, op, own) for base in (bases if bases is not None else {_ANYWHERE}))


class _Own:
    """Says of a tile of pointers through which memory is accessed whether each has an address of its own.

    Args:
        function: the kernel.
    """

    def __init__(self, function: FuncOp) -> None:
        self._analysis = AffineAnalysis(facts=ElementFacts(function))

    def __call__(self, pointer: SSAValue) -> bool:
        shape = shape_of(pointer.type)
        users = [use.operation for use in pointer.uses if use.index == 0 and access_of(use.operation) is not None]
        if len(users) == 1:  # there is nobody to be told from
            return True
        bounds = functools.reduce(common, (self._bounds(op, identity(shape)) for op in users))
        return all(self._apart(made_of, bounds) for made_of in self._moved(pointer))

    def _apart(self, pointer: SSAValue, bounds: Bounds) -> bool:
        shape = shape_of(pointer.type)
        form = self._analysis.pointer(pointer, identity(shape))
        if form.base is None or form.offset.residual:
            return False
        answer = distinct(form.offset.coords, shape, pointee_bytes(pointer.type), bounds)
        return isinstance(answer, Yes) and answer.plan == PROVED

    def _moved(self, pointer: SSAValue) -> list[SSAValue]:
        """The tiles of which one is made by moving all of a tile as far, on an iteration of a loop or at once."""

        def moves(value: SSAValue) -> Sequence[SSAValue]:
            op, index = defining_op(value), identity(shape_of(value.type))
            if isinstance(op, AddPtrOp) and self._analysis.integer(op.operands[1], index).uniform:
                return [op.operands[0]]
            return sources_of(value) or ()

        return [value for value in reached([pointer], moves) if not moves(value)]

    def _bounds(self, op: Operation, index: Index) -> Bounds:
        mask = mask_of(op)
        return {} if mask is None else mask_bounds([(mask, index)], self._analysis)


def _held_once(pointer: SSAValue) -> bool:
    """Whether one thread alone holds each element."""
    if not shape_of(pointer.type):
        return False
    masks = layout_of(pointer).free_masks()
    return not (masks.get("lane", 0) or masks.get("warp", 0))
