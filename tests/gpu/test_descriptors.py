"""Descriptors of the host through the copy engine of a GPU: values, edges, types, ranks, loops and products."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import descriptor_kernels as kernels
from tilewright.backends.nvidia import backend
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

describe = TensorDescriptor.from_tensor
TYPES = ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64"]


def numbers(*shape: int, kind: str = "float32") -> Any:
    return torch.randint(-100, 100, shape, device="cuda").to(getattr(torch, kind))


def uses_engine(kernel: Any) -> bool:
    """Whether the code has bulk copies, as it must where there is an engine for them."""
    found = "cp.async.bulk.tensor" in kernel.asm["ptx"]
    assert found == (int(backend.target().arch) >= 90)
    return found


@pytest.mark.parametrize("block", [[16, 32], [64, 64], [8, 128], [2, 64], [1, 256]])
@pytest.mark.parametrize("kind", TYPES)
def test_blocks_beyond_every_edge(kind: str, block: list[int]) -> None:
    x, out = numbers(70, 208, kind=kind), numbers(70, 208, kind=kind)
    grid = tuple(-(-n // size) for n, size in zip(x.shape, block, strict=True))
    uses_engine(kernels.moved[grid](describe(x, block), describe(out, block), SHIFT=16))
    want = torch.zeros_like(x)
    want[16:, :-16] = x[:-16, 16:]
    assert torch.equal(out, want)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_what_lies_outside_may_be_nan(kind: str) -> None:
    x, out = numbers(16, 64, kind=kind), numbers(16, 64, kind=kind)
    uses_engine(kernels.moved[(1, 1)](describe(x, [16, 64], padding="nan"), describe(out, [16, 64]), SHIFT=8))
    assert out[:8].isnan().all() and out[:, 56:].isnan().all() and torch.equal(out[8:, :56], x[:8, 8:])


def test_rounding_to_tf32() -> None:
    x = torch.full((16, 64), 1 + 2.0**-11, device="cuda")
    out = torch.zeros_like(x)
    kernels.scaled_copy[(1, 1)](describe(x, [16, 64], round_f32_to_tf32=True), describe(out, [16, 64]), 1.0, M=16, N=64)
    assert (out == 1 + 2.0**-10).all()


def test_other_ranks() -> None:
    x, out = numbers(3000), numbers(3000)
    uses_engine(kernels.vectors[(3,)](describe(x, [1024]), describe(out, [1024]), N=1024))
    assert torch.equal(out, x + torch.cat([x[4:], x.new_zeros(4)]))
    x, out = numbers(10, 6, 40, kind="float16"), torch.zeros(10, 6, 40, dtype=torch.float16, device="cuda")
    uses_engine(kernels.cubes[(3,)](describe(x, [4, 4, 32]), describe(out, [4, 4, 32]), D=4))
    assert torch.equal(out[:, :4, :32], x[:, 1:5, 8:40])
    assert not out[:, 4:].any() and not out[:, :, 32:].any()


def test_a_tensor_within_a_larger_one() -> None:
    whole, out = numbers(64, 128), torch.zeros(32, 32, device="cuda")
    part = TensorDescriptor(whole, [20, 24], [256, 1], [16, 32])
    uses_engine(kernels.scaled_copy[(2, 1)](part, describe(out, [16, 32]), 1.0, M=16, N=32))
    assert torch.equal(out[:20, :24], whole[::2][:20, :24]) and not out[20:].any() and not out[:, 24:].any()


@pytest.mark.sanitize
def test_loops_and_branches() -> None:
    x, out = numbers(64, 1600, kind="float16"), torch.zeros(64, device="cuda")
    uses_engine(kernels.row_sums[(1,)](describe(x, [64, 32]), out, 1600, M=64, N=32))
    assert torch.equal(out, x.float().sum(1))
    x, out = numbers(64, 128), torch.zeros(8, 16, device="cuda")
    uses_engine(kernels.sometimes[(1,)](describe(x, [8, 16]), out, 21, M=8, N=16))
    odd = sum(x[i : i + 8, :16] for i in range(1, 21, 2))
    assert torch.equal(out, odd + sum(x[:8, 4 * i : 4 * i + 16] for i in range(21)))


@pytest.mark.sanitize
def test_blocks_that_start_anywhere() -> None:
    x, out = numbers(70, 208), numbers(70, 208)
    kernels.moved[(5, 7)](describe(x, [16, 32]), describe(out, [16, 32]), SHIFT=3)
    want = torch.zeros_like(x)
    want[3:, :-3] = x[:-3, 3:]
    assert torch.equal(out, want)


@pytest.mark.sanitize
def test_loads_and_stores_of_one_tensor() -> None:
    x, out = numbers(16, 32), torch.zeros(1, device="cuda")
    want = x + 1
    uses_engine(kernels.in_place[(1,)](describe(x, [16, 32]), out, M=16, N=32))
    assert torch.equal(x, want)


@pytest.mark.sanitize
def test_tensors_written_by_ordinary_stores() -> None:
    x = numbers(16, 32)
    want = x.clone()
    want[0, 0] = 5
    kernels.ordinary_writes[(1,)](describe(x, [16, 32]), M=16, N=32)
    assert torch.equal(x, want + 1)


def test_one_kernel_for_many_tensors() -> None:
    for rows in (16, 40, 48, 1000):
        x, out = numbers(rows, 72), numbers(rows, 72)
        kernels.scaled_copy[(-(-rows // 16), 3)](describe(x, [16, 32]), describe(out, [16, 32]), 3.0, M=16, N=32)
        assert torch.equal(out, x * 3)


# --- products -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, pytest.param(3, marks=pytest.mark.sanitize), 4])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("blocks", "warps", "turned"),
    [((64, 64, 64), 4, False), ((128, 128, 64), 8, False), ((128, 256, 64), 8, True), ((64, 32, 32), 4, True)],
)
def test_products(blocks: tuple[int, int, int], warps: int, turned: bool, kind: str, stages: int) -> None:
    m, n, k = 2 * blocks[0] - 8, 3 * blocks[1], 7 * blocks[2] - 8
    a = torch.randint(-4, 5, (m, k), device="cuda").to(getattr(torch, kind))
    b = torch.randint(-4, 5, (n, k) if turned else (k, n), device="cuda").to(getattr(torch, kind))
    c = torch.zeros(m, n, dtype=torch.float16, device="cuda")
    rows, columns, depth = blocks
    made = kernels.matmul[(2, 3)](
        describe(a, [rows, depth]), describe(b, [columns, depth] if turned else [depth, columns]),
        describe(c, [rows, columns]), k, M_BLOCK=rows, N_BLOCK=columns, K_BLOCK=depth, TRANS_B=turned,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    uses_engine(made)
    assert torch.equal(c.float(), a.float() @ (b.T if turned else b).float())


@pytest.mark.sanitize
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_fewer_iterations_than_buffers(iterations: int) -> None:
    a = torch.randint(-4, 5, (64, 32 * iterations), device="cuda").half()
    b = torch.randint(-4, 5, (32 * iterations, 64), device="cuda").half()
    c = torch.zeros(64, 64, dtype=torch.float16, device="cuda")
    kernels.matmul[(1, 1)](
        describe(a, [64, 32]), describe(b, [32, 64]), describe(c, [64, 64]), 32 * iterations,
        M_BLOCK=64, N_BLOCK=64, K_BLOCK=32, num_stages=4,
    )  # fmt: skip
    assert torch.equal(c.float(), a.float() @ b.float())


@pytest.mark.sanitize
def test_rings_that_are_filled_again() -> None:
    a = torch.randint(-4, 5, (64 * 41, 480), device="cuda").half()
    b = torch.randint(-4, 5, (480, 64), device="cuda").half()
    c = torch.zeros(64 * 41, 64, dtype=torch.float16, device="cuda")
    kernels.persistent[(3,)](
        describe(a, [64, 32]), describe(b, [32, 64]), describe(c, [64, 64]), 480, 41,
        M_BLOCK=64, N_BLOCK=64, K_BLOCK=32,
    )  # fmt: skip
    assert torch.equal(c.float(), a.float() @ b.float())


@pytest.mark.sanitize
def test_copies_of_both_kinds() -> None:
    a = torch.randint(-4, 5, (120, 480), device="cuda").half()
    b = torch.randint(-4, 5, (480, 128), device="cuda").half()
    c = torch.zeros(120, 128, dtype=torch.float16, device="cuda")
    kernels.mixed_matmul[(2, 2)](
        describe(a, [64, 32]), b, describe(c, [64, 64]), 128, 480, M_BLOCK=64, N_BLOCK=64, K_BLOCK=32
    )
    assert torch.equal(c.float(), a.float() @ b.float())
