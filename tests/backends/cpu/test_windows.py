"""What Windows will need of machine code, as far as another system can tell: its calling convention, and its objects."""

from __future__ import annotations

import ctypes
import dataclasses
import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.device.ir import launcher_ir
from tilewright.backends.llvm.codegen import assembly, compile_object, load
from tilewright.backends.llvm.features import host

WINDOWS = "x86_64-pc-windows-msvc"
# In Microsoft's C runtime. A stack of more than a page is asked for by __chkstk, which is in it as well.
RUNTIME = {"memcpy", "memset", "memmove", "__chkstk"}
needs_x86 = pytest.mark.skipif(not host().is_x86, reason="the convention is of x86-64")


def _softmax(out, x, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + i, e / tl.sum(e, axis=0), mask=i < columns)


def _product(out, x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i[:, None] * BLOCK + i[None, :])
    tl.store(out + i[:, None] * BLOCK + i[None, :], tl.dot(a, a) + n)


def _text(function, block: int) -> tuple[str, str]:
    """LLVM IR of a kernel for this machine, and its symbol."""
    out, x = np.zeros(block, np.float32), np.zeros(block, np.float32)
    text = tilewright.jit(function).warmup(out, x, block, BLOCK=block, grid=(1,)).asm["llir"]
    (name,) = re.findall(r"^define (?:dso_local )?i64 @(\S+)\(i64 ", text, re.MULTILINE)
    return text, name


def _as_windows_calls_it(text: str, name: str) -> str:
    """The module with its kernel under the convention of Windows, and a thunk that this system may call."""
    start = rf"^define (dso_local )?i64 @{re.escape(name)}\("
    text, count = re.subn(start, f"define win64cc i64 @{name}(", text, flags=re.MULTILINE)
    assert count == 1
    types = ("i64", "i64", "ptr", "ptr", "ptr")
    taken = ", ".join(f"{kind} %a{at}" for at, kind in enumerate(types))
    return f"{text}\ndefine i64 @thunk({taken}) {{\n  %end = call win64cc i64 @{name}({taken})\n  ret i64 %end\n}}\n"


@needs_x86
@pytest.mark.parametrize("function", [_softmax, _product], ids=["softmax", "product"])
def test_kernels_run_under_the_convention_of_windows(function) -> None:
    block, rows = 32, 5 if function is _softmax else 1
    text, name = _text(function, block)
    listing = assembly(_as_windows_calls_it(text, name), host())
    assert (
        "movaps\t%xmm6," in listing or "movups\t%xmm6," in listing or "vmovaps\t%xmm6," in listing
    )  # Windows' to keep
    library = load(compile_object(_as_windows_calls_it(text, name), host()), ["thunk"])
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 3)(library.address("thunk"))
    x = np.random.default_rng(0).standard_normal((rows if rows > 1 else block, block), dtype=np.float32)
    out, arena, stop = np.zeros_like(x), np.zeros(1 << 20, np.uint8), np.zeros(16, np.uint8)
    args = (ctypes.c_int64 * 6)(out.ctypes.data, x.ctypes.data, block, rows, 1, 1)
    assert kernel(0, rows, ctypes.addressof(args), arena.ctypes.data, stop.ctypes.data) == rows
    e = np.exp(x - x.max(axis=1, keepdims=True))
    want = e / e.sum(axis=1, keepdims=True) if function is _softmax else x @ x + block
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@needs_x86
def test_objects_for_windows_call_what_is_there() -> None:
    isa = dataclasses.replace(host(), triple=WINDOWS)
    texts = [launcher_ir(WINDOWS), *(_text(function, 32)[0] for function in (_softmax, _product))]
    for text in texts:
        assert compile_object(text, isa)[:2] == b"\x64\x86"
        called = set(re.findall(r"^\s+(?:callq|jmp)\s+([A-Za-z_][\w.]*)", assembly(text, isa), re.MULTILINE))
        defined = set(re.findall(r"^define .*?@([\w.]+)\(", text, re.MULTILINE))
        assert called <= defined | RUNTIME, called - defined - RUNTIME
