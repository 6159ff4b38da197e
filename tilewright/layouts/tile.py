"""What the shape operations do to a layout: reshape, transpose, expand, narrow, join and split move no data.

Each function takes the layout of the operand and gives the one that the result has if every element stays where it is.
Flat order is that of tiles, the last dim fastest.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.layouts.distributed import dim_names
from tilewright.layouts.linear import LinearLayout, log2


@functools.lru_cache(maxsize=4096)
def reshape_tile(layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
    """The layout of the tile after a reshape (sizes are powers of two)."""
    fast_first = layout.transpose(outs=tuple(reversed(dim_names(len(layout.outs)))))
    names = dim_names(len(shape))
    return fast_first.reshape(outs=dict(reversed(list(zip(names, shape))))).transpose(outs=names)


def transpose_tile(layout: LinearLayout, order: Sequence[int]) -> LinearLayout:
    """The layout after a transposition: dim i of the result is dim ``order[i]`` of the operand."""
    names = dim_names(len(order))
    moved = layout.transpose(outs=[names[axis] for axis in order])
    return moved.rename({names[axis]: names[i] for i, axis in enumerate(order)})


def expand_tile(layout: LinearLayout, axis: int) -> LinearLayout:
    """The layout after a dim of size 1 is put in at `axis`."""
    names = dim_names(len(layout.outs) + 1)
    renamed = layout.rename({names[i]: names[i + 1] for i in range(axis, len(layout.outs))})
    return (renamed * LinearLayout.zeros(1, "register", names[axis])).transpose(outs=names)


def narrow_tile(layout: LinearLayout, axis: int) -> LinearLayout:
    """The layout of an operand that is broadcast along `axis` (there of size 1) to a tile laid out as `layout`."""
    size = {name: 1 if i == axis else s for i, (name, s) in enumerate(layout.out_sizes.items())}
    bases = {
        dim: [tuple(0 if i == axis else c for i, c in enumerate(basis)) for basis in group]
        for dim, group in layout.bases().items()
    }
    bases["register"] = [basis for basis in bases["register"] if any(basis)]
    return LinearLayout.from_bases(bases, size)


def join_tiles(layout: LinearLayout) -> LinearLayout:
    """The layout of two tiles joined along a new last dim: its register bit is the lowest."""
    last = LinearLayout.identity(2, "register", f"dim{len(layout.outs)}")
    joined = last * layout
    return joined.transpose(ins=tuple(layout.in_sizes), outs=dim_names(len(layout.outs) + 1))


def split_register(layout: LinearLayout) -> int | None:
    """The register bit that alone selects along a last dim of size 2, so that a split moves nothing; None if none."""
    last = f"dim{len(layout.outs) - 1}"
    along = layout.sublayout(list(layout.in_sizes), [last])
    found = [i for i, basis in enumerate(layout.bases()["register"]) if basis[-1] and not any(basis[:-1])]
    if log2(layout.out_sizes[last]) != 1 or len(found) != 1 or sum(along.columns) != 1:
        return None
    return found[0]
