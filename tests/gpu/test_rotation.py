"""Rotated loops on a GPU: attention of many lengths, masked and not, tile after tile, against float64."""

from __future__ import annotations

from typing import Any

import pytest

from examples.attention import attention_kernel
from tests.backends.nvidia import attention_kernels as kernels
from tilewright.backends.nvidia import backend, cubin
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

describe = TensorDescriptor.from_tensor
M = 128


def attend(
    fn: Any, length: int, width: int, columns: int, *, rows: int = M, block: int = M, more: Any = (), **options: Any
) -> Any:
    """Run a kernel of `attention_kernels`, and compare; gives what was launched."""
    torch.manual_seed(length + width)
    q, k, v = (torch.randn(n, width, device="cuda").mul(0.5).half() for n in (rows, length, length))
    out = torch.full_like(q, 9)
    tiles = -(-rows // block)
    grid = (3, 1) if fn is kernels.staying else (tiles, 1)
    last = [length, tiles] if fn is kernels.staying else [length, *more]
    given: list[Any] = [q, k, v, out]
    if fn not in (kernels.by_pointers, kernels.in_parts):
        given = [describe(x, [n, width]) for x, n in zip(given, (block, columns, columns, block), strict=True)]
    made = fn[grid](*given, *last, M_BLOCK=block, N_BLOCK=columns, WIDTH=width, **options)
    scores = q.double() @ k.double().T
    places = torch.arange(length, device="cuda")
    if fn is kernels.causal:
        scores = scores.masked_fill(places > torch.arange(rows, device="cuda")[:, None], -torch.inf)
    if fn is kernels.windowed:
        bound = torch.minimum(torch.arange(rows, device="cuda") + more[0], torch.tensor(more[1], device="cuda"))
        scores = scores.masked_fill(places >= bound[:, None], -torch.inf)
    if fn is kernels.in_parts:
        hidden = (places > torch.arange(rows, device="cuda")[:, None]) & ((places < more[0]) | (places >= more[1]))
        scores = scores.masked_fill(hidden, -torch.inf)
    expected = torch.softmax(scores * 0.6931471805599453, 1) @ v.double()
    torch.testing.assert_close(out.double(), expected, rtol=4e-3, atol=4e-3)
    return made


def rotated(made: Any) -> bool:
    """Whether products go on over the end of an iteration, as on Hopper, if ptxas is there."""
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
def test_four_groups_of_warps() -> None:
    for length in (64, 512):
        made = attend(kernels.attention, length, 64, 64, rows=3 * 256, block=256, num_warps=16, num_stages=3)
        rotated(made)
        assert made.n_spills == 0


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


@pytest.mark.sanitize
@pytest.mark.parametrize(("width", "columns", "stages"), [(64, 64, 3), (128, 128, 2)])
def test_loops_that_follow_each_other(width: int, columns: int, stages: int) -> None:
    for ends in ((0, 0), (0, 4), (1, 1), (2, 3), (4, 4), (0, 6), (6, 6)):
        more = [end * columns for end in ends]
        made = attend(
            kernels.in_parts, 6 * columns, width, columns, rows=3 * M, more=more, num_warps=8, num_stages=stages
        )
        assert rotated(made) == (int(backend.target().arch) == 90 and cubin.hands_registers_on())
        assert made.n_spills == 0


@pytest.mark.sanitize
@pytest.mark.parametrize("length", [128, 256, 1024])
def test_causal_attention_of_the_examples(length: int) -> None:
    """Blocks of keys without and with a mask."""
    torch.manual_seed(length)
    q, k, v = (torch.randn(1, 2, length, 128, device="cuda").half() for _ in range(3))
    out = torch.full_like(q, 9)
    strides = [s for x in (q, k, v, out) for s in (x.stride(1), x.stride(2))]
    made = attention_kernel[(length // 128, 2)](
        q, k, v, out, *strides, length, 128**-0.5, BLOCK_M=128, BLOCK_N=128, HEAD_DIM=128, CAUSAL=True, EVEN=True,
        num_warps=8, num_stages=2,
    )  # fmt: skip
    if int(backend.target().arch) == 90 and cubin.hands_registers_on():
        assert rotated(made) and made.n_spills == 0
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    torch.testing.assert_close(out.double(), expected, rtol=4e-3, atol=4e-3)


def test_many_launches_beside_another_stream() -> None:
    other, busy = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda").half()
    for _ in range(20):
        with torch.cuda.stream(other):
            busy @ busy
        attend(kernels.causal, 8 * M, 128, 128, rows=8 * M, num_warps=8, num_stages=2)
