"""Long rows over a cluster on a GPU; some of it under compute-sanitizer, and many launches beside another stream."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import long_row_kernels as kernels
from tilewright.backends.nvidia.plan.subjects import LONG_ROWS

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")
sanitize = pytest.mark.sanitize


def is_shared_out(made: Any) -> bool:
    return any(record["subject"] == LONG_ROWS.name and record["taken"] for record in made.metadata.decisions)


@pytest.fixture(autouse=True)
def needs_clusters() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the GPU has no clusters")


@pytest.mark.parametrize(
    ("n", "rows"),
    [(65536, 200), (40_001, 3), (32768, 5), (131_072, 140), pytest.param(50_257, 7, marks=sanitize), (262_144, 9)],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softmax(n: int, rows: int, dtype: str) -> None:
    x = torch.randn(rows, n, device="cuda", dtype=getattr(torch, dtype))
    out = torch.zeros(rows, n, device="cuda")
    made = kernels.softmax[(rows,)](x, out, n, B=1 << (n - 1).bit_length())
    assert is_shared_out(made)
    torch.testing.assert_close(out, x.float().softmax(1), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("programs", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=sanitize)])
def test_rows_in_a_loop(programs: int, dtype: str) -> None:
    n, kind = 60_000, getattr(torch, dtype)
    x, w, b = (torch.randn(rows, n, device="cuda", dtype=kind) for rows in (3, 1, 1))
    out = torch.zeros_like(x)
    assert is_shared_out(kernels.layer_norm[(programs,)](x, w, b, out, n, B=65536))
    want = torch.nn.functional.layer_norm(x.double(), (n,), w[0].double(), b[0].double())
    torch.testing.assert_close(out.double(), want, rtol=5e-3, atol=5e-3 if dtype == "float16" else 1e-4)


@sanitize
def test_several_rows_a_tile() -> None:
    n = 13_001
    x, w = torch.randint(-9, 10, (3, n), device="cuda").float(), torch.randint(-9, 10, (n,), device="cuda").float()
    out, tops = torch.zeros_like(x), torch.zeros(4 + n, device="cuda")
    assert is_shared_out(kernels.centred[(1,)](x, w, out, tops, n, R=4, B=16384))
    want = x * w
    assert torch.equal(out, want - want.max(1, keepdim=True).values)
    assert torch.equal(tops, torch.cat([want.max(1).values, torch.zeros(1, device="cuda"), want.sum(0)]))


@sanitize
def test_numbers_of_64_bits_and_pairs() -> None:
    x = torch.randint(-4, 5, (3, 30_000), device="cuda")
    out = torch.zeros(9, device="cuda", dtype=torch.int64)
    assert is_shared_out(kernels.total[(3,)](x, out, 30_000, B=32768))
    whole = x.sum(1, keepdim=True)
    assert out.tolist() == [*whole.ravel().tolist(), 30, 31, 32, *(x > whole).sum(1).tolist()]
    x = x.int()
    count, places = torch.zeros(2, 3, device="cuda", dtype=torch.int32)
    assert is_shared_out(kernels.largest[(3,)](x, count, places, 30_000, B=32768))
    top = x.max(1, keepdim=True).values
    assert count.tolist() == (x == top).sum(1).tolist()
    assert places.tolist() == [row.index(t) for row, (t,) in zip(x.tolist(), top.tolist())]


@sanitize
def test_blocks_wait_for_what_others_store() -> None:
    n = 60_000
    x = torch.randint(-9, 10, (n,), device="cuda").float()
    given, out = x.clone(), torch.zeros_like(x)
    assert is_shared_out(kernels.in_place[(1,)](given, out, n, B=65536))
    want = x - x.max()
    assert torch.equal(out, want.roll(-9000) + 7)
    want[0] = 7
    assert torch.equal(given, want)


@pytest.mark.parametrize("flag", [0, 1])
def test_branches(flag: int) -> None:
    n = 60_000
    x, out = torch.rand(n, device="cuda"), torch.zeros(n + 16, device="cuda")
    assert is_shared_out(kernels.chosen[(1,)](x, out, n, flag, B=65536))
    torch.testing.assert_close(out[:16], x[:16] + x[:16].sum())
    assert torch.equal(out[16:], (x - x.min().clamp(max=0)) * flag)


def test_many_launches_beside_another_stream() -> None:
    n, rows, side = 65_536, 24, torch.cuda.Stream()
    x, noise = torch.randn(rows, n, device="cuda"), torch.randn(2048, 2048, device="cuda")
    want, out, wrong = x.softmax(1), torch.empty_like(x), torch.zeros((), device="cuda")
    for _ in range(2000):
        with torch.cuda.stream(side):
            noise @ noise
        out.zero_()
        kernels.softmax[(rows,)](x, out, n, B=n)
        wrong += (out - want).abs().max() > 1e-6
    assert not wrong.item()
