# mypy: ignore-errors
"""A convolution: out[i, j] = sum over a, b of x[i + a, j + b] * w[a, b].

Each program computes a tile of the output. Its inputs overlap: element [i, j] needs a window of x that begins at
[i, j]. So the program loads, for each place [a, b] of the window, the tile of x that is moved by that much, and adds it
times w[a, b], which is one number. Windows that reach past the edge of x read 0 there.

    x_ptr, out_ptr   rows x columns numbers each (float32); rows lie without gaps
    w_ptr            SIZE x SIZE numbers
    grid             (tiles of ROWS rows, tiles of COLUMNS columns)

In numpy: padded = np.pad(x, ((0, SIZE - 1), (0, SIZE - 1)))
          out = sum(padded[a:a + rows, b:b + columns] * w[a, b] for a in range(SIZE) for b in range(SIZE))
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def convolution(x_ptr, w_ptr, out_ptr, rows, columns, SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Stores the convolution of x with w."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    for a in range(SIZE):
        for b in range(SIZE):
            w = tl.load(w_ptr + a * SIZE + b)  # one number
            # <solution>
            there = ((i + a)[:, None] < rows) & ((j + b)[None, :] < columns)
            x = tl.load(x_ptr + (i + a)[:, None] * columns + (j + b)[None, :], mask=there, other=0.0)
            acc += x * w
            # <exercise>
            # Load the tile of x that is moved by a rows and b columns, and add it times w to acc. The mask belongs to
            # what is loaded, not to what is stored.
            # </exercise>
    mask = (i[:, None] < rows) & (j[None, :] < columns)
    tl.store(out_ptr + i[:, None] * columns + j[None, :], acc, mask=mask)
