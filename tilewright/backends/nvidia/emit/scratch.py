"""Arrays in an operation's scratch in shared memory, and the places in them that threads compute from their position.

A place is linear over F2 in (register, lane, warp): the thread's part is computed once, and the register's is a
constant that ends up in the immediate offset of the access, but for bits that both may set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from tilewright.backends.llvm.types import V
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.function import SHARED_PTR
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.ir.types import element_type
from tilewright.layouts import f2
from tilewright.layouts.linear import LinearLayout, log2

Columns = Mapping[str, Sequence[int]]
POSITION = ("register", "lane", "warp")
_ALIGNMENT = 16


# --- places -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """An index into an array.

    Args:
        part: what depends on the thread (i32).
        constant: what is added to that.
        step: a power of two that `part` is a multiple of in all threads.
    """

    part: V
    constant: int = 0
    step: int = 1

    def plus(self, constant: int) -> Place:
        """The place so many elements further."""
        return Place(self.part, self.constant + constant, self.step)

    def alignment(self, size: int) -> int:
        """Of its address in an array of elements of so many bytes (a power of two) that is itself aligned."""
        step = self.step if self.part.const is None else int(self.part.const)
        return min(_ALIGNMENT, _lowest_bit((step | self.constant) * size))


def positions(k: Kernel, columns: Columns, registers: Sequence[int]) -> list[Place]:
    """A linear function of (register, lane, warp) at some registers of this thread.

    Args:
        k: the kernel.
        columns: its value for each bit of "register", "lane" and "warp".
        registers: which.
    """
    threads = {dim: columns[dim] for dim in ("lane", "warp")}
    reach = 0
    for column in (*threads["lane"], *threads["warp"]):
        reach |= column
    part, step, made = k.linear(threads), _lowest_bit(reach), []
    for register in registers:
        value = f2.multiply(columns["register"], register)
        made.append(Place(k.f.xor(part, value & reach), value & ~reach, step))
    return made


def _lowest_bit(value: int) -> int:
    """The largest power of two that divides a number; of 0, which all divide, as large a one as anybody asks for."""
    return value & -value or 1 << 31


def weighted(layout: LinearLayout, strides: Mapping[int, int]) -> Columns:
    """The sum of some coordinates, each times its stride, as a linear function of the position.

    Args:
        layout: (register, lane, warp, block) -> coordinates.
        strides: dim -> power of two, such that the products share no bits.
    """
    names = list(layout.out_sizes)
    parts = {dim: layout.sublayout(POSITION, [names[dim]]) for dim in strides}
    return {
        name: [
            sum(column << log2(strides[dim]) for dim, column in zip(parts, group))
            for group in zip(*(part.columns_of(name) for part in parts.values()), strict=True)
        ]
        if parts
        else [0] * len(layout.columns_of(name))
        for name in POSITION
    }


def row_major(shape: Sequence[int]) -> dict[int, int]:
    """The stride of each dim of a tile whose last dim is the fastest."""
    strides, total = {}, 1
    for dim in reversed(range(len(shape))):
        strides[dim] = total
        total *= shape[dim]
    return strides


def axis_bits(layout: LinearLayout, axis: int) -> tuple[tuple[str, int], ...] | None:
    """Which bit each bit of the index along `axis` is: ("register", "lane" or "warp", mask), the fastest first.

    None if one is a sum of several bits, is held by several, or moves along another dim as well.
    """
    found: dict[int, tuple[str, int]] = {}
    for dim in POSITION:
        for i, basis in enumerate(layout.bases()[dim]):
            along = basis[axis]
            if not along:
                continue
            if along in found or along & (along - 1) or any(c for d, c in enumerate(basis) if d != axis):
                return None
            found[along] = (dim, 1 << i)
    return tuple(place for _, place in sorted(found.items()))


# --- arrays -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """An array in scratch.

    Args:
        k: the kernel.
        base: its address, of `_ALIGNMENT` at least.
        type: of its elements (or of a tile of them).
    """

    k: Kernel
    base: V
    type: Attribute

    def put(self, place: Place, value: V) -> None:
        """Store."""
        self.k.f.shared_store(value, self.address(place), self._alignment(place))

    def get(self, place: Place) -> V:
        """Load."""
        return self.k.f.shared_load(self.k.element(self.type), self.address(place), self._alignment(place))

    def _alignment(self, place: Place) -> int:
        """Said to LLVM, which makes one access of those of neighbours where it is enough."""
        return place.alignment(memory_bits(element_type(self.type)) // 8)

    def address(self, place: Place) -> V:
        """Address of a place; the constant goes last, where it becomes an immediate offset."""
        base, bits = self.base, memory_bits(element_type(self.type))
        if place.part.const != 0:
            base = self.k.f.emit(SHARED_PTR, f"getelementptr i{bits}, {base.typed}, {place.part.typed}")
        return self.k.f.shared_at(base, place.constant * bits // 8)


def starts(types: Sequence[Attribute], count: int) -> list[int]:
    """Byte offsets of arrays of `count` elements of these types, one after another, and where the last one ends."""
    total, result = 0, [0]
    for t in types:
        total += -(-memory_bits(element_type(t)) // 8 * count // _ALIGNMENT) * _ALIGNMENT
        result.append(total)
    return result


def rooms(k: Kernel, base: V, types: Sequence[Attribute], count: int) -> list[Room]:
    """The arrays whose offsets `starts` gives, from `base` on."""
    return [Room(k, k.f.shared_at(base, start), t) for start, t in zip(starts(types, count), types)]


__all__ = ["POSITION", "Columns", "Place", "Room", "axis_bits", "positions", "rooms", "row_major", "starts", "weighted"]
