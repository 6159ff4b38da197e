"""What the NVIDIA back end has code for: what `emit/` registered, and what its emitters read from inside."""

from __future__ import annotations

from tilewright.backends.nvidia.emit import families
from tilewright.backends.nvidia.emit.context import EMITTERS
from tilewright.backends.protocol import Lowering, lowering_of
from tilewright.ops.control import ConditionOp, YieldOp
from tilewright.ops.function import CallOp, FuncOp, ReturnOp
from tilewright.ops.reduce import ReduceReturnOp
from tilewright.ops.scan import ScanReturnOp

assert families.LOADED
# Calls are inlined; a body's end is read by the operation that it ends.
_INSIDE = (CallOp, ConditionOp, FuncOp, ReduceReturnOp, ReturnOp, ScanReturnOp, YieldOp)


def lowering(name: str) -> Lowering | None:
    """How code is made for operation `name`."""
    return lowering_of(name, {*EMITTERS, *_INSIDE}, {})
