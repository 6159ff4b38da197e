# mypy: ignore-errors
"""Softmax of rows that fit a tile: out[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]).

exp of a large number is infinite, and infinite / infinite is not a number. Every x of a row may be lessened by the same
number without a change of the result, so take away the largest: then the largest argument of exp is 0.

    x_ptr, out_ptr   rows x columns numbers each (float32); rows lie `stride` elements apart, in both
    grid             one program for each row; BLOCK is a power of two, at least columns

In numpy: e = np.exp(x - x.max(axis=1, keepdims=True)); out = e / e.sum(axis=1, keepdims=True)
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def softmax(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    """Stores the softmax of each row."""
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    # <solution>
    x = tl.load(x_ptr + row * stride + j, mask=j < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + j, e / tl.sum(e, axis=0), mask=j < columns)
    # <exercise>
    # Load the row: what is masked off must neither be the largest nor add to the sum. exp(-inf) is 0.
    # tl.max(x, axis=0) is the largest element, tl.exp works on tiles.
    # </exercise>
