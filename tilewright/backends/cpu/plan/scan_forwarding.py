"""Scans forwarded to stores: results that only stores in the scan's own loop want stay in registers.

%s = tt.scan(%v)  ->  scratch                   for chunks:  %s = scan of the chunk;  store %s * 2
for chunks:  store scratch * 2           ->
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.steps import Step


def leave_in_registers(order: Sequence[Step]) -> None:
    """Take the places in scratch from such results.

    Args:
        order: the steps of a block; stores have joined the scans that they may join.
    """
    for step in order:
        if step.scans and len(step.sinks) > 1:
            scan, *stores = step.sinks
            assert scan.op is not None
            here = {sink.op for sink in stores}
            for number, result in enumerate(scan.op.results):
                if _readers(result) <= here:
                    scan.targets[number] = None


def _readers(value: SSAValue) -> set[Operation]:
    """Who reads a value, or what is computed from it where it is wanted."""
    found: set[Operation] = set()
    seen, stack = {value}, [value]
    while stack:
        for use in stack.pop().uses:
            user = use.operation
            if not is_lazy(user):
                found.add(user)
                continue
            further = set(user.results) - seen
            seen |= further
            stack += further
    return found
