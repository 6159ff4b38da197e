"""Kernels on each of several GPUs, while the current one is the first: launches, streams, tuning, PyTorch, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import DeviceAssertionError, DeviceError
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytest.importorskip("torch")
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._triton import has_triton

from tests.torch import hl_kernels, kernels
from tests.torch.kernels import FUNCTIONS, add2, pair, raise_by

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
GPUS = ("cuda:1", "cuda:0")
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def stays_where_it_is() -> Iterator[None]:
    """No test may leave another GPU current than it found."""
    torch._dynamo.reset()
    torch.cuda.set_device(0)
    yield
    assert torch.cuda.current_device() == 0


@tilewright.jit
def doubled(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * 2, i < n)


@tilewright.jit
def asserting(x, n):
    tl.device_assert(tl.load(x) > 0, "x is positive")
    tl.store(x, n)


@tilewright.jit
def copied(source, target, B: tl.constexpr):
    i = tl.program_id(0) * B
    target.store([i], source.load([i]))


def inputs(device: str, n: int = 300) -> tuple[torch.Tensor, ...]:
    return tuple(t.to(device) for t in pair(n))


def agree(f: Function, g: Function, device: str, n: int = 300) -> None:
    """The two functions return and change the same on a GPU."""
    ours, theirs = inputs(device, n), inputs(device, n)
    torch.testing.assert_close(g(*ours), f(*theirs))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_each_gpu_computes_what_the_cpu_does(f: Function) -> None:
    for device in (*GPUS, *GPUS):  # the second time from what was kept
        found = f(*inputs(device))
        assert found.device == torch.device(device)
        torch.testing.assert_close(found.cpu(), f(*pair()))


def test_streams_of_each_gpu() -> None:
    """A launch waits for the current stream of its own GPU, not for those of the current one."""
    arrays = {device: torch.rand(1 << 16, device=device) for device in GPUS}
    results = {device: torch.zeros_like(x) for device, x in arrays.items()}
    for device, x in arrays.items():
        doubled[(256,)](x, results[device], x.numel(), 256)  # compiles and loads
        results[device].zero_()
        torch.cuda.synchronize(device)
    side = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)
        torch.cuda.set_device(0)
        doubled[(256,)](arrays["cuda:1"], results["cuda:1"], 1 << 16, 256)
        doubled[(256,)](arrays["cuda:0"], results["cuda:0"], 1 << 16, 256)
        torch.cuda.current_stream("cuda:0").synchronize()
        assert not side.query()
        assert torch.equal(results["cuda:0"], arrays["cuda:0"] * 2)
    side.synchronize()
    assert torch.equal(results["cuda:1"], arrays["cuda:1"] * 2)
    given = torch.cuda.Stream("cuda:1")
    results["cuda:1"].zero_()
    torch.cuda.synchronize("cuda:1")
    doubled[(256,)](arrays["cuda:1"], results["cuda:1"], 1 << 16, 256, stream=given)
    given.synchronize()
    assert torch.equal(results["cuda:1"], arrays["cuda:1"] * 2)


def test_a_graph_of_another_gpu() -> None:
    x, _ = inputs("cuda:1")
    out = torch.zeros_like(x)
    doubled[(5,)](x, out, 300, 64)
    out.zero_()
    with torch.cuda.device(1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # torch keeps the first it makes, for every GPU
            doubled[(5,)](x, out, 300, 64)
        assert not out.any()
        graph.replay()
    assert torch.equal(out, x * 2)


@pytest.mark.parametrize("graphs", [False, True], ids=["launches", "graphs"])
def test_each_gpu_is_tuned(graphs: bool) -> None:
    configs = [tilewright.Config({"B": size}) for size in (64, 256)]
    tuned = tilewright.autotune(configs, key=["n"], warmup=1, rep=5, use_cuda_graph=graphs)(doubled)
    for device in (*GPUS, *GPUS):
        x, _ = inputs(device)
        out = torch.zeros_like(x)
        tuned[lambda meta: (tilewright.cdiv(300, meta["B"]),)](x, out, 300)
        assert torch.equal(out, x * 2)
        assert all(times[0] < 10 for times in tuned.configs_timings.values())  # milliseconds
    assert {key[-1] for key in tuned.cache} == set(GPUS)


def test_descriptors() -> None:
    for device in GPUS:
        x = torch.rand(256, device=device)
        out = torch.zeros_like(x)
        source, target = (TensorDescriptor.from_tensor(t, [64]) for t in (x, out))
        copied[(4,)](source, target, B=64)
        assert torch.equal(out, x)


def test_assertions() -> None:
    for device in GPUS:
        asserting[(1,)](torch.ones(1, device=device), 3.0, debug=True)
        with pytest.raises(DeviceAssertionError, match="x is positive"):
            asserting[(1,)](torch.zeros(1, device=device), 3.0, debug=True)


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.skipif(
    not has_triton(), reason="Inductor needs Triton on a GPU"))])  # fmt: skip
def test_compiled_for_each_gpu(backend: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return add2(x, y) + kernels.plain(x, y) + kernels.in_place(x, y) + kernels.autotuned(x, y)

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for device in (*GPUS, *GPUS):
        agree(f, compiled, device)


def test_operators_on_each_gpu() -> None:
    for device in GPUS:
        x, y = (t.requires_grad_() for t in inputs(device))
        for op in (add2, torch.ops.twtest.add2):
            x.grad = None
            op(x, y).sum().backward()
            assert x.grad.device == x.device and (x.grad == 2).all()
        changed, _ = inputs(device)
        raise_by(changed, 1.0)
        assert torch.equal(changed, x.detach() + 1)
        agree(kernels.plain, make_fx(kernels.plain, tracing_mode="symbolic")(*inputs("cuda:0")), device)


def test_hl_on_each_gpu() -> None:
    compiled = torch.compile(hl_kernels.one, backend="aot_eager", fullgraph=True)
    for device in (*GPUS, *GPUS):
        agree(hl_kernels.one, compiled, device)
        x, _ = inputs(device)
        assert torch.equal(hl_kernels.doubled(x), x * 2)


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_tensors_of_two_gpus() -> None:
    """Refused by name: new and known launches, operators, tracers, kernels of hl."""
    here, there = torch.rand(300, device="cuda:0"), torch.rand(300, device="cuda:1")
    doubled[(5,)](here, here.clone(), 300, 64)
    for first, second in ((here, there), (there, here)):
        with pytest.raises(DeviceError, match=f"`o` is on .*{second.device.index}"):
            doubled[(5,)](first, second, 300, 64)
    with pytest.raises(DeviceError, match="`y` is on"):
        add2(here, there)
    with pytest.raises(Exception, match="is on cuda:1, but `x` is on cuda:0"), FakeTensorMode() as mode:
        kernels.plain(mode.from_tensor(here), mode.from_tensor(there))
    with pytest.raises(Exception, match=r"(?i)cuda(:| device )1"):
        hl_kernels.added(here, there, here.clone(), 1)
