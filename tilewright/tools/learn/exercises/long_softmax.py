# mypy: ignore-errors
"""Softmax of rows of any length, in pieces ("online"): the same as before, but BLOCK is less than columns.

A loop goes over the row in pieces and carries two numbers: the largest element so far, and the sum of exp(x - largest)
so far. When a piece brings a larger element, the sum was taken with the wrong one: exp(x - new) is exp(x - old) times
exp(old - new). So the sum is multiplied by that, and the piece is added. A second loop stores the results.

    x_ptr, out_ptr   rows x columns numbers each (float32); rows lie `stride` elements apart, in both
    grid             one program for each row

In numpy: as before. Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def long_softmax(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    """Stores the softmax of each row."""
    row = tl.program_id(0)
    largest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + j, mask=j < columns, other=-float("inf"))
        # <solution>
        now = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - now) + tl.sum(tl.exp(x - now), axis=0)
        largest = now
        # <exercise>
        # 1. now = the larger of `largest` and of this piece's largest element (tl.maximum takes two, tl.max a tile)
        # 2. total: bring it from `largest` to `now`, and add this piece's exponentials
        # 3. largest = now
        # </exercise>
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + j, mask=j < columns)
        tl.store(out_ptr + row * stride + j, tl.exp(x - largest) / total, mask=j < columns)
