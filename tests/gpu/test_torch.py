"""The PyTorch integration on CUDA tensors: functions and operators of tests/torch, compiled, exported, replayed."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._triton import has_triton

import tilewright.torch  # noqa: F401  (launches are recorded from here on)
from tests.torch import kernels
from tests.torch.kernels import FUNCTIONS, add2, pair, raise_by
from tilewright.base.errors import DeviceError

pytestmark = pytest.mark.gpu
inductor = pytest.mark.skipif(not has_triton(), reason="Inductor needs Triton on a GPU")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def on_gpu(n: int) -> tuple[torch.Tensor, ...]:
    return tuple(t.cuda() for t in pair(n))


def agree(f: Callable[..., Any], g: Callable[..., Any], sizes: tuple[int, ...] = (300,)) -> None:
    for n in sizes:
        ours, theirs = on_gpu(n), on_gpu(n)
        torch.testing.assert_close(f(*theirs), g(*ours))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_traced_and_compiled(f: Callable[..., Any]) -> None:
    agree(f, make_fx(f, tracing_mode="symbolic")(*on_gpu(300)))
    for dynamic in (False, True):
        agree(f, torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic), (300, 512, 301))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_it_is_what_the_cpu_computes(f: Callable[..., Any]) -> None:
    torch.testing.assert_close(f(*on_gpu(300)).cpu(), f(*pair(300)))


def together(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return add2(x, y), *[f(x, y) for f in FUNCTIONS if f is not kernels.reinterpreted]


@inductor
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_inductor(dynamic: bool) -> None:
    agree(together, torch.compile(together, fullgraph=True, dynamic=dynamic), (300, 512))


@inductor
def test_inductor_with_cuda_graphs() -> None:
    compiled = torch.compile(kernels.plain, fullgraph=True, mode="reduce-overhead")
    for step in range(5):
        x, y = (t + step for t in on_gpu(300))
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x, y).clone(), kernels.plain(x, y))


def test_a_cuda_graph_replays_launches() -> None:
    x, y = on_gpu(300)
    for f in (kernels.plain, add2):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            f(x, y)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = f(x, y)
        x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, f(x, y))


def test_gradients() -> None:
    for f in (lambda x, y: add2(x, y) + 1, torch.compile(lambda x, y: add2(x, y) + 1, backend="aot_eager")):
        x, y = (t.requires_grad_() for t in on_gpu(300))
        f(x, y).sum().backward()
        assert (x.grad == 2).all() and (y.grad == 2).all()


def test_opcheck() -> None:
    x, y = on_gpu(5)
    for op, args in ((add2, (x.requires_grad_(), y)), (raise_by, (y, 1.0))):
        assert set(torch.library.opcheck(op.overload, args).values()) == {"SUCCESS"}


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return kernels.plain(x, add2(x, y))


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    size = torch.export.Dim("n", min=3, max=4096)
    shapes = ({0: size}, {0: size})
    program = torch.export.export(Module(), on_gpu(300), dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for loaded in (program, torch.export.load(file), program.run_decompositions({}, decompose_custom_triton_ops=True)):
        agree(Module(), loaded.module(), (77,))


def test_modes() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        o = torch.zeros_like(x)
        kernels.add[(5,)](x, x, o, 300, B=64)
        return o

    batch = torch.randn(3, 300, device="cuda")
    assert torch.equal(torch.vmap(one)(batch), batch * 2)
    with torch.inference_mode():
        agree(kernels.plain, torch.compile(kernels.plain, backend="aot_eager", fullgraph=True))
    with torch.autocast("cuda", torch.bfloat16):
        agree(kernels.plain, torch.compile(kernels.plain, backend="aot_eager", fullgraph=True))


def test_version_counters() -> None:
    x, y = on_gpu(300)
    x.requires_grad_()
    product = x * y
    kernels.increase[(5,)](y, 300, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_tensors_on_two_devices_are_refused() -> None:
    x, y = on_gpu(300)
    traced = make_fx(kernels.block_of_size)(x, y)
    for call in (traced, kernels.block_of_size, make_fx(kernels.block_of_size, tracing_mode="fake")):
        with pytest.raises(DeviceError, match="is on"):
            call(x, y.cpu())


def test_a_transformer_trains_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples" / "pytorch")
    transformer: Any = importlib.import_module("transformer")
    try:
        losses = transformer.train(device="cuda")
        assert losses == pytest.approx(transformer.train(device="cuda", backend="aot_eager"), rel=1e-3)
        assert losses == pytest.approx(transformer.train(), rel=1e-2) and losses[-1] < losses[0]
    finally:
        del sys.modules["transformer"]
