"""Calls of kernels that machine code makes: streams, graphs, types and layouts, memory that is new each time."""

from __future__ import annotations

import pytest
import torch

from tests.hl.test_replayed import in_python, warm
from tilewright import hl

pytestmark = pytest.mark.gpu


@hl.kernel
def scaled(x, factor: float):
    out, total = torch.empty_like(x), torch.zeros([x.size(0)], device=x.device)
    for m in hl.tile(x.size(0)):
        out[m, :] = x[m, :] * factor
    for m in hl.tile(x.size(0)):
        hl.atomic_add(total, [m], x[m, :].to(torch.float32).sum(-1))
    return out, total


def agrees(x, factor):
    out, total = scaled(x, factor)
    torch.testing.assert_close(out, x * factor)
    torch.testing.assert_close(total, x.float().sum(-1), rtol=1e-3, atol=1e-3)
    assert out.device == x.device
    return out


def test_known_calls_run_no_python():
    x = torch.randn(100, 64, device="cuda")
    warm(scaled, x, 2.0)
    for factor in (2.0, 3.0):
        first, second = agrees(x, factor), agrees(x, factor)
        assert first.data_ptr() != second.data_ptr()
        assert not in_python(lambda factor=factor: scaled(x, factor))


def test_types_and_layouts():
    pool = [torch.randn(100, 64), torch.randn(64, 100).t(), torch.randn(30, 64), torch.randn(100, 64).half()]
    pool = [x.to("cuda") for x in pool]
    for count in range(12):
        agrees(pool[count % len(pool)], 1.0 + count)


def test_streams():
    x = torch.randn(1000, 512, device="cuda")
    warm(scaled, x, 2.0)
    stream = torch.cuda.Stream()
    for _ in range(20):
        y = torch.randn(1000, 512, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out, _ = scaled(y, 2.0)
            doubled = out + y
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(doubled, y * 3)
        y.record_stream(stream)


def test_graphs():
    x = torch.randn(100, 64, device="cuda")
    warm(scaled, x, 2.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, total = scaled(x, 2.0)
    for _ in range(3):
        x.copy_(torch.randn(100, 64))
        graph.replay()
        torch.testing.assert_close(out, x * 2)
        torch.testing.assert_close(total, x.sum(-1), rtol=1e-4, atol=1e-4)


def test_gradients_stay_what_they_are():
    x = torch.randn(100, 64, device="cuda", requires_grad=True)
    for _ in range(4):
        with torch.no_grad():
            assert not scaled(x, 2.0)[0].requires_grad
        (found,) = torch.autograd.grad(scaled(x, 2.0)[0].sum(), x)
        torch.testing.assert_close(found, torch.full_like(x, 2.0))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_gpu():
    for device in ("cuda:0", "cuda:1", "cuda:0", "cuda:1"):
        with torch.cuda.device(device):
            for _ in range(3):
                agrees(torch.randn(100, 64, device=device), 2.0)
