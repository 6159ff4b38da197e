"""A kernel from decoration to result: caches, options, arguments, and what bad launches get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.cache_layers import disk_cache
from tilewright.base.errors import (
    ArgumentError,
    DeviceAssertionError,
    GridError,
    ReadOnlyError,
    UnknownOptionError,
    UnsupportedError,
)
from tilewright.base.knobs import knobs
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.registry import BACKENDS, options_for, parse_target


@tilewright.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


@tilewright.jit
def checked(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=1.0)
    tl.device_assert(x > 0, "every element must be positive")
    tl.store(x_ptr + offsets, x, mask=offsets < n)


def arrays(n: int = 200, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(n, dtype=dtype), np.zeros(n, dtype)


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    scale.clear()
    yield tmp_path
    scale.clear()


def test_numpy_and_torch_give_the_same_result() -> None:
    torch = pytest.importorskip("torch")
    x, out = arrays()
    tx, tout = torch.arange(200, dtype=torch.float32), torch.zeros(200)
    scale[(4,)](x, out, 200, 2.5)
    scale[(4,)](tx, tout, 200, 2.5)
    assert np.array_equal(out, x * np.float32(2.5))
    assert np.array_equal(tout.numpy(), out)


def test_a_grid_may_be_a_function_of_the_arguments() -> None:
    x, out = arrays()
    scale[lambda meta: (tilewright.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 200, 3.0, BLOCK=32)
    assert np.array_equal(out, x * 3)


def test_an_empty_grid_launches_nothing() -> None:
    x, out = arrays()
    scale[(0,)](x, out, 200, 3.0)
    assert not out.any()


def test_specialisations_are_separate_kernels() -> None:
    x, out = arrays()
    first = scale[(4,)](x, out, 200, 2.0)
    assert scale[(4,)](x, out, 200, 4.0) is first  # a float is never specialised on
    assert scale[(4,)](x, out, 176, 2.0) is not first  # 176 is divisible by 16, 200 is not
    assert scale[(4,)](x[1:], out, 199, 2.0) is not first  # the address is not


def test_options_reach_the_compiler_and_threads_do_not() -> None:
    x, out = arrays()
    first = scale[(4,)](x, out, 200, 2.0)
    assert scale[(4,)](x, out, 200, 2.0, enable_fp_fusion=False) is not first
    assert scale[(4,)](x, out, 200, 2.0, num_warps=8) is first  # warps change no code for a CPU
    assert scale[(4,)](x, out, 200, 2.0, num_threads=1) is first


def test_warmup_compiles_without_running() -> None:
    x, out = arrays()
    kernel = scale.warmup(x, out, 200, 2.0, grid=(4,))
    assert not out.any()
    assert kernel is scale[(4,)](x, out, 200, 2.0)


def test_every_stage_can_be_read(fresh_cache: Path) -> None:
    kernel = scale.warmup(*arrays(), 200, 2.0, grid=(4,))
    assert list(kernel.asm) == ["ttir", "nest", "loops", "llir", "obj"]
    assert "store arg1[64*program0 + i]" in kernel.asm["nest"]
    assert "tt.func public @scale" in kernel.asm["ttir"]
    assert "define" in kernel.asm["llir"]
    assert set(kernel.seconds) == set(kernel.asm)


# --- caches ---------------------------------------------------------------------------------------------


def test_the_second_process_loads_from_disk(fresh_cache: Path) -> None:
    x, out = arrays()
    assert not scale[(4,)](x, out, 200, 2.0).from_disk
    scale.clear()
    kernel = scale[(4,)](x, out, 200, 2.0)
    assert kernel.from_disk
    assert np.array_equal(out, x * 2)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_cache_entry_is_compiled_anew(fresh_cache: Path, damage: str) -> None:
    x, out = arrays()
    scale[(4,)](x, out, 200, 2.0)
    for file in fresh_cache.rglob("*.tile"):
        data = bytearray(file.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 0xFF
        file.write_bytes(bytes(data[: len(data) // 2] if damage == "truncate" else data if damage == "flip" else b""))
    scale.clear()
    kernel = scale[(4,)](x, out, 200, 2.0)
    assert not kernel.from_disk
    assert np.array_equal(out, x * 2)


def test_an_object_that_does_not_load_is_compiled_anew(fresh_cache: Path) -> None:
    x, out = arrays()
    kernel = scale[(4,)](x, out, 200, 2.0)
    entry = disk_cache().get(kernel.hash)
    assert entry is not None
    disk_cache().put(kernel.hash, b"\x7fELF not really", entry.metadata)
    scale.clear()
    assert not scale[(4,)](x, out, 200, 2.0).from_disk
    assert np.array_equal(out, x * 2)


def test_stages_are_dumped_and_overridden(fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = arrays()
    monkeypatch.setattr(knobs.compilation, "dump_dir", tmp_path / "dump")
    hashes = [scale[(4,)](x, out, n, 2.0).hash for n in (200, 192)]  # two variants, and so two folders
    folders = [tmp_path / "dump" / hash for hash in hashes]
    for folder in folders:
        names = {path.name for path in folder.iterdir()}
        assert names == {f"scale.{extension}" for extension in ("ttir", "nest", "loops", "llir", "obj", "json")}
    assert folders[0] != folders[1] and len(list((tmp_path / "dump").iterdir())) == 2
    for extension, change in (("ttir", ("arith.mulf", "arith.addf")), ("llir", ("fmul", "fadd"))):
        over = tmp_path / extension / hashes[0]
        over.mkdir(parents=True)
        text = (folders[0] / f"scale.{extension}").read_text()
        (over / f"scale.{extension}").write_text(text.replace(*change))
        monkeypatch.setattr(knobs.compilation, "override_dir", tmp_path / extension)
        scale.clear()
        scale[(4,)](x, out, 200, 2.0)
        assert np.array_equal(out, x + 2)
        scale[(4,)](x, out, 192, 2.0)
        assert np.array_equal(out[:192], x[:192] * 2)
    (over / "scale.loops").write_text("anything")
    scale.clear()
    with pytest.raises(UnsupportedError, match=r"scale\.loops replaces nothing"):
        scale[(4,)](x, out, 200, 2.0)


def test_the_file_of_any_stage_is_a_source(fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = arrays()
    monkeypatch.setattr(knobs.compilation, "dump_dir", tmp_path / "dump")
    folder = tmp_path / "dump" / scale[(4,)](x, out, 200, 2.0).hash
    monkeypatch.setattr(knobs.compilation, "dump_dir", None)
    for extension in ("llir", "obj"):
        out[:] = 0
        kernel = tilewright.compile(folder / f"scale.{extension}")
        kernel[(4,)](x, out, 200, 2.0)
        assert np.array_equal(out, x * 2) and kernel.name == "scale"
    ptx = scale.warmup(x, out, 200, 2.0, target="cuda:90", grid=(1,)).asm["ptx"]
    (tmp_path / "alone.ptx").write_text(ptx)
    assert tilewright.compile(tmp_path / "alone.ptx", target="cuda:90").name == "scale"  # its text says enough
    (tmp_path / "alone.obj").write_bytes((folder / "scale.obj").read_bytes())
    with pytest.raises(ArgumentError, match=r"alone\.json beside it"):
        tilewright.compile(tmp_path / "alone.obj")
    with pytest.raises(UnsupportedError, match=r"cannot compile scale\.loops(.|\n)*\.ttir, \.llir, \.obj"):
        tilewright.compile(folder / "scale.loops")


def test_stages_of_a_gpu_are_sources_too(fresh_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = arrays()
    monkeypatch.setattr(knobs.compilation, "dump_dir", tmp_path)
    made = scale.warmup(x, out, 200, 2.0, target="cuda:90", grid=(1,))
    monkeypatch.setattr(knobs.compilation, "dump_dir", None)
    for extension in ("tgir", "llir", "ptx", "cubin"):
        again = tilewright.compile(tmp_path / made.hash / f"scale.{extension}", target="cuda:90")
        assert again.binary == made.binary, extension


def test_every_back_end_names_its_stages() -> None:
    targets = {"cpu": target_at(HOST), "cuda": parse_target("cuda:90"), "null": parse_target("null:any")}
    for name, entry in BACKENDS.items():
        stages = entry.backend.stages(options_for(targets[name], {}), targets[name])
        assert tuple(stages) == entry.backend.EXTENSIONS and entry.backend.EXTENSIONS[-1] == entry.backend.BINARY


def test_a_warm_process_does_not_load_llvm(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(
        "import sys, numpy as np, tilewright, tilewright.language as tl\n"
        "@tilewright.jit\n"
        "def one(p, B: tl.constexpr):\n"
        "    tl.store(p + tl.arange(0, B), tl.full((B,), 1.0, tl.float32))\n"
        "a = np.zeros(16, np.float32)\n"
        "kernel = one[(1,)](a, B=16)\n"
        "assert a.all()\n"
        "print(kernel.from_disk, 'llvmlite.binding' in sys.modules)\n"
    )
    root = str(Path(tilewright.__file__).parent.parent)
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": root}

    def run() -> list[str]:
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    seen = [run(), run()]
    assert seen == [["False", "True"], ["True", "False"]]


# --- bad launches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(1.5,), (-1,), (1, 1, 1, 1), "4", (2**31,), ()])
def test_a_wrong_grid_is_named(grid: object) -> None:
    with pytest.raises(GridError, match="grid"):
        scale[grid](*arrays(), 200, 2.0)


def test_missing_and_extra_arguments_show_the_signature() -> None:
    x, out = arrays()
    with pytest.raises(ArgumentError, match=r"missing argument `factor`(.|\n)*scale\(x_ptr, out_ptr, n, factor, BLOCK"):
        scale[(1,)](x, out, 200)
    with pytest.raises(ArgumentError, match="positional argument"):
        scale[(1,)](x, out, 200, 2.0, 64, 7)
    with pytest.raises(UnknownOptionError, match=r"Keyword argument BLOK was specified but unrecognised(.|\n)*BLOCK"):
        scale[(1,)](x, out, 200, 2.0, BLOK=64)


@pytest.mark.parametrize("value", ["text", [1, 2], {"a": 1}, object()])
def test_an_object_that_no_kernel_takes_is_named(value: object) -> None:
    _, out = arrays()
    with pytest.raises(ArgumentError, match="x_ptr"):
        scale[(1,)](value, out, 200, 2.0)


def test_storing_to_a_read_only_array_is_refused() -> None:
    x, out = arrays()
    out.flags.writeable = False
    with pytest.raises(ReadOnlyError, match="out_ptr"):
        scale[(1,)](x, out, 200, 2.0)
    x.flags.writeable = False
    fresh = np.zeros_like(out)
    scale[(4,)](x, fresh, 200, 2.0)  # a read-only input is fine
    assert np.array_equal(fresh, x * 2)


def test_warps_must_be_a_power_of_two() -> None:
    with pytest.raises(ArgumentError, match="num_warps must be a power of 2"):
        scale[(1,)](*arrays(), 200, 2.0, num_warps=3)


def test_calling_a_kernel_without_a_grid_says_how() -> None:
    with pytest.raises(RuntimeError, match=r"scale\[grid\]"):
        scale(*arrays(), 200, 2.0)


def test_a_compile_error_shows_line_and_caret() -> None:
    @tilewright.jit
    def broken(p, B: tl.constexpr):
        x = tl.arange(0, B) + tl.arange(0, 2 * B)
        tl.store(p + x, x)

    with pytest.raises(tilewright.CompilationError) as caught:
        broken[(1,)](np.zeros(16, np.int32), B=16)
    text = str(caught.value)
    assert "x = tl.arange(0, B) + tl.arange(0, 2 * B)" in text and "^" in text and "16" in text and "32" in text


def test_device_assertions_raise_only_in_debug_launches() -> None:
    bad = np.array([1.0, -1.0], np.float32)
    checked[(1,)](bad, 2, BLOCK=16)
    with pytest.raises(DeviceAssertionError, match="every element must be positive"):
        checked[(1,)](bad, 2, BLOCK=16, debug=True)
    checked[(1,)](np.ones(2, np.float32), 2, BLOCK=16, debug=True)


def test_the_debug_knob_wins_over_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.runtime, "debug", True)
    for made in (tilewright.jit(checked.fn, debug=False), tilewright.jit(checked.fn)):
        with pytest.raises(DeviceAssertionError, match="every element must be positive"):
            made[(1,)](np.array([1.0, -1.0], np.float32), 2, BLOCK=16, debug=False)
