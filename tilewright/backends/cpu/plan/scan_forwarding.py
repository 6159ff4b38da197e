"""Scans forwarded: results that only stores in the scan's own loop want stay in registers, totals are its last element.

%s = tt.scan(%v)  ->  scratch                   for chunks:  %s = scan of the chunk;  store %s * 2
for chunks:  store scratch * 2           ->     %t = the last of %s
for chunks:  %t = tt.reduce(%v)
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.cpu.plan.recompute import is_lazy, readers_of
from tilewright.backends.cpu.plan.steps import ReduceSink, ScanSink, Step, StoreSink
from tilewright.ir.types import bit_width, element_type
from tilewright.ops.reduce import single_operation


def is_total(step: Step, scan: Step) -> bool:
    """Whether a step combines what a scan combines, along the same dim by the same operation."""
    first = scan.sinks[0]
    if not step.is_only(ReduceSink) or not isinstance(first, ScanSink):
        return False
    bodies = [single_operation(sink.op.regions[0].block) for sink in (first, *step.sinks) if sink.op is not None]
    one, *others = [None if op is None else (type(op), op.properties) for op in bodies]
    alike = all(sink.roots == first.roots and sink.axis == first.axis for sink in step.sinks)
    return one is not None and alike and others == [one] * len(step.sinks) and _is_exact(first)


def _is_exact(scan: ScanSink) -> bool:
    """Whether elements are as wide as what sums are kept in, which a scan rounds to more often than a reduction."""
    return all(bit_width(element_type(root.type)) >= 32 for root in scan.roots)


def leave_in_registers(order: Sequence[Step]) -> None:
    """Take the places in scratch from such results.

    Args:
        order: the steps of a block; stores have joined the scans that they may join.
    """
    for step in order:
        if step.scans and len(step.sinks) > 1:
            scan, *others = step.sinks
            assert scan.op is not None
            here = {sink.op for sink in others if isinstance(sink, StoreSink)}
            for number, result in enumerate(scan.op.results):
                if {user for user in readers_of(result) if not is_lazy(user)} <= here:
                    scan.targets[number] = None
