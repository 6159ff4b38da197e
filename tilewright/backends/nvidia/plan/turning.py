"""Operands of 8 bits that are turned on their way to wgmma: B with its columns fast, where A comes from registers.

wgmma reads bytes along K only (PTX ISA, wgmma, "Strides"), and such a product cannot be turned over, as A is where only
A can be. So threads read B across, and write it to a buffer with K fast: `ldmatrix.trans` moves two neighbouring
columns as one element of 16 bits, two words of two rows become those of two columns by permutations of bytes, and
`stmatrix` writes these:

    w0 = (k0: c0 c1)(k1: c0 c1), w1 = (k8: c0 c1)(k9: c0 c1)    ->    c0: k0 k1 k8 k9,    c1: k0 k1 k8 k9

So rows of B come out in another order, and that is the order in which a thread has the columns of an accumulator: of 16
it holds 2t, 2t + 1, 2t + 8 and 2t + 9, where a fragment of A is four neighbours. K may be taken in any order that both
operands have, so A, if it is computed of another product, is made of registers as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.layouts.distributed import permuted_bits
from tilewright.layouts.linear import LinearLayout, log2
from tilewright.layouts.padding import padded_shape

_ORDER = (0, 3, 1, 2)  # which bit of K each of the low bits of a place along K is
_WORD = [(1, 0), (8, 0), (0, 1)]  # registers of a thread that turns: four rows, and the neighbouring column
_LANES = [(2, 0), (4, 0), (0, 2), (0, 4), (0, 9)]


def in_order_of_accumulators(layout: LinearLayout, k_axis: int) -> LinearLayout:
    """A layout of an operand with K in the order in which a thread holds columns of an accumulator.

    Args:
        layout: of fragments, or of a buffer.
        k_axis: the dim that is summed over.
    """
    bits = log2(layout.out_sizes[f"dim{k_axis}"])
    return permuted_bits(layout, k_axis, [*_ORDER, *range(len(_ORDER), bits)])


def turning_layout(shape: Sequence[int], warps: int, turning: int | None = None) -> LinearLayout:
    """The layout in which warps hold an operand B that they turn.

    Columns 8 to 15 of 16 take the places of their neighbours, so that the rows of 16 bytes that a matrix of `stmatrix`
    has lie in different banks.

    Args:
        shape: of the tile, K first; at least 16 either way.
        warps: for which tiles are laid out.
        turning: those that turn it, if they are fewer: others hold copies.
    """
    k, columns = (log2(size) for size in padded_shape(shape))
    rest = [(0, 1 << bit) for bit in reversed(range(4, columns))] + [(1 << bit, 0) for bit in reversed(range(4, k))]
    bits = min(log2(turning or warps), len(rest))
    bases = {
        "register": [*_WORD, *reversed(rest[bits:])],
        "lane": _LANES,
        "warp": [*rest[:bits], *[(0, 0)] * (log2(warps) - bits)],
        "block": [],
    }
    return LinearLayout.from_bases(bases, {"dim0": 1 << k, "dim1": 1 << columns})


def is_turned(layout: LinearLayout) -> bool:
    """Whether a layout is that of a tile that is turned."""
    bases = layout.bases()
    return len(layout.outs) == 2 and bases["register"][: len(_WORD)] == _WORD and bases["lane"] == _LANES


__all__ = ["in_order_of_accumulators", "is_turned", "turning_layout"]
