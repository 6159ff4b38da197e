"""Operand A of wgmma as its threads read it from shared memory, where K is not the fast dim (`plan/fragments.py`).

32 bits: a word is an element, rounded to tf32. 8 bits: a word is four elements of one row that lie in four lines of the
buffer. Two neighbours of a line are one element of 16 bits, which `ldmatrix.trans` moves; two words become those of
two rows, by permutations of bytes:

    w0 = (k0: r0 r1)(k1: r0 r1), w1 = (k2: r0 r1)(k3: r0 r1)    ->    r0: k0 k1 k2 k3,    r1: k0 k1 k2 k3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.backends.llvm.types import I32, V, const
from tilewright.backends.nvidia.emit.context import Buffer, Kernel
from tilewright.backends.nvidia.emit.conversions import to_tf32
from tilewright.backends.nvidia.emit.dot import places
from tilewright.backends.nvidia.emit.operand import Operand
from tilewright.backends.nvidia.emit.shared_access import join
from tilewright.backends.nvidia.emit.turned import EVEN_BYTES, ODD_BYTES, in_pairs
from tilewright.ir.types import i16, ir_name
from tilewright.layouts.linear import LinearLayout

Words = dict[tuple[int, ...], list[V]]

_WORDS = 4  # of a fragment


@dataclass(slots=True)
class LoadedFragments:
    """Operand A in a buffer.

    Args:
        k: the kernel.
        operand: what threads load: the elements, or of 8 bits pairs of neighbouring rows, in slices of one step.
        paired: whether they are pairs.
    """

    k: Kernel
    operand: Operand
    paired: bool

    @staticmethod
    def of(k: Kernel, buffer: Buffer, layout: LinearLayout, step: int, bits: int) -> LoadedFragments:
        """The fragments of a buffer.

        Args:
            k: the kernel.
            buffer: in coordinates of A: rows, then K.
            layout: of the fragments.
            step: elements of K that an instruction takes.
            bits: of an element.
        """
        paired = bits == 8
        if paired:
            buffer = replace(buffer, layout=in_pairs(buffer.layout, 0), element=i16)
            layout = in_pairs(layout, 0)
        depth = layout.out_sizes["dim1"]
        return LoadedFragments(k, Operand(k, buffer, layout, 1, depth, step, ir_name(buffer.element)), paired)

    def words(self, steps: Sequence[int]) -> Words:
        """The fragments of some steps, by first row and K."""
        found: Words = {}
        for step in steps:
            found |= self._step(step * self.operand.step)
        return found

    def _step(self, depth: int) -> Words:
        registers, at = self.operand.slice(depth), places(self.operand.layout)
        if not self.paired:
            words = [to_tf32(self.k, value) for value in registers]
            return {(at[i][0], depth): words[i : i + _WORDS] for i in range(0, len(words), _WORDS)}
        found: Words = {}
        for i in range(0, len(registers), 2 * _WORDS):
            pairs = [join(self.k, registers[j : j + 2]) for j in range(i, i + 2 * _WORDS, 2)]
            halves = [self._rows(*pairs[j : j + 2]) for j in (0, 2)]
            found[2 * at[i][0], depth] = [word for half in halves for word in half]
        return found

    def _rows(self, low: V, high: V) -> list[V]:
        """Words of two rows from two words of both."""
        return [
            self.k.f.call("llvm.nvvm.prmt", I32, (low, high, const(I32, chosen))) for chosen in (EVEN_BYTES, ODD_BYTES)
        ]


__all__ = ["LoadedFragments", "Words"]
