"""Which instruction makes a `tt.dot`, and how its operands and accumulator lie.

A product is made by wgmma (Hopper's warp groups, operands in shared memory), mma.sync (fragments in registers) or
plain multiply-adds, each with layouts of its own. `plan_dot` decides from the types of the operation and from where its
operands come; the emitter recognises the plan in the layouts alone. A product with a batch dimension gives batches to
warps first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from xdsl.ir import Operation, SSAValue

from tilewright.backends.nvidia.arch import WARP, Arch
from tilewright.backends.nvidia.plan.fragments import Fragments, fragment_layouts, lies_across
from tilewright.backends.nvidia.plan.subjects import TENSOR_CORES, WGMMA
from tilewright.backends.nvidia.plan.turning import in_order_of_accumulators
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name, shape_of
from tilewright.ir.values import makers_behind, users_of, uses_behind
from tilewright.ir.walk import among
from tilewright.layouts.distributed import (
    blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    wgmma_accumulator,
    wgmma_operand_a,
)
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.layouts.shared import hardware_swizzled, widest_swizzle
from tilewright.ops.descriptor import DescriptorLoadOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import TransOp

Kind = Literal["fma", "mma", "wgmma"]

STEP_BYTES = 32  # of K that one tensor-core instruction takes, whatever the type
_GROUP_ROWS = 64  # rows of one wgmma
_WIDEST = 256  # columns of one wgmma
_NARROWEST = 16  # columns: with 8 a row of a transposed B would be narrower than the smallest swizzle
_FP8 = ("f8E4M3FN", "f8E5M2")  # the 8-bit floats that tensor cores take


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """An operand that wgmma reads from shared memory.

    Args:
        shape: of the tile.
        element_bits: bits of an element.
        k_axis: the dim that is summed over: 1 for A, 0 for B.
        by_threads: threads read it as fragments, and it has its other dim fast.
        turned: it arrives with its other dim fast, and is turned by threads (`plan/turning.py`).
    """

    shape: tuple[int, ...]
    element_bits: int
    k_axis: int
    by_threads: bool = False
    turned: bool = False

    def layout_for(self, source: LinearLayout) -> LinearLayout:
        """The buffer for a tile that arrives in the layout `source`, with the widest swizzle.

        The dim that is fast in the source is fast in the buffer, so that whole vectors are written; what wgmma reads
        itself must have K fast if it has not 16 bits (PTX ISA, wgmma, "Strides": only those have transposed forms).
        """
        if self.by_threads:
            fast = 1 - self.k_axis
        else:
            fast = fast_dim(source) if self.element_bits == 16 else self.k_axis
        order = (fast, 1 - fast)
        swizzle = widest_swizzle(self.shape, self.element_bits, order)
        layout = hardware_swizzled(self.shape, self.element_bits, swizzle, order)
        return in_order_of_accumulators(layout, self.k_axis) if self.turned else layout


@dataclass(frozen=True, slots=True)
class DotPlan:
    """How one product is made.

    Args:
        kind: by which instruction.
        accumulator: layout of c and d.
        a, b: layout of the operand in registers, or its place in shared memory.
        fragments: the operand that threads read from there for wgmma, if there is one.
    """

    kind: Kind
    accumulator: LinearLayout
    a: LinearLayout | SharedOperand
    b: LinearLayout | SharedOperand
    fragments: Fragments | None = None


def plan_dot(op: DotOp, num_warps: int, arch: Arch, decisions: Decisions | None = None) -> DotPlan:
    """Plan a product of tile IR.

    Args:
        op: the operation.
        num_warps: warps of the block.
        arch: what the target has.
        decisions: of the compilation; None where nobody asks why.
    """
    decisions = Decisions() if decisions is None else decisions
    made = decisions.note(WGMMA, op, _wgmma(op, num_warps, arch))
    if made is not None:
        decisions.note(TENSOR_CORES, op, Yes(made, "wgmma"))
        return made
    return decisions.note(TENSOR_CORES, op, _mma(op, num_warps, arch)) or _fma(op, num_warps)


def is_wgmma(op: DotOp, num_warps: int, arch: Arch) -> bool:
    """Whether whole groups of four warps make a product of tile IR."""
    return isinstance(_wgmma(op, num_warps, arch), Yes)


def _mma(op: DotOp, num_warps: int, arch: Arch) -> Answer[DotPlan]:
    """The plan with fragments in registers."""
    left, right, shape = _shapes(op)
    bits = fragment_bits(op, arch)
    if bits is None:
        return _no_fragments(op)
    # A fragment of half the depth of an instruction is the least: a shallower one would hold copies along K.
    least = STEP_BYTES * 8 // 2 // bits
    if padded_shape(left)[-1] < least:
        return No(f"a depth of {left[-1]} is less than the {least} of half an instruction", instead="a larger K block")
    warps = _mma_warps(shape, num_warps, _is_chained(op))
    a, b = mma_operand_a(warps, left, bits), mma_operand_b(warps, right, bits)
    return Yes(DotPlan("mma", mma_accumulator(warps, shape), a, b), "mma.sync")


def _no_fragments(op: DotOp) -> No:
    name = ir_name(element_type(op.a.type))
    if name == "f32":
        return No(
            f"f32 is multiplied exactly, with input_precision={precision(op)!r}", instead='input_precision="tf32"'
        )
    return No(f"they do not take {name}")


def _fma(op: DotOp, num_warps: int) -> DotPlan:
    """The plan with multiply-adds of single elements."""
    left, right, shape = _shapes(op)
    accumulator = _fma_accumulator(padded_shape(shape), num_warps)
    return DotPlan("fma", accumulator, _fma_operand(accumulator, 0, left), _fma_operand(accumulator, 1, right))


def _shapes(op: DotOp) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Of operands A and B and of the result."""
    left, right = shape_of(op.a.type), shape_of(op.b.type)
    return left, right, (*left[:-1], right[-1])


# --- types ------------------------------------------------------------------------------------------------------


def precision(op: DotOp) -> str:
    """What is done with f32 operands: "ieee", "tf32", "tf32x3", "bf16x3" or "bf16x6"."""
    return str(op.attr_values()["inputPrecision"])


def fragment_bits(op: DotOp, arch: Arch) -> int | None:
    """Bits of the elements of a tensor-core fragment that serves these operands; None if tensor cores do not.

    Narrow floats that the target's tensor cores do not take are widened to f16, which holds all of them.
    """
    name = ir_name(element_type(op.a.type))
    if name == "f32":
        return {"tf32": 32, "tf32x3": 32, "bf16x3": 16, "bf16x6": 16}.get(precision(op))
    if name in ("f16", "bf16"):
        return 16
    if name == "i8":
        return 8
    if name.startswith("f8"):
        return 8 if takes_fp8(_names(op), arch) else 16
    return None


def takes_fp8(names: Sequence[str], arch: Arch) -> bool:
    """Whether mma.sync takes 8-bit operands of these types as they are."""
    return arch.has_fp8_mma and all(name in _FP8 for name in names)


def _names(op: DotOp) -> list[str]:
    return [ir_name(element_type(value.type)) for value in (op.a, op.b)]


# --- wgmma ------------------------------------------------------------------------------------------------------


def _wgmma(op: DotOp, num_warps: int, arch: Arch) -> Answer[DotPlan]:
    """The plan for whole groups of four warps."""
    left, _, shape = _shapes(op)
    bits = fragment_bits(op, arch)
    if not arch.has_wgmma:
        return No("the target has none")
    if bits is None:
        return _no_fragments(op)
    if len(shape) != 2:
        return No("it has no batches", instead="a program for each batch")
    if num_warps % 4:
        return No(f"it takes groups of 4 warps, there are {num_warps}", instead="num_warps=4 or a multiple")
    names = _names(op)
    if names[0] == "f32" and precision(op) != "tf32":
        return No(f"input_precision={precision(op)!r} splits the operands", instead='input_precision="tf32"')
    if names[0].startswith("f8") and not takes_fp8(names, arch):
        return No(f"it does not take {' with '.join(dict.fromkeys(names))}")
    rows, columns = padded_shape(shape)
    if rows < _GROUP_ROWS:
        return No(f"it has {_GROUP_ROWS} rows, the tile {shape[0]}", instead=f"{_GROUP_ROWS} rows or more")
    if columns < _NARROWEST:
        return No(f"it has {_NARROWEST} columns or more, the tile {shape[1]}", instead=f"{_NARROWEST} columns or more")
    step = STEP_BYTES * 8 // bits
    if left[-1] % step:
        return No(
            f"its depth is a multiple of {step}, that of the tile {left[-1]}",
            instead=f"K blocks of {step} or a multiple",
        )
    index = None if bits == 16 else _read_by_threads(op, shape)
    if index is not None:
        return _fragments_plan(index, shape, left[-1], num_warps, bits)
    return _wgmma_plan(op, shape, left[-1], num_warps, bits)


def _warps_and_columns(shape: Sequence[int], num_warps: int) -> tuple[tuple[int, int], int]:
    """Warps along rows and columns of a result, and the columns of an instruction."""
    rows, columns = padded_shape(shape)
    groups = min(num_warps // 4, rows // _GROUP_ROWS)
    warps = (4 * groups, num_warps // (4 * groups))
    return warps, min(_WIDEST, max(_NARROWEST, columns // warps[1]))


def _read_by_threads(op: DotOp, shape: Sequence[int]) -> int | None:
    """Which operand (0 for A, 1 for B) must come to wgmma from registers as it does not lie along K; None for none.

    Of two the larger. B becomes A of the product turned over, whose rows are columns, and whose B is in shared memory:
    not where A is computed, in registers.
    """
    across = [] if _computed_in_loop(op.a, op) else lies_across(op)
    rows, columns = padded_shape(shape)
    if columns < _GROUP_ROWS:
        across = [index for index in across if index == 0]
    return max(across, key=lambda index: (rows, columns)[index], default=None)


def _fragments_plan(index: int, shape: Sequence[int], depth: int, num_warps: int, bits: int) -> Yes[DotPlan]:
    turned = (shape[0], shape[1]) if index == 0 else (shape[1], shape[0])
    warps, n = _warps_and_columns(turned, num_warps)
    accumulator, fragments = fragment_layouts(index, turned, depth, warps, n, bits)
    a = SharedOperand((shape[0], depth), bits, 1, by_threads=index == 0)
    b = SharedOperand((depth, shape[1]), bits, 0, by_threads=index == 1)
    how = ("a by threads, as K is not its fast dim", "turned over: b by threads, as K is not its fast dim")[index]
    plan = DotPlan("wgmma", accumulator, a, b, fragments)
    return Yes(plan, f"64 rows x {n} columns at a time, {how}")


def _wgmma_plan(op: DotOp, shape: Sequence[int], depth: int, num_warps: int, bits: int) -> Yes[DotPlan]:
    warps, n = _warps_and_columns(shape, num_warps)
    a: LinearLayout | SharedOperand = SharedOperand((shape[0], depth), bits, 1)
    b, how = SharedOperand((depth, shape[1]), bits, 0), "a from shared memory"
    if _computed_in_loop(op.a, op):
        a, how = wgmma_operand_a(warps, (shape[0], depth), bits), "a from registers"
        if bits == 8 and 1 in lies_across(op):
            a, b = in_order_of_accumulators(a, 1), replace(b, turned=True)
            how += ", b turned, as K is not its fast dim"
    return Yes(DotPlan("wgmma", wgmma_accumulator(warps, n, shape), a, b), f"64 rows x {n} columns at a time, {how}")


def is_only_turned(tile: SSAValue, plan: Callable[[DotOp], DotPlan]) -> bool:
    """Whether all that is done with a tile of tile IR is to turn it, and multiply it."""
    users = users_of(tile)
    plans = [plan(user).b for user in users if isinstance(user, DotOp) and user.b is tile]
    return len(plans) == len(users) > 0 and all(isinstance(b, SharedOperand) and b.turned for b in plans)


def _computed_in_loop(value: SSAValue, user: Operation) -> bool:
    """Whether a tile is computed in the block of its user: then it is in registers, and best stays there.

    A tile that is loaded arrives in shared memory as easily, and one from before a loop would hold on to registers.
    """
    owner = value.owner
    while isinstance(owner, TransOp):
        owner = owner.operands[0].owner
    if not isinstance(owner, Operation) or isinstance(owner, LoadOp | DescriptorLoadOp):
        return False
    return owner.parent_block() is user.parent_block()


def fast_dim(layout: LinearLayout) -> int:
    """The dim along which a thread's registers, or else neighbouring lanes, hold neighbours."""
    for dim in ("register", "lane", "warp"):
        for basis in layout.bases().get(dim, ()):
            if sum(basis) == 1:
                return basis.index(1)
    return len(layout.outs) - 1


# --- mma.sync ---------------------------------------------------------------------------------------------------


def _mma_warps(shape: Sequence[int], num_warps: int, chained: bool) -> tuple[int, ...]:
    """Warps along each dim: batches first, then tiles as square as can be, since those need the fewest operands.

    In a chain of products all warps go along the rows, so that row statistics and the next operand A stay in a warp.
    """
    *batches, rows, columns = padded_shape(shape)
    along = [min(size, num_warps) for size in batches]
    left = num_warps // (along[0] if along else 1)
    m, n = 1, 1
    while m * n < left:
        own_rows, own_columns = rows // m, columns // n
        wide = own_columns > 8 and (own_rows <= 16 or (own_columns > own_rows and not chained))
        m, n = (m, 2 * n) if wide else (2 * m, n)
    return (*along, m, n)


def _is_chained(op: DotOp) -> bool:
    """Whether an operand is computed from another product of the block, or the result is for one."""
    upstream = makers_behind([op.a, op.b], lambda maker: maker.parent is op.parent)
    return any(among(upstream, DotOp)) or _reaches_dot(op)


def _reaches_dot(op: DotOp) -> bool:
    uses = uses_behind([op.d], lambda user: user.parent is op.parent)
    return any(isinstance(use.operation, DotOp) and use.index < 2 for use in uses)


# --- multiply-adds ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _fma_accumulator(shape: tuple[int, ...], num_warps: int) -> LinearLayout:
    """Boxes of up to 4 x 4 elements per thread, then lanes, then warps; batches go to warps first, to lanes last."""
    *batches, rows, columns = shape
    batch = batches[0] if batches else 1
    along = min(batch, num_warps)
    each = max(1, batch * rows * columns // (WARP * num_warps))
    own = (min(4, rows, max(1, each // min(4, columns, each))), min(4, columns, each))
    lanes = [1, 1]
    while lanes[0] * lanes[1] < WARP and (grows := _growing((rows, columns), own, lanes)) is not None:
        lanes[grows] *= 2
    warps, left = [1, 1], num_warps // along
    while warps[0] * warps[1] < left:
        taken = (own[0] * lanes[0], own[1] * lanes[1])
        grows = _growing((rows, columns), taken, warps)
        warps[0 if grows is None else grows] *= 2
    rest = WARP // (lanes[0] * lanes[1])
    if not batches:
        lanes[0] *= rest
        return blocked(own, lanes, warps, (1, 0), shape)
    return blocked((1, *own), (rest, *lanes), (along, *warps), (2, 1, 0), shape)


def _growing(sizes: tuple[int, int], own: tuple[int, int], counts: Sequence[int]) -> int | None:
    """The dim in which there is more left to share out; None if nothing is."""
    left = [size // (mine * count) for size, mine, count in zip(sizes, own, counts, strict=True)]
    if max(left) <= 1:
        return None
    return 1 if left[1] >= left[0] else 0


def _fma_operand(accumulator: LinearLayout, index: int, shape: Sequence[int]) -> LinearLayout:
    """What a thread needs of operand A (`index` 0) or B (1): its rows (columns) with the whole of K."""
    rank, sizes = len(shape), padded_shape(shape)
    k = rank - 1 - index  # where the accumulator has the dim that this operand lacks
    bases = {
        dim: [tuple(0 if axis == k else c for axis, c in enumerate(basis)) for basis in group]
        for dim, group in accumulator.bases().items()
    }
    along = [tuple(1 << i if axis == k else 0 for axis in range(rank)) for i in range(sizes[k].bit_length() - 1)]
    own = [basis for basis in bases["register"] if any(basis)]
    bases["register"] = [*along, *own] if index == 0 else [*own, *along]
    return LinearLayout.from_bases(bases, {f"dim{axis}": size for axis, size in enumerate(sizes)})


def is_fma(a: LinearLayout) -> bool:
    """Whether an operand A in this layout is multiplied by plain multiply-adds: no two lanes share a row's K."""
    return not any(basis[-1] for dim in ("lane", "warp") for basis in a.bases()[dim])


__all__ = [
    "STEP_BYTES",
    "DotPlan",
    "SharedOperand",
    "fast_dim",
    "fragment_bits",
    "is_fma",
    "is_only_turned",
    "is_wgmma",
    "plan_dot",
    "precision",
    "takes_fp8",
]
