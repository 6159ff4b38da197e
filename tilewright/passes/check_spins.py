"""Checks of loops that wait for another program: does it ever come?

    while tl.load(flag) == 0: pass          while tl.atomic_cas(lock, 0, 1) == 1: pass

Which loops these are `analysis/waiting.py` says. With checks programs run one after the other, in an order in which
each may wait for earlier ones. So what a waiting loop looks at changes by the loop itself or never: a word that was the
same for many looks is a program that waits for one that has not started, or for a lock that nobody gives back. On a GPU
that depends on how many programs it holds.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.passes.check_code import Code

MOST_LOOKS = 1 << 16


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
    return code.op(AddPtrOp, words, code.number(1))
