"""Dummy address: where vectors go of which all lanes are masked off.

Such an access touches no memory, but where its address is in no page of the process, as behind a tensor of one row that
a tile of 32 rows reads, the processor finds that out by microcode. Measured: one core of a Zen 4, 122 ns for a load and
a store of 16 elements, a nanosecond otherwise (`python -m benchmarks.forms --only "activation of"`). Conditions that
all lanes of a chunk share say so without looking at the lanes.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.analysis.bounds import is_conjunction
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import LANE, Index
from tilewright.backends.cpu.emit.values import Values
from tilewright.backends.llvm.types import V
from tilewright.ir.values import defining_op
from tilewright.ops.broadcast import SplatOp


def shared_condition(ev: Values, mask: SSAValue, index: Index) -> V | None:
    """What all lanes of a chunk share of a mask, a scalar without which none of them is true; None if it is nothing."""
    found: V | None = None
    stack = [(mask, index)]
    while stack:
        value, at = stack.pop()
        op = defining_op(value)
        if op is None or constant_of(value) is not None:
            continue
        if isinstance(op, SplatOp) or not any(field.src == LANE for coord in at for field in coord):
            part = ev.eval(value, at)
            if part.const is None:
                found = part if found is None else ev.f.and_(found, part)
        elif is_conjunction(op):
            stack += operand_indices(value, at)
    return found
