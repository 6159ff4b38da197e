# mypy: ignore-errors
"""Strides, and a grid of two dimensions: out[i, j] = max(x[i, j] * scale[j], 0).

A *stride* says how far apart the rows of a matrix lie in memory. x is a part of a wider matrix, so the next row begins
`x_stride` elements further on, which is more than `columns`. Programs form a grid of two dimensions: `tl.program_id(0)`
counts tiles downwards, `tl.program_id(1)` to the right.

    x_ptr       rows x columns numbers (float32); x[i, j] is at x_ptr + i * x_stride + j
    scale_ptr   columns numbers
    out_ptr     rows x columns numbers; out[i, j] is at out_ptr + i * out_stride + j

In numpy: out = np.maximum(x * scale[None, :], 0)
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def scaled_rows(
    x_ptr, scale_ptr, out_ptr, rows, columns, x_stride, out_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Stores x * scale where that is positive, else 0."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (i[:, None] < rows) & (j[None, :] < columns)
    # <solution>
    x = tl.load(x_ptr + i[:, None] * x_stride + j[None, :], mask=mask)
    scale = tl.load(scale_ptr + j, mask=j < columns)
    tl.store(out_ptr + i[:, None] * out_stride + j[None, :], tl.maximum(x * scale[None, :], 0), mask=mask)
    # <exercise>
    # Load a tile [ROWS, COLUMNS] of x and a tile [COLUMNS] of scale, multiply them, and store tl.maximum(product, 0).
    # </exercise>
