"""Interpreters without a global lock: nothing of a launch relies on one.

There machine code makes no launches (it reads objects where another thread may change them), so they go through Python.
Here the interpreter is told to have no lock, and its threads change over after a microsecond: the nearest to it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.launch.native import machine

_THREADS = 8


@pytest.fixture
def without_a_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    monkeypatch.setattr(machine, "_machines", [])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def _at_once(work: Any) -> list[Any]:
    """What threads that begin together give, or the errors that they end with."""
    found: list[Any] = [None] * _THREADS
    gate = threading.Barrier(_THREADS)

    def run(number: int) -> None:
        gate.wait()
        try:
            found[number] = work(number)
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def scaled(x, out, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) * factor)


def _launch(kernel: Any, number: int, turn: int) -> bool:
    """A launch with numbers of its own; whether it was right."""
    x = np.arange(64, dtype=(np.float32, np.int32, np.float64, np.int64)[(number + turn) % 4])
    out = np.zeros_like(x)
    kernel[(4,)](x, out, number + 2, B=16)
    return bool((out == x * (number + 2)).all())


def test_no_machine_code_launches(without_a_lock: None) -> None:
    assert machine.machine() is None


@pytest.mark.parametrize("cold", [True, False])
def test_threads_that_launch_one_kernel(without_a_lock: None, cold: bool) -> None:
    kernel = tilewright.jit(scaled)
    if not cold:
        _launch(kernel, 0, 0)
    assert _at_once(lambda number: [_launch(kernel, number, turn) for turn in range(40)]) == [[True] * 40] * _THREADS
    assert len(kernel.variants()) == 4  # of one another's none was compiled a second time


def test_threads_that_make_kernels_and_forget_them(without_a_lock: None) -> None:
    shared = tilewright.jit(scaled)

    def work(number: int) -> list[bool]:
        right = []
        for turn in range(6):
            right.append(_launch(tilewright.jit(scaled), number, turn))
            right.append(_launch(shared, number, turn))
            if number == 0:
                shared.clear()
        return right

    assert _at_once(work) == [[True] * 12] * _THREADS


def test_threads_import_what_loads_at_its_first_use() -> None:
    program = """
import sys, threading
sys.setswitchinterval(1e-6)
import tilewright.language as tl
found, gate = [], threading.Barrier(8)
def run():
    gate.wait()
    found.append([getattr(tl, name) is not None for name in ("load", "dot", "softmax", "sort", "exp")])
threads = [threading.Thread(target=run) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert found == [[True] * 5] * 8
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
