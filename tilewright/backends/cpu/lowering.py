"""What the CPU back end has code for, beside the table of elementwise instructions, and what it refuses."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.cpu.emit import lower
from tilewright.backends.cpu.emit.context import EMITTERS
from tilewright.backends.cpu.plan.collect import PLANNED
from tilewright.backends.cpu.plan.recompute import is_lazy_kind
from tilewright.backends.cpu.refused import REFUSED
from tilewright.backends.lowering import Lowering, lowering_of
from tilewright.ops.control import ConditionOp, YieldOp
from tilewright.ops.function import FuncOp, ReturnOp
from tilewright.ops.reduce import ReduceReturnOp
from tilewright.ops.scan import ScanReturnOp
from tilewright.ops.spec import REGISTRY

assert lower  # which has all emitters
# A body's end is read by the operation that it ends.
_INSIDE = (ConditionOp, FuncOp, ReduceReturnOp, ReturnOp, ScanReturnOp, YieldOp)


def lowering(name: str) -> Lowering | None:
    """How code is made for operation `name`."""
    kind: type[Operation] = REGISTRY[name].op
    own = kind in EMITTERS or kind in PLANNED or kind in _INSIDE or is_lazy_kind(kind)
    return lowering_of(name, own, REFUSED)
