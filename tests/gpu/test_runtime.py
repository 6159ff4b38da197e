"""Launches as users make them: streams, graphs, devices, resources, and what goes wrong."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.device import driver
from tilewright.base.errors import DeviceError, OutOfResources

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@tilewright.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


@tilewright.jit
def products(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(a_ptr + rows * BLOCK + columns)
    b = tl.load(b_ptr + rows * BLOCK + columns)
    tl.store(c_ptr + rows * BLOCK + columns, tl.dot(a, b))


@tilewright.jit
def negated(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, (-tl.load(x_ptr + offsets)).to(tl.int64))


@tilewright.jit
def add_under_lock(lock, total_ptr, BLOCK: tl.constexpr, SEM: tl.constexpr):
    pointers = total_ptr + tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1, sem=SEM) == 1:
        pass
    tl.store(pointers, tl.load(pointers) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=SEM)


@tilewright.jit
def bounded(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.device_assert(x < 100, "less than a hundred")
    tl.store(out_ptr + offsets, x + 1, mask=mask)


@tilewright.jit
def nothing():
    pass


def _scaled(x: Any, factor: float = 3.0) -> Any:
    out = torch.empty_like(x)
    scale[(tilewright.cdiv(x.numel(), 256),)](x, out, x.numel(), factor, BLOCK=256)
    return out


def test_a_launch_goes_to_the_current_stream() -> None:
    x = torch.rand(1 << 20, device="cuda")
    _scaled(x)  # compiles
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        x += 1
        out = _scaled(x)  # waits behind the sleep, on that stream; on another one it would see x as it was
    stream.synchronize()
    torch.testing.assert_close(out, 3 * x)


def test_launches_in_a_graph() -> None:
    x = torch.rand(1000, device="cuda")
    out = torch.zeros_like(x)
    scale[(4,)](x, out, 1000, 2.0, BLOCK=256)  # compiles and loads before the capture
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale[(4,)](x, out, 1000, 2.0, BLOCK=256)
    assert not out.any()
    graph.replay()
    torch.testing.assert_close(out, 2 * x)


def test_a_kernel_with_assertions_in_graphs() -> None:
    """Its first launch is in a capture, and another one on another stream; the collector frees kernels meanwhile."""
    x = torch.randint(0, 100, (1000,), device="cuda", dtype=torch.int32)
    out, graph = torch.zeros_like(x), torch.cuda.CUDAGraph()
    tilewright.jit(bounded.fn)[(4,)](x, out, 1000, BLOCK=256, debug=True)  # a kernel that the collector is left to free
    out.zero_()
    with torch.cuda.graph(graph):
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                bounded[(4,)](x, out, 1000, BLOCK=256, debug=True)
            torch.cuda.current_stream().wait_stream(stream)
            gc.collect()
    assert not out.any()
    graph.replay()
    assert torch.equal(out, x + 1)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32"])
def test_the_least_integer_negated_is_itself(kind: str) -> None:
    dtype = getattr(torch, kind)
    x = torch.full((64,), torch.iinfo(dtype).min, dtype=dtype, device="cuda")
    out = torch.zeros(64, dtype=torch.int64, device="cuda")
    negated[(1,)](x, out, N=64)
    assert torch.equal(out, x.to(torch.int64))


def test_a_kernel_without_parameters() -> None:
    nothing[(3,)]()
    torch.cuda.synchronize()


def test_products_in_more_shared_memory_than_comes_free() -> None:
    a, b = (torch.randn(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(128, 128, device="cuda")
    kernel = products[(1,)](a, b, c, BLOCK=128)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-2)
    assert kernel is None or kernel.metadata.shared > 48 << 10


def test_occupancy_is_what_the_driver_says() -> None:
    x = torch.rand(1000, device="cuda")
    compiled = scale.warmup(x, x, 1000, 2.0, BLOCK=256, grid=(4,))
    function = driver.Function(compiled.asm["cubin"], compiled.metadata.symbol, 0, "scale")
    blocks = function.blocks_per_multiprocessor(128, 0)
    assert compiled.n_regs == function.registers
    assert arch_of(compiled.target).blocks_per_multiprocessor(4, function.registers, 0) == blocks


def test_tensors_in_two_places() -> None:
    x = torch.rand(16, device="cuda")
    with pytest.raises(DeviceError, match="out_ptr"):
        scale[(1,)](x, torch.empty(16), 16, 1.0, BLOCK=16)


def test_too_much_shared_memory() -> None:
    x = torch.empty(512 * 512, device="cuda", dtype=torch.float16)
    with pytest.raises(OutOfResources, match="512 x 512"):
        products[(1,)](x, x, x, BLOCK=512)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_launch_goes_to_the_gpu_of_its_tensors() -> None:
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        x = torch.rand(1000, device=device)
        torch.testing.assert_close(_scaled(x), 3 * x)
    assert torch.cuda.current_device() == 0
    with pytest.raises(DeviceError, match="out_ptr"):
        scale[(1,)](x, torch.empty(16, device="cuda:0"), 16, 1.0, BLOCK=16)


def test_an_illegal_address_names_the_kernel(tmp_path: Path) -> None:
    program = """
        import torch, tilewright, tilewright.language as tl

        @tilewright.jit
        def wild(x_ptr):
            tl.store(x_ptr + (1 << 40) + tl.arange(0, 128), 1.0)

        x = torch.empty(16, device="cuda")
        wild[(1,)](x)
        try:
            for _ in range(3):
                torch.cuda.synchronize()
        except Exception:
            pass
        try:
            wild[(1,)](x)
        except Exception as error:
            print(type(error).__name__, error)
    """
    path = tmp_path / "wild.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert "wild" in done.stdout and "CPU" in done.stdout, done.stdout + done.stderr[-2000:]


@pytest.mark.sanitize
@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
def test_a_lock_loses_no_update_whatever_order_it_names(sem: str) -> None:
    lock, total = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(128, dtype=torch.int32, device="cuda")
    for _ in range(5):
        add_under_lock[(400,)](lock, total, BLOCK=128, SEM=sem)
    assert total.eq(2000).all()
