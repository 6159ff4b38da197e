"""What the CPU back end has code for, beside the table of elementwise instructions, and what it refuses.

`plan/collect.py` makes steps of the operations below, `emit/` has a file for each family of them.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.lowering import Lowering, lowering_of
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.check import CheckOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ConditionOp, ForOp, IfOp, WhileOp, YieldOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.debug import AssertOp, BarrierOp, InlineAsmOp, PrintOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import CallOp, FuncOp, PoisonOp, ReturnOp
from tilewright.ops.gather import GatherOp, HistogramOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.program import AssumeOp, GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.promise import PromiseOp
from tilewright.ops.reduce import ReduceOp, ReduceReturnOp
from tilewright.ops.scan import ScanOp, ScanReturnOp
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp, UnsplatOp

OWN: frozenset[type[Operation]] = frozenset({
    AddPtrOp, AssertOp, AssumeOp, AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp, BarrierOp, BroadcastOp, CallOp,
    CatOp, CheckOp, ConditionOp, ConstantOp, DotOp, ExpandDimsOp, ForOp, FuncOp, GatherOp, GetNumProgramsOp,
    GetProgramIdOp, HistogramOp, IfOp, JoinOp, LoadOp, MakeRangeOp, PoisonOp, PrintOp, ReduceOp, ReduceReturnOp,
    ReshapeOp, ReturnOp, ScanOp, ScanReturnOp, SplatOp, SplitOp, StoreOp, TransOp, UnsplatOp, WhileOp, YieldOp,
})  # fmt: skip
REFUSED: dict[type[Operation], str] = {
    PromiseOp: "promises are for checks, which stand in their place when code is made",
    InlineAsmOp: "inline assembly is written for one GPU; the CPU back end has none",
    ExternElementwiseOp: "libdevice is NVIDIA's library; use tl.math",
}


def lowering(name: str) -> Lowering | None:
    """How code is made for operation `name`."""
    return lowering_of(name, OWN, REFUSED)
