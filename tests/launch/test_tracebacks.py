"""What a program shows when a launch fails: one traceback, with frames of the program alone, and the message."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.meta.sources import ROOT
from tilewright import errors

PROGRAM = """
import sys
import numpy as np
import tilewright
import tilewright.language as tl

LIMIT: tl.constexpr = tl.constexpr(4)

@tilewright.jit
def widen(a):
    return a + tl.arange(0, 3)

@tilewright.jit
def wrong(p, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(p + i, widen(i), i < n)

@tilewright.jit
def right(p, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.device_assert(i < 4 * B, "too far")
    tl.store(p + i, LIMIT, i < n)

@tilewright.jit
def careless(p, B: tl.constexpr):
    tl.store(p + tl.program_id(0) * B + tl.arange(0, B), 1)

@tl.constexpr_function
def chosen(n):
    return {1: 2}[n]

@tilewright.jit
def asks(p, N: tl.constexpr):
    tl.store(p, chosen(N))

x = np.zeros(100, np.float32)
configs = [tilewright.Config({"B": size}) for size in (32, 64)]

def change():
    global LIMIT
    right[(1,)](x, 100, B=64)
    LIMIT = tl.constexpr(5)
    right[(1,)](x, 100, B=64)

def twice():
    right[(1,)](x, 100, B=64)
    right[(1,)](x, 100, B=64)
    right[("a",)](x, 100, B=64)

def hooked():
    def hook(*args, **kwargs):
        raise LookupError("mine")
    right.add_pre_run_hook(hook)
    right[(1,)](x, 100, B=64)

def asserted():
    for _ in range(2):
        right[(1,)](x, 100, B=64, debug=True)
    right[(9,)](x, 100, B=64, debug=True)

CASES = {
    "compile": lambda: wrong[(1,)](x, 100, B=64),
    "warmup": lambda: wrong.warmup(x, 100, B=64, grid=(1,)),
    "precompile": lambda: wrong.precompile({"p": "*fp32", "n": "i32", "B": 64}),
    "source": lambda: tilewright.compile(tilewright.compiler.ASTSource(wrong, {"p": "*fp32", "n": "i32"}, {"B": 64})),
    "argument": lambda: right[(1,)](x, object(), B=64),
    "missing": lambda: right[(1,)](x),
    "option": lambda: right[(1,)](x, 100, B=64, num_wraps=4),
    "grid": lambda: right[1.5](x, 100, B=64),
    "grid function": lambda: right[lambda meta: (meta["nothing"],)](x, 100, B=64),
    "known": twice,
    "tuned": lambda: tilewright.autotune(configs, key=["n"])(wrong)[(1,)](x, 100),
    "heuristics": lambda: tilewright.heuristics({"B": lambda args: 64})(wrong)[(1,)](x, 100),
    "globals": change,
    "hook": hooked,
    "assertion": asserted,
    "interpreted": lambda: tilewright.jit(wrong.fn, interpret=True)[(1,)](x, 100, B=64),
    "out of bounds": lambda: tilewright.jit(careless.fn, interpret=True)[(2,)](x, B=64),
    "constexpr function": lambda: asks[(1,)](x, N=3),
}
if __name__ == "__main__":
    CASES[sys.argv[1]]()
"""
ENDS = {
    "compile": "CompilationError: File", "warmup": "CompilationError: File", "precompile": "CompilationError: File",
    "source": "CompilationError: File", "argument": "ArgumentError: ", "missing": "ArgumentError: right: missing",
    "option": "UnknownOptionError: ", "grid": "GridError: ", "grid function": "UnknownOptionError: ",
    "known": "GridError: ", "tuned": "CompilationError: File", "heuristics": "CompilationError: File",
    "globals": "GlobalsChangedError: ", "hook": "LookupError: mine", "assertion": "DeviceAssertionError: ",
    "interpreted": "InterpreterError: File", "out of bounds": "InterpreterError: File",
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What a run of the program with a case as argument prints."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.py").write_text(PROGRAM)
    cache = {"TILEWRIGHT_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}

    def run(case: str, **settings: str) -> str:
        command = [sys.executable, str(folder / "program.py"), case]
        environment = {**os.environ, **cache, **settings}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        return done.stderr

    return run


@pytest.mark.parametrize("case", ENDS)
def test_a_failed_launch_shows_one_traceback_of_the_program(program, case):
    shown = program(case)
    assert shown.count("Traceback (most recent call last)") == 1 and "exception" not in shown, shown
    frames = [line for line in shown.splitlines() if line.startswith('  File "')]
    assert frames and all("program.py" in frame for frame in frames), shown
    assert any(ENDS[case] in line for line in shown.splitlines() if not line.startswith(" ")), shown


def test_frames_of_an_interpreted_kernel_stay(program):
    shown = program("interpreted")
    assert ", in wrong\n" in shown and ", in widen\n" in shown


def test_an_error_of_a_function_of_the_user_keeps_its_own_traceback(program):
    shown = program("constexpr function")
    assert "KeyError: 3" in shown and ", in chosen\n" in shown and "/tilewright/" not in shown


def test_a_knob_shows_everything(program):
    shown = program("compile", TILEWRIGHT_FULL_TRACEBACK="1")
    assert shown.count("Traceback (most recent call last)") == 2 and "/frontend/" in shown and "/launch/" in shown


_buggy = eval(compile('lambda *rest: {}["bug"]', "<tilewright test>", "eval"))


def test_a_bug_of_ours_keeps_its_frames(monkeypatch):
    monkeypatch.setattr("tilewright.launch.jit.compile_request", _buggy)
    with pytest.raises(KeyError) as caught:
        _kernel[(1,)](np.zeros(8, np.int64), B=16)
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 5


# --- in process: what a debugger, a test runner or a notebook asks of the error ---------------------------------


@tilewright.jit
def _kernel(p, B: tl.constexpr):
    tl.store(p + tl.arange(0, B), tl.arange(0, 4))


def failure(**options: Any) -> BaseException:
    """The error of a launch."""
    with pytest.raises(errors.TilewrightError) as caught:
        _kernel[(1,)](np.zeros(8, np.int32), B=8, **options)
    return caught.value


def test_the_cause_is_still_there():
    error = failure()
    assert isinstance(error, errors.CompilationError) and isinstance(error.__cause__, errors.ShapeError)
    assert error.__cause__.__traceback__ is None and error.__suppress_context__
    again = failure()
    assert isinstance(again.__cause__, errors.ShapeError)


def test_the_innermost_frame_is_that_of_the_launch():
    names = [frame.name for frame in traceback.extract_tb(failure().__traceback__)]
    assert names == ["failure"]
    text = "".join(traceback.format_exception(failure()))
    assert text.count("Traceback (most recent call last)") == 1 and "exception" not in text


def test_notes_and_causes_of_users_stay():
    def grid(meta):
        try:
            raise OSError("first")
        except OSError as error:
            found = RuntimeError("second")
            found.add_note("a note")
            raise found from error

    with pytest.raises(RuntimeError) as caught:
        _kernel[grid](np.zeros(8, np.int32), B=8)
    text = "".join(traceback.format_exception(caught.value))
    assert "OSError: first" in text and "a note" in text and "/tilewright/launch/" not in text


def test_a_cause_can_be_set_and_taken_away():
    error = errors.CompilationError("message")
    assert error.__cause__ is None
    error.__cause__ = ValueError("x")
    assert isinstance(error.__cause__, ValueError) and error.fold_cause() is None  # not quoted: it stays in the chain
    assert isinstance(BaseException.__dict__["__cause__"].__get__(error), ValueError)


TORCH = """
import traceback
import torch, tilewright, tilewright.torch, tilewright.language as tl
from tilewright import hl
@tilewright.jit
def wrong(p, B: tl.constexpr):
    tl.store(p + tl.arange(0, B), tl.arange(0, 4))
@hl.kernel(config=hl.Config(block_sizes=[16]))
def add(x, y):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + y[t, :]
    return out
calls = [lambda: wrong[(1,)](torch.zeros(8), B=8), lambda: add(torch.ones(8), torch.ones(8, 4)), lambda: add("a", 1),
         lambda: add(torch.ones(8))]
for call in calls:
    try:
        call()
    except Exception as error:
        names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        assert set(names) == {__file__}, names
        assert "".join(traceback.format_exception(error)).count("Traceback") == 1
    else:
        raise SystemExit("no error")
"""


def test_tensors_under_tracers_and_hl_have_the_same_door(tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "program.py"
    file.write_text(TORCH)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
