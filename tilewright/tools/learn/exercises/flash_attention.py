# mypy: ignore-errors
"""Attention without its matrix of scores: out = softmax(q @ k.T / sqrt(D)) @ v.

q, k and v have n rows of D numbers. The n x n scores are never stored: a program has a tile of BM queries, goes over
the keys in pieces of BN, and carries what the exercise on long rows carries, for each of its queries: the largest score
so far, the sum of exponentials so far; and the sum of exponentials times rows of v, a tile [BM, D], which is brought
from one largest score to the next as the sum is. Both loops of softmax become one, as the results are divided by the
sum at the end.

    q_ptr, k_ptr, v_ptr, out_ptr   n x D numbers each (float32); rows lie without gaps
    scale                          1 / sqrt(D)
    grid                           tiles of BM queries

In numpy: s = q @ k.T * scale; e = np.exp(s - s.max(1, keepdims=True)); out = e / e.sum(1, keepdims=True) @ v
Source: Dao, Fu, Ermon, Rudra and Ré, "FlashAttention" (2022).
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Stores softmax(q @ k.T * scale) @ v."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :], mask=m[:, None] < n, other=0.0)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(k_ptr + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        v = tl.load(v_ptr + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        # <solution>
        scores = tl.where(j[None, :] < n, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        now = tl.maximum(largest, tl.max(scores, axis=1))
        e = tl.exp(scores - now[:, None])
        factor = tl.exp(largest - now)
        total = total * factor + tl.sum(e, axis=1)
        acc = acc * factor[:, None] + tl.dot(e, v)
        largest = now
        # <exercise>
        # 1. scores: tl.dot(q, tl.trans(k)) * scale; keys that are not there (j >= n) have the score -inf (tl.where)
        # 2. now: the largest of each row (axis=1) so far
        # 3. e: the exponentials, a tile [BM, BN]; factor: what brings `total` and `acc` from `largest` to `now`
        # 4. total, acc (tl.dot(e, v) is this piece's part) and largest
        # </exercise>
    tl.store(out_ptr + m[:, None] * D + d[None, :], acc / total[:, None], mask=m[:, None] < n)
