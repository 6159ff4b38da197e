# mypy: ignore-errors
"""A grid of programs, and a mask: out = x + y.

The vectors are longer than a tile, so there are several programs, which run in any order: `tl.program_id(0)` says which
one this is. Program 0 has the first BLOCK elements, program 1 the next. n is no multiple of BLOCK: the last program's
tile reaches past the end, and must leave out what is not there.

    x_ptr, y_ptr, out_ptr   n numbers each (float32)
    grid                    as many programs as tiles of BLOCK elements cover n

In numpy: out = x + y
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Stores x + y."""
    # <solution>
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
    # <exercise>
    # 1. Compute the offsets of this program's tile from tl.program_id(0), BLOCK and tl.arange.
    # 2. Make a mask: which of them are below n?
    # 3. Load, add and store, each with mask=mask.
    # </exercise>
