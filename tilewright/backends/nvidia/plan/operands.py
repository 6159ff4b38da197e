"""Operands of `tt.dot` that are read from shared memory, a step of K at a time.

The assignment converts every operand to the layout of its fragments. Where such a conversion goes through shared memory
anyway, the product itself reads the buffer: the operands of all of K need not be in registers at once, and a load that
is copied ahead lands where it is read.

    %f = convert_layout %t                  %b = local_alloc %t
    tt.dot %f, ...                          tt.dot %b, ... {tw.layout_a = the layout of %f}
"""

from __future__ import annotations

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.plan.dots import fast_dim
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp, LocalAllocOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import (
    LayoutAttr,
    MemDescType,
    layout_attr,
    layout_of,
    memdesc_type,
    memory_bits,
)
from tilewright.ir.types import element_type, shape_of
from tilewright.ir.walk import every
from tilewright.layouts.access import unique_registers
from tilewright.layouts.conversion import plan_conversion
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shared import hardware_swizzled, row_major, widest_swizzle
from tilewright.ops.dot import DotOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase

OPERAND_LAYOUTS = ("tw.layout_a", "tw.layout_b")
_CHUNK = 16  # bytes that a swizzle keeps together


def operand_layout(op: DotOp | WarpGroupDotOp, index: int) -> LinearLayout:
    """Layout in which the threads take operand A (`index` 0) or B (1), in registers or from a buffer."""
    given = op.attributes.get(OPERAND_LAYOUTS[index])
    return given.layout if isinstance(given, LayoutAttr) else layout_of(op.operands[index])


def fragments_read(op: WarpGroupDotOp) -> int | None:
    """Which operand of a wgmma product its threads read as fragments from a buffer: 0 for A, 1 for B; None for none."""
    return next((index for index, name in enumerate(OPERAND_LAYOUTS) if name in op.attributes), None)


def operand_type(value: SSAValue) -> tuple[tuple[int, ...], Attribute]:
    """(shape, element type) of an operand, in registers or in a buffer."""
    tile = value.type.tile if isinstance(value.type, MemDescType) else value.type
    return shape_of(tile), element_type(tile)


def stage_operands(function: Operation) -> None:
    """Let the products of a laid-out function read operands from buffers where that is better, in place."""
    buffers: dict[Operation, SSAValue] = {}
    for op in every(function, DotOp):
        for index in (0, 1):
            convert = op.operands[index].owner
            if isinstance(convert, ConvertLayoutOp) and _wants_buffer(convert, op):
                op.attributes[OPERAND_LAYOUTS[index]] = layout_attr(layout_of(convert.result))
                op.operands[index] = buffers.setdefault(convert, _buffer(convert, buffers))
    for convert in buffers:
        if convert.results[0].first_use is None:
            erase(convert)


def _wants_buffer(convert: ConvertLayoutOp, dot: DotOp) -> bool:
    element = element_type(convert.result.type)
    wanted, bits = layout_of(convert.result), memory_bits(element)
    words = unique_registers(wanted)[0].in_sizes["register"] * bits // 32
    if convert.parent_block() is not dot.parent_block() and words <= tuning.OPERAND_REGISTERS:
        return False
    return plan_conversion(layout_of(convert.src), wanted, bits).kind == "shared"


def _buffer(convert: ConvertLayoutOp, known: dict[Operation, SSAValue]) -> SSAValue:
    if convert in known:
        return known[convert]
    source = convert.src
    shape, element = shape_of(source.type), element_type(source.type)
    type_ = memdesc_type(shape, element, buffer_layout(layout_of(source), shape, memory_bits(element)))
    return Builder(convert).make(LocalAllocOp, type_, source)


def buffer_layout(source: LinearLayout, shape: tuple[int, ...], bits: int) -> LinearLayout:
    """A buffer with rows along the fast dim of a tile laid out as `source`, swizzled as widely as they allow."""
    fast = fast_dim(source)
    order = (fast, *(axis for axis in reversed(range(len(shape))) if axis != fast))
    if source.out_sizes[f"dim{fast}"] * bits < 8 * _CHUNK:
        return row_major(shape, order)
    return hardware_swizzled(shape, bits, widest_swizzle(shape, bits, order), order)


__all__ = ["OPERAND_LAYOUTS", "buffer_layout", "fragments_read", "operand_layout", "operand_type", "stage_operands"]
