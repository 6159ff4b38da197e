# mypy: ignore-errors
"""Product of matrices: c = a @ b.

`tl.dot(a, b)` multiplies a tile [M, K] by a tile [K, N]; `tl.dot(a, b, acc)` adds the product to acc. Each program
computes one tile [BM, BN] of c: it goes along K in steps of BK, loads a tile of a and a tile of b, and adds their
product to an accumulator. No size is a multiple of a block: rows and columns that are not there are masked when c is
stored, and what is not there along K must add zeros.

    a_ptr   M x K numbers (float32), b_ptr: K x N, c_ptr: M x N; rows lie without gaps
    grid    (tiles of BM rows, tiles of BN columns)

In numpy: c = a @ b
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Stores a @ b."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    # <solution>
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    # <exercise>
    # for start in range(0, K, BK):
    #     k = start + tl.arange(0, BK)
    #     a: a tile [BM, BK] of a; b: a tile [BK, BN] of b; both masked, with other=0.0
    #     acc = tl.dot(a, b, acc)
    # </exercise>
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
