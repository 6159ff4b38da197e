"""Exchanges that may be locks order the memory that they guard.

    while tl.atomic_cas(lock, 0, 1, sem="relaxed") == 1: pass
    x = tl.load(p)                     what another program stored before it let the lock go
    tl.store(p, x + 1)
    tl.atomic_xchg(lock, 0, sem="relaxed")

A weak load may be served from the first-level cache of the multiprocessor, which holds what was there before the lock
was taken; only an acquire makes it forget. Programs are written that name a weaker order here and count on the lock
all the same. So where a kernel loads and stores the same array, every compare-and-swap and every exchange acquires
and releases. Sums, maxima and the like keep the order that they were given: nothing waits for them.
See PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from tilewright.analysis.origins import may_meet
from tilewright.ir.walk import every, walk
from tilewright.ops.atomic import AtomicCASOp, exchanges
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, StoreOp


def order_locks(module: ModuleOp) -> None:
    """Strengthen the exchanges of kernels that load and store one array, in place.

    Args:
        module: tile IR, all calls inlined.
    """
    for function in FuncOp.all_of(module):
        found = [op for op in walk(function) if _is_exchange(op)]
        if found and _loads_what_it_stores(function):
            for op in found:
                op.properties["sem"] = StringAttr("acq_rel")


def _is_exchange(op: Operation) -> bool:
    return exchanges(op) or isinstance(op, AtomicCASOp)


def _loads_what_it_stores(function: FuncOp) -> bool:
    stored = [op.operands[0] for op in every(function, StoreOp)]
    loaded = [op.operands[0] for op in every(function, LoadOp)]
    return any(may_meet(a, b) for a in stored for b in loaded)
