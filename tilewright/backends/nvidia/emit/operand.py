"""An operand of a product as its steps take it: the registers of a slice along K, from a tile or from a buffer.

A slice has the layout of the operand with the register bits left out that select among slices; in a buffer its elements
lie where those of the first slice do, exclusive-ored with a constant; or with a number that is known when the kernel
runs, in a loop over K.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from tilewright.backends.llvm.types import I1, V, const, zero
from tilewright.backends.nvidia.emit.context import Buffer, Kernel, Tile
from tilewright.backends.nvidia.emit.shared import offsets_in
from tilewright.backends.nvidia.emit.shared_access import Window, from_integers
from tilewright.backends.nvidia.plan.operands import operand_layout, operand_type
from tilewright.ir.types import ir_name
from tilewright.layouts.access import Instruction, plan_access, unique_registers
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import register_bounds
from tilewright.ops.dot import DotOp


@dataclass(slots=True)
class Operand:
    """Operand A or B of a product.

    Args:
        k: the kernel.
        value: its registers, or the buffer in which it lies.
        full: layout of the whole.
        axis: the dim that is summed over.
        depth: its true size.
        step: size of a slice along it, a power of two.
        element: name of the element type.
    """

    k: Kernel
    value: Tile | Buffer
    full: LinearLayout
    axis: int
    depth: int
    step: int
    element: str
    _moved: V | None = None
    _moves: int = 0
    _window: Window | None = field(default=None, init=False)

    @staticmethod
    def of(k: Kernel, op: DotOp, index: int, step: int) -> Operand:
        """Operand A (`index` 0) or B (1) in slices of `step`."""
        value = op.operands[index]
        shape, element = operand_type(value)
        axis = len(shape) - 1 - index
        held = k.values[value]
        assert isinstance(held, list | Buffer)
        full = operand_layout(op, index)
        step = min(step, full.out_sizes[f"dim{axis}"])
        return Operand(k, held, full, axis, shape[axis], step, ir_name(element))

    @property
    def layout(self) -> LinearLayout:
        """Layout of a slice."""
        return slice_layout(self.full, self.axis, self.step)

    def part(self, number: V, size: int) -> Operand:
        """Part `number` (i32) of an operand in a buffer that is cut into parts of `size`, a power of two, along K."""
        assert isinstance(self.value, Buffer) and self.depth % size == 0
        f, moves, moved = self.k.f, 0, const(number.type, 0)
        for bit in range((self.depth // size - 1).bit_length()):
            flip = _start(self.value.layout, self.axis, size << bit)
            moves |= flip
            moved = f.xor(moved, f.mul(f.and_(f.lshr(number, bit), 1), flip))
        return replace(self, depth=size, _moved=moved, _moves=moves)

    def slice(self, first: int) -> Tile:
        """The registers of the slice that starts at `first`, with zeros in the padding along K."""
        made = self._load(first) if isinstance(self.value, Buffer) else self._choose(self.value, first)
        return made if first + self.step <= self.depth else self._without_padding(made, first)

    def _choose(self, registers: Tile, first: int) -> Tile:
        """Those registers of a tile: bits that lie in a slice run, the others select it."""
        inside, chosen, left = [], 0, first
        for bit, basis in enumerate(self.full.bases()["register"]):
            if basis[self.axis] < self.step:
                inside.append(1 << bit)
            elif left & basis[self.axis]:
                chosen |= 1 << bit
                left &= ~basis[self.axis]
        assert not left, "a slice is no choice of registers"
        numbers = [chosen]
        for bit in inside:
            numbers += [number | bit for number in numbers]
        return [registers[number] for number in numbers]

    def _load(self, first: int) -> Tile:
        assert isinstance(self.value, Buffer)
        k, buffer = self.k, self.value
        unique, table = unique_registers(self.layout)
        t = k.element(buffer.element)
        if self._window is None:
            plan = plan_access(offsets_in(unique, buffer.layout), max(8, t.bits), k.arch.has_ldmatrix)
            self._window = Window(k, buffer.base, plan, self._moved, self._moves)
        flip = _start(buffer.layout, self.axis, first)
        moved = [Instruction(i.offset ^ flip, i.registers) for i in self._window.plan.instructions]
        made = self._window.load(moved)
        values = from_integers(k, [made[number] for number in range(len(made))], t)
        return [values[number] for number in table]

    def _without_padding(self, registers: Tile, first: int) -> Tile:
        left = self.depth - first
        along = self.layout.sublayout(list(self.layout.in_sizes), [f"dim{self.axis}"])
        bounds, places = register_bounds(along, (left,)), self.k.coordinates(self.layout, self.axis)
        out = []
        for value, bound, place in zip(registers, bounds, places, strict=True):
            inside = self.k.f.icmp("ult", place, left) if bound.inside is None else const(I1, int(bound.inside))
            out.append(self.k.f.select(inside, value, zero(value.type)))
        return out


@functools.lru_cache(maxsize=512)
def slice_layout(layout: LinearLayout, axis: int, step: int) -> LinearLayout:
    """The layout of the first `step` elements along a dim: without the register bits that lead further."""
    bases = layout.bases()
    bases["register"] = [basis for basis in bases["register"] if basis[axis] < step]
    sizes = {name: step if i == axis else size for i, (name, size) in enumerate(layout.out_sizes.items())}
    return LinearLayout.from_bases(bases, sizes)


@functools.lru_cache(maxsize=4096)
def _start(buffer: LinearLayout, axis: int, first: int) -> int:
    """Offset of the element at `first` along a dim."""
    return buffer.inverse()(**{f"dim{axis}": first})["offset"]


__all__ = ["Operand", "slice_layout"]
