"""Checks of loops that wait for another program: does it ever come?

    while tl.load(flag) == 0: pass          while tl.atomic_cas(lock, 0, 1) == 1: pass

With checks programs run one after the other, in an order in which each may wait for earlier ones. So what a waiting
loop looks at changes by the loop itself or never: a word that was the same for many looks is a program that waits for
one that has not started, or for a lock that nobody gives back. On a GPU that depends on how many programs it holds.
"""

from __future__ import annotations

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.analysis.flow import sources_of
from tilewright.ir.types import element_type, is_integer
from tilewright.ir.values import defining_op, is_tile, users_of
from tilewright.ir.walk import among, every
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp
from tilewright.ops.control import WhileOp, YieldOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.check_code import Code

MOST_LOOKS = 1 << 16
_LOOKS = (LoadOp, AtomicLoadOp, AtomicRMWOp, AtomicCASOp)


def waiting_looks(kernel: FuncOp) -> dict[Operation, WhileOp]:
    """Accesses of one integer on which alone it depends whether a `while` goes on, and that loop."""
    loops = every(kernel, WhileOp)
    return {op: loop for loop in loops for op in _looks_of(loop)}


def _looks_of(loop: WhileOp) -> list[Operation]:
    last = loop.before.block.last_op
    assert last is not None
    looks: list[Operation] = []
    todo, seen = [last.operands[0]], set[SSAValue]()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        sources = sources_of(value)
        if sources is not None:
            todo += [source for source in sources if _is_inside(source, loop)]
            continue
        op = defining_op(value)
        if op is None or not _is_inside(value, loop):
            continue
        if isinstance(op, _LOOKS):
            looks.append(op)
            continue
        todo += op.operands
    counts = any(_counts(value, loop, seen) for value in seen)
    usable = all(not is_tile(op.results[0]) and is_integer(element_type(op.results[0].type)) for op in looks)
    return looks if usable and not counts else []


def _counts(value: SSAValue, loop: WhileOp, seen: set[SSAValue]) -> bool:
    """Whether a value is computed in a loop from what the loop carries and carried on."""
    op = defining_op(value)
    if op is None or op.regions or isinstance(op, _LOOKS) or not _is_inside(value, loop):
        return False
    carried = any(among(users_of(value), YieldOp))
    return carried and any(isinstance(operand, BlockArgument) and operand in seen for operand in op.operands)


def _is_inside(value: SSAValue, loop: WhileOp) -> bool:
    """Whether a value is made in a loop, or carried by it."""
    owner = value.owner
    parent = owner.parent_op()
    while parent is not None and parent is not loop:
        parent = parent.parent_op()
    return parent is loop


def check_look(entry: Code, behind: Code, op: Operation, words: SSAValue, site: int) -> None:
    """It has not seen one and the same for too long.

    Args:
        entry: writes in front of the loop.
        behind: writes behind the look.
        op: the access.
        words: address of what was seen last, and of how often in a row.
        site: of the check.
    """
    one = behind.number(1)
    entry.store(_second(entry, words), entry.number(0), None)
    often = _second(behind, words)
    found = behind.wide(op.results[0])
    same = behind.compare("eq", found, behind.load(words, None, 0))
    count = behind.choose(same, behind.add(behind.load(often, None, 0), one), one)
    behind.store(words, found, None)
    behind.store(often, count, None)
    behind.check(site, behind.compare("slt", count, behind.number(MOST_LOOKS)), [found], ends=True)


def _second(code: Code, words: SSAValue) -> SSAValue:
    return code.put(AddPtrOp.create(operands=[words, code.number(1)], result_types=[words.type]))
