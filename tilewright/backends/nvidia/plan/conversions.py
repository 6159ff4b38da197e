"""Which changes of layout that are left go through shared memory; `layouts` decides, this only tells."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tilewright.backends.nvidia.emit import families
from tilewright.backends.nvidia.plan.allocate import scratch_bytes, waits_between
from tilewright.backends.nvidia.plan.subjects import IN_WARP
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.ir.walk import every

assert families.LOADED, "the emitters tell which operations need scratch"


def note_conversions(module: ModuleOp, decisions: Decisions) -> None:
    """Note of every change of layout in a laid-out module whether it needs shared memory."""
    for op in every(module, ConvertLayoutOp):
        decisions.note(IN_WARP, op, conversion(op))


def conversion(op: ConvertLayoutOp) -> Answer[None]:
    """How a tile gets to its new layout."""
    type_ = op.operands[0].type
    tile = "x".join(map(str, [*shape_of(type_), ir_name(element_type(type_))]))
    size = scratch_bytes(op)
    if not size:
        return Yes(None, f"{tile}, by registers and shuffles")
    who = "all warps wait for each other" if waits_between(op) else "each warp for itself"
    return No(f"{tile} goes through {size} bytes of shared memory, {who}")
