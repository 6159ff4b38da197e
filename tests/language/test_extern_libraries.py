"""`extern_libs`: functions of libraries of others, in bitcode on every target, in object files on the CPU."""

from __future__ import annotations

import ctypes.util
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.features import describe
from tilewright.base.errors import CompilationError, TilewrightError

BUMP = """
declare float @llvm.fabs.f32(float)
@offset = private constant float 10.0
define float @inner(float %x) noinline {
  %o = load float, ptr @offset
  %y = fadd float %x, %o
  ret float %y
}
define float @bump(float %x) {
  %a = call float @llvm.fabs.f32(float %x)
  %y = call float @inner(float %a)
  ret float %y
}
define i32 @twice_plus(i32 %x, i32 %y) {
  %a = mul i32 %x, 2
  %b = add i32 %a, %y
  ret i32 %b
}
define float @unused(float %x) {
  %y = call float @of_nobody(float %x)
  ret float %y
}
declare float @of_nobody(float)
"""
CALLS_OTHERS = """
declare float @bump(float)
declare float @__nv_j0f(float)
define float @bumped_j0(float %x) {
  %a = call float @__nv_j0f(float %x)
  %b = call float @bump(float %a)
  ret float %b
}
"""


@tl.core.extern
def bump(x, _semantic=None):
    table = {(tl.float32,): ("bump", tl.float32)}
    return tl.core.extern_elementwise("mine", "", [x], table, is_pure=True, _semantic=_semantic)


@tl.core.extern
def twice_plus(x, y, _semantic=None):
    table = {(tl.int32, tl.int32): ("twice_plus", tl.int32)}
    return tl.core.extern_elementwise("mine", "", [x, y], table, is_pure=True, _semantic=_semantic)


@tl.core.extern
def named(symbol, x, _semantic=None):
    table = {(tl.float32,): (getattr(symbol, "value", symbol), tl.float32)}
    return tl.core.extern_elementwise("mine", "", [x], table, is_pure=True, _semantic=_semantic)


@tilewright.jit
def both(x, out, n, counts, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, bump(tl.load(x + i, mask=i < n, other=0)), mask=i < n)
    tl.store(counts + i, twice_plus(i, tl.program_id(0)), mask=i < n)
    tl.store(counts + n, twice_plus(n, 1))


@tilewright.jit
def one(x, out, SYMBOL: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, named(SYMBOL, tl.load(x + i)))


@pytest.fixture(params=["ll", "bc", "o"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"mine.{request.param}"
    if request.param == "ll":
        path.write_text(BUMP)
    elif request.param == "bc":
        path.write_bytes(llvm.parse_assembly(BUMP, context=llvm.create_context()).as_bitcode())
    else:
        path.write_bytes(codegen.compile_object(BUMP.partition("define float @unused")[0], describe()))
    return path


def test_a_cpu_calls_a_library(library: Path) -> None:
    x, n = np.linspace(-3, 3, 100, dtype=np.float32), 90
    for _ in range(2):
        out, counts = np.zeros(100, np.float32), np.zeros(100, np.int32)
        both[(2,)](x, out, n, counts, BLOCK=64, extern_libs={"mine": library})
        np.testing.assert_allclose(out[:n], np.abs(x[:n]) + 10, rtol=1e-6)
        assert counts[:n].tolist() == [2 * i + (i >= 64) for i in range(n)] and counts[n] == 2 * n + 1
        both.clear()  # the second time the code comes from the disk cache


def test_a_cpu_calls_a_shared_object() -> None:
    path = ctypes.util.find_library("m")
    home = next((p for p in Path("/lib").rglob(path) if p.is_file()), None) if path else None
    if home is None:
        pytest.skip("no mathematical library of C")
    x, out = np.float32([1, 8, 27, 64]), np.zeros(4, np.float32)
    one[(1,)](x, out, "cbrtf", BLOCK=4, extern_libs={"m": str(home)})
    np.testing.assert_allclose(out, [1, 2, 3, 4], rtol=1e-6)


def on_gpu(fn: Any, *args: Any, **options: Any) -> Any:
    return fn.warmup(*args, grid=(1,), target="cuda:90", **options)


@pytest.mark.parametrize("form", ["ll", "bc"])
def test_a_gpu_links_a_library(form: str, tmp_path: Path) -> None:
    path, more = tmp_path / f"mine.{form}", tmp_path / "more.ll"
    bitcode = llvm.parse_assembly(BUMP, context=llvm.create_context()).as_bitcode()
    path.write_bytes(BUMP.encode() if form == "ll" else bitcode)
    mock, counts = tilewright.MockTensor(tl.float32), tilewright.MockTensor(tl.int32)
    kernel = on_gpu(both, mock, mock, 90, counts, BLOCK=64, extern_libs={"mine": path})
    text = kernel.asm["ptx"]
    assert "inner" in text and "of_nobody" not in text and ".extern .func" not in text and kernel.asm["cubin"]
    more.write_text(CALLS_OTHERS)
    pytest.importorskip("nvidia")
    libraries = {"more": str(more), "mine": str(path)}
    text = on_gpu(one, mock, mock, "bumped_j0", BLOCK=64, extern_libs=libraries).asm["ptx"]
    assert ".extern .func" not in text and "inner" in text


@pytest.mark.parametrize("target", ["cuda:90", None])
def test_mistakes_are_told(target: str | None, tmp_path: Path) -> None:
    path, broken = tmp_path / "mine.ll", tmp_path / "broken.bc"
    wrong = BUMP.replace("float @bump(float %x)", "double @bump(float %x)")
    path.write_text(wrong.replace("ret float %y\n}\ndefine i32", "ret double 0.0\n}\ndefine i32"))
    broken.write_bytes(b"BC\xc0\xdenothing")
    mock = tilewright.MockTensor(tl.float32)

    def build(symbol: str, **options: Any) -> Any:
        return one.warmup(mock, mock, symbol, BLOCK=64, grid=(1,), target=target, **options)

    with pytest.raises(CompilationError, match="external function bump is"):
        build("bump")
    with pytest.raises(TilewrightError, match=r"external function other is in no library of extern_libs \(mine\)"):
        build("other", extern_libs={"mine": path})
    with pytest.raises(TilewrightError, match=r"bump of .*mine.ll is double \(float\), called as float \(float\)"):
        build("bump", extern_libs={"mine": path})
    with pytest.raises(TilewrightError, match="LLVM does not read mine from .*broken.bc"):
        build("bump", extern_libs={"mine": broken})
    with pytest.raises(TilewrightError, match="which is no file"):
        build("bump", extern_libs={"mine": tmp_path / "none"})
    if target is not None:
        path.write_bytes(b"\x7fELF" + bytes(60))
        with pytest.raises(TilewrightError, match="mine.ll is no bitcode"):
            build("bump", extern_libs={"mine": path})


def test_an_interpreter_says_that_it_runs_no_machine_code(tmp_path: Path) -> None:
    path = tmp_path / "mine.ll"
    path.write_text(BUMP)
    kernel = tilewright.jit(one.fn, interpret=True)
    x = np.zeros(4, np.float32)
    with pytest.raises(TilewrightError, match="external function bump is code of a device"):
        kernel[(1,)](x, x, "bump", BLOCK=4, extern_libs={"mine": path})
