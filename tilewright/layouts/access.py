"""What instructions a thread layout needs to reach memory: vectors, ldmatrix and stmatrix, and bank conflicts.

Input is always the map from (register, lane, warp, block) to an element offset in memory. Vectors are found as the
register subspace that covers the low offset bits, whatever registers those are; matrix instructions apply when a few
lane bits sit where the instruction wants them (left division in the paper, section 5.3). Conflicts follow from ranks:
lanes of a wavefront that differ in the word but not in the bank collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.layouts import f2
from tilewright.layouts.distributed import dim_names, row_major_order
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout, log2

Kind = Literal["vector", "matrix", "matrix_transposed"]

BANKS = 32  # of 4 bytes
WIDEST = 128  # bits of the widest access of a lane
_BANK_BITS = BANKS - 1
_ISSUE = 0.5


@dataclass(frozen=True, slots=True)
class Instruction:
    """One memory instruction of a warp.

    Args:
        offset: exclusive-ored to the offset that a lane computes from its position.
        registers: elements in order: along memory for a vector; for matrices, the 32-bit word of each matrix in turn.
    """

    offset: int
    registers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """How the threads of a block read or write a buffer in shared memory.

    Args:
        kind: "vector" (ld / st), "matrix" or "matrix_transposed" (ldmatrix / stmatrix, rows of 16 bytes).
        element_bits: bits of an element.
        address: (lane, warp, block, ...) -> the offset that the lane passes, in elements. For matrices lane l passes
            row ``l % 8`` of matrix ``l / 8``.
        instructions: in order; all are alike but for registers and offset.
        wavefronts: memory cycles of one instruction; conflict-free is one per 128 bytes moved.
    """

    kind: Kind
    element_bits: int
    address: LinearLayout
    instructions: tuple[Instruction, ...]
    wavefronts: int

    @property
    def vector_bits(self) -> int:
        """Bits that a lane moves per instruction."""
        return len(self.instructions[0].registers) * self.element_bits

    @property
    def packings(self) -> int:
        """Byte permutations that pack (or unpack) the registers of one instruction into words of 32 bits."""
        words = -(-self.vector_bits // 32)
        return max(0, len(self.instructions[0].registers) - words)

    @property
    def conflicts(self) -> int:
        """Wavefronts of one instruction beyond the conflict-free ones."""
        return self.wavefronts - max(1, self.vector_bits // 32)

    @property
    def cost(self) -> float:
        """Wavefronts of a warp, all instructions together, and half of one for issuing each."""
        return len(self.instructions) * (self.wavefronts + _ISSUE)


# --- vectors ----------------------------------------------------------------------------------------


def vector_registers(offsets: LinearLayout, limit: int) -> tuple[tuple[int, ...], ...]:
    """Groups of registers whose elements lie side by side, aligned, in every thread; each group in memory order.

    Args:
        offsets: (register, ...) -> one flat output, injective on registers.
        limit: the most elements of a group, a power of two.

    Raises:
        LayoutError: two registers have one offset (see `unique_registers`).
    """
    registers = offsets.columns_of("register")
    if f2.rank(registers) < len(registers):
        raise LayoutError("registers that hold copies must be left out before they are grouped")
    width = _vector_bits(offsets, limit)
    groups: dict[int, list[tuple[int, int]]] = {}
    points = [0]
    for column in registers:
        points += [point ^ column for point in points]
    for register, offset in enumerate(points):
        groups.setdefault(offset >> width, []).append((offset, register))
    return tuple(tuple(register for _, register in sorted(group)) for group in groups.values())


def _vector_bits(offsets: LinearLayout, limit: int) -> int:
    """Low offset bits that registers cover and nothing else touches, up to `limit` elements."""
    span, width = f2.Span(offsets.columns_of("register")), 0
    others = 0
    for name, _ in offsets.ins:
        for column in offsets.columns_of(name) if name != "register" else ():
            others |= column
    while 1 << width < limit and 1 << width in span and not others >> width & 1:
        width += 1
    return width


def memory_vectors(
    layout: LinearLayout, order: Sequence[int] | None = None, limit: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """`vector_registers` of a layout in a tile of memory with contiguous elements along ``order[0]`` only.

    Args:
        layout: (register, ...) -> (dim0, ...), injective on registers.
        order: dims, the fastest first.
        limit: the most elements that are contiguous and aligned for other reasons (pointer facts, 16 bytes).
    """
    rank = len(layout.outs)
    order = row_major_order(rank) if order is None else order
    names = [dim_names(rank)[axis] for axis in order]
    fast = layout.out_sizes[names[0]]
    flat = layout.transpose(outs=names).reshape(outs={"offset": _product(layout)})
    return vector_registers(flat, fast if limit is None else min(limit, fast))


def contiguity(layout: LinearLayout, order: Sequence[int] | None = None) -> int:
    """Elements that a thread can access at once along the fast dim of memory."""
    return len(memory_vectors(unique_registers(layout)[0], order)[0])


def unique_registers(layout: LinearLayout) -> tuple[LinearLayout, tuple[int, ...]]:
    """The layout without register bits that only make copies, and where each old register is in it."""
    kept, dropped = [], f2.Span()
    columns = layout.columns_of("register")
    for i, column in enumerate(columns):
        if dropped.add(column):
            kept.append(i)
    if len(kept) == len(columns):
        return layout, tuple(range(1 << len(columns)))
    bases = layout.bases()
    bases["register"] = [bases["register"][i] for i in kept]
    left = [columns[i] for i in kept]
    span = f2.Span(left)
    table = tuple(span.reduce(f2.multiply(columns, register))[1] for register in range(1 << len(columns)))
    return LinearLayout.from_bases(bases, layout.out_sizes), table


# --- bank conflicts ---------------------------------------------------------------------------------


def lanes_per_wavefront(access_bits: int) -> int:
    """Lanes that the hardware serves together: all up to 4 bytes each, half a warp for 8, a quarter for 16."""
    return 32 if access_bits <= 32 else 1024 // access_bits


def count_wavefronts(addresses: NDArray[np.integer], access_bytes: int) -> int:
    """Memory cycles of one warp's access, by counting: the most different words in one bank, for each group of lanes.

    Args:
        addresses: byte address of each lane, aligned to `access_bytes`.
        access_bytes: 1, 2, 4, 8 or 16.
    """
    lanes = lanes_per_wavefront(8 * access_bytes)
    total = 0
    for start in range(0, len(addresses), lanes):
        first = np.asarray(addresses[start : start + lanes], np.int64) // 4
        words = np.unique((first[:, None] + np.arange(max(1, access_bytes // 4))).ravel())
        total += int(np.bincount(words % BANKS).max())
    return total


def vector_wavefronts(lanes: Sequence[int], vector: int, element_bits: int) -> int:
    """`count_wavefronts` from the algebra: the same for every instruction of a linear access.

    Args:
        lanes: offset of each lane bit, in elements, a multiple of `vector`.
        vector: elements that a lane accesses.
        element_bits: bits of an element, 8 to 64.
    """
    together = lanes_per_wavefront(vector * element_bits)
    count = _collisions(_words(lanes[: log2(together)], element_bits))
    return max(1, (1 << len(lanes)) // together) * count


def _collisions(words: Sequence[int]) -> int:
    """Different words in one bank, of a subspace of first words (what follows them in a vector fills other banks)."""
    return 1 << f2.rank(words) - f2.rank(word & _BANK_BITS for word in words)


def _words(offsets: Sequence[int], element_bits: int) -> list[int]:
    return [offset * element_bits // 32 for offset in offsets]


# --- choosing instructions --------------------------------------------------------------------------


def plan_access(
    offsets: LinearLayout, element_bits: int, matrix: bool = False, within: int | None = None
) -> SharedAccess:
    """The cheapest way to reach shared memory.

    Args:
        offsets: (register, lane, warp, block) -> (offset), injective on registers.
        element_bits: 8, 16, 32 or 64.
        matrix: ldmatrix or stmatrix exists for this direction (sm_75, sm_90) and may be used.
        within: elements, a power of two: no instruction may reach over a multiple of it.
    """
    plans = [vector_access(offsets, element_bits)]
    if matrix:
        found = (matrix_access(offsets, element_bits, transposed, within) for transposed in (False, True))
        plans.extend(plan for plan in found if plan is not None)
    return min(plans, key=lambda plan: plan.cost)


def vector_access(offsets: LinearLayout, element_bits: int) -> SharedAccess:
    """Access by ordinary loads or stores, as wide as the offsets allow (less where that avoids conflicts)."""
    registers, lanes = offsets.columns_of("register"), offsets.columns_of("lane")
    widest = _vector_bits(offsets, WIDEST // element_bits)
    waves = [vector_wavefronts(lanes, 1 << width, element_bits) for width in range(widest + 1)]
    width = min(reversed(range(widest + 1)), key=lambda width: (waves[width] + _ISSUE) / (1 << width))
    groups = vector_registers(offsets, 1 << width)
    instructions = tuple(Instruction(f2.multiply(registers, group[0]), group) for group in groups)
    address = offsets.sublayout([name for name in offsets.in_sizes if name != "register"], list(offsets.out_sizes))
    return SharedAccess("vector", element_bits, address, instructions, waves[width])


def matrix_access(
    offsets: LinearLayout, element_bits: int, transposed: bool, within: int | None = None
) -> SharedAccess | None:
    """Access by ldmatrix or stmatrix (.trans if `transposed`), or None if the layout does not have the form.

    A matrix is 8 rows of 16 bytes. Lane l holds bytes ``4 * (l % 4)`` to +3 of row ``l / 4``; transposed, for 16-bit
    elements, it holds column ``l / 4`` of rows ``2 * (l % 4)`` and +1 (PTX ISA, ldmatrix).

    Args: as for `plan_access`.
    """
    lanes, registers = offsets.columns_of("lane"), offsets.columns_of("register")
    if len(lanes) != 5 or element_bits > 32 or (transposed and element_bits != 16):
        return None
    packed = log2(32 // element_bits)
    row_bits = log2(128 // element_bits)
    inside = lanes[2:] if transposed else lanes[:2]
    if tuple(inside) != tuple(1 << i for i in range(0 if transposed else packed, row_bits)):
        return None
    low = (1 << row_bits) - 1
    rest = [*(lanes[:2] if transposed else lanes[2:]), *_others(offsets)]
    own = 0 if transposed else (1 << packed) - 1  # the part of a row that registers may cover
    if any(column & low for column in rest) or any(column & low & ~own for column in registers):
        return None
    if not transposed:
        word = [f2.solve(registers, 1 << i) for i in range(packed)]
        masks = [mask for mask in word if mask is not None]
        return _matrices(offsets, element_bits, "matrix", masks, lanes[2:], within) if masks == word else None
    above = within or 1 << sum(width for _, width in offsets.outs)
    choices = [
        _matrices(offsets, element_bits, "matrix_transposed", [1 << i], [column, *lanes[:2]], within)
        for i, column in enumerate(registers)
        if column < above
    ]
    return min(choices, key=lambda plan: plan.cost, default=None)


def _matrices(
    offsets: LinearLayout,
    element_bits: int,
    kind: Kind,
    word: Sequence[int],
    rows: Sequence[int],
    within: int | None,
) -> SharedAccess:
    """The plan, given register masks of the elements of a 32-bit word and offsets of the three row bits."""
    registers = offsets.columns_of("register")
    members = [f2.multiply(word, i) for i in range(1 << len(word))]
    near = [] if within is None else f2.kernel([column // within for column in registers])
    units = [1 << i for i in range(len(registers))]
    # Registers that are zero in the low bits lead a word; other choices would shift the row that a lane passes.
    low = (1 << log2(32 // element_bits)) - 1 if kind == "matrix" else 0
    leaders = [_aligned(group, registers, members, low) for group in f2.complement(word, [*near, *units])]
    count = min(2, len(leaders) if within is None else len(f2.complement(word, near)))
    together, later = leaders[:count], leaders[count:]
    instructions = []
    for i in range(1 << len(later)):
        first = f2.multiply(later, i)
        heads = [first ^ f2.multiply(together, j) for j in range(1 << count)]
        held = tuple(head ^ member for head in heads for member in members)
        instructions.append(Instruction(f2.multiply(registers, first), held))
    lane = [*rows, *(f2.multiply(registers, leader) for leader in together)]
    lane += [0] * (5 - len(lane))
    names = [name for name in offsets.in_sizes if name not in ("register", "lane")]
    others = offsets.sublayout(names, list(offsets.out_sizes))
    address = LinearLayout((("lane", 5), *others.ins), others.outs, (*lane, *others.columns))
    wavefronts = _collisions(_words(rows, element_bits)) << count
    return SharedAccess(kind, element_bits, address, tuple(instructions), wavefronts)


def _aligned(group: int, registers: Sequence[int], members: Sequence[int], low: int) -> int:
    return next(group ^ member for member in members if not f2.multiply(registers, group ^ member) & low)


def immediate_offset(access: SharedAccess, instruction: Instruction, used: int = 0) -> tuple[int, int]:
    """(x, c) with ``(a ^ instruction.offset) == (a ^ x) + c`` for every address a: c fits an instruction's immediate.

    Offset bits that no lane or warp ever sets can be added rather than exclusive-ored, so that one register addresses
    all instructions that agree in x. `used` are bits that something else may set.
    """
    for column in access.address.columns:
        used |= column
    return instruction.offset & used, instruction.offset & ~used


def _others(offsets: LinearLayout) -> list[int]:
    return [c for name, _ in offsets.ins if name not in ("register", "lane") for c in offsets.columns_of(name)]


def _product(layout: LinearLayout) -> int:
    return 1 << sum(width for _, width in layout.outs)
