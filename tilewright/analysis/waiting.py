"""Loops that wait for another program.

while tl.load(flag) == 0: pass          while tl.atomic_cas(lock, 0, 1) == 1: pass
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.analysis.flow import sources_of
from tilewright.base.order import reached
from tilewright.ir.types import element_type, is_integer
from tilewright.ir.values import defining_op, is_made_inside, is_tile, users_of
from tilewright.ir.walk import among, contains, every, walk
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp
from tilewright.ops.control import WhileOp, YieldOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, is_volatile

_ATOMICS = (AtomicLoadOp, AtomicRMWOp, AtomicCASOp)  # that read
_LOOKS = (LoadOp, *_ATOMICS)


def waiting_looks(kernel: FuncOp) -> dict[Operation, WhileOp]:
    """Accesses of one integer on which alone it depends whether a `while` goes on, and that loop."""
    loops = every(kernel, WhileOp)
    return {op: loop for loop in loops for op in _looks_of(loop)}


def may_wait(loop: WhileOp) -> bool:
    """Whether a loop may go round until another program writes what it looks at.

    Its accesses say so, where they are atomic or volatile, as those of look-back are, which counts what it has seen and
    so depends on more than one look.
    """
    return contains(loop, *_ATOMICS) or any(map(is_volatile, walk(loop))) or bool(_looks_of(loop))


def _looks_of(loop: WhileOp) -> list[Operation]:
    last = loop.before.block.last_op
    assert last is not None

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        sources, op = sources_of(value), defining_op(value)
        if sources is not None:
            return [source for source in sources if is_made_inside(source, loop)]
        return () if op is None or isinstance(op, _LOOKS) or not is_made_inside(value, loop) else op.operands

    seen = dict.fromkeys(reached([last.operands[0]], made_of))
    made = [defining_op(value) for value in seen if sources_of(value) is None and is_made_inside(value, loop)]
    looks: list[Operation] = [op for op in made if isinstance(op, _LOOKS)]
    counts = any(_counts(value, loop, seen) for value in seen)
    usable = all(not is_tile(op.results[0]) and is_integer(element_type(op.results[0].type)) for op in looks)
    return looks if usable and not counts else []


def _counts(value: SSAValue, loop: WhileOp, seen: Collection[SSAValue]) -> bool:
    """Whether a value is computed in a loop from what the loop carries and carried on."""
    op = defining_op(value)
    if op is None or op.regions or isinstance(op, _LOOKS) or not is_made_inside(value, loop):
        return False
    carried = any(among(users_of(value), YieldOp))
    return carried and any(isinstance(operand, BlockArgument) and operand in seen for operand in op.operands)
