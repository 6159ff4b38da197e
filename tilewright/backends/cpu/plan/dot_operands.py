"""Operands of `tt.dot`: read straight from memory if they are affine loads (`analysis/matrices.py`), else from scratch.

What is in scratch has been computed as a whole before the product, or is computed iteration by iteration where it is
packed (`ScratchOperand.fill`), which leaves iterations of the loop to be joined and packed columns to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analysis.matrices import MemoryOperand
from tilewright.backends.cpu.plan.steps import Buffer, Step, memory_bytes


@dataclass(eq=False, slots=True)
class ScratchOperand:
    """An operand that is read from scratch.

    Args:
        buffer: where it lies.
        strides: bytes along the operand's dims.
        fill: the group that computes it into `buffer`, once for each iteration that a product joins, before it is
            packed; None where it has been computed before.
    """

    buffer: Buffer
    strides: list[int]
    fill: Step | None = None


Operand = MemoryOperand | ScratchOperand


def scratch_operand(buffer: Buffer, flipped: bool, fill: Step | None = None) -> ScratchOperand:
    """The operand in `buffer`, transposed if `flipped`, with the group that computes it."""
    size = memory_bytes(buffer.elem)
    strides = [s * size for s in buffer.strides]
    return ScratchOperand(buffer, strides[:-2] + strides[:-3:-1] if flipped else strides, fill)
