"""Products in a function that is called: what the kernel must do for them, and what is not kept from call to call."""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl

torch = pytest.importorskip("torch")


@tilewright.jit(noinline=True)
def product(a, b, c, K, N: tl.constexpr, BLOCK: tl.constexpr):
    i, k = tl.arange(0, N), tl.arange(0, BLOCK)
    acc = tl.zeros((N, N), tl.float32)
    for start in range(0, K, BLOCK):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + i[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + i[None, :], acc)


@tilewright.jit
def products(a, b, c, K, N: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    product(a, b + program * K * N, c + program * N * N, K, N, BLOCK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_call_has_its_own_operand(dtype):
    n, k, programs = 32, 64, 6
    a, b = torch.randn(n, k, dtype=dtype), torch.randn(programs, k, n, dtype=dtype)
    c = torch.zeros(programs, n, n)
    products[(programs,)](a, b, c, k, N=n, BLOCK=32)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-4, atol=1e-4)
