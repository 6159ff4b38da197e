"""Launch keywords of older programs, and what libraries take from Triton's runtime: binders, keys, managers, hooks."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, aligned
from tilewright.base.errors import ArgumentError, DeviceError, KnobError, RefusedNameError
from tilewright.base.knobs import knobs
from tilewright.devices.drivers import driver
from tilewright.runtime import cache
from tilewright.runtime.jit import (
    compute_cache_key,
    convert_to_tuple_if_list,
    create_function_from_signature,
    type_canonicalisation_dict,
)

torch = pytest.importorskip("torch")


@tilewright.jit
def fill(out_ptr, value, BLOCK: tl.constexpr = 4):
    tl.store(out_ptr + tl.arange(0, BLOCK), value)


# --- keywords of launches ---------------------------------------------------------------------------------


def test_warmup_compiles_and_launches_nothing() -> None:
    out = torch.zeros(4)
    for _ in range(3):
        kernel = fill[(1,)](out, 3, warmup=True)
        assert isinstance(kernel, tilewright.CompiledKernel) and not out.any()
    assert fill[(1,)](torch.float32, 3, warmup=True).hash == kernel.hash
    for _ in range(3):
        assert fill[(1,)](out, 3, warmup=False) is kernel and out.eq(3).all()
        out.zero_()
    interpreted = tilewright.jit(fill.fn, interpret=True)
    assert interpreted[(1,)](out, 3, warmup=True) is None and not out.any()


def test_a_warmup_is_no_launch_for_launch_hooks() -> None:
    told: list[Any] = []
    knobs.runtime.launch_enter_hook.add(told.append)
    try:
        fill[(1,)](torch.zeros(4), 3, warmup=True)
        assert not told
        fill[(1,)](torch.zeros(4), 3)
        assert len(told) == 1
    finally:
        knobs.runtime.launch_enter_hook.remove(told.append)


def test_a_launch_may_name_its_device() -> None:
    out = torch.zeros(4)
    for device in (0, None, torch.device("cpu")):
        out.zero_()
        fill[(1,)](out, 3, device=device)
        assert out.eq(3).all()
    fill[(1,)](out, 4, device_type="cpu", stream=0)
    assert out.eq(4).all()
    with pytest.raises(DeviceError, match="`out_ptr` is on the CPU, but the launch names CUDA device 1"):
        fill[(1,)](out, 3, device=1, device_type="cuda")
    with pytest.raises(DeviceError, match="has no stream 7"):
        fill[(1,)](out, 3, stream=7)
    with pytest.raises(ArgumentError, match="name no device"):
        fill[(1,)](out, 3, device_type="tpu")
    with pytest.raises(ArgumentError, match="is no stream"):
        fill[(1,)](out, 3, stream="main")


def test_launches_on_a_gpu_go_to_the_stream_that_they_name() -> None:
    x = aligned(64)
    with installed(FakeCuda()) as fake:
        assert fake is not None
        for stream in (5, 5, 5, 6, None):
            fill[(1,)](CudaArray(x), 3, stream=stream, device=1)
        assert [told["stream"] for told in fake.launches] == [5, 5, 5, 6, 0]
        with pytest.raises(DeviceError, match="names CUDA device 0"):
            fill[(1,)](CudaArray(x), 3, device=0)
    fill.clear()


# --- binders and keys -------------------------------------------------------------------------------------


def test_a_binder_gives_what_device_caches_are_keyed_by() -> None:
    out = torch.zeros(8)
    kernel = fill[(1,)](out, 5, BLOCK=8, num_warps=2)
    kernels, texts, target, backend, binder = fill.create_binder()
    bound, specialization, options = binder(out, 5, BLOCK=8, num_warps=2)
    assert bound == {"out_ptr": out, "value": 5, "BLOCK": 8} and options == {"num_warps": 2}
    assert specialization == [("*fp32", "D"), ("i32", ""), ("constexpr", 8)]
    assert kernels[compute_cache_key(texts, specialization, options)] is kernel
    assert compute_cache_key(texts, specialization, backend.parse_options(options)) in kernels
    assert compute_cache_key(texts, [("*fp32", ""), *specialization[1:]], options) not in kernels
    (cached,) = fill.device_caches.values()
    assert cached[0].keys() == kernels.keys() and str(target) == str(kernel.target)
    given, signature, constants, facts = fill._pack_args(backend, {}, bound, specialization, options)
    assert signature == {"out_ptr": "*fp32", "value": "i32", "BLOCK": "constexpr"} and constants == {(2,): 8}
    assert facts == {(0,): [["tt.divisibility", 16]]} and given.num_warps == 2 and given.hash()
    assert fill._do_compile("", signature, 0, constants, given, facts, True).hash == kernel.hash


def test_small_names_of_runtime_jit() -> None:
    binder = create_function_from_signature(None, fill.params, None)
    assert binder(torch.zeros(4), 1)[1][1:] == [("constexpr", 1), ("constexpr", 4)]
    assert convert_to_tuple_if_list([1, [2, (3, [4])]]) == (1, (2, (3, [4])))
    types = type_canonicalisation_dict
    assert (types["float16"], types["bool"], types["int"], types["bf16"]) == ("fp16", "u1", "i32", "bf16")
    assert fill.type == tl.core.constexpr_type(fill) and fill.kernel is None


def test_a_refused_name_says_why_when_it_is_used() -> None:
    def derive() -> Any:
        class Mine(cache.RemoteCacheBackend):
            pass

    for use in (
        lambda: fill._call_hook(),
        lambda: cache.RemoteCacheManager.put,
        lambda: knobs.redis.host,
        derive,
        lambda: setattr(knobs.cache, "manager_class", object),
        lambda: setattr(knobs.compilation, "enable_asan", True),
    ):
        with pytest.raises(RefusedNameError, match="is not there|alone|cannot be"):
            use()
    assert not isinstance(fill, cache.RemoteCacheManager) and not hasattr(knobs.redis, "__host")
    assert knobs.compilation.enable_asan is False
    knobs.compilation.enable_asan = False


# --- managers of files ------------------------------------------------------------------------------------


def test_managers_keep_files_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path / "cache")
    manager = cache.get_cache_manager("00ff")
    assert manager.get_file("a.bin") is None and not manager.has_file("a.bin")
    first = manager.put(b"abc", "a.bin")
    assert Path(first).read_bytes() == b"abc" and manager.get_file("a.bin") == first
    second = manager.put("text", "b.json", binary=False)
    manager.put_group("both", {"a.bin": first, "b.json": second})
    assert cache.FileCacheManager(cache._base32("00ff")).get_group("both") == {"a.bin": first, "b.json": second}
    Path(second).unlink()
    assert manager.get_group("both") is None and manager.get_group("none") is None
    for name in ("../a", "a/b", ""):
        with pytest.raises(ArgumentError, match="no name of a file"):
            manager.put(b"", name)
    dumped = cache.get_dump_manager("k").put(b"x", "k.ttir")
    assert Path(dumped) == knobs.cache.dump_dir / "k" / "k.ttir" == tmp_path / "dump" / "k" / "k.ttir"
    assert cache.get_override_manager("k").get_file("k.ttir") is None
    key = cache.make_so_cache_key("v", {"a": 1}, {}, {}, x=1)
    assert key != cache.make_so_cache_key("v", {"a": 1}, {}, {}, x=2)


def test_a_kernel_tells_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    kernel = tilewright.jit(fill.fn).warmup(torch.zeros(4), 5, grid=(1,))
    ((name, path),) = kernel.metadata_group.items()
    assert name == "fill.obj" and Path(path).is_relative_to(tmp_path) and Path(path).is_file()


# --- hooks around loading, and the listener ---------------------------------------------------------------


def test_hooks_hear_of_code_that_is_loaded_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    told: list[tuple[str, Any]] = []
    gc.collect()  # kernels of other tests go before
    with knobs.runtime.scope():
        for name in ("kernel_load_start_hook", "kernel_load_end_hook", "kernel_unload_hook"):
            getattr(knobs.runtime, name).add(lambda *facts, name=name: told.append((name, facts)))
        kernel = tilewright.jit(repr=lambda facts: "once")(fill.fn)
        hash = kernel.warmup(torch.zeros(4), 5, grid=(1,)).hash
        assert [name for name, _ in told] == ["kernel_load_start_hook", "kernel_load_end_hook"]
        (before, facts) = told[0][1], told[1][1]
        assert before[0] is None and facts[0] is not None and facts[2] == "once" and facts[4] == hash
        assert list(facts[3]) == ["once.obj"]
        kernel.clear()
        kernel._reasons.clear()
        gc.collect()
        assert [name for name, facts in told[2:] if facts[4] == hash] == ["kernel_unload_hook"]


def test_the_listener_hears_of_each_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **facts: told.append(facts))
    for _ in range(2):
        tilewright.jit(fill.fn).warmup(torch.zeros(4), 5, grid=(1,))
    cold, warm = told
    assert not cold["cache_hit"] and warm["cache_hit"] and cold["metadata"].name == "fill"
    times = cold["times"]
    assert [name for name, _ in times.lowering_stages] == ["nest", "loops", "llir", "obj"]
    assert times.ir_initialization > 0
    assert times.total == times.ir_initialization + times.total_lowering + times.store_results
    assert warm["times"].total_lowering == 0 and list(cold["metadata_group"]) == ["fill.obj"]


# --- knobs ------------------------------------------------------------------------------------------------


def test_knobs_under_the_names_of_triton(tmp_path: Path) -> None:
    with knobs.scope():
        knobs.cache.dump_dir = tmp_path / "d"
        knobs.compilation.dump_ir = True
        assert knobs.compilation.dump_dir == tmp_path / "d"
        knobs.compilation.dump_ir = False
        assert knobs.compilation.dump_dir is None and knobs.cache.dump_dir == knobs.cache.dir.parent / "dump"
        knobs.compilation.override = True
        assert knobs.compilation.override_dir == knobs.cache.override_dir
        knobs.compilation.always_compile = True
        assert knobs.cache.disabled and knobs.cache.knobs["disabled"] and knobs.compilation.always_compile
        knobs.nvidia.libdevice_path = "/there/libdevice.10.bc"
        assert str(knobs.cuda.libdevice) == knobs.nvidia.libdevice_path == "/there/libdevice.10.bc"
        knobs.nvidia.ptxas = tmp_path / "ptxas"
        assert knobs.nvidia.ptxas.path == str(tmp_path / "ptxas") == knobs.nvidia.ptxas_blackwell.path
        with pytest.raises(KnobError, match="does not run"):
            knobs.nvidia.ptxas.version
        (tmp_path / "ptxas").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n")
        (tmp_path / "ptxas").chmod(0o755)
        assert knobs.nvidia.ptxas.version == "13.0"
    assert knobs.compilation.override_dir is None and knobs.cache.get_triton_dir("x").startswith(knobs.cache.home_dir)


def test_knobs_of_multiply_adds() -> None:
    def fused(**options: Any) -> bool:
        return bool(tilewright.jit(fill.fn).request(torch.zeros(4), 5, **options)[0].options.enable_fp_fusion)

    with knobs.scope():
        assert fused() and knobs.language.fp_fusion_enabled()
        knobs.language.default_fp_fusion = False
        assert not fused() and fused(enable_fp_fusion=True) and not knobs.language.fp_fusion_enabled()
        knobs.language.force_disable_fp_fusion = True
        assert not fused(enable_fp_fusion=True)


# --- drivers ----------------------------------------------------------------------------------------------


def test_drivers_time_and_load() -> None:
    active = driver.active
    assert active.get_benchmarker()(lambda: None, quantiles=(0.5, 0.2, 0.8), warmup=0, rep=1)[0] < 1
    kernel = fill.warmup(torch.zeros(4), 5, grid=(1,))
    module, address, registers, spills, threads = active.utils.load_binary(
        kernel.metadata["symbol"], kernel.kernel, 0, 0
    )
    assert address and (registers, spills, threads) == (0, 0, 1)
    active.utils.unload_module(module)
    with pytest.raises(RefusedNameError, match=r"CompiledKernel\.run"):
        active.launcher_cls(kernel.src, kernel.metadata)


def test_the_cache_of_a_device_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.backends.driver._CACHE_BYTES", 1 << 10)
    cache = driver.active.get_empty_cache_for_benchmark()
    cache.fill_(1)
    driver.active.clear_cache(cache)
    assert cache.numel() == 256 and not cache.any() and np.dtype(np.int32).itemsize == cache.element_size()
