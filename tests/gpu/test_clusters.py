"""Launches with `num_ctas` on a GPU: every kind of access, products, descriptors and locks, with Triton's results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import cluster_kernels as kernels
from tests.backends.nvidia import descriptor_kernels
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

describe = TensorDescriptor.from_tensor
each = pytest.mark.parametrize(
    ("num_warps", "num_ctas"),
    [
        (4, 1),
        pytest.param(4, 2, marks=pytest.mark.sanitize),
        (8, 2),
        (4, 4),
        pytest.param(1, 16, marks=pytest.mark.sanitize),
    ],
)


@each
def test_programs_are_those_of_the_grid(num_warps: int, num_ctas: int) -> None:
    x = torch.randn(11, 1000, device="cuda")
    out, sums = torch.zeros_like(x), torch.zeros(32, dtype=torch.int32, device="cuda")
    made = kernels.rows[(11,)](x, out, sums, 1000, BLOCK=1024, num_warps=num_warps, num_ctas=num_ctas)
    torch.testing.assert_close(out, x.softmax(1))
    counts = [11, 10, 500 * 55, 500 * 55, 11, *range(7, 18)]
    assert sums.tolist() == counts + [0] * 16
    assert (made.metadata.num_ctas, made.metadata.num_warps) == (num_ctas, num_warps)


@each
@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize(("m", "n"), [(64, 32), (128, 128), (256, 128)])
def test_products(num_warps: int, num_ctas: int, kind: str, m: int, n: int) -> None:
    dtype = getattr(torch, kind)
    a = torch.randint(-4, 5, (m, 256), device="cuda").to(dtype)
    b = torch.randint(-4, 5, (256, 3 * n), device="cuda").to(dtype)
    c = torch.zeros(m, 3 * n, device="cuda")
    kernels.matmul[(3,)](a, b, c, 256, M=m, N=n, STEP=32, num_warps=num_warps, num_ctas=num_ctas)
    assert torch.equal(c, (a.double() @ b.double()).float())


@each
def test_library_functions(num_warps: int, num_ctas: int) -> None:
    x = torch.randperm(1024, device="cuda", dtype=torch.int32)
    out, total = torch.zeros(2048, dtype=torch.int32, device="cuda"), torch.zeros(2, dtype=torch.int32, device="cuda")
    kernels.library[(2,)](x, out, total, BLOCK=512, num_warps=num_warps, num_ctas=num_ctas)
    halves = x.view(2, 512)
    assert torch.equal(out[:1024].view(2, 512), halves.sort(1).values.cumsum(1).int())
    assert torch.equal(out[1024:].view(2, 8, 64), halves.view(2, 64, 8).transpose(1, 2))
    assert total.tolist() == [num_warps] * 2


@each
def test_descriptors(num_warps: int, num_ctas: int) -> None:
    a = torch.randint(-4, 5, (256, 512), device="cuda").half()
    b = torch.randint(-4, 5, (512, 256), device="cuda").half()
    c = torch.zeros(256, 256, device="cuda", dtype=torch.float16)
    blocks = describe(a, [128, 64]), describe(b, [64, 128]), describe(c, [128, 128])
    descriptor_kernels.matmul[(2, 2)](
        *blocks, 512, M_BLOCK=128, N_BLOCK=128, K_BLOCK=64, num_warps=num_warps, num_ctas=num_ctas
    )
    assert torch.equal(c, (a.double() @ b.double()).half())


@each
def test_each_program_holds_a_lock_once(num_warps: int, num_ctas: int) -> None:
    lock, count = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(128, dtype=torch.int32, device="cuda")
    kernels.guarded[(500,)](lock, count, BLOCK=128, num_warps=num_warps, num_ctas=num_ctas)
    assert (count == 500).all() and not lock.any()
