"""Operands that wgmma does not read from shared memory as they lie there: its threads read them as fragments.

wgmma reads elements of 8 and 32 bits along K only (PTX ISA, wgmma, "Strides"). A tile that arrives with its other dim
fast becomes operand A, whose fragments come from registers; if it is B, the product is turned over:

    d = a . b                   dT = bT . aT                a from shared memory, b by the threads

Rows of a fragment may be any rows of the operand, as long as the accumulator has them in the same places. They are
chosen so that the threads of a warp meet in no bank: with the swizzle of 128 bytes, lanes along K flip bits 2 and 3
of a place of 32 bits, so lanes along the rows take bits 0, 1 and 4. Of 8 bits two neighbours travel as one element of
16, which `ldmatrix.trans` gives to the thread that wants them; rows r and r + 8 of a fragment are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.axis import axis_facts
from tilewright.backends.nvidia.plan.anchors import access_of
from tilewright.backends.nvidia.plan.relations import follows_result
from tilewright.ir.types import shape_of
from tilewright.layouts.distributed import permuted_bits, wgmma_accumulator, wgmma_operand_a
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.layouts.tile import transpose_tile
from tilewright.ops.control import FuncOp
from tilewright.ops.descriptor import DescriptorLoadOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import TransOp

_LANES = {32: (0, 1, 4), 8: (1, 2, 3)}  # bits of a row that the lanes along rows take, by bits of an element
_PART_WORDS = 16  # of a thread, of fragments that are loaded at once
_REGISTER = {32: 2, 8: 0}  # the one that tells rows r and r + 8 of a fragment apart


@dataclass(frozen=True, slots=True)
class Fragments:
    """An operand that threads read from a buffer as fragments of A.

    Args:
        index: 0 for A, 1 for B of a product that is turned over.
        layout: of the fragments, in coordinates of the operand.
    """

    index: int
    layout: LinearLayout


def lies_across(op: DotOp) -> list[int]:
    """Which operands are loaded from memory in which K is not the dim of neighbours: 0 for A, 1 for B."""
    found = [index for index in (0, 1) if _loads(op.operands[index])]
    return [index for index in found if _fast_in_memory(op.operands[index], op) == index]


def _loads(value: SSAValue) -> bool:
    return _origin(value)[0] is not None


def _origin(value: SSAValue) -> tuple[Operation | None, bool]:
    """The load of which a tile is made element by element, if it is, and whether it was transposed on the way."""
    turned = False
    while True:
        op = value.owner
        if isinstance(op, LoadOp | DescriptorLoadOp):
            return op, turned
        if not isinstance(op, Operation) or len(op.operands) != 1 or not follows_result(op):
            return None, turned
        if isinstance(op, TransOp):
            turned = not turned
        elif shape_of(op.operands[0].type) != shape_of(value.type):
            return None, turned
        value = op.operands[0]


def _fast_in_memory(value: SSAValue, user: Operation) -> int | None:
    """The dim along which neighbours of a loaded tile lie side by side in memory; None if that is not known."""
    load, turned = _origin(value)
    fast = None
    if isinstance(load, DescriptorLoadOp):
        fast = len(shape_of(load.result.type)) - 1
    elif isinstance(load, LoadOp):
        access = access_of(load, axis_facts(FuncOp.around(user)))
        fast = access.order[0] if access.run > 1 else None
    return fast if fast is None or not turned else 1 - fast


# --- layouts ------------------------------------------------------------------------------------------------------


def fragment_layouts(
    index: int, shape: Sequence[int], depth: int, warps: tuple[int, int], columns: int, bits: int
) -> tuple[LinearLayout, Fragments]:
    """The accumulator of a product that reads one operand as fragments, and that operand's layout.

    Args:
        index: of the operand: 0 for A, 1 for B.
        shape: of the result, turned over if the operand is B.
        depth: size of K.
        warps: along rows and columns of `shape`.
        columns: of an instruction.
        bits: of an element.
    """
    rows = _row_bits(padded_shape(shape)[0].bit_length() - 1, warps[0].bit_length() - 1, bits)
    accumulator = permuted_bits(wgmma_accumulator(warps, columns, shape), 0, rows)
    fragments = permuted_bits(wgmma_operand_a(warps, (shape[0], depth), bits), 0, rows)
    if index == 1:
        accumulator, fragments = (transpose_tile(layout, (1, 0)) for layout in (accumulator, fragments))
    return accumulator, Fragments(index, fragments)


def _row_bits(count: int, warps: int, bits: int) -> list[int]:
    """Which bit of an operand's row each bit of a fragment's row is: lanes, a register, warps, then more registers.

    What is left of a line goes to the registers, if there are more, so that a warp has whole lines.
    """
    chosen = [*_LANES[bits], _REGISTER[bits]]
    left = [bit for bit in range(count) if bit not in chosen]
    more = count - len(chosen) - warps
    if more > 0 and left[0] < len(chosen):
        return [*chosen, *left[1 : 1 + warps], left[0], *left[1 + warps :]]
    return [*chosen, *left]


# --- pipeline -----------------------------------------------------------------------------------------------------


def parts_of(layout: LinearLayout, steps: int, bits: int) -> list[range]:
    """The steps of K in the parts that a product starts one after the other.

    A thread loads the words of a part while the part before is multiplied, those of the first while the last of the
    product before is.

    Args:
        layout: of the fragments.
        steps: instructions along K.
        bits: of an element.
    """
    words = max(1, layout.in_sizes["register"] * bits // 32 // steps)
    size = max(1, min(steps // 2, _PART_WORDS // words))
    return [range(start, min(start + size, steps)) for start in range(0, steps, size)]


__all__ = ["Fragments", "fragment_layouts", "lies_across", "parts_of"]
