# mypy: ignore-errors
"""Product with weights of 4 bits: c = a @ w, where w is unpacked on the way.

Two weights share a byte: byte [k, n] of `packed` holds weight [k, n] in its low four bits and weight [k + K/2, n] in
its high four. The bits stand for 0 to 15, the weight is (bits - 8) * scale[n]. Unpacked weights are never stored: a
program unpacks a tile, and multiplies it while it is in registers.

    a_ptr        M x K numbers (float32)
    packed_ptr   K/2 x N bytes (uint8)
    scale_ptr    N numbers (float32)
    c_ptr        M x N numbers (float32)
    grid         (tiles of BM rows, tiles of BN columns); K/2 is a multiple of BK

In numpy: bits = np.concatenate([packed & 15, packed >> 4]); c = a @ ((bits - 8.0) * scale)
"""

import tilewright
import tilewright.language as tl


@tilewright.jit
def quantised_matmul(
    a_ptr, packed_ptr, scale_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Stores a @ w."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K // 2, BK):
        k = start + tl.arange(0, BK)
        packed = tl.load(packed_ptr + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0)
        # <solution>
        low = (packed & 15).to(tl.float32) - 8
        high = (packed >> 4).to(tl.float32) - 8
        a_low = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        a_high = tl.load(a_ptr + m[:, None] * K + (k + K // 2)[None, :], mask=m[:, None] < M, other=0.0)
        acc = tl.dot(a_low, low, acc)
        acc = tl.dot(a_high, high, acc)
        # <exercise>
        # 1. low and high: the two weights of each byte, as float32 (tile.to(tl.float32)), less 8
        # 2. the tiles of a that belong to them: columns k, and columns k + K // 2
        # 3. two dots
        # </exercise>
    # <solution>
    acc = acc * tl.load(scale_ptr + n, mask=n < N)[None, :]
    # <exercise>
    # 4. the scale of each column: once, behind the loop
    # </exercise>
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
