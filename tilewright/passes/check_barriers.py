"""Checks for programs that also run where the elements of a tile are threads: who stored what a lane loads?

Here a program means what it says in sequence. Elsewhere a load may come before the store of another thread, unless a
barrier stands between them (`tl.debug_barrier`). Two words stand for each element of an argument:

    E   at which tick of the clock it was stored last          L   which element of which shape of tile stored it
    clock   counts programs and barriers

    store   E := clock, L := me
    load    E = clock and L is another: a barrier is missing
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import i32, shape_of
from tilewright.ir.values import is_tile
from tilewright.ops.atomic import AtomicCASOp, AtomicRMWOp
from tilewright.ops.debug import BarrierOp
from tilewright.passes.check_code import Code

_SHAPE_BITS = 20


def is_barrier(op: Operation) -> bool:
    """Whether the threads of a program meet: at a barrier, and at an atomic of one element that all of them read."""
    if isinstance(op, AtomicRMWOp | AtomicCASOp):
        return not is_tile(op.operands[0]) and any(True for _ in op.results[0].uses)
    return isinstance(op, BarrierOp)


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the ticks are counted, and the shapes of tiles that access memory.

    Args:
        word: address of the count.
        shapes: of the kernel.
    """

    word: SSAValue
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, word: SSAValue, accesses: Iterable[Operation]) -> Clock:
        """A clock for the accesses of a kernel."""
        return cls(word, list(dict.fromkeys(shape_of(op.operands[0].type) for op in accesses)))

    def tick(self, code: Code) -> None:
        """Count on."""
        code.store(self.word, code.add(code.load(self.word, None, 0), code.number(1, i32)), None)

    def lane(self, code: Code, shape: tuple[int, ...]) -> SSAValue:
        """Which element of which shape each element of a tile is: tiles of other shapes lie elsewhere."""
        lane = code.number(self.shapes.index(shape) << _SHAPE_BITS, i32)
        size = 1
        for dim in reversed(range(len(shape))):
            place = code.place(shape, dim)
            lane = code.add(lane, code.mul(place, code.number(size, place.type)))
            size *= shape[dim]
        return lane


def remember_store(
    code: Code, clock: Clock, op: Operation, words: tuple[SSAValue, SSAValue], mask: SSAValue | None
) -> None:
    """In front of a store: when, and by whom."""
    when, who = words
    code.store(when, code.load(clock.word, None, 0), mask)
    code.store(who, clock.lane(code, shape_of(op.operands[0].type)), mask)


def check_load(
    code: Code, clock: Clock, op: Operation, words: tuple[SSAValue, SSAValue], mask: SSAValue | None, site: int
) -> None:
    """In front of a load: nobody else has stored it since the last barrier."""
    when, who = words
    now = code.load(clock.word, None, 0)
    earlier = code.compare("ne", code.load(when, mask, 0), now)
    mine = code.compare("eq", code.load(who, mask, 0), clock.lane(code, shape_of(op.operands[0].type)))
    code.check(site, code.either(earlier, mine), [])
