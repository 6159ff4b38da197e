# mypy: ignore-errors
"""A reduction: out[i] = x[i, 0] + x[i, 1] + ...

`tl.sum(tile, axis=0)` adds up a tile of shape [N] to one number, a scalar. Each program has one row. The tile may be
longer than the row: what is masked off when it is loaded holds anything at all, unless you say what with `other=`.

    x_ptr     rows x columns numbers (float32); rows lie `stride` elements apart
    out_ptr   rows numbers
    grid      one program for each row; BLOCK is a power of two, at least columns

In numpy: out = x.sum(axis=1)
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def row_sum(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    """Stores the sum of each row."""
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    # <solution>
    x = tl.load(x_ptr + row * stride + j, mask=j < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))
    # <exercise>
    # Load the row, with other= what a sum does not notice, and store its sum to out_ptr + row: a store of one number
    # to one pointer needs no tile.
    # </exercise>
