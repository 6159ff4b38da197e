"""Blocks that run one program of a plain grid after the other, on a GPU: grids, graphs, streams, torch, bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilewright
from tests.backends.nvidia import box_kernels
from tests.backends.nvidia import persistence_kernels as kernels
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch")  # launches are recorded from here on
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="needs a GPU of Hopper"
    ),
]
describe = TensorDescriptor.from_tensor
M, N, K = 128, 64, 64
TILE = {"M_BLOCK": M, "N_BLOCK": N, "K_BLOCK": K, "num_warps": 8, "num_stages": 6}
LARGE = {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8}


def matrices(rows: int, columns: int, depth: int) -> tuple[Any, Any, Any]:
    """Two operands of small whole numbers, and the product."""
    a, b = (torch.randint(-3, 4, shape, device="cuda").half() for shape in ((rows, depth), (depth, columns)))
    return a, b, a.double() @ b.double()


def given(a: Any, b: Any, c: Any) -> list[Any]:
    return [describe(a, [M, K]), describe(b, [K, N]), describe(c, [M, N])]


def by_pointers(a: Any, b: Any, out: Any, mask: int = 2, **options: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    grid = (-(-m // 128), -(-n // 256))
    return box_kernels.product[grid](
        a, b, out, m, n, k, k, 1, n, 1, n, MASK=mask, **{**LARGE, **options}
    )  # fmt: skip


@pytest.mark.sanitize
@pytest.mark.parametrize("size", [(128, 64, 64), (136, 72, 56), (4000, 520, 64), (2048, 1000, 192), (2048, 1000, 200)])
def test_products(size: tuple[int, int, int]) -> None:
    rows, columns, depth = size
    a, b, exact = matrices(*size)
    c = torch.full((rows, columns), 9, device="cuda").half()
    made = kernels.product[(-(-rows // M), -(-columns // N))](*given(a, b, c), depth, **TILE)
    assert made.metadata.persistent and torch.equal(c, exact.half())
    if depth <= K or depth % K == 0:
        kernels.two_loops[(-(-rows // M), -(-columns // N))](*given(a, b, c.fill_(9)), depth, **TILE)
        assert torch.equal(c, exact.half())


@pytest.mark.sanitize
@pytest.mark.parametrize("grid", [(700,), (3,), (13, 11, 3), (1, 2, 150)])
def test_programs_know_where_they_are_in_their_grid(grid: tuple[int, ...]) -> None:
    sizes = (*grid, 1, 1)[:3]
    count = sizes[0] * sizes[1] * sizes[2]
    a, b, exact = matrices(count * M, N, 2 * K)
    c, bias, sums = torch.full_like(exact, 9).half(), torch.arange(N, device="cuda") % 7.0, torch.zeros(count, N)
    sums = sums.cuda()
    made = kernels.told[grid](*given(a, b, c), bias, sums, 2 * K, **TILE)
    z, y, x = torch.meshgrid(*(torch.arange(n, device="cuda") for n in reversed(sizes)), indexing="ij")
    exact = exact.view(count, M, N) + (100 * (x % 8) + 10 * (y % 8) + z % 8).reshape(-1, 1, 1) * bias
    assert made.metadata.persistent and torch.equal(c, exact.view(-1, N).half())
    assert torch.equal(sums.double(), exact.sum(1) + 1000 * sizes[2])


@pytest.mark.sanitize
@pytest.mark.parametrize("mask", [0, 1, 2])
def test_pointers(mask: int) -> None:
    m, n, k = [(2048, 2048, 320), (1100, 2000, 320), (1100, 2000, 336)][mask]
    a, b, exact = matrices(m, n, k)
    out = torch.empty(m, n, device="cuda")
    assert by_pointers(a, b, out, mask).metadata.persistent and torch.equal(out.double(), exact)
    plain = by_pointers(a, b, out.fill_(9), mask, persistent_programs=False)
    assert not plain.metadata.persistent and torch.equal(out.double(), exact)


def test_values_that_suit_no_map_go_to_blocks_and_back() -> None:
    a, b, exact = matrices(512, 512, 128)
    out = torch.empty(512, 512, device="cuda")
    for depth in (128, 0, 128, 0, 128):
        by_pointers(a, b, out.fill_(9))
        assert torch.equal(out.double(), exact)
        box_kernels.product[(4, 2)](a, b, out.fill_(9), 512, 512, depth, 128, 1, 512, 1, 512, MASK=2, **LARGE)
        assert torch.equal(out.double(), exact if depth else torch.zeros_like(exact))


def test_a_graph_replays_launches_of_two_grids() -> None:
    a, b, exact = matrices(4096, 1024, 192)
    c, half = torch.zeros(4096, 1024, device="cuda").half(), torch.zeros(2048, 1024, device="cuda").half()

    def launch() -> None:
        kernels.product[(32, 16)](*given(a, b, c), 192, **TILE)
        kernels.product[(16, 16)](*given(a[:2048], b, half), 192, **TILE)

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for _ in range(3):
        c.zero_(), half.zero_()
        graph.replay()
        assert torch.equal(c, exact.half()) and torch.equal(half, exact[:2048].half())


def test_many_launches_beside_another_stream() -> None:
    a, b, exact = matrices(4096, 512, 192)
    c, other, busy = torch.empty_like(exact).half(), torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda").half()
    arguments = [*given(a, b, c), 192]
    for _ in range(10):
        c.fill_(9)
        with torch.cuda.stream(other):
            busy @ busy
        for _ in range(100):
            kernels.product[(32, 8)](*arguments, **TILE)
        assert torch.equal(c, exact.half())


def test_compiled_by_torch() -> None:
    """Traced, and launched by the code that Dynamo leaves."""
    a, b, exact = matrices(1024, 1024, 256)

    def multiply(x: Any, y: Any) -> Any:
        out = torch.empty(x.shape[0], y.shape[1], device="cuda")
        by_pointers(x, y, out)
        return out + 1

    torch._dynamo.reset()
    made = torch.compile(multiply, backend="aot_eager")
    assert torch.equal(made(a, b).double(), exact + 1) and torch.equal(made(a * 2, b).double(), exact * 2 + 1)


def test_bundles(tmp_path: Path) -> None:
    a, b, exact = matrices(2048, 1024, 192)
    c = torch.zeros_like(exact).half()
    made = kernels.product.warmup(*given(a, b, c), 192, grid=(16, 16), **TILE)
    assert made.metadata.persistent
    tilewright.write_bundle(tmp_path / "k.twb", [made])
    tilewright.load_bundle(tmp_path / "k.twb")["product"][(16, 16)](*given(a, b, c), 192, **TILE)
    assert torch.equal(c, exact.half())


def test_programs_that_wait_for_each_other_are_blocks() -> None:
    """More of them than run at a time: each waits for the one before."""
    a, b, exact = matrices(700 * M, N, K)
    c, flag = torch.zeros_like(exact).half(), torch.zeros(1, device="cuda", dtype=torch.int32)
    made = kernels.never_in_order[(700,)](*given(a, b, c), flag, K, HOW="spins", **TILE)
    assert not made.metadata.persistent and torch.equal(c, exact.half()) and flag.item() == 700
