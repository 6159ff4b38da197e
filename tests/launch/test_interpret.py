"""Interpreter mode: the same results as compiled kernels, Python at work inside them, and errors that point to them."""

from __future__ import annotations

import inspect
import random
import re
import runpy
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.frontend.test_random_programs import Writer
from tests.language.kernel_runner import run
from tests.launch.interpreted_kernels import CASES
from tilewright.base.errors import (
    ArgumentError,
    CompileTimeAssertionFailure,
    DTypeError,
    InterpreterError,
    LanguageTypeError,
    LanguageValueError,
    ReadOnlyError,
    ShapeError,
)
from tilewright.base.knobs import knobs
from tilewright.tools import examples

Array = np.ndarray[Any, Any]
THIS = Path(__file__)


def interpreted(fn: Any, **options: Any) -> Any:
    return tilewright.jit(fn, interpret=True, **options)


def both_ways(kernel: Any, x: Array, target: Any, n: int, **constants: Any) -> list[Array]:
    """What `kernel` leaves in `out`: as IR run by the evaluator, and interpreted; no pass has contracted that IR."""
    results = []
    for launch in (run, lambda fn, *args, grid, **kw: interpreted(fn)[grid](*args, enable_fp_fusion=False, **kw)):
        out = np.full(64, 3, target)
        launch(kernel, x.copy(), out, n, grid=(2, 3, 2), **constants)
        results.append(out)
    return results


# --- the same results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "source", "target"), CASES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("n", [3, 7])
def test_same_result_as_the_evaluated_ir(kernel: Any, source: Any, target: Any, n: int) -> None:
    x = np.random.default_rng(n).integers(-100, 100, 64).astype(source)
    defaults = {p.name: p.default for p in inspect.signature(kernel).parameters.values() if p.default is not p.empty}
    evaluated, found = both_ways(kernel, x, target, n, **defaults)
    np.testing.assert_array_equal(evaluated, found)
    assert not (found == 3).all()


TYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64")


def random_kernel(seed: int) -> str:
    """Arithmetic on tiles, scalars and numbers of many types."""
    pick = random.Random(seed)
    lines = ["i = tl.arange(0, 64)", "v = tl.load(x + i)", "s = n + 0"]
    names = ["v", "s", "i", "n"]
    for k in range(14):
        a, b = pick.choice(names), pick.choice([*names, str(pick.randint(0, 9)), f"{pick.randint(1, 9)} / 4"])
        form = pick.choice(
            ["{a} + {b}", "{b} - {a}", "{a} * {b}", "{a} * {a}", "tl.where({a} > {b}, {a}, {b})", "min({a}, {b})",
             "({a} == {b}).to(tl.{t}) + {a}", "{a}.to(tl.{t})", "-{a}", "{a} if n > 4 else {a} + {a}"]
        )  # fmt: skip
        lines += [f"r{k} = {form.format(a=a, b=b, t=pick.choice(TYPES))}"]
        names.append(f"r{k}")
    lines += [f"tl.store(out + i, {' + '.join(f'{name}.to(tl.float64)' for name in names[4:])})"]
    return "def kernel(x, out, n):\n" + "".join(f"    {line}\n" for line in lines)


def load(path: Path, text: str, name: str) -> Any:
    path.write_text(text)
    namespace: dict[str, Any] = {"__name__": name, "tl": tl, "static_range": tl.static_range}
    exec(compile(text, str(path), "exec"), namespace)
    return namespace[name]


@pytest.mark.parametrize("seed", range(30))
def test_random_arithmetic(tmp_path: Path, seed: int) -> None:
    kernel = load(tmp_path / "kernel.py", random_kernel(seed), "kernel")
    x = np.random.default_rng(seed).integers(-9, 9, 64).astype(np.int32)
    evaluated, found = both_ways(kernel, x, np.float64, 5)
    np.testing.assert_array_equal(evaluated, found)


@tilewright.jit(interpret=True)
def call_kernel(p, a, b, function: tl.constexpr):
    tl.store(p, function(a, b))


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_random_control_flow(tmp_path: Path, seed: int) -> None:
    text = f"def function(a, b):\n{Writer(seed).write()}\n"
    plain, ours = (load(tmp_path / f"{name}.py", text, "function") for name in ("python", "kernel"))
    plain.__globals__["static_range"] = range
    made = tilewright.jit(ours)
    out = np.zeros(1, np.int32)
    for a, b in [(-2, 3), (0, 0), (4, -1)]:
        call_kernel[(1,)](out, a, b, made)
        assert out[0] == np.array(plain(a, b), np.int64).astype(np.int32), (a, b, text)


def test_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    load = examples.load
    torch.manual_seed(0)
    x, y, w = torch.randn(37, 100), torch.randn(37, 100), torch.rand(100)
    assert torch.equal(load("vector_add").add(x, y), x + y)
    torch.testing.assert_close(load("softmax").softmax(x), torch.softmax(x, 1))
    torch.testing.assert_close(load("softmax").softmax_rows(x), torch.softmax(x, 1))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 6e-2)):
        typed = [t.to(dtype) for t in (x, w, w)]
        wanted = torch.nn.functional.layer_norm(typed[0].double(), (100,), typed[1].double(), typed[2].double())
        assert (load("layer_norm").layer_norm(*typed).double() - wanted).abs().max() < tolerance
        a, b = x.to(dtype), y.to(dtype).T
        wanted = a.double() @ b.double()
        for precision in ("ieee", "tf32"):
            error = load("matmul").matmul(a, b, tile=(32, 32, 32), precision=precision).double() - wanted
            assert error.abs().max() < tolerance * wanted.abs().max()
    q, k, v = (torch.randn(1, 2, 80, 16) for _ in range(3))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(load("attention").attention(q, k, v, causal=True, tile=(32, 32)), wanted)
    dropped = load("dropout").dropout(x, 0.4, seed=7)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], x[kept] / 0.6)
    assert 0.5 < kept.float().mean() < 0.7


def test_dropout_interpreted_and_compiled_draw_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(3000)
    compiled = examples.load("dropout").dropout(x, 0.4, seed=7)
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    torch.testing.assert_close(examples.load("dropout").dropout(x, 0.4, seed=7), compiled, rtol=1e-6, atol=0)


# --- how it is switched on --------------------------------------------------------------------------------------


@tilewright.jit
def add_one(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def test_the_knob_decides_at_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros(100, np.float32)
    assert add_one[(2,)](x, 100, B=64) is not None
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    assert add_one[(2,)](x, 100, B=64) is None
    assert add_one[lambda meta: (tilewright.cdiv(meta["n"], meta["B"]),)](x, 100, B=64, num_warps=8) is None
    assert add_one.run(x, 100, B=64, grid=(2,)) is None
    assert add_one.warmup(x, 100, B=64, grid=(2,)) is None
    assert (x == 4).all()
    add_one[(0,)](x, 100, B=64)
    assert (x == 4).all()


def test_the_environment_variable() -> None:
    code = "from tilewright.base.knobs import knobs; print(knobs.runtime.interpret)"
    for value, wanted in (("1", "True"), ("0", "False")):
        environment = {"TILEWRIGHT_INTERPRET": value, "PYTHONPATH": str(THIS.parents[2])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == wanted


def test_launch_errors_are_those_of_a_compiled_launch() -> None:
    kernel = interpreted(add_one.fn)
    with pytest.raises(ArgumentError, match="missing argument `n`"):
        kernel[(1,)](np.zeros(4), B=4)
    with pytest.raises(tilewright.errors.GridError):
        kernel[(1, 1, 1, 1)](np.zeros(4), 4, B=4)


def test_a_block_function_cannot_be_called_outside_of_a_kernel() -> None:
    interpreted(add_one.fn)[(1,)](np.zeros(4), 4, B=4)
    for call in (lambda: add_one(1, 2, 3), lambda: tl.sum(1), lambda: tl.arange(0, 4)):
        with pytest.raises(RuntimeError, match="outside of the scope of a kernel|only inside"):
            call()


# --- Python inside a kernel ---------------------------------------------------------------------------------------

seen: list[Any] = []


def helper(value: Any) -> None:
    """A plain Python function, which compiled kernels cannot call."""
    seen.append(value)


@tilewright.jit(interpret=True)
def inspecting_kernel(x, out, flag, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    u = v.to(tl.int32).to(tl.uint8)
    print("v =", v, "B =", B, f"{B} {i.shape[0]} {tl.max(v, 0):.2f}")
    helper(v.numpy())
    helper(u.numpy())
    helper([int(tl.max(u, 0)), float(tl.min(v, 0)), bool(flag), np.asarray(v).sum(), x.numpy().dtype, v.data[1]])
    found = {name: len(name) for name in ("a", "bc")}
    try:
        tl.store(out, found["bc"])
    finally:
        helper("done")


def test_print_numpy_and_python_functions_work(capsys: Any) -> None:
    seen.clear()
    x, out = np.array([1.5, -2, 3, 4], np.float32), np.zeros(1, np.float32)
    inspecting_kernel[(1,)](x, out, True, B=4)
    assert capsys.readouterr().out == "v = fp32[4] [ 1.5 -2.   3.   4. ] B = 4 4 4 4.00\n"
    assert seen[0].tolist() == x.tolist() and not seen[0].flags.writeable
    assert seen[1].tolist() == [1, 254, 3, 4]
    assert seen[2] == [254, -2.0, True, 6.5, np.dtype("uint64"), -2.0]
    assert out[0] == 2 and seen[3] == "done"


@tilewright.jit(interpret=True)
def stopping_kernel(x, n):
    total = tl.load(x) + n
    breakpoint()
    tl.store(x, total)


def test_breakpoint_stops_in_the_users_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    stops = []

    def hook() -> None:
        frame = sys._getframe(1)
        code = frame.f_code
        values = {name: int(v) for name, v in frame.f_locals.items() if name in ("total", "n")}
        stops.append((code.co_filename, code.co_qualname, frame.f_lineno, values))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    stopping_kernel[(2,)](np.array([5], np.int32), 2)
    line = inspect.getsourcelines(stopping_kernel.fn)[1] + 3
    assert stops == [(__file__, "stopping_kernel", line, {"total": t, "n": 2}) for t in (7, 9)]


@tilewright.jit(interpret=True)
def free_python(x, n):
    total = 0
    for k in range(10):
        if k == n:
            continue
        if k > 6:
            break
        for item in [1, 2]:
            total += k * item

    def inner(value):
        return value + total

    while True:
        total = inner(1)
        if total > 60:
            tl.store(x, total)
            return


def test_loops_may_break_continue_and_return() -> None:
    out = np.zeros(1, np.int32)
    free_python[(1,)](out, 4)
    assert 3 * (0 + 1 + 2 + 3 + 5 + 6) < 60 and out[0] == 61


def test_closures_and_globals_are_read_at_each_launch() -> None:
    scale = tl.constexpr(3)

    @tilewright.jit(interpret=True)
    def kernel(x):
        tl.store(x, tl.load(x) * scale)

    x = np.ones(1, np.int32)
    kernel[(1,)](x)
    scale = tl.constexpr(5)
    kernel[(1,)](x)
    assert x[0] == 15


@tilewright.jit(interpret=True)
def larger(a, b):
    if a > b:
        return a
    return b


@tilewright.jit(interpret=True)
def deciding_kernel(x, out):
    tile = tl.load(x + tl.arange(0, 32)).reshape(4, 8)
    tl.store(out + tl.arange(0, 4), tl.reduce(tile, 1, larger))
    tl.store(out + 4 + tl.arange(0, 8), tl.associative_scan(tl.load(x + tl.arange(0, 8)), 0, larger))


def test_a_combine_function_may_decide_by_its_data() -> None:
    x = np.random.default_rng(0).integers(-99, 99, 32).astype(np.int32)
    out = np.zeros(12, np.int32)
    deciding_kernel[(1,)](x, out)
    assert out.tolist() == [*x.reshape(4, 8).max(1).tolist(), *np.maximum.accumulate(x[:8]).tolist()]


class Window(NamedTuple):
    data: Any
    size: Any
    scale: Any = 1


@tilewright.jit(interpret=True)
def many_parameters(out, *windows, first: tl.constexpr, scale=2.0, half: tl.float16 = 0.1, mode: tl.constexpr = None):
    i = tl.arange(0, 4)
    total = tl.zeros((4,), tl.float32)
    for window in windows:
        tl.static_assert(isinstance(window, Window))
        total += tl.load(window.data + i, mask=i < window.size, other=first) * window.scale
    tl.static_assert(mode is None and scale.dtype == tl.float32 and half.dtype == tl.float16)
    tl.store(out + i, total * scale + half)


def test_every_kind_of_parameter() -> None:
    x, y, out = np.arange(4, dtype=np.float32), np.arange(8, dtype=np.int64)[::2], np.zeros(4, np.float32)
    many_parameters[(1,)](out, Window(x, 3), Window(y, 1, 10.0), first=7)
    wanted = (np.array([0, 1, 2, 7]) + np.array([0, 70, 70, 70])) * 2 + np.float32(np.float16(0.1))
    np.testing.assert_array_equal(out, wanted.astype(np.float32))


def test_launches_from_several_threads_do_not_mix() -> None:
    arrays = [np.zeros(256, np.int32) for _ in range(4)]

    def work(array: Array) -> None:
        for _ in range(5):
            interpreted(add_one.fn)[(4,)](array, 256, B=64)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((array == 5).all() for array in arrays)


# --- memory -------------------------------------------------------------------------------------------------------


@tilewright.jit(interpret=True)
def copy_kernel(x, out, n, stride, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n), mask=i < n)


class Exported:
    """An array that is known by DLPack only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_views_and_foreign_arrays_are_their_own_memory() -> None:
    base = np.arange(20, dtype=np.int16)
    out = np.zeros(8, np.int16)
    copy_kernel[(1,)](base[3::2], out, 8, 2, B=8)
    assert out.tolist() == base[3:19:2].tolist()
    copy_kernel[(1,)](base[::-1], out, 8, -1, B=8)
    assert out.tolist() == base[::-1][:8].tolist()
    target = np.zeros(12, np.int16)
    copy_kernel[(1,)](Exported(base), Exported(target), 8, 1, B=8)
    assert target.tolist() == [*range(8), 0, 0, 0, 0]


def test_bfloat16_tensors_round_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(64).to(torch.bfloat16)
    out = torch.zeros(64, dtype=torch.bfloat16)

    @tilewright.jit(interpret=True)
    def kernel(x, out):
        i = tl.arange(0, 64)
        v = tl.load(x + i)
        tl.store(out + i, v * 1.1 + v)

    kernel[(1,)](x, out, enable_fp_fusion=False)
    assert torch.equal(out, x * torch.tensor(1.1, dtype=torch.bfloat16) + x)


def test_pointers_kept_in_memory_can_be_followed() -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    table = np.array([x.ctypes.data, out.ctypes.data], np.int64)

    @tilewright.jit(interpret=True)
    def kernel(table):
        i = tl.arange(0, 8)
        source = tl.load(table).to(tl.pointer_type(tl.float32))
        target = tl.load(table + 1).to(tl.pointer_type(tl.float32))
        tl.store(target + i, tl.load(source + i) * 2)

    kernel[(1,)](table)
    assert out.tolist() == (x * 2).tolist()


@pytest.mark.parametrize(
    ("n", "stride", "message"),
    [
        (9, 1, r"program \(0, 0, 0\): x\[8\] is past its 8 elements"),
        (12, 1, r"program \(0, 0, 0\): x\[8\.\.11\] is past its 8 elements"),
        (8, -1, r"program \(0, 0, 0\): x\[-7\.\.-1\] is before its first element"),
        (8, 1 << 40, r"program \(0, 0, 0\): .* is outside every argument \((x|out): \[0x"),
    ],
)
def test_an_access_outside_of_every_argument_is_an_error(n: int, stride: int, message: str) -> None:
    x, out = np.zeros(8, np.float32), np.zeros(16, np.float32)
    with pytest.raises(InterpreterError, match=message) as caught:
        copy_kernel[(1,)](x, out, n, stride, B=16)
    assert "tl.load" in str(caught.value) and "in copy_kernel:" in str(caught.value)


def test_an_access_out_of_bounds_counts_from_the_pointer_that_was_passed() -> None:
    @tilewright.jit(interpret=True)
    def kernel(a_ptr, b_ptr, n, B: tl.constexpr):
        i = tl.program_id(1) * B + tl.arange(0, B)
        tl.store(b_ptr + i, tl.load(a_ptr + i, mask=i < n, other=0))

    a, b = np.zeros(1000, np.int16), np.zeros(40, np.float64)
    with pytest.raises(InterpreterError, match=r"program \(0, 1, 0\): b_ptr\[30\.\.31\] is past its 30 elements"):
        kernel[(1, 3)](a[100:], b[10:], 20, B=16)
    with pytest.raises(InterpreterError, match=r"program \(0, 1, 0\): a_ptr\[20\.\.21\] is past its 20 elements"):
        kernel[(1, 2)](a[980:], b[8:], 22, B=16)


def test_a_read_only_argument_is_not_written() -> None:
    x, out = np.zeros(8, np.float32), np.zeros(8, np.float32)
    out.flags.writeable = False
    with pytest.raises(ReadOnlyError, match=r"(?s)column 5.*stores to argument `out`, which is read-only"):
        copy_kernel[(1,)](x, out, 8, 1, B=8)
    copy_kernel[(1,)](out, x, 8, 1, B=8)


# --- errors ---------------------------------------------------------------------------------------------------


@tilewright.jit(interpret=True)
def scaled(v, factor):
    return v * factor + tl.arange(0, 16)


@tilewright.jit(interpret=True)
def failing_kernel(x, n, MODE: tl.constexpr):
    i = tl.arange(0, 8)
    v = tl.load(x + i)
    if MODE == "shape":
        scaled(v, n)
    elif MODE == "dtype":
        tl.store(x + i, v // 2.0)
    elif MODE == "condition":
        if v > 0:
            tl.store(x, 1)
    elif MODE == "range":
        for _ in range(n / 2):
            pass
    elif MODE == "python":
        v.nonsense()
    elif MODE == "assert":
        assert n > 100, "n is small"
    elif MODE == "device":
        tl.device_assert(v > 100, "v is small")
    elif MODE == "static":
        tl.static_assert(i.shape[0] == 4, f"wanted 4, found {i.shape[0]}")
    elif MODE == "library":
        tl.sort(v.reshape(2, 4), 0)
    elif MODE == "index":
        v[20]
    if MODE == "none":
        return v


def failure(mode: str, cls: type[Exception]) -> Exception:
    with pytest.raises(cls) as caught:
        failing_kernel[(1,)](np.zeros(8, np.float32), 3, MODE=mode)
    return caught.value


@pytest.mark.parametrize(
    ("mode", "cause", "marked", "message"),
    [
        ("shape", ShapeError, "v * factor + tl.arange(0, 16)", "incompatible dimensions at index 0: 8 and 16"),
        ("dtype", DTypeError, "v // 2.0", "unexpected type fp32"),
        ("condition", LanguageTypeError, "if v > 0:", "more than one value is ambiguous"),
        ("range", LanguageTypeError, "range(n / 2)", "bounds and step must all be ints"),
        ("index", LanguageValueError, "v[20]", "index 20 is out of bounds"),
    ],
)
def test_a_refused_operation_names_its_place(mode: str, cause: type, marked: str, message: str) -> None:
    error = failure(mode, InterpreterError)
    assert isinstance(error.__cause__, cause)
    text = str(error)
    assert message in text and str(THIS) in text
    assert "hint: " in text or error.__cause__.hint is None
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if "^" in line)
    caret = lines[at]
    assert marked.startswith(lines[at - 1][caret.index("^") : caret.rindex("^") + 1]) or marked in lines[at - 1]


def test_an_error_in_a_called_function_shows_the_call() -> None:
    text = str(failure("shape", InterpreterError))
    assert text.index("in scaled:") < text.index("called from:") < text.index("in failing_kernel:")
    text = str(failure("library", CompileTimeAssertionFailure))
    assert "only minor dimension" in text and "tl.sort(v.reshape(2, 4), 0)" in text


def test_exceptions_of_python_pass_with_a_note() -> None:
    error = failure("python", AttributeError)
    assert "nonsense" in str(error) and "in failing_kernel:" in error.__notes__[0]
    assert str(failure("assert", RuntimeError)).endswith("n is small")
    assert str(failure("device", RuntimeError)).endswith("v is small")


def test_a_static_assertion_keeps_its_class_and_message() -> None:
    error = failure("static", CompileTimeAssertionFailure)
    assert isinstance(error, CompileTimeAssertionFailure) and "wanted 4, found 8" in str(error)
    assert error.location is not None and "tl.static_assert(" in error.location.source_line()


def test_a_kernel_returns_nothing() -> None:
    assert "a kernel returns nothing, but failing_kernel returns fp32[8]" in str(failure("none", InterpreterError))


def test_tracebacks_show_no_frame_of_the_interpreter() -> None:
    error = failure("shape", InterpreterError)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-2:] == ["failing_kernel", "scaled"]


def test_the_interpreter_is_ready_again_after_an_error() -> None:
    failure("shape", InterpreterError)
    x = np.zeros(64, np.float32)
    interpreted(add_one.fn)[(1,)](x, 64, B=64)
    assert (x == 1).all()
    with pytest.raises(RuntimeError, match="only inside"):
        tl.arange(0, 4)


@tilewright.jit(interpret=True)
def overflowing_kernel(x, n):
    tl.store(x, n * 1000000)


def test_overflow_is_checked_with_debug_only() -> None:
    x = np.zeros(1, np.int32)
    overflowing_kernel[(1,)](x, 100000)
    assert x[0] == np.array(10**11).astype(np.int32)
    with pytest.raises(RuntimeError, match="int32 overflow detected for operation mul"):
        overflowing_kernel[(1,)](x, 100000, debug=True)


def test_warnings_point_to_the_kernel() -> None:
    @tilewright.jit(interpret=True)
    def kernel(x):
        tl.store(x, tl.where(tl.load(x), 1, 2))

    with pytest.warns(UserWarning, match="deprecated") as caught:
        kernel[(3,)](np.zeros(1, np.int32))
    assert len(caught) == 1 and caught[0].filename == __file__
    assert caught[0].lineno == inspect.getsourcelines(kernel.fn)[1] + 2


def test_the_documentation_is_true(tmp_path: Path, capsys: Any) -> None:
    text = (THIS.parents[2] / "docs" / "interpreter.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    for number, block in enumerate(blocks):
        path = tmp_path / f"block{number}.py"
        path.write_text(block)
        runpy.run_path(str(path))
        promised = [line[2:] for line in block.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines() == promised
