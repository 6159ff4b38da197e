"""Random matrices and layouts for the property tests."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tilewright.layouts import f2
from tilewright.layouts.linear import LinearLayout


def invertible(rng: random.Random, size: int, mixing: int) -> list[int]:
    """Columns of a random invertible matrix: a permutation, mixed by `mixing` column additions."""
    columns = [1 << i for i in rng.sample(range(size), size)]
    for _ in range(mixing if size > 1 else 0):
        i, j = rng.sample(range(size), 2)
        columns[i] ^= columns[j]
    return columns


@st.composite
def matrices(draw, rows=st.integers(0, 8), count=st.integers(0, 8)):
    """(columns, rows) of any matrix."""
    height = draw(rows)
    width = draw(count)
    return draw(st.lists(st.integers(0, (1 << height) - 1), min_size=width, max_size=width)), height


@st.composite
def layouts(draw, ins=("a", "b"), outs=("x", "y"), max_bits=3):
    """Any layout between the given dims."""
    in_dims = tuple((name, draw(st.integers(0, max_bits))) for name in ins)
    out_dims = tuple((name, draw(st.integers(0, max_bits))) for name in outs)
    height, width = sum(bits for _, bits in out_dims), sum(bits for _, bits in in_dims)
    columns = draw(st.lists(st.integers(0, (1 << height) - 1), min_size=width, max_size=width))
    return LinearLayout(in_dims, out_dims, tuple(columns))


def covering(rng: random.Random, widths: dict[str, int], shape: tuple[int, int], mixing: int) -> LinearLayout:
    """A random layout that covers a tile of ``2**shape[0]`` by ``2**shape[1]``; positions to spare hold copies."""
    total, size = sum(widths.values()), sum(shape)
    assert total >= size
    columns = invertible(rng, size, mixing)
    for _ in range(total - size):
        columns.append(rng.choice([0, 0, f2.multiply(columns, rng.randrange(1 << size))]))
    rng.shuffle(columns)
    outs = tuple((f"dim{i}", bits) for i, bits in enumerate(shape))
    return LinearLayout(tuple(widths.items()), outs, tuple(columns))
