"""How the copy engine (TMA) moves a block of a tensor between global and shared memory: buffers and boxes.

A block lies in shared memory as wgmma reads it: in panels as wide as a swizzle, one after another, where the block is
large enough to repeat the pattern; else row after row. One instruction moves one box, a panel or a part of a row:

    block 64 x 128 of f16:   | panel 0: 64 x 64 | panel 1: 64 x 64 |      128 bytes wide, 8192 bytes each

What the engine cannot move has no plan. Source: PTX ISA, "Tensors"; CUDA Driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, TensorType
from xdsl.ir import Attribute, BlockArgument, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.device.tensormap import Recipe
from tilewright.backends.nvidia.tgir.types import MemDescType, memdesc_type, memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shared import SWIZZLE_ALIGNMENT, hardware_swizzled, row_major, widest_swizzle
from tilewright.ops.casts import ExtSIOp, TruncIOp
from tilewright.ops.descriptor import MakeTensorDescOp, TensorDescType

ROUNDED = "tw.tf32"  # of a descriptor whose blocks are rounded to tf32 on the way
# Of a descriptor that stands for pointers and masks, as long as its launch can describe it: numbers of the parameters
# that must not be negative then.
FROM_POINTERS = "tw.pointers"
FARTHEST = (1 << 31) - 1  # size of a tensor of which no mask says where it ends
_LONGEST = 256  # elements of a box along a dim
_LEAST = 128  # bytes of a block: the alignment of what the engine writes
_LEAST_ROW = 16  # bytes
_FLOATS = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64"}  # those that can be padded with NaN


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How blocks of one shape are moved.

    Args:
        shape: of the block.
        layout: of the buffer.
        swizzle: width of its pattern in bytes; 0 for none.
        box: sizes of what one instruction moves.
        boxes: how many there are, side by side along the last dim, one after another in the buffer.
        box_bytes: bytes of one.
    """

    shape: tuple[int, ...]
    layout: LinearLayout
    swizzle: int
    box: tuple[int, ...]
    boxes: int
    box_bytes: int


@functools.lru_cache(maxsize=512)
def plan_copy(shape: tuple[int, ...], bits: int) -> Answer[CopyPlan]:
    """The plan for a block, if the engine can move it.

    Args:
        shape: of the block.
        bits: of an element, in memory.
    """
    *outer, row = shape
    size, rows = math.prod(shape) * bits // 8, math.prod(outer)
    if any(n & (n - 1) for n in shape):
        return No("the extents of its block are not powers of two", instead="blocks of powers of two")
    if size < _LEAST:
        return No(f"a block of {size} bytes is too small", instead=f"blocks of {_LEAST} bytes or more")
    if row * bits // 8 < _LEAST_ROW:
        return No(f"a row of {row * bits // 8} bytes is too short", instead=f"rows of {_LEAST_ROW} bytes or more")
    if max(outer, default=1) > _LONGEST:
        return No(f"a block has more than {_LONGEST} rows", instead=f"{_LONGEST} rows or fewer")
    swizzle = widest_swizzle(shape, bits)
    if rows > 1 and swizzle > _LEAST_ROW and size >= SWIZZLE_ALIGNMENT[swizzle]:
        width, layout = swizzle * 8 // bits, hardware_swizzled(shape, bits, swizzle)
    else:
        width, layout, swizzle = min(row, _LONGEST), row_major(shape), 0
    boxes = row // width
    if boxes > (tuning.COPY_ENGINE_BOXES if swizzle or rows == 1 else 1):
        return No(f"a block has {boxes} pieces, which is too many", instead="smaller blocks")
    return Yes(CopyPlan(shape, layout, swizzle, (*outer, width), boxes, size // boxes))


def plan_of(type_: Attribute) -> Answer[CopyPlan]:
    """The plan for the blocks of a descriptor type."""
    block = _block(type_)
    return plan_copy(shape_of(block), memory_bits(element_type(block)))


def buffer_type(type_: Attribute) -> MemDescType:
    """The buffer for a block of a descriptor type that has a plan."""
    block = _block(type_)
    return memdesc_type(shape_of(block), element_type(block), made_plan(type_).layout)


def made_plan(type_: Attribute) -> CopyPlan:
    """The plan for the blocks of a descriptor type that was left to the engine."""
    answer = plan_of(type_)
    assert isinstance(answer, Yes), "a descriptor was kept that the copy engine does not serve"
    return answer.plan


def _block(type_: Attribute) -> TensorType[Attribute]:
    assert isinstance(type_, TensorDescType) and isinstance(type_.block, TensorType)
    return type_.block


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """How each warp stores its part of a tile, a slice after the other.

    Args:
        slice: layout of one slice over the registers and lanes of a warp.
        registers: of every slice the registers that it has, in the order of the layout.
        places: of every slice where it begins, beside where the part of its warp does.
        warps: where the part of each bit of the warp's number begins.
    """

    slice: LinearLayout
    registers: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, ...], ...]
    warps: tuple[tuple[int, ...], ...]


@functools.lru_cache(maxsize=256)
def slices_of(layout: LinearLayout, plan: CopyPlan) -> SlicePlan | None:
    """The slices of a tile, blocks of a plan of one box; None if a warp does not have whole ones to itself.

    Args:
        layout: of the tile.
        plan: how slices are copied.
    """
    bases, box = layout.bases(), plan.box
    columns = [*bases["register"], *bases["lane"], *bases["warp"]]
    if len(box) != len(layout.outs) or plan.boxes != 1 or len(set(columns)) < len(columns):
        return None
    if any(len([c for c in column if c]) != 1 for column in columns) or any(bases.get("block", ())):
        return None

    def within(column: tuple[int, ...]) -> bool:
        return all(c < size for c, size in zip(column, box, strict=True))

    own = [column for column in bases["register"] if within(column)]
    if not all(map(within, bases["lane"])) or any(map(within, bases["warp"])):
        return None
    bits = sum(size.bit_length() - 1 for size in box)
    if len(own) + len(bases["lane"]) != bits:
        return None
    inner = {"register": own, "lane": bases["lane"], "warp": [], "block": []}
    sizes = dict(zip(layout.out_sizes, box, strict=True))
    numbers: dict[tuple[int, ...], list[int]] = {}
    for register in range(layout.in_sizes["register"]):
        steps = [column for bit, column in enumerate(bases["register"]) if register >> bit & 1]
        place = tuple(sum(column[dim] for column in steps if not within(column)) for dim in range(len(box)))
        numbers.setdefault(place, []).append(register)
    return SlicePlan(
        LinearLayout.from_bases(inner, sizes), tuple(map(tuple, numbers.values())), tuple(numbers), tuple(bases["warp"])
    )


def _element_name(type_: Attribute) -> str:
    """Signature type of the elements of a descriptor type, as the engine sees them: it moves others as integers."""
    element = element_type(_block(type_))
    return _FLOATS.get(ir_name(element)) or f"u{memory_bits(element)}"


def plan_blocks(maker: MakeTensorDescOp) -> Answer[CopyPlan]:
    """The plan for the blocks of a descriptor, if the engine can move them, padding included."""
    type_ = maker.result.type
    if maker.pads_nan and _element_name(type_) not in _FLOATS.values():
        return No(f"it does not pad {_element_name(type_)} with NaN", instead='padding_option="zero"')
    return plan_of(type_)


def recipe_of(maker: MakeTensorDescOp) -> Recipe:
    """How a launch makes the tensor map of a descriptor of the host."""
    plan, natural = made_plan(maker.result.type), maker.attributes.get(FROM_POINTERS)
    return {
        "element": _element_name(maker.result.type),
        "base": _source(maker.base),
        "shape": [_size(value, maker) for value in maker.sizes],
        "strides": [_source(value) for value in maker.strides],
        "box": [*[1] * (maker.rank - len(plan.box)), *plan.box],
        "swizzle": plan.swizzle,
        "nan_padding": maker.pads_nan,
        "round_to_tf32": ROUNDED in maker.attributes,
        "from_pointers": FROM_POINTERS in maker.attributes,
        "natural": list(natural.get_values()) if isinstance(natural, DenseArrayBase) else [],
    }


def _size(value: SSAValue, maker: MakeTensorDescOp) -> list[int | None]:
    """The source of a size; all places of 32 bits are within a tensor that ends nowhere."""
    found = _source(value)
    return [None, FARTHEST + 1] if FROM_POINTERS in maker.attributes and found == [None, FARTHEST] else found


def _source(value: SSAValue) -> list[int | None]:
    """[parameter, None] or [None, constant]; what is converted is as long as the launch sees that it fits."""
    if isinstance(value.owner, ExtSIOp | TruncIOp):
        value = value.owner.operands[0]
    if isinstance(value, BlockArgument):
        return [value.index, None]
    number = constant_of(value)
    assert number is not None, "a descriptor of the host is made of parameters and constants"
    return [None, int(number)]


__all__ = [
    "FARTHEST",
    "FROM_POINTERS",
    "ROUNDED",
    "CopyPlan",
    "SlicePlan",
    "buffer_type",
    "made_plan",
    "plan_blocks",
    "plan_copy",
    "plan_of",
    "recipe_of",
    "slices_of",
]
