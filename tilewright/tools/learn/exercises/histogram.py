# mypy: ignore-errors
"""Programs that meet in one place: counts[b] = how many elements of x are b.

Programs run at the same time, in any order. When two of them load a count, add one and store it, one of the additions
may be lost: that is a *race*. `tl.atomic_add(pointers, values, mask=mask)` loads, adds and stores in one step that
nobody can come between; it works on tiles of pointers in which some are equal, too.

    x_ptr        n integers (int32) from 0 to 9
    counts_ptr   10 integers (int32), all 0 at the beginning
    grid         as many programs as tiles of BLOCK elements cover n

In numpy: counts = np.bincount(x, minlength=10)
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def histogram(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    """Counts how often each number occurs."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # <solution>
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=mask)
    # <exercise>
    # Load a tile of x. A tile of integers that was loaded may be an offset: counts_ptr + x. Add 1 there, atomically.
    # What is masked off needs an offset that exists (other=0), and the mask once more when it is added.
    # </exercise>
