"""What the CPU back end refuses, and why."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.ops.debug import InlineAsmOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.promise import PromiseOp

REFUSED: dict[type[Operation], str] = {
    PromiseOp: "promises are for checks, which stand in their place when code is made",
    InlineAsmOp: "the front end makes operations of inline assembly; in a text it is written for one GPU",
    ExternElementwiseOp: "libdevice is NVIDIA's library; use tl.math",
}


def refusal(op: Operation) -> str:
    """Why the CPU back end does not have an operation."""
    return REFUSED.get(type(op), f"the CPU back end has no code for {op.name}")
