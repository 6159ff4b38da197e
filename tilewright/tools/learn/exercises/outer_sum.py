# mypy: ignore-errors
"""Tiles of two dimensions: out[i, j] = x[i] + y[j].

A tile of shape [N] becomes one of shape [N, 1] by `tile[:, None]`, and [1, N] by `tile[None, :]`. Two tiles of shapes
[N, 1] and [1, M] give one of shape [N, M] when they are added: each is repeated along the dimension where it has one
element. That goes for values, for offsets and for masks.

    x_ptr, y_ptr   n and m numbers (float32)
    out_ptr        n rows of m numbers; out[i, j] is at out_ptr + i * m + j
    grid           one program; N and M are powers of two, at least n and m

In numpy: out = x[:, None] + y[None, :]
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def outer_sum(x_ptr, y_ptr, out_ptr, n, m, N: tl.constexpr, M: tl.constexpr):
    """Stores the sum of every element of x and every element of y."""
    rows = tl.arange(0, N)
    columns = tl.arange(0, M)
    x = tl.load(x_ptr + rows, mask=rows < n)
    y = tl.load(y_ptr + columns, mask=columns < m)
    # <solution>
    mask = (rows[:, None] < n) & (columns[None, :] < m)
    tl.store(out_ptr + rows[:, None] * m + columns[None, :], x[:, None] + y[None, :], mask=mask)
    # <exercise>
    # Store x[:, None] + y[None, :] to a tile [N, M] of pointers made of rows and columns. The mask has to say of each
    # element whether its row and its column are there: two masks are combined with &.
    # </exercise>
