"""Rotated loops on a GPU: attention of many lengths, masked and not, tile after tile, against float64."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import attention_kernels as kernels
from tilewright.backends.nvidia import backend
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

describe = TensorDescriptor.from_tensor
M = 128


def attend(fn: Any, length: int, width: int, columns: int, *, rows: int = M, more: Any = (), **options: Any) -> Any:
    """Run a kernel of `attention_kernels`, and compare; gives what was launched."""
    torch.manual_seed(length + width)
    q, k, v = (torch.randn(n, width, device="cuda").mul(0.5).half() for n in (rows, length, length))
    out = torch.full_like(q, 9)
    tiles = -(-rows // M)
    grid = (3, 1) if fn is kernels.staying else (tiles, 1)
    last = [length, tiles] if fn is kernels.staying else [length, *more]
    given: list[Any] = [q, k, v, out]
    if fn is not kernels.by_pointers:
        given = [describe(x, [n, width]) for x, n in zip(given, (M, columns, columns, M), strict=True)]
    made = fn[grid](*given, *last, M_BLOCK=M, N_BLOCK=columns, WIDTH=width, **options)
    scores = q.double() @ k.double().T
    places = torch.arange(length, device="cuda")
    if fn is kernels.causal:
        scores = scores.masked_fill(places > torch.arange(rows, device="cuda")[:, None], -torch.inf)
    if fn is kernels.windowed:
        bound = torch.minimum(torch.arange(rows, device="cuda") + more[0], torch.tensor(more[1], device="cuda"))
        scores = scores.masked_fill(places >= bound[:, None], -torch.inf)
    expected = torch.softmax(scores * 0.6931471805599453, 1) @ v.double()
    torch.testing.assert_close(out.double(), expected, rtol=4e-3, atol=4e-3)
    return made


def rotated(made: Any) -> bool:
    """Whether the first products run beside the last ones, as on Hopper, if ptxas is there."""
    text = made.asm["tgir"]
    assert ("ttng.enter_role" in text) == (int(backend.target().arch) == 90)
    return "pendings = 1" in text


@pytest.mark.sanitize
@pytest.mark.parametrize(("width", "columns", "stages"), [(64, 64, 2), (64, 128, 3), (128, 128, 2), (128, 64, 3)])
def test_attention(width: int, columns: int, stages: int) -> None:
    for length in (columns, 2 * columns, 8 * columns):
        made = attend(kernels.attention, length, width, columns, rows=5 * M, num_warps=8, num_stages=stages)
        rotated(made)
        assert made.n_spills == 0
    attend(kernels.staying, 4 * columns, width, columns, rows=7 * M, num_warps=8, num_stages=stages)


@pytest.mark.sanitize
@pytest.mark.parametrize(("width", "columns", "stages"), [(64, 64, 2), (64, 128, 3), (128, 128, 2)])
def test_boxes_of_pointers(width: int, columns: int, stages: int) -> None:
    for length in (columns, 2 * columns, 8 * columns):
        for asked in (True, False):
            made = attend(
                kernels.by_pointers, length, width, columns, rows=5 * M, num_warps=8, num_stages=stages, SPECIAL=asked
            )
            if asked or width == 128:
                rotated(made)
            assert made.n_spills == 0


@pytest.mark.sanitize
@pytest.mark.parametrize("warps", [4, 8])
def test_masked(warps: int) -> None:
    for rows in (M, 3 * M, 8 * M):
        attend(kernels.causal, rows, 64, 64, rows=rows, num_warps=warps, num_stages=2)
    for shift, limit in ((1, 1000), (64, 130), (300, 500), (2**30, 77)):
        attend(kernels.windowed, 512, 64, 128, rows=3 * M, more=(shift, limit), num_warps=warps, num_stages=2)


def test_many_launches_beside_another_stream() -> None:
    other, busy = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda").half()
    for _ in range(20):
        with torch.cuda.stream(other):
            busy @ busy
        attend(kernels.causal, 8 * M, 128, 128, rows=8 * M, num_warps=8, num_stages=2)
