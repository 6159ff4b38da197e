"""Roles on a GPU: products of many sizes and depths, tile after tile, beside other streams, with every kind of use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import role_kernels as kernels
from tilewright.backends.nvidia import backend
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

describe = TensorDescriptor.from_tensor
SMALL = (128, 64, 64)


def matrices(rows: int, columns: int, depth: int, kind: Any = None) -> tuple[Any, Any, Any]:
    """Two operands of small whole numbers, and the product."""
    a = torch.randint(-4, 5, (rows, depth), device="cuda").half()
    b = torch.randint(-4, 5, (depth, columns), device="cuda").to(kind or torch.float16)
    return a, b, (a.double() @ b.double()).half()


def multiply(
    fn: Any, blocks: tuple[int, int, int], size: tuple[int, int, int], *more: Any, programs: int = 0, **options: Any
) -> Any:
    """Run a kernel and compare; gives what was launched."""
    (rows, columns, depth), (m, n, k) = blocks, size
    a, b, expected = matrices(m, n, k, options.pop("kind", None))
    c = torch.full_like(expected, 9)
    tiles = -(-m // rows)
    grid = (programs, 1) if programs else (tiles, -(-n // columns))
    last = [k, tiles] if programs else [k]
    given = [describe(a, [rows, depth]), describe(b, [depth, columns]), describe(c, [rows, columns]), *more, *last]
    made = fn[grid](*given, M_BLOCK=rows, N_BLOCK=columns, K_BLOCK=depth, **options)
    assert torch.equal(c, expected)
    return made


def divided(made: Any) -> bool:
    """Whether there are roles, as there must be on Hopper."""
    found = "ttng.enter_role" in made.asm["tgir"]
    assert found == (int(backend.target().arch) == 90)
    return found


@pytest.mark.sanitize
@pytest.mark.parametrize("warps", [4, 8, 16])
@pytest.mark.parametrize("size", [(128, 64, 64), (136, 72, 56), (1000, 520, 64), (520, 272, 1000), (256, 128, 4096)])
def test_products(size: tuple[int, int, int], warps: int) -> None:
    divided(multiply(kernels.product, SMALL, size, num_warps=warps))
    divided(multiply(kernels.walking, SMALL, (*size[:2], -(-size[2] // 64) * 64), num_warps=warps))
    if size[1] % 16 == 0:  # rows of B are whole units of the engine
        divided(multiply(kernels.converted, SMALL, size, num_warps=warps, kind=torch.int8))


@pytest.mark.sanitize
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("depth", [64, 128, 1000])
def test_programs_that_take_several_tiles(depth: int, stages: int) -> None:
    for programs in (1, 3, 40):
        divided(multiply(kernels.staying, SMALL, (1000, 64, depth), programs=programs, num_warps=8, num_stages=stages))


@pytest.mark.sanitize
@pytest.mark.parametrize("depth", [64, 128, 1024])
def test_loops_that_follow_each_other(depth: int) -> None:
    for warps in (4, 8):
        divided(multiply(kernels.two_loops, SMALL, (520, 136, depth), num_warps=warps))
        divided(multiply(kernels.staying_with_two_loops, SMALL, (1000, 64, depth), programs=3, num_warps=warps))


@pytest.mark.parametrize(("blocks", "warps"), [((128, 256, 64), 8), ((256, 128, 64), 8), ((64, 256, 64), 4)])
def test_large_blocks(blocks: tuple[int, int, int], warps: int) -> None:
    made = multiply(kernels.product, blocks, (2048, 2048, 2048), num_warps=warps, num_stages=4)
    assert divided(made) and made.n_spills == 0
    multiply(kernels.staying, blocks, (64 * 256, blocks[1], 512), programs=132, num_warps=warps)


@pytest.mark.sanitize
def test_products_that_end_in_their_iteration() -> None:
    a, b, _ = matrices(256, 64, 320)
    scales = torch.tensor([1.0, -2, 4, 1, 2], device="cuda")
    c, sums = torch.zeros(256, 64, device="cuda").half(), torch.zeros(2, 64, device="cuda")
    given = [describe(a, [128, 64]), describe(b, [64, 64]), describe(c, [128, 64]), scales, sums, 320]
    divided(kernels.scaled[(2, 1)](*given, M_BLOCK=128, N_BLOCK=64, K_BLOCK=64, num_warps=8))
    expected = (a.float().view(256, 5, 64) * scales[:, None]).view(256, 320) @ b.float()
    assert torch.equal(c, expected.half()) and torch.equal(sums, expected.view(2, 128, 64).sum(1))


def test_many_launches_beside_another_stream() -> None:
    a, b, expected = matrices(512, 64, 192)
    c = torch.empty_like(expected)
    given = [describe(a, [128, 64]), describe(b, [64, 64]), describe(c, [128, 64]), 192, 4]
    other, busy = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda").half()
    for _ in range(20):
        c.fill_(9)
        with torch.cuda.stream(other):
            busy @ busy
        for _ in range(200):
            kernels.staying[(3, 1)](*given, M_BLOCK=128, N_BLOCK=64, K_BLOCK=64, num_warps=8)
        assert torch.equal(c, expected)
