"""Programs that the tests of the report run, as text."""

TWO_KERNELS = """
import sys
import torch
import tilewright
import tilewright.language as tl


@tilewright.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * factor, mask=mask)


@tilewright.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, 32):
        ks = k + tl.arange(0, 32)
        a = tl.load(a_ptr + m[:, None] * K + ks[None, :])
        b = tl.load(b_ptr + ks[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16))


torch.manual_seed(0)
size = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
x, out = torch.rand(size), torch.zeros(size)
for _ in range(3):
    scale[(tilewright.cdiv(size, 256),)](x, out, size, 2.0, BLOCK=256)
scale[(tilewright.cdiv(size, 128),)](x, out, size, 2.0, BLOCK=128)
assert torch.equal(out, 2 * x)
a, b, c = torch.rand(128, 96).half(), torch.rand(96, 192).half(), torch.zeros(128, 192).half()
product[(2, 3)](a, b, c, 128, 192, 96, BLOCK=64)
"""
