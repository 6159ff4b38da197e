"""Tiles of bytes that are read across the fast dim of their buffer (`plan/turning.py`).

Two neighbours of a line are one element of 16 bits, which `ldmatrix.trans` moves; bytes of two words become those of
two words of one line each:

    w0 = (k0: c0 c1)(k1: c0 c1), w1 = (k8: c0 c1)(k9: c0 c1)    ->    c0: k0 k1 k8 k9,    c1: k0 k1 k8 k9
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.backends.llvm.types import I8, I32, V, const
from tilewright.backends.nvidia.emit.context import Buffer, Kernel
from tilewright.backends.nvidia.emit.shared_access import Window, join, offsets_in, part
from tilewright.ir.types import i16
from tilewright.layouts.access import plan_access
from tilewright.layouts.linear import LinearLayout

EVEN_BYTES, ODD_BYTES = 0x6420, 0x7531  # of two words


def load_turned(k: Kernel, layout: LinearLayout, buffer: Buffer) -> Mapping[int, V] | None:
    """The bytes of a tile by register, if its layout has the form; else None.

    Args:
        k: the kernel.
        layout: of the tile, without copies: its third register bit leads to the neighbour in the buffer.
        buffer: with elements of 8 bits.
    """
    axis = _axis_of_neighbours(layout, buffer.layout)
    if axis is None:
        return None
    pairs = replace(buffer, layout=in_pairs(buffer.layout, axis), element=i16)
    plan = plan_access(offsets_in(in_pairs(layout, axis), pairs.layout), 16, True)
    if plan.kind != "matrix_transposed":
        return None
    loaded = Window(k, pairs.base, plan).load()
    f, odd, made = k.f, _is_odd_first(k, layout, axis), dict[int, V]()
    orders = (ODD_BYTES, EVEN_BYTES), (EVEN_BYTES, ODD_BYTES)
    chosen = [f.select(odd, const(I32, one), const(I32, other)) for one, other in orders]
    for start in range(0, len(loaded), 4):
        low, high = (join(k, [loaded[start + i], loaded[start + i + 1]]) for i in (0, 2))
        for number, selector in enumerate(chosen):
            word = f.call("llvm.nvvm.prmt", I32, (low, high, selector))
            made.update(enumerate(part(k, word, I8), 2 * start + 4 * number))
    return made


def _axis_of_neighbours(layout: LinearLayout, buffer: LinearLayout) -> int | None:
    """The dim along which pairs lie in the buffer and a thread holds them; None if nothing has the form."""
    fast = buffer.bases()["offset"][0]
    if len(fast) != 2 or sorted(fast) != [0, 1] or layout.bases()["register"][2:3] != [fast]:
        return None
    axis = fast.index(1)
    odd = {dim: [basis for basis in group if basis[axis] & 1] for dim, group in layout.bases().items()}
    alone = len(odd["register"]) == 1 and not odd["block"] and len(odd["lane"]) + len(odd["warp"]) <= 1
    return axis if alone and not any(basis[axis] & 1 for basis in buffer.bases()["offset"][1:]) else None


def _is_odd_first(k: Kernel, layout: LinearLayout, axis: int) -> V:
    """Whether the first of two neighbours that a thread holds is the odd one: one bit of the thread tells."""
    masks = [sum(1 << i for i, basis in enumerate(layout.bases()[dim]) if basis[axis] & 1) for dim in ("lane", "warp")]
    return k.f.icmp("ne", k.f.or_(k.f.and_(k.lane, masks[0]), k.f.and_(k.warp, masks[1])), 0)


def in_pairs(layout: LinearLayout, axis: int) -> LinearLayout:
    """A layout of elements as one of pairs of neighbours along a dim: without the input bit that tells them apart."""
    unit = tuple(int(i == axis) for i in range(2))
    bases = {
        dim: [tuple(c >> (i == axis) for i, c in enumerate(basis)) for basis in group if basis != unit]
        for dim, group in layout.bases().items()
    }
    sizes = {name: size >> (i == axis) for i, (name, size) in enumerate(layout.out_sizes.items())}
    return LinearLayout.from_bases(bases, sizes)


__all__ = ["EVEN_BYTES", "ODD_BYTES", "in_pairs", "load_turned"]
