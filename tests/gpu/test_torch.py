"""The PyTorch integration on CUDA tensors: functions and operators of tests/torch, compiled, exported, replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright.torch  # noqa: F401  (launches are recorded from here on)
from tests.torch import kernels
from tests.torch.kernels import add2, pair
from tilewright.base.errors import DeviceError

pytestmark = pytest.mark.gpu
# `descriptor` allocates on the CPU, and `views` too: they are not about devices.
FUNCTIONS = [f for f in kernels.FUNCTIONS if f not in (kernels.descriptor, kernels.views)]


def on_gpu(n: int) -> tuple[torch.Tensor, ...]:
    return tuple(t.cuda() for t in pair(n))


def agree(f: Callable[..., Any], g: Callable[..., Any], sizes: tuple[int, ...] = (300,)) -> None:
    for n in sizes:
        ours, theirs = on_gpu(n), on_gpu(n)
        assert torch.equal(f(*theirs), g(*ours))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_traced_and_compiled(f: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    agree(f, make_fx(f, tracing_mode="symbolic")(*on_gpu(300)))
    for dynamic in (False, True):
        agree(f, torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic), (300, 512, 301))


def test_it_is_what_the_cpu_computes() -> None:
    assert torch.equal(kernels.plain(*on_gpu(300)).cpu(), kernels.plain(*pair(300)))


def test_gradients_and_export() -> None:
    x, y = (t.requires_grad_() for t in on_gpu(300))
    torch.compile(lambda x, y: add2(x, y) + 1, backend="aot_eager", fullgraph=True)(x, y).sum().backward()
    assert (x.grad == 2).all()

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return kernels.plain(x, add2(x, y))

    program = torch.export.export(Module(), on_gpu(300))
    assert torch.equal(program.module()(*on_gpu(300)), Module()(*on_gpu(300)))


def test_a_cuda_graph_replays_launches() -> None:
    x, y = on_gpu(300)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernels.plain(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernels.plain(x, y)
    x.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, (x + y) * 2)


def test_tensors_on_two_devices_are_refused() -> None:
    x, y = on_gpu(300)
    traced = make_fx(kernels.block_of_size)(x, y)
    with pytest.raises(DeviceError, match="is on"):
        traced(x, y.cpu())
