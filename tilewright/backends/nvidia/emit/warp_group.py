"""`ttng.warp_group_dot`: wgmma, with operands in shared memory named by descriptors; and its waits.

The accumulator of a warp group is cut into blocks of 64 rows and up to 256 columns. A block is one statement of inline
PTX, so that nothing comes between its instructions:

    wgmma.fence                                             in the first block alone, if all start together
    wgmma.mma_async d, descriptor a, descriptor b, ...      for every step of K, descriptors advanced in between
    wgmma.commit_group                                      in the last block

The descriptor of a matrix is the address of its first element in units of 16 bytes, two strides and the swizzle mode
(PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", Matrix Descriptor Format).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from tilewright.backends.llvm.types import F32, I32, I64, T, V, const, zero
from tilewright.backends.nvidia.emit.context import Buffer, Kernel, Tile, emits
from tilewright.backends.nvidia.emit.dot import FP8, narrowed, places, widened
from tilewright.backends.nvidia.emit.fragments import LoadedFragments, Words
from tilewright.backends.nvidia.emit.memory import pack
from tilewright.backends.nvidia.plan.dots import STEP_BYTES
from tilewright.backends.nvidia.plan.fragments import parts_of
from tilewright.backends.nvidia.plan.operands import fragments_read, operand_layout, operand_type
from tilewright.backends.nvidia.plan.turning import in_order_of_accumulators
from tilewright.backends.nvidia.tgir.ops import WarpGroupDotOp, WarpGroupDotWaitOp
from tilewright.backends.nvidia.tgir.types import layout_of, memdesc_shape
from tilewright.base.errors import InternalError
from tilewright.ir.types import bit_width, ir_name
from tilewright.ir.walk import among
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shared import SWIZZLE_ALIGNMENT, hardware_swizzled
from tilewright.layouts.tile import transpose_tile

_WIDEST = 256  # columns of an instruction
_MODE = {128: 1, 64: 2, 32: 3, 16: 0}  # swizzle mode of a descriptor
_TYPES = {"f16": "f16", "bf16": "bf16", "f32": "tf32", "i8": "s8", **FP8}


@emits(WarpGroupDotOp)
def emit_warp_group_dot(k: Kernel, op: WarpGroupDotOp) -> None:
    """Start a product, and wait for it unless it is asynchronous."""
    attrs = op.attr_values()
    product = _Product.of(k, op)
    c = widened(k, op.c.type, k.tile(op.c))
    count = int(attrs["maxNumImpreciseAcc"] or 0)
    steps = range(product.steps)
    every = max(1, count // product.step)
    if count > 0 and every < product.steps and product.types[0] in FP8.values():
        for first in steps[::every]:
            part = _run(k, product, [zero(F32)] * len(c), steps[first : first + every])
            c = [k.f.fadd(v, p) for v, p in zip(c, _wait(k, part, 0), strict=True)]
        made = c
    else:
        flies = bool(attrs["isAsync"])  # then nobody touches the accumulator between this product and the one before
        if isinstance(product.a, LoadedFragments):
            made = _run_in_parts(k, product, c, _parts(op))
        else:
            made = _run(k, product, c, steps, together=flies and not isinstance(product.a, dict))
        if not flies:
            made = _wait(k, made, 0)
    k.set(op.d, narrowed(k, op.d.type, made))


@emits(WarpGroupDotWaitOp)
def emit_warp_group_dot_wait(k: Kernel, op: WarpGroupDotWaitOp) -> None:
    """Wait until few enough products are in flight; those that are waited for may be used after it."""
    inputs = [k.tile(value) for value in op.inputs]
    pendings = int(op.attr_values()["pendings"])
    makers = [value.owner for value in op.inputs]
    dots = among(makers, WarpGroupDotOp)
    if len(dots) == len(makers) == pendings:  # these go on, each in so many groups
        pendings = sum(len(_parts(dot)) for dot in dots)
    done = _wait(k, [v for tile in inputs for v in tile], pendings)
    for result, tile in zip(op.outputs, inputs, strict=True):
        k.set(result, done[: len(tile)])
        done = done[len(tile) :]


def _wait(k: Kernel, registers: Sequence[V], pendings: int) -> Tile:
    """Registers of products, not to be read before the wait: they go through it."""
    text = f"wgmma.wait_group.sync.aligned {pendings};"
    outs = [_letter(v.type) for v in registers]
    ties = map(str, range(len(registers)))
    constraints = ",".join([*(f"={letter}" for letter in outs), *ties, "~{memory}"])
    return k.f.ptx(text, constraints, registers, [v.type for v in registers])


def _letter(t: T) -> str:
    return "f" if t is F32 else "r"


# --- operands in shared memory ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand in shared memory, as descriptors see it.

    Args:
        layout: (offset) -> coordinates.
        bits: of an element.
        k_axis: the dim that is summed over.
        swizzle: width in bytes.
        transposed: the other dim is the fast one.
        reordered: K has the order of accumulators (`plan/turning.py`).
    """

    layout: LinearLayout
    bits: int
    k_axis: int
    swizzle: int
    transposed: bool
    reordered: bool = False

    def offset(self, outer: int, k: int) -> int:
        """Byte offset of an element that starts a row of core matrices."""
        place = {f"dim{self.k_axis}": k, f"dim{1 - self.k_axis}": outer}
        return _inverse(self.layout)(**place)["offset"] * self.bits // 8

    @property
    def strides(self) -> tuple[int, int]:
        """(leading, stride) byte offsets of the descriptor.

        The second leads to the next 8 rows of a panel; the first, for a transposed matrix, to the next panel. With K
        fast an instruction stays in one panel, and the first is not used.
        """
        depth = self.layout.out_sizes[f"dim{self.k_axis}"]
        return (depth * self.swizzle if self.transposed else 16), 8 * self.swizzle

    @property
    def template(self) -> int:
        """The descriptor of a matrix at address 0."""
        leading, stride = self.strides
        return leading >> 4 << 16 | stride >> 4 << 32 | _MODE[self.swizzle] << 62


@functools.lru_cache(maxsize=256)
def _inverse(layout: LinearLayout) -> LinearLayout:
    return layout.inverse()


@functools.lru_cache(maxsize=256)
def matrix_of(layout: LinearLayout, bits: int, k_axis: int) -> Matrix:
    """Which swizzle and order a buffer has.

    Raises:
        InternalError: it has none that wgmma reads.
    """
    shape = tuple(layout.out_sizes.values())
    for fast in (k_axis, 1 - k_axis):
        for swizzle in SWIZZLE_ALIGNMENT:
            try:
                usual = hardware_swizzled(shape, bits, swizzle, (fast, 1 - fast))
            except LayoutError:
                continue
            if usual == layout and (fast == k_axis or bits == 16):
                return Matrix(layout, bits, k_axis, swizzle, fast != k_axis)
            if bits == 8 and fast == k_axis and in_order_of_accumulators(usual, k_axis) == layout:
                return Matrix(layout, bits, k_axis, swizzle, False, reordered=True)
    raise InternalError(f"wgmma reads no buffer laid out as\n{layout}")


# --- products -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of the accumulator that one instruction covers.

    Args:
        registers: first and last + 1.
        row, column: of its first element in warp 0.
    """

    registers: slice
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class _Product:
    """What all instructions of one product share.

    Args:
        blocks: of the accumulator.
        columns: of an instruction.
        types: of the operands, as PTX names them.
        result: type of the accumulator.
        steps: instructions along K.
        step: elements of K that one takes.
        a: descriptor of A, the words of each fragment by (row, k), or the buffer from which threads load those.
        b: descriptor of B.
        matrices: A (None in registers) and B.
    """

    blocks: tuple[_Block, ...]
    columns: int
    types: tuple[str, str]
    result: T
    steps: int
    step: int
    a: V | Words | LoadedFragments
    b: V
    matrices: tuple[Matrix | None, Matrix]

    @staticmethod
    def of(k: Kernel, op: WarpGroupDotOp) -> _Product:
        read = fragments_read(op)
        view = _turned if read == 1 else _as_it_is
        left, right = (op.b, op.a) if read == 1 else (op.a, op.b)
        layout = view(layout_of(op.c))
        columns, blocks = _blocks(layout)
        element = operand_type(right)[1]
        bits = bit_width(element)
        step = STEP_BYTES * 8 // bits
        depth = memdesc_shape(op.b.type)[0]
        b = matrix_of(view(layout_of(right)), bits, 0)
        a: Matrix | None = None
        source: V | Words | LoadedFragments
        if read is not None:
            buffer = replace(k.buffer(left), layout=view(layout_of(left)))
            source = LoadedFragments.of(k, buffer, view(operand_layout(op, read)), step, bits)
        elif isinstance(k.values[left], Buffer):
            a = matrix_of(layout_of(left), bits, 1)
            source = _descriptor(k, k.buffer(left), a, layout, 0)
        else:
            source = _fragments(k, left, bits)
        if b.reordered and (a is not None or read is not None or not _is_reordered(layout_of(left))):
            raise InternalError("the operands of a wgmma have K in different orders")
        types = (_TYPES[ir_name(operand_type(left)[1])], _TYPES[ir_name(element)])
        result = I32 if types[0] == "s8" else F32
        target = _descriptor(k, k.buffer(right), b, layout, 1)
        return _Product(blocks, columns, types, result, depth // step, step, source, target, (a, b))

    @property
    def instruction(self) -> str:
        name = "s32" if self.result is I32 else "f32"
        return f"wgmma.mma_async.sync.aligned.m64n{self.columns}k{self.step}.{name}.{self.types[0]}.{self.types[1]}"

    @property
    def flags(self) -> str:
        """Immediates after the predicate: signs of the operands (floats), transposed operands (16 bits)."""
        if self.result is I32:
            return ""
        transposed = [str(int(m.transposed)) for m in self.matrices if m is not None] if self.step == 16 else []
        return ", " + ", ".join(["1", "1", *transposed])


def _as_it_is(layout: LinearLayout) -> LinearLayout:
    return layout


def _turned(layout: LinearLayout) -> LinearLayout:
    """A layout seen with its dims the other way round."""
    return transpose_tile(layout, (1, 0))


def _blocks(layout: LinearLayout) -> tuple[int, tuple[_Block, ...]]:
    """Columns of an instruction, and the blocks of an accumulator in this layout."""
    across = [basis[1] for basis in layout.bases()["warp"] if basis[1]]
    columns = min([_WIDEST, layout.out_sizes["dim1"], *across])
    at, size = places(layout), columns // 2
    return columns, tuple(_Block(slice(start, start + size), *at[start]) for start in range(0, len(at), size))


def _descriptor(k: Kernel, buffer: Buffer, matrix: Matrix, accumulator: LinearLayout, axis: int) -> V:
    """Descriptor of what the warp group reads at K = 0, for the block at row (`axis` 0) or column (1) 0."""
    columns = [0, 0, *(matrix.offset(basis[axis], 0) for basis in accumulator.bases()["warp"][2:])]
    start = k.f.cast("ptrtoint", buffer.base, I32)
    place = k.f.lshr(k.f.add(start, k.linear({"warp": columns})), 4)
    return k.f.add(k.f.cast("zext", place, I64), const(I64, matrix.template))


def _fragments(k: Kernel, value: SSAValue, bits: int) -> Words:
    """Four words for each fragment of an operand A in registers, by its first row and K."""
    layout, registers = layout_of(value), k.tile(value)
    size = 4 * 32 // bits
    at, per_word = places(layout), 32 // bits
    found = {}
    for start in range(0, len(registers), size):
        held = registers[start : start + size]
        found[at[start]] = [
            k.f.cast("bitcast", pack(k, held[i : i + per_word])[0], I32) for i in range(0, size, per_word)
        ]
    return found


def _is_reordered(layout: LinearLayout) -> bool:
    """Whether fragments of 8 bits have K in the order of accumulators: a lane's neighbour is two columns further."""
    return (0, 2) in layout.bases()["lane"]


def _run(k: Kernel, product: _Product, c: Tile, steps: Sequence[int], together: bool = False) -> Tile:
    """Start the products of some steps of K, committed as one group; behind one fence if they are `together`."""
    made = list(c)
    if isinstance(product.a, LoadedFragments):
        product = replace(product, a=product.a.words(steps))
    for block in product.blocks:
        fence, last = block is product.blocks[0] or not together, block is product.blocks[-1]
        made[block.registers] = _run_block(k, product, block, made[block.registers], steps, fence, last)
    return made


def _parts(op: WarpGroupDotOp) -> list[range]:
    """The groups of steps that a product commits: one unless threads load fragments."""
    read, bits = fragments_read(op), bit_width(operand_type(op.b)[1])
    steps = memdesc_shape(op.b.type)[0] * bits // (8 * STEP_BYTES)
    return [range(steps)] if read is None else parts_of(operand_layout(op, read), steps, bits)


def _run_in_parts(k: Kernel, product: _Product, c: Tile, parts: Sequence[range]) -> Tile:
    """Start a product whose fragments come from a buffer, a part of K after the other.

    A part's words take the registers of those of the part before the last, which must have been multiplied; the last
    part, of this product or the one before, goes on meanwhile.
    """
    for steps in parts:
        k.f.ptx(f"wgmma.wait_group.sync.aligned {min(1, len(parts) - 1)};", "~{memory}", [])
        c = _run(k, product, c, steps, together=True)
    return c


def _run_block(
    k: Kernel, product: _Product, block: _Block, c: Tile, steps: Sequence[int], fence: bool, last: bool
) -> Tile:
    """The instructions of one block as one statement: results, then arguments tied to them, then the operands."""
    fresh = all(v.const == 0 for v in c)
    args: list[V] = [] if fresh else list(c)
    count = len(c)

    def take(value: V) -> str:
        args.append(value)
        return f"${count + len(args) - 1}"

    a, b = product.matrices
    lines = ["{", ".reg .pred p, q;", ".reg .b64 da, db;", "setp.ne.b32 p, 1, 0;", "setp.ne.b32 q, 0, 0;"]
    lines += [".reg .b32 low, la, ha, lb, hb;", f"mov.b64 {{lb, hb}}, {take(product.b)};"]
    if isinstance(product.a, V):
        lines.append(f"mov.b64 {{la, ha}}, {take(product.a)};")
    if fence:
        lines.append("wgmma.fence.sync.aligned;")
    accumulator = "{" + ", ".join(f"${i}" for i in range(count)) + "}"
    for number, step in enumerate(steps):
        depth = step * product.step
        lines += _moved("b", b.offset(block.column, depth))
        if a is not None:
            lines += _moved("a", a.offset(block.row, depth))
            left = "da"
        else:
            assert isinstance(product.a, dict)
            left = "{" + ", ".join(take(word) for word in product.a[block.row, depth]) + "}"
        accumulate = "q" if fresh and number == 0 else "p"
        lines.append(f"{product.instruction} {accumulator}, {left}, db, {accumulate}{product.flags};")
    if last:
        lines.append("wgmma.commit_group.sync.aligned;")
    lines.append("}")
    letter = _letter(product.result)
    ties = [] if fresh else [str(i) for i in range(count)]
    operands = ["l" if v.type is I64 else "r" for v in args[len(ties) :]]
    constraints = ",".join([f"={letter}"] * count + ties + operands + ["~{memory}"])
    return k.f.ptx("\\0A\\09".join(lines), constraints, args, [product.result] * count)


def _moved(operand: str, offset: int) -> list[str]:
    """The descriptor of an operand some bytes on: places are in the low half, which nothing is carried out of."""
    return [f"add.s32 low, l{operand}, {offset >> 4};", f"mov.b64 d{operand}, {{low, h{operand}}};"]


__all__ = ["Matrix", "matrix_of"]
