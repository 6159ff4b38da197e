"""Kernels of `@jit` launched on a driver made of Python: what is compiled, what the GPU is told, what is kept."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, aligned
from tilewright.backends.nvidia.device import driver as driver_module
from tilewright.backends.nvidia.device import launch as launch_module
from tilewright.base.errors import DeviceError, DriverError, OutOfResources
from tilewright.compiler import ASTSource, GPUTarget
from tilewright.devices.drivers import driver
from tilewright.tools.tensor_descriptor import TensorDescriptor
from tilewright.tuning import bench as testing

X, Y = aligned(64), aligned(64)
F16, F32, F64 = (tilewright.MockTensor(dtype) for dtype in (tl.float16, tl.float32, tl.float64))


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed(FakeCuda()) as library:
        assert library is not None
        yield library


@tilewright.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * factor, mask=offsets < n)


def test_a_launch_on_a_gpu(fake: FakeCuda) -> None:
    scale.clear()
    for grid in ((3,), lambda meta: (3, 1)):
        kernel = scale[grid](CudaArray(X), CudaArray(Y), 50, 2.5, BLOCK=64, num_warps=2)
    assert (kernel.target.backend, kernel.target.arch, kernel.packed_metadata) == ("cuda", 90, (2, 1, 0))
    assert len(fake.launches) == 2 and fake.launches[0] == fake.launches[1]
    told = fake.launches[0]
    assert (told["grid"], told["block"], told["context"]) == ((3, 1, 1), (64, 1, 1), 0x1001)
    assert told["parameters"] == struct.pack("=QQif", X.ctypes.data, Y.ctypes.data, 50, 2.5)
    image = next(args[1] for name, args in fake.calls if name == "cuModuleLoadDataEx")
    assert image[:4] == kernel.binary[:4]
    scale[(0,)](CudaArray(X), CudaArray(Y), 50, 2.5, BLOCK=64, num_warps=2)
    assert len(fake.launches) == 2


def test_a_program_of_several_blocks_is_one(fake: FakeCuda) -> None:
    """`num_ctas` changes neither the grid nor what the metadata say of the options."""
    scale.clear()
    kernel = scale[(3,)](CudaArray(X), CudaArray(Y), 50, 2.5, BLOCK=64, num_warps=2, num_ctas=2)
    told = fake.launches[-1]
    assert (told["grid"], told["block"], told["attributes"]) == ((3, 1, 1), (128, 1, 1), [])
    assert kernel.packed_metadata == (2, 2, 0) and kernel.n_max_threads == 128
    assert (kernel.metadata.num_warps, kernel.metadata.num_ctas, kernel.metadata.cluster_dims) == (2, 2, (2, 1, 1))
    usual = scale[(3,)](CudaArray(X), CudaArray(Y), 50, 2.5, BLOCK=64, num_warps=2)
    assert usual.hash != kernel.hash and fake.launches[-1]["block"] == (64, 1, 1)


def test_one_kernel_serves_cpu_and_gpu(fake: FakeCuda) -> None:
    X[:] = range(64)
    Y[:] = 0
    scale[(1,)](CudaArray(X), CudaArray(Y), 50, 2.0, BLOCK=64)
    assert len(fake.launches) == 1 and not Y.any()
    assert scale[(1,)](X, Y, 50, 2.0, BLOCK=64).target.backend == "cpu"
    assert (Y[:50] == 2 * X[:50]).all() and len(fake.launches) == 1


def test_modules_go_with_their_kernel(fake: FakeCuda) -> None:
    scale[(1,)](CudaArray(X), CudaArray(Y), 50, 2.0, BLOCK=32)
    scale.clear()
    gc.collect()
    assert fake.names().count("cuModuleUnload") >= 1


def test_compiling_for_a_gpu_needs_none() -> None:
    with installed(None):
        kernel = scale.warmup(F16, F16, 48, 2.0, BLOCK=128, grid=(1,), target="cuda:80")
        assert kernel is not None and str(kernel.target) == "cuda:80"
        signature = {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32", "factor": "fp32"}
        source = ASTSource(scale, signature, {"BLOCK": 128})
        made = tilewright.compile(source, GPUTarget("cuda", 120, 32), {"num_warps": 8})
    assert list(made.asm) == ["ttir", "nest", "tgir", "llir", "ptx", "cubin"]
    assert ".target sm_120a" in made.asm["ptx"] and made.packed_metadata == (8, 1, 0)
    assert made.n_regs == made.metadata.n_regs < 255 and 0 < made.occupancy <= 1 and made.n_max_threads == 256
    assert "sass" not in made.asm and "float" in kernel.asm["llir"]


def test_from_disk_it_knows_the_same(fake: FakeCuda) -> None:
    first = scale.warmup(F64, F64, 48, 2.0, BLOCK=128, grid=(1,), target="cuda:86")
    scale.clear()
    second = scale.warmup(F64, F64, 48, 2.0, BLOCK=128, grid=(1,), target="cuda:86")
    assert first is not None and second is not None and second.from_disk and not first.from_disk
    assert dict(second.metadata) == dict(first.metadata) and second.binary == first.binary
    assert second.asm["ptx"] == first.asm["ptx"]


def test_a_compiled_kernel_launches_where_it_belongs(fake: FakeCuda) -> None:
    kernel = scale.warmup(CudaArray(X), CudaArray(Y), 48, 2.0, BLOCK=32, grid=(1,))
    assert kernel is not None
    kernel[(2,)](CudaArray(X), CudaArray(Y), 48, 2.0, 32)
    kernel[(2,)](CudaArray(X), CudaArray(Y), 48, 2.0, 32, stream=5)
    assert [(told["grid"], told["stream"]) for told in fake.launches] == [((2, 1, 1), 0), ((2, 1, 1), 5)]
    with pytest.raises(DeviceError, match="`scale` was compiled for cuda:90, but argument `x_ptr` is on the CPU"):
        kernel[(2,)](X, Y, 48, 2.0, 32)
    with pytest.raises(DeviceError, match="`scale` was compiled for cuda:80, but argument `x_ptr` is on the CPU"):
        scale[(2,)](X, Y, 48, 2.0, BLOCK=32, target="cuda:80")


@tilewright.jit
def counts(BLOCK: tl.constexpr):
    tl.device_assert(tl.program_id(0) < BLOCK, "too many")


def _skip_if_torch_has_fewer_gpus() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda and torch.cuda.device_count() < 2:
        pytest.skip("PyTorch follows the active driver, and has fewer GPUs than the one here")


def test_without_arrays_the_active_driver_decides(fake: FakeCuda) -> None:
    _skip_if_torch_has_fewer_gpus()
    driver.set_active_to_gpu()
    try:
        for ordinal in (0, 1, 0):
            driver.active.set_current_device(ordinal)
            counts[(2,)](BLOCK=4)
    finally:
        driver.reset_active()
    assert [told["context"] for told in fake.launches] == [0x1000, 0x1001, 0x1000]
    assert counts[(2,)](BLOCK=4).target.backend == "cpu" and len(fake.launches) == 3


@tilewright.jit
def waits(n, BLOCK: tl.constexpr):
    tl.debug_barrier()


def test_machine_code_asks_for_the_gpu_in_use(fake: FakeCuda, untraced: None) -> None:
    _skip_if_torch_has_fewer_gpus()

    def contexts(ordinals: tuple[int, ...], repeats: int, **more: str) -> list[int]:
        before = len(fake.launches)
        for ordinal in ordinals:
            driver.active.set_current_device(ordinal)
            for _ in range(repeats):
                waits[(1,)](7, BLOCK=16, **more)
        return [told["context"] - 0x1000 for told in fake.launches[before:]]

    driver.set_active_to_gpu()
    try:
        waits.clear()
        assert contexts((0, 1), 3) == [0, 0, 0, 1, 1, 1]
        assert contexts((0, 1), 2, device_type="cuda") == [0, 0, 1, 1]
        binder = waits._binder
        if binder.builtin is not None:
            binder._in_python = None  # not called
            assert contexts((0, 1, 0), 2) == [0, 0, 1, 1, 0, 0]
    finally:
        driver.reset_active()


@tilewright.jit
def transpose(x_ptr, y_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(y_ptr + columns[:, None] * ROWS + rows[None, :], tl.trans(x))


def test_too_much_shared_memory_names_the_tiles() -> None:
    with pytest.raises(OutOfResources, match="shared memory, Required: [0-9]+, Hardware limit: 101376") as raised:
        transpose.warmup(F64, F64, ROWS=128, COLUMNS=256, num_warps=8, grid=(1,), target="cuda:86")
    assert "of f64 (" in str(raised.value) and "test_gpu_launch.py:" in str(raised.value)
    assert "Reducing block sizes" in str(raised.value)


def test_too_many_warps() -> None:
    with pytest.raises(OutOfResources, match="threads, Required: 2048, Hardware limit: 1024") as raised:
        scale.warmup(F32, F32, 48, 2.0, BLOCK=128, num_warps=64, grid=(1,), target="cuda:90")
    assert "num_warps=32" in str(raised.value)


# --- time -------------------------------------------------------------------------------------------------------


def test_do_bench_asks_the_clock_of_the_gpu(fake: FakeCuda) -> None:
    _skip_if_torch_has_fewer_gpus()
    driver.set_active_to_gpu()
    try:
        fake.milliseconds = 0.25
        times = testing.do_bench(lambda: None, warmup=0, rep=0, return_mode="all")
        assert times == [0.25] and testing.do_bench(lambda: None, warmup=0, rep=0) == 0.25
    finally:
        driver.reset_active()
    order = [name for name in fake.names() if name in ("cuMemsetD8Async", "cuEventRecord")]
    assert order[:3] == ["cuMemsetD8Async", "cuEventRecord", "cuEventRecord"]
    gc.collect()
    assert not fake.memory


def test_autotuning_on_a_gpu(fake: FakeCuda) -> None:
    seen = []
    tuned = tilewright.autotune([tilewright.Config({"BLOCK": size}) for size in (32, 64)], key=["n"], rep=0, warmup=0)(
        scale
    )
    fake.kernel = lambda parameters: seen.append(fake.launches[-1]["grid"][0])
    fake.milliseconds = 1.0
    tuned[lambda meta: (meta["BLOCK"],)](CudaArray(X), CudaArray(Y), 50, 2.0)
    assert {32, 64} <= set(seen) and seen[-1] == tuned.best_config.kwargs["BLOCK"]
    assert all(times == [1.0] * 3 for times in tuned.configs_timings.values())
    assert tuned.cache.keys() == {(50, "cuda:1")}


# --- a new process ----------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import tilewright, tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, aligned

@tilewright.jit
def one(p, B: tl.constexpr):
    tl.store(p + tl.arange(0, B), tl.full((B,), 1.0, tl.float32))

with installed(FakeCuda()) as fake:
    kernel = one[(1,)](CudaArray(aligned(64)), B=16)
    heavy = {"llvmlite.binding", "tilewright.backends.nvidia.pipeline", "cuda.pathfinder"} & set(sys.modules)
    print(kernel.from_disk, len(fake.launches), len(heavy))
"""


def test_a_warm_process_loads_neither_llvm_nor_the_passes(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(SCRIPT)
    root = Path(tilewright.__file__).parent.parent
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(root)}

    def run() -> str:
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert (run(), run()) == ("False 1 2", "True 1 0")


def test_known_launches_on_a_gpu_are_made_by_machine_code(fake: FakeCuda) -> None:
    scale.clear()
    for _ in range(3):
        kernel = scale[(3,)](CudaArray(X), CudaArray(Y), 50, 2.5, BLOCK=64, num_warps=2)
    assert scale._binder is not None and scale._binder.builtin is not None

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("the launch went through Python")

    in_python, scale._binder._in_python = scale._binder._in_python, fail
    try:
        fake.launches.clear()
        driver_module.recent.clear()
        made = scale[lambda meta: (2, 3)](CudaArray(Y), CudaArray(X), 51, -1.5, BLOCK=64, num_warps=2)
        assert made is kernel and driver_module.recent == {1: "scale"}
        told = fake.launches[0]
        assert (told["grid"], told["block"], told["context"], told["stream"]) == ((2, 3, 1), (64, 1, 1), 0x1001, 0)
        assert told["parameters"] == struct.pack("=QQif", Y.ctypes.data, X.ctypes.data, 51, -1.5)
        scale[(0,)](CudaArray(Y), CudaArray(X), 51, -1.5, BLOCK=64, num_warps=2)
        assert len(fake.launches) == 1
        fake.fails["cuLaunchKernelEx"] = 700
        with pytest.raises(DriverError, match="scale.*CUDA_ERROR_ILLEGAL_ADDRESS"):
            scale[(2,)](CudaArray(Y), CudaArray(X), 51, -1.5, BLOCK=64, num_warps=2)
    finally:
        scale._binder._in_python = in_python
        scale.clear()


def test_machine_code_asks_for_the_stream(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of C says which stream is current, where there is one; where it fails Python does."""
    streams = [0x77]
    said = []

    def told(ordinal: int, out: int) -> int:
        said.append(ordinal)
        ctypes.c_size_t.from_address(out).value = streams[0]
        return int(streams[0] == 0)

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(told)
    address = ctypes.cast(function, ctypes.c_void_p).value
    monkeypatch.setattr(launch_module, "torch_streams", lambda: driver_module.current_stream)
    monkeypatch.setattr(launch_module, "stream_function", lambda ordinal: address)
    scale.clear()
    for stream in (0x99, 0x77, 0x77, 0x88, 0):
        streams[0] = stream
        scale[(3,)](CudaArray(X), CudaArray(Y), 50, 2.5, BLOCK=64)
    assert [told["stream"] for told in fake.launches[-4:]] == [0x77, 0x77, 0x88, 0] and said == [1] * 4
    scale.clear()


@tilewright.jit
def moved(source, target, shift, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R
    target.store([row, 0], source.load([row + shift, 0]))


def test_tensor_maps_of_known_launches_are_kept_by_machine_code(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made anew where what describes a tensor has changed, and nowhere else."""
    moved.clear()
    x, y = aligned(4096), aligned(4096)

    def described(array: Any, rows: int) -> TensorDescriptor:
        base: Any = CudaArray(array)
        base.itemsize, base.dtype = 4, array.dtype
        return TensorDescriptor(base, [rows, 64], [64, 1], [16, 64])

    offsets: list[int] = []

    def tell(function: int, number: int, offset: int, size: int) -> None:
        ctypes.c_size_t.from_address(offset).value = offsets[number]

    def encode(out: int, kind: int, rank: int, address: int, sizes: int, *rest: Any) -> None:
        ctypes.memset(out, 0, 128)
        ctypes.memmove(out, struct.pack("=QQ", address, ctypes.c_uint64.from_address(sizes + 8).value), 16)

    fake.acts["cuFuncGetParamInfo"], fake.acts["cuTensorMapEncodeTiled"] = tell, encode
    warm = moved.warmup(described(x, 32), described(y, 32), 3, R=16, C=64, grid=(1,))
    given = len(warm.metadata.types)
    start = -(-8 * given // 128) * 128
    assert len(warm.metadata.tensor_maps) == 2
    offsets += [*range(0, 8 * given, 8), start, start + 128]
    for _ in range(3):
        moved[(1,)](described(x, 32), described(y, 32), 3, R=16, C=64)
    assert moved._binder is not None

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("the launch went through Python")

    in_python, moved._binder._in_python = moved._binder._in_python, fail
    made, asked, wanted = fake.names().count("cuTensorMapEncodeTiled"), list[Any](), launch_module.tensormap.encode
    monkeypatch.setattr(launch_module.tensormap, "encode", lambda *args: asked.append(args) or wanted(*args))
    try:
        fake.launches.clear()
        calls = [(x, y, 32, 3), (x, y, 32, 5), (y, x, 32, 5), (y, x, 48, 5), (x, y, 32, 3)]
        for source, target, rows, shift in calls:
            moved[(2,)](described(source, rows), described(target, 32), shift, R=16, C=64)
        for (source, target, rows, _), told in zip(calls, fake.launches, strict=True):
            maps = [told["parameters"][at : at + 128] for at in (start, start + 128)]
            want = [(source.ctypes.data, rows), (target.ctypes.data, 32)]
            assert [struct.unpack("=QQ112x", one) for one in maps] == want
        assert len(asked) == 2 * 2  # the fourth and fifth have other sizes than the launch before
        assert fake.names().count("cuTensorMapEncodeTiled") == made + 1  # the others have been made before
        assert fake.names().count("cuTensorMapReplaceAddress") == 2  # of the third
        fake.fails["cuTensorMapEncodeTiled"] = 1
        with pytest.raises(DriverError, match="describing a tensor"):
            moved[(2,)](described(x, 64), described(y, 32), 3, R=16, C=64)
        del fake.fails["cuTensorMapEncodeTiled"]
        moved[(2,)](described(x, 32), described(y, 32), 3, R=16, C=64)
    finally:
        moved._binder._in_python = in_python
        moved.clear()
