"""Kernels and processes at their limits: what cannot be made or sent, very many calls and values, and little memory."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.meta.sources import ROOT
from tilewright import errors
from tilewright.base.callable import every_block_function


@tilewright.jit
def fill(p, value, B: tl.constexpr):
    tl.store(p + tl.arange(0, B), value)


@tilewright.jit
def stops(p):
    breakpoint()
    tl.store(p, 1)


def test_breakpoint_names_the_interpreter():
    with pytest.raises(errors.CompilationError, match="TILEWRIGHT_INTERPRET=1"):
        stops[(1,)](np.zeros(1, np.float32))


# --- what is not made after all -------------------------------------------------------------------------------------


def test_a_failed_decoration_leaves_nothing_behind():
    kept = []
    before = len(every_block_function())
    for wrong in (len, 5, "text", eval("lambda p: p"), type("Callable", (), {"__call__": lambda self: 0})()):
        with pytest.raises(errors.TilewrightError) as caught:
            tilewright.jit(wrong)
        kept.append(caught.value)  # whose traceback holds what was being made
    assert len(every_block_function()) == before
    fill.src = fill.src.replace("value)", "value + 1)")  # asks all kernels of the process to forget
    try:
        x = np.zeros(4, np.int32)
        fill[(1,)](x, 1, B=4)
        assert x.tolist() == [2] * 4
    finally:
        fill.src = fill.src.replace("value + 1)", "value)")


def test_a_compiled_kernel_is_not_pickled():
    kernel = fill[(1,)](np.zeros(4, np.int32), 1, B=4)
    for way in (pickle.dumps, lambda it: pickle.dumps({"kernel": [it]})):
        with pytest.raises(errors.NotPickledError, match=r"(?s)compiled kernel fill.*write_bundle") as caught:
            way(kernel)
        assert isinstance(caught.value, (pickle.PicklingError, TypeError))
    assert copy.copy(kernel) is kernel and copy.deepcopy({"k": kernel})["k"] is kernel  # nothing of it can change
    assert pickle.loads(pickle.dumps(fill)) is fill


# --- very many -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpret", [False, True])
def test_three_hundred_functions_call_one_another(tmp_path, monkeypatch, interpret):
    lines = ["import tilewright", "import tilewright.language as tl"]
    for number in range(300):
        inner = f"call_{number - 1}(x)" if number else "x"
        lines += ["@tilewright.jit", f"def call_{number}(x):", f"    return {inner} + 1"]
    lines += ["@tilewright.jit", "def kernel(p, B: tl.constexpr):", "    i = tl.arange(0, B)"]
    lines += ["    tl.store(p + i, call_299(tl.load(p + i)))"]
    (tmp_path / f"chain_{interpret}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(f"chain_{interpret}")
    x = np.arange(8, dtype=np.float32)
    limit = sys.getrecursionlimit()
    tilewright.jit(module.kernel.fn, interpret=interpret)[(1,)](x, B=8)
    assert x.tolist() == [300.0 + i for i in range(8)] and sys.getrecursionlimit() == limit


@tilewright.jit
def unrolls(p, START: tl.constexpr, END: tl.constexpr, STEP: tl.constexpr):
    for i in tl.static_range(START, END, STEP):
        tl.store(p + i % 4, i)


@tilewright.jit
def lists(p, N: tl.constexpr):
    values = tuple(range(N))
    tl.store(p, len(values))


@pytest.mark.parametrize("bounds", [(0, 10**9, 1), (-(10**30), 10**30, 7), (10**9, 0, -1)])
def test_a_loop_of_a_thousand_million_is_not_unrolled(bounds):
    with pytest.raises(errors.CompilationError, match=r"(?s)in unrolls.*more than 100,000 values.*hint:.*tl.range"):
        unrolls[(1,)](np.zeros(4, np.int64), *bounds)
    with pytest.raises(errors.CompilationError, match="more than 100,000 values"):
        lists[(1,)](np.zeros(4, np.int64), bounds[1] + 10**9)


def test_long_ranges_of_few_values_are_unrolled():
    x = np.zeros(4, np.int64)
    unrolls[(1,)](x, 0, 10**9, 250_000_001)
    assert sorted(x.tolist()) == [0, 250_000_001, 500_000_002, 750_000_003]


# --- little memory ---------------------------------------------------------------------------------------------------

LITTLE = """
import resource, sys
import numpy as np
import tilewright
import tilewright.language as tl
from tilewright import errors

@tilewright.jit
def square(p, q, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    a = tl.load(p + at)
    tl.store(q + at, tl.dot(a, a))

x = np.ones((64, 64), np.float32)
if sys.argv[1] == "warm":
    square[(1,)](x, x.copy(), B=32)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
try:
    square[(1,)](x, x.copy(), B=64)
except errors.OutOfMemoryError as error:
    assert isinstance(error, MemoryError)
    print("refused")
else:
    print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")
@pytest.mark.parametrize(("state", "megabytes"), [("cold", 2), ("cold", 60), ("warm", 0)])
def test_a_limit_of_memory_is_an_error_of_its_class(tmp_path, state, megabytes):
    (tmp_path / "little.py").write_text(LITTLE)
    command = [sys.executable, str(tmp_path / "little.py"), state, str(megabytes << 20)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stdout + done.stderr


WITHIN_LLVM = """
import resource, sys
from tilewright import errors
from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.features import host
from tilewright.base.memory import memory_may_end

def text(count):
    steps = "".join(f"%x{i} = mul i32 %x{i - 1}, %x{i // 3}\\n" for i in range(1, 100))
    return "".join(f"define i32 @f{n}(i32 %x0) {{\\n{steps}ret i32 %x99\\n}}\\n" for n in range(count))

codegen.compile_object(text(1), host())
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]),) * 2)
try:
    with memory_may_end("compiling kernel `f`"):
        codegen.compile_object(text(int(sys.argv[2])), host(), optimize="none")
except errors.OutOfMemoryError as error:
    print("refused", "compiling kernel `f`" in str(error) and "LLVM" in str(error))
else:
    print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")
@pytest.mark.parametrize(
    ("megabytes", "functions", "told"),
    [(0, 1, "refused True\n"), (1, 50, "refused True\n"), (400, 1, "done\n")],
)
def test_memory_that_would_end_within_llvm_is_an_error_of_its_class(megabytes, functions, told):
    """LLVM ends the process where it gets no memory, so it is asked for before."""
    command = [sys.executable, "-c", WITHIN_LLVM, str(megabytes << 20), str(functions)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.stdout == told, done.stdout + done.stderr
