"""A program: each name and behaviour of older launch interfaces, one by one, as programs of Triton use them.

    python -m tilewright.as_triton -m tests.triton_names.older_names

It prints a line of JSON: for every row of `ROWS` an empty text, or what happened instead. No device is needed: code
for a GPU is compiled and not run.
"""

from __future__ import annotations

import ast
import collections
import json
import os
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, AttrsDescriptor
from triton.runtime import _async_compile, driver
from triton.runtime import jit as runtime_jit
from triton.runtime.cache import get_cache_manager
from triton.runtime.interpreter import InterpretedFunction

ROWS: dict[str, Callable[[], None]] = {}
GPU = GPUTarget("cuda", 90, 32)
Body = Callable[[], None]


def row(name: str) -> Callable[[Body], Body]:
    """Enter the body of a row; it raises where the name does not do what it should."""

    def enter(body: Body) -> Body:
        assert name not in ROWS, name
        ROWS[name] = body
        return body

    return enter


@triton.jit
def add_to(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def plain(out, n: "i32", BLOCK: tl.constexpr = 4):  # noqa: F821, UP037 -- the text is the subject
    tl.store(out + tl.arange(0, BLOCK), n)


def compiled(**options: Any) -> Any:
    """`add_to` for 64 elements."""
    return add_to.warmup(triton.MockTensor(torch.float32), 100, BLOCK=64, grid=(2,), **options)


def raises(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    """The call raises an error with these words."""
    try:
        call()
    except kind as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}")


# --- D22 ------------------------------------------------------------------------------------------------------


@row("DependenciesFinder")
def _() -> None:
    finder = runtime_jit.DependenciesFinder(
        name="add_to", globals=add_to.__globals__, nonlocals={}, src=add_to.src
    )  # fmt: skip
    finder.visit(add_to.parse())
    assert isinstance(finder, ast.NodeVisitor) and isinstance(finder.ret, str) and finder.ret


class HostMap:
    """128 bytes that the driver's function writes."""

    def __init__(self, tensor: Any, block: int) -> None:
        self.memory = torch.zeros(128, dtype=torch.uint8)
        driver.active.utils.fill_1d_tma_descriptor(
            tensor.data_ptr(), tensor.numel(), block, tensor.element_size(), self.memory.data_ptr()
        )

    def tma_desc_cpu_ptr(self) -> int:
        return int(self.memory.data_ptr())


@triton.jit
def by_maps(source, target, B: tl.constexpr):
    tl._experimental_descriptor_store(target, tl._experimental_descriptor_load(source, [0], [B], tl.float32), [0])


@row("tma_desc_cpu_ptr")
def _() -> None:
    x, out = torch.randn(64), torch.zeros(64)
    by_maps[(1,)](HostMap(x, 64), HostMap(out, 64), 64)
    assert out.equal(x)


@triton.jit
def by_combines(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    pair = Pair(tl.reduce(v, 0, tl.standard._sum_combine), tl.reduce(v, 0, tl.standard._elementwise_max))
    _, at = tl.reduce((v, i), 0, tl.standard._argmax_combine_tie_break_left)
    tl.store(out, pair.first)
    tl.store(out + 1, pair.second)
    tl.store(out + 2, at)


@tl.core._aggregate
class Pair:
    first: tl.tensor
    second: tl.tensor


@row("core._aggregate, standard._sum_combine")
def _() -> None:
    out = torch.zeros(3)
    by_combines[(1,)](torch.tensor([1.0, 5.0, 5.0, 2.0]), out, 4)
    assert out.tolist() == [13, 5, 1]


@row("c_wrapper")
def _() -> None:
    kernel, x = compiled(), torch.zeros(128)
    kernel.c_wrapper(2, 1, 1, 4, 0, 0, kernel.cu_function, None, None, kernel, x, 100)
    assert x[:100].eq(1).all() and not x[100:].any()


@row("num_warps")
def _() -> None:
    assert [compiled(target=GPU, num_warps=warps).num_warps for warps in (2, 8)] == [2, 8]


@row("shared")
def _() -> None:
    assert compiled().shared == 0 and compiled(target=GPU).shared == 0


@row("cu_function")
def _() -> None:
    kernel = compiled()
    assert kernel.cu_function is kernel.function


@row("ptx_version")
def _() -> None:
    assert ".version 8.0" in compiled(target=GPU, ptx_version=80).asm["ptx"]
    raises(NotImplementedError, "there is no sm_90a in PTX 7.0", lambda: compiled(target=GPU, ptx_version=70))


BUMP = """
define float @bump(float %x) {
  %y = fadd float %x, 1.0
  ret float %y
}
"""


@tl.core.extern
def bump(x, _semantic=None):
    return tl.core.extern_elementwise("m", "", [x], {(tl.float32,): ("bump", tl.float32)}, True, _semantic=_semantic)


@triton.jit
def bumped(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, bump(tl.load(x + i)))


@row("extern_libs: bitcode on GPUs")
def _() -> None:
    import llvmlite.binding as llvm

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.bc")
        path.write_bytes(llvm.parse_assembly(BUMP, context=llvm.create_context()).as_bitcode())
        options = {"target": GPU, "grid": (1,), "extern_libs": {"m": str(path)}}
        text = bumped.warmup(triton.MockTensor(torch.float32), 64, **options).asm["ptx"]
    assert ".extern" not in text and "add.rn.f32" in text.replace("add.f32", "add.rn.f32")


@row("extern_libs: objects on CPUs")
def _() -> None:
    from tilewright.backends.llvm import codegen
    from tilewright.backends.llvm.features import host

    x = torch.zeros(64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.o")
        path.write_bytes(codegen.compile_object(BUMP, host()))
        bumped[(1,)](x, 64, extern_libs={"m": str(path)})
    assert x.eq(1).all()


def printed(**environment: str) -> str:
    """What the compile of a kernel says on stderr, in a process with these variables."""
    import subprocess
    import sys

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(
            "import triton, triton.language as tl\n@triton.jit\ndef one(x):\n    tl.store(x, 1.0)\n"
            "from triton.backends.compiler import GPUTarget\n"
            "x, target = triton.MockTensor(tl.float32), GPUTarget('cuda', 90, 32)\n"
            "print(one.warmup(x, grid=(1,), target=target).asm['ptx'])\n"
        )
        clean = {**os.environ, "TRITON_CACHE_DIR": folder, "TILEWRIGHT_CACHE_DIR": folder}
        command = [sys.executable, "-m", "tilewright.as_triton", str(path)]
        done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=True)
    return done.stderr + done.stdout


@row("MLIR_ENABLE_DUMP, LLVM_IR_ENABLE_DUMP, USE_TTGIR_LOC")
def _() -> None:
    said = printed(MLIR_ENABLE_DUMP="1", LLVM_IR_ENABLE_DUMP="1", USE_TTGIR_LOC="1")
    assert said.count("tt.func public @one") > 1 and "define" in said and ".tgir" in said, said[:500]


@triton.jit
def moves(x):
    block = tl.make_block_ptr(x, (16,), (1,), (0,), (8,), (0,))
    tl.advance(block, (8,))
    tl.store(block, tl.load(block) + 1)


@row("a warning for an unused tl.advance")
def _() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        moves[(1,)](np.zeros(16, np.float32))
    assert any("the result of advance is not used" in str(one.message) for one in told)


# --- D23 ------------------------------------------------------------------------------------------------------


@row("annotation as text")
def _() -> None:
    assert [p.annotation for p in triton.jit(plain).params] == ["", "i32", "constexpr"]


@row("JITFunction(fn, version, ...)")
def _() -> None:
    made = triton.JITFunction(plain, "v2", ["n"], None, True)
    assert (made.version, made.do_not_specialize, made.debug) == ("v2", ["n"], True)


@row("JITFunction[T]")
def _() -> None:
    kind = triton.JITFunction[Any]
    assert get_origin(kind) is triton.JITFunction and get_args(kind) == (Any,)
    assert get_origin(triton.KernelInterface[Any]) is triton.KernelInterface


@row("repr with a colon")
def _() -> None:
    assert repr(add_to) == f"JITFunction({__name__}:add_to)"


@row("InterpretedFunction")
def _() -> None:
    out, made = np.zeros(4, np.int32), InterpretedFunction(plain)
    made[(1,)](out, 7)
    assert isinstance(made, InterpretedFunction) and out.tolist() == [7] * 4
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        assert isinstance(triton.jit(plain), InterpretedFunction)


@row("cache")
def _() -> None:
    fn, out = triton.jit(plain), np.zeros(4, np.int32)
    kernel = fn[(1,)](out, 7)
    assert list(fn.cache[0].values()) == [kernel]


@row("binder")
def _() -> None:
    fn = triton.jit(plain)
    fn.create_binder(None)
    assert fn.binder(torch.zeros(4, dtype=torch.int32), 7)[0]["n"] == 7


@row("_key_of")
def _() -> None:
    assert triton.JITFunction._key_of(5) == "i32" and triton.JITFunction._key_of(torch.zeros(1)) == torch.float32


@row("_type_of")
def _() -> None:
    assert triton.JITFunction._type_of("i32") == "i32" and triton.JITFunction._type_of(torch.float32) == "*fp32"


@row("_make_constants")
def _() -> None:
    assert triton.jit(plain)._make_constants((8,)) == {2: 8}


@row("compute_spec_key")
def _() -> None:
    assert [runtime_jit.compute_spec_key(value, True) for value in (16, 1, 7)] == ["D", "1", "N"]


@row("_async_compile.active_mode")
def _() -> None:
    assert _async_compile.active_mode.get() is None
    with ThreadPoolExecutor(1) as executor, _async_compile.AsyncCompileMode(executor) as mode:
        assert _async_compile.active_mode.get() is mode


@row("_make_path")
def _() -> None:
    manager = get_cache_manager("00aa")
    assert manager.put(b"x", "a.bin") == str(manager._make_path("a.bin"))


@row("knobs.build.impl")
def _() -> None:
    assert triton.knobs.build.impl is None
    raises(NotImplementedError, "no C compiler", lambda: setattr(triton.knobs.build, "impl", print))


@row("AttrsDescriptor")
def _() -> None:
    attrs = AttrsDescriptor(divisible_by_16={0}, equal_to_1={1})
    signature = {"out": "*i32", "n": "i32", "BLOCK": "constexpr"}
    kernel = triton.compile(ASTSource(triton.jit(plain), signature, {"BLOCK": 4}, attrs))
    assert kernel.specialization.constants == {(1,): 1, (2,): 4}


@row("parse_options")
def _() -> None:
    backend = triton.compiler.make_backend(driver.active.get_current_target())
    assert backend.parse_options({"num_warps": 2}).num_warps == 2


@row("map_python_to_cpp_type")
def _() -> None:
    assert driver.active.map_python_to_cpp_type("i32") == "int32_t"
    raises(ValueError, "i7", lambda: driver.active.map_python_to_cpp_type("i7"))


@tl.constexpr_function
def doubled(n):
    return 2 * n


@row("ConstexprFunction.src")
def _() -> None:
    assert doubled.src.startswith("def doubled(n):") and isinstance(doubled, runtime_jit.ConstexprFunction)


@row("ConstexprFunction.cache_key")
def _() -> None:
    assert isinstance(doubled.cache_key, str) and doubled.cache_key


@row("constexpr_type of tuples")
def _() -> None:
    assert tl.constexpr_type((1, 2)) == tl.constexpr_type((1, 2)) != tl.constexpr_type((1, 3))
    assert tl.constexpr((1, 2)).type == tl.constexpr_type((1, 2))


@row("float8_e4m3fn and float8_e5m2 in type_canonicalisation_dict")
def _() -> None:
    names = runtime_jit.type_canonicalisation_dict
    assert (names["float8_e4m3fn"], names["float8_e5m2"]) == ("fp8e4nv", "fp8e5")


@tl.core.builtin
def get_num_threads(_semantic=None):
    return tl.core.constexpr(_semantic.builder.options.num_warps * 32)


@triton.jit
def by_threads(out, OWN: tl.constexpr):
    if OWN:
        tl.store(out + tl.arange(0, get_num_threads()), 1)
    else:
        tl.store(out + tl.arange(0, doubled(tl.extra.cuda.num_warps()) * 16), 1)


@row("arange over a constexpr of the launch")
def _() -> None:
    for own in (False, True):
        kernel = by_threads.warmup(torch.int32, own, grid=(1,), target=GPU, num_warps=2)
        assert "tt.make_range {end = 64 : i32" in kernel.asm["ttir"]


@triton.jit
def by_table(out, TABLE: tl.constexpr, NAMED: tl.constexpr):
    tl.store(out, TABLE[0] + len(TABLE) + NAMED["k"])


@row("a list or dictionary as constexpr")
def _() -> None:
    out, table = np.zeros(1, np.int32), [5, 6]
    by_table[(1,)](out, table, {"k": 100})
    assert out[0] == 107
    table[0] = 8
    by_table[(1,)](out, table, {"k": 100})
    assert out[0] == 110


@triton.jit(debug=True)
def never(out):
    tl.device_assert(tl.load(out) == 1, "it is not one")


@row("the exit hook after a kernel that fails")
def _() -> None:
    told: list[Any] = []
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.launch_exit_hook.add(told.append)
        for _ in range(3):
            raises(Exception, "it is not one", lambda: never[(1,)](np.zeros(1, np.int32)))
    assert len(told) == 3


@row("serialize_specialization_data")
def _() -> None:
    fn, target = triton.jit(plain), driver.active.get_current_target()
    signature = {"out": "*i32", "n": "i32", "BLOCK": "constexpr"}
    options = triton.compiler.make_backend(target).parse_options({})
    text = runtime_jit.serialize_specialization_data(fn._fn_name, signature, {(2,): 8}, {}, options, "key", target)
    assert fn.preload(text).specialization.constants == {(2,): 8}


@triton.jit
def sum_bytes(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)).to(tl.int32)))


@row("reinterpret to another width")
def _() -> None:
    x, out = torch.tensor([0x01020304, 5], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    sum_bytes[(1,)](triton.reinterpret(x, tl.uint8), out, BLOCK=8)
    assert out.item() == 15


def _runs(**given: Any) -> None:
    x = torch.zeros(128)
    triton.compile(add_to, **given)[(2, 1, 1)](x, 100)
    assert x[:100].eq(1).all() and not x[100:].any()


@row("triton.compile with one text as its signature")
def _() -> None:
    _runs(signature="*fp32, i32", constants={"BLOCK": 64})


@row("triton.compile by index")
def _() -> None:
    _runs(signature={0: "*fp32", 1: "i32"}, constants={2: 64})


@row("triton.compile(device=)")
def _() -> None:
    _runs(signature="*fp32, i32", constants={2: 64}, device=0)


@row("triton.compile(configs=)")
def _() -> None:
    descriptor = collections.namedtuple("instance_descriptor", "divisible_by_16 equal_to_1")
    _runs(signature={0: "*fp32", 1: "i32"}, constants={2: 64}, configs=[descriptor({0}, ())])


@row("asm with ttgir and source")
def _() -> None:
    asm = compiled(target=GPU).asm
    assert "ttgir" in asm and "source" in asm and asm["ttgir"] == asm["tgir"] and "tt.func" in asm["source"]


@row("a stage file without its .json")
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "add_to.ptx")
        made = compiled(target=GPU, num_warps=2)
        path.write_text(made.asm["ptx"])
        again = triton.compile(str(path), target=GPU)
    assert again.name == "add_to" and again.asm["cubin"] == made.asm["cubin"]


def main() -> None:
    """Run every row."""
    found = {}
    for name, body in ROWS.items():
        try:
            body()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    assert isinstance(triton, types.ModuleType) and triton.__tilewright__
    main()
