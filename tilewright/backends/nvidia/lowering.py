"""What the NVIDIA back end has code for: what `emit/` registered, and what its emitters read from inside."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.lowering import Lowering, lowering_of
from tilewright.backends.nvidia.emit import families
from tilewright.backends.nvidia.emit.context import EMITTERS
from tilewright.ops.check import CheckOp
from tilewright.ops.control import ConditionOp, YieldOp
from tilewright.ops.function import CallOp, FuncOp, ReturnOp
from tilewright.ops.promise import PromiseOp
from tilewright.ops.reduce import ReduceReturnOp
from tilewright.ops.scan import ScanReturnOp
from tilewright.ops.spec import REGISTRY

assert families.LOADED
# Calls are inlined; a body's end is read by the operation that it ends.
_INSIDE = (CallOp, ConditionOp, FuncOp, ReduceReturnOp, ReturnOp, ScanReturnOp, YieldOp)
_REFUSED: dict[type[Operation], str] = {
    CheckOp: "kernels with checks run on the CPU",
    PromiseOp: "kernels with checks run on the CPU",
}


def lowering(name: str) -> Lowering | None:
    """How code is made for operation `name`."""
    kind = REGISTRY[name].op
    return lowering_of(name, kind in EMITTERS or kind in _INSIDE, _REFUSED)
