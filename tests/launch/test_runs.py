"""`CompiledKernel.run`, which Inductor's wrappers call, and `CompiledKernel[grid]` are machine code once called."""

from __future__ import annotations

import gc
import struct
import sys

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, aligned
from tilewright.base.target import Placement

torch = pytest.importorskip("torch")
OWN = (None, None, None, None, None)  # function, packed metadata, launch metadata, hooks


@tilewright.jit
def fill(out_ptr, value, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, value * scale)


def kernel_and_calls(monkeypatch):
    """A compiled kernel whose launch function counts what comes through Python."""
    kernel = fill.warmup(torch.zeros(64), 7, 0.5, BLOCK=4)
    launch, calls = kernel.launcher(Placement(None)), []

    def counted(*args):
        calls.append(args)
        launch(*args)

    counted.packing = launch.packing
    monkeypatch.setitem(kernel._launchers, Placement(None), counted)
    kernel._launchers.pop("run", None)
    return kernel, calls


def test_known_calls_do_not_enter_python(monkeypatch):
    kernel, calls = kernel_and_calls(monkeypatch)
    out, other = torch.zeros(64), torch.zeros(64)
    assert kernel.run(2, 1, 1, 0, *OWN, out, 7, 0.5, 4) is None and len(calls) == 1
    assert kernel.run(3, 1, 1, None, *OWN, other, -3, 2.0, "anything") is None
    assert len(calls) == 1 and other.tolist() == [-6.0] * 12 + [0.0] * 52
    kernel.run(0, 1, 1, 0, *OWN, out, 7, 0.5, 4)
    kernel.run(1, 1, 1, 0, *OWN, out, 1 << 40, 0.5, 4)  # a number of another width is looked at in Python
    assert len(calls) == 2
    with pytest.raises(TypeError):
        kernel.run(1, 1, 1, 0, *OWN, out, 7)


def test_subscripted_kernels_do_not_enter_python(monkeypatch):
    kernel, calls = kernel_and_calls(monkeypatch)
    monkeypatch.setitem(kernel._launchers, Placement(-1), kernel._launchers[Placement(None)])
    out, other = torch.zeros(64), torch.zeros(64)
    assert kernel[(2,)](out, 7, 0.5, 4) is None and len(calls) == 1
    assert kernel[(3, 1)](other, -3, 2.0, "anything") is None
    assert len(calls) == 1 and other.tolist() == [-6.0] * 12 + [0.0] * 52
    kernel[(1,)](out, 1, 0.5, 4, stream=None)  # a keyword is looked at in Python
    kernel[(0,)](out, 7, 0.5, 4)
    assert len(calls) == 2 and out.tolist() == [0.5] * 4 + [3.5] * 4 + [0.0] * 56
    with pytest.raises(tilewright.TilewrightError, match="takes 4 arguments"):
        kernel[(1,)](out, 7)
    with pytest.raises(tilewright.TilewrightError, match="grid"):
        kernel[(0.5,)](out, 7, 0.5, 4)
    assert len(calls) == 2


def test_hooks_are_called(monkeypatch):
    kernel, _ = kernel_and_calls(monkeypatch)
    out, heard = torch.zeros(64), []
    for _ in range(3):
        kernel.run(
            1, 1, 1, 0, None, None, "facts", heard.append, lambda facts: heard.append(out[0].item()), out, 7, 0.5, 4
        )
    assert heard == ["facts", 3.5] * 3


def test_nothing_is_left_behind(monkeypatch):
    kernel, calls = kernel_and_calls(monkeypatch)
    out, number = torch.zeros(64), 70_003
    kernel.run(1, 1, 1, 0, *OWN, out, number, 0.5, 4)
    gc.collect()
    watched = (kernel, out, number, None)
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(5000):
        kernel.run(1, 1, 1, 0, *OWN, out, number, 0.5, 4)
    after = [sys.getrefcount(thing) for thing in watched]
    assert len(calls) == 1 and all(abs(a - b) < 100 for a, b in zip(after, before))


def test_the_stream_is_the_one_that_is_given():
    x = aligned(64)
    with installed(FakeCuda()) as fake:
        fill.clear()
        kernel = fill[(1,)](CudaArray(x), 7, 0.5, BLOCK=4)
        for stream in (0x11, 0x22, 0x33, None):
            kernel.run(3, 2, 1, stream, *OWN, CudaArray(x), 9, 0.5, 4)
        assert [told["stream"] for told in fake.launches[-4:]] == [0x11, 0x22, 0x33, 0]
        assert all(told["grid"] == (3, 2, 1) for told in fake.launches[-4:])
        assert fake.launches[-1]["parameters"] == struct.pack("=Qif", x.ctypes.data, 9, 0.5)
        fill.clear()
