"""The tape: what an iteration of a loop was given by the one before, for the loop that goes backward.

Most of it nobody wants: the gradient of a sum needs no sums. An integer that moves by the same step each time is
computed. The rest is stored by the loop that goes forward, into memory that the launch brings:

    for i: .. iter_args(%s)                     for i: .. iter_args(%s)
                                                  store %s, tape + i
                                       ->     for k: i = n - 1 - k
                                                  %s = load tape + i

A program has as many places for each of these values as the longest of the loops has iterations; a gradient kernel
whose loops keep something comes with another kernel that finds out how many these are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.flow import targets_of
from tilewright.frontend.builder import IRBuilder, Position
from tilewright.gradients.activity import refusal
from tilewright.ir.effect_traits import may_write
from tilewright.ir.op import TileOp
from tilewright.ir.types import (
    bit_width,
    element_type,
    i1,
    i8,
    i64,
    is_pointer,
    pointer_type,
    shape_of,
    tile_type,
    with_element,
)
from tilewright.ir.values import defining_op
from tilewright.ir.walk import operations
from tilewright.ops.atomic import AtomicRMWOp
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.casts import BitcastOp, ExtSIOp, ExtUIOp, TruncIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.ops.debug import BarrierOp
from tilewright.ops.elementwise import AddIOp, MulIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.reverse import Tiles
from tilewright.passes.rewriting import erase

Values = dict[SSAValue, SSAValue]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A value that a loop keeps.

    Args:
        loop: of the kernel.
        type: of the value.
        base: stands for the address of the program's places.
    """

    loop: ForOp
    type: Attribute
    base: SSAValue

    @property
    def stored(self) -> Attribute:
        """The type in memory, where an int1 takes a byte."""
        return with_element(self.type, i8) if element_type(self.type) == i1 else self.type

    @property
    def element_bytes(self) -> int:
        """Bytes of an element in memory."""
        return max(1, bit_width(element_type(self.type)) // 8)

    @property
    def count(self) -> int:
        """Elements of the value."""
        return math.prod(shape_of(self.type))


class Tape:
    """What the loops of a gradient kernel keep.

    Args:
        entry: the block that the gradient begins with.
    """

    def __init__(self, entry: Block) -> None:
        self._entry = entry
        self._slots: list[_Slot] = []

    @property
    def bytes(self) -> int:
        """Bytes that a program keeps in an iteration, of all loops together."""
        return sum(slot.element_bytes * slot.count for slot in self._slots)

    def loops(self) -> list[ForOp]:
        """The loops of the kernel that keep something."""
        return list(dict.fromkeys(slot.loop for slot in self._slots))

    def settle(
        self,
        b: IRBuilder,
        loop: ForOp,
        backward: ForOp,
        number: SSAValue,
        wanted: Sequence[SSAValue],
        values: Values,
        forward: ForOp,
    ) -> None:
        """Put values in the places of what each iteration was given, as far as they are looked at.

        Args:
            b: stands behind `backward`.
            loop: of the kernel.
            backward: the loop that goes backward.
            number: that of the iteration, in its body.
            wanted: stand-ins of the values there, of which each is a `ub.poison`.
            values: of the kernel, outside of the loops.
            forward: the loop that goes forward.
        """
        kept = False
        for index, stand_in in enumerate(wanted):
            anchor = stand_in.owner
            assert isinstance(anchor, PoisonOp)
            if not _is_live(stand_in, backward):
                continue
            found = _before(b, anchor, lambda index=index: self._known(b, loop, index, number, values))  # type: ignore[misc]
            if found is None:
                slot = self._keep(b, loop, forward, index)
                found = _before(b, anchor, lambda slot=slot: self._load(b, slot, number))  # type: ignore[misc]
                kept = True
            assert found is not None
            stand_in.replace_all_uses_with(found)
            erase(anchor)
        if kept:
            _before(b, backward, lambda: b.emit_void(BarrierOp, space="all"))
            b.emit_void(BarrierOp, space="all")

    def count(self, b: IRBuilder, at: SSAValue, number: SSAValue) -> None:
        """Raise the number at an address to that of a loop's iterations."""
        attrs = {"atomic_rmw_op": "max", "sem": "relaxed", "scope": "gpu"}
        b.op(AtomicRMWOp, at, _wide(b, number), [], attrs=attrs)

    def place(self, b: IRBuilder, memory: SSAValue, iterations: SSAValue) -> None:
        """Say where everything is kept, at the start of the gradient.

        Args:
            memory: pointer to bytes.
            iterations: i64, as many as the longest loop has.
        """
        anchor = self._entry.first_op
        assert anchor is not None
        _before(b, anchor, lambda: self._place(b, memory, iterations))  # the stand-ins are dead now

    def _place(self, b: IRBuilder, memory: SSAValue, iterations: SSAValue) -> None:
        program = _integer(b, 0)
        for axis in (2, 1, 0):
            size, here = (b.op(cls, attrs={"axis": axis})[0] for cls in (GetNumProgramsOp, GetProgramIdOp))
            assert isinstance(size, SSAValue) and isinstance(here, SSAValue)
            program = _add(b, _mul(b, program, _wide(b, size)), _wide(b, here))
        start, skipped = _mul(b, program, _mul(b, iterations, _integer(b, self.bytes))), 0
        for slot in sorted(self._slots, key=lambda slot: -slot.element_bytes):  # each begins where it is aligned
            offset = _add(b, start, _mul(b, iterations, _integer(b, skipped)))
            base = _result(b, BitcastOp, _result(b, AddPtrOp, memory, offset), types=(slot.base.type,))
            slot.base.replace_all_uses_with(base)
            skipped += slot.element_bytes * slot.count

    # --- values that are known --------------------------------------------------------------------------------------

    def _known(self, b: IRBuilder, loop: ForOp, index: int, number: SSAValue, values: Values) -> SSAValue | None:
        """What an iteration is given, if that can be computed from its number."""
        argument, value, first = loop.carried[index], loop.yielded[index], values[loop.iter_args[index]]
        if value is argument:
            return first
        step = defining_op(value)
        if not isinstance(step, AddIOp) or argument not in step.operands:
            return None
        by = step.operands[1] if step.operands[0] is argument else step.operands[0]
        owner = defining_op(by)
        if by not in values and not isinstance(owner, ConstantOp):
            return None
        moved = values[by] if by in values else b.append(owner.clone()).results[0]  # type: ignore[union-attr]
        times = _resized(b, number, element_type(argument.type))
        if shape_of(argument.type):
            times = _result(b, SplatOp, times, types=(argument.type,))
        return _add(b, first, _mul(b, times, moved))

    # --- values that are kept ---------------------------------------------------------------------------------------

    def _keep(self, b: IRBuilder, loop: ForOp, forward: ForOp, index: int) -> _Slot:
        """Have the loop that goes forward store what it is given."""
        type_ = loop.carried[index].type
        if is_pointer(element_type(type_)):
            raise refusal(
                loop,
                "the loop carries pointers that do not move by `+=`",
                "carry an offset, and add it to the pointer where memory is accessed",
            )
        stored = i8 if element_type(type_) == i1 else element_type(type_)
        base = PoisonOp.create(result_types=[pointer_type(stored)])
        first = self._entry.first_op
        assert first is not None
        self._entry.insert_op_before(base, first)
        slot = _Slot(loop, type_, base.results[0])
        self._slots.append(slot)
        body = forward.body.block
        assert body.first_op is not None
        _before(b, body.first_op, lambda: self._store(b, slot, body.args[0], body.args[index + 1]))
        return slot

    def _store(self, b: IRBuilder, slot: _Slot, number: SSAValue, value: SSAValue) -> None:
        if value.type != slot.stored:
            value = _result(b, ExtUIOp, value, types=(slot.stored,))
        b.op(StoreOp, self._address(b, slot, number), value, [])

    def _load(self, b: IRBuilder, slot: _Slot, number: SSAValue) -> SSAValue:
        value = _result(b, LoadOp, self._address(b, slot, number), [])
        return value if value.type == slot.type else _result(b, TruncIOp, value, types=(slot.type,))

    def _address(self, b: IRBuilder, slot: _Slot, number: SSAValue) -> SSAValue:
        start = _result(b, AddPtrOp, slot.base, _mul(b, _wide(b, number), _integer(b, slot.count)))
        shape = shape_of(slot.type)
        if not shape:
            return start
        r = Tiles(b)
        starts = _result(b, SplatOp, start, types=(tile_type(shape, slot.base.type),))
        return _result(b, AddPtrOp, starts, r.reshape(r.range(slot.count), shape))


def _is_live(value: SSAValue, loop: ForOp) -> bool:
    """Whether something that is made of a value is stored, or leaves an iteration of `loop`."""
    todo, seen = [value], {value}
    while todo:
        for use in todo.pop().uses:
            reached = _reached(use.operation, use.index, loop)
            if reached is None:
                return True
            todo += [v for v in reached if v not in seen]
            seen.update(reached)
    return False


def _reached(user: Operation, index: int, loop: ForOp) -> Sequence[SSAValue] | None:
    """The values that an operand goes into; None where it is looked at for good."""
    if isinstance(user, YieldOp | ForOp):
        return None if user.parent_op() is loop else targets_of(user, index) or None
    return None if isinstance(user, IfOp) or may_write(user) else user.results


def _before(b: IRBuilder, anchor: Operation, emit: Callable[[], SSAValue | None]) -> SSAValue | None:
    """Emit something in front of an operation instead of where `b` stands."""
    outer, b.position = b.position, Position(Block())
    found, made = emit(), b.position.block
    b.position = outer
    block = anchor.parent_block()
    assert block is not None
    for op in operations(made):
        op.detach()  # type: ignore[no-untyped-call]
        block.insert_op_before(op, anchor)
    return found


def _result(b: IRBuilder, cls: type[TileOp], *operands: Any, types: Sequence[Attribute] = ()) -> SSAValue:
    """The one result of an operation."""
    found = b.op(cls, *operands, result_types=types)[0]
    assert isinstance(found, SSAValue)
    return found


def _integer(b: IRBuilder, value: int) -> SSAValue:
    return b.append(ConstantOp.of(value, i64)).results[0]


def _add(b: IRBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return _result(b, AddIOp, x, y)


def _mul(b: IRBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return _result(b, MulIOp, x, y)


def _wide(b: IRBuilder, number: SSAValue) -> SSAValue:
    """A number as i64."""
    return _resized(b, number, i64)


def _resized(b: IRBuilder, number: SSAValue, type_: Attribute) -> SSAValue:
    """A scalar integer as another type of integer."""
    have, want = bit_width(number.type), bit_width(type_)
    if have == want:
        return number
    return _result(b, ExtSIOp if want > have else TruncIOp, number, types=(type_,))
