# mypy: ignore-errors
"""A program and its tile: out = x + 10.

A kernel says what one *program* does. Here there is one program, and it works on one *tile* of BLOCK elements, which is
all of x. `x_ptr` and `out_ptr` point to the first elements; a pointer plus a tile of offsets is a tile of pointers.

    x_ptr, out_ptr   BLOCK numbers each (float32)
    BLOCK            how many, known when the kernel is compiled

In numpy: out = x + 10
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def add_ten(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Stores x + 10."""
    offsets = tl.arange(0, BLOCK)  # 0, 1, ... BLOCK - 1
    # <solution>
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, x + 10)
    # <exercise>
    # Load a tile of x, add 10 and store the sums to out:
    #   tl.load(pointers)           gives a tile of values
    #   tl.store(pointers, values)  writes one
    # </exercise>
