"""Threads that launch at once: what they compile and search is one thread's at a time, and results are right."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compile.sources import TextSource
from tilewright.launch import jit

THREADS = 8
ROUNDS = 20 if os.environ.get("TILEWRIGHT_STRESS") else 2


@pytest.fixture(autouse=True)
def threads_take_turns_often(tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], None]) -> None:
    """Call `work(number)` in every thread; the first error that one of them has is raised."""
    start, errors = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def new_kernel():
    @tilewright.jit
    def add(x_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask) + STEP, mask)

    return add


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("same", [True, False])
def test_first_launches(round: int, same: bool) -> None:
    """Of one kernel, or each of another; then again with what they left on disk."""
    for _ in ("cold", "warm"):
        kernels = [new_kernel() for _ in range(1 if same else THREADS)]

        def work(number: int, kernels=kernels) -> None:
            x = np.full(1000, number, np.float32)
            for at in range(len(kernels)):
                for step in (1, 2):
                    kernels[(number + at) % len(kernels)][(8,)](x, 1000, step, BLOCK=128)
            assert (x == number + 3 * len(kernels)).all()

        at_once(work)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_one_text(round: int) -> None:
    """A module that one thread is still executing has no kernel yet."""
    text = f"""
import tilewright
import tilewright.language as tl
SEED = sum(range(100_000)) + {time.time_ns()}

@tilewright.jit
def fill(x_ptr):
    tl.store(x_ptr, 1.0)
"""
    sources = []
    at_once(lambda number: sources.append(TextSource(text, "fill")))
    assert len({id(source.fn) for source in sources}) == 1 and len(sources) == THREADS


@pytest.mark.parametrize("round", range(ROUNDS))
def test_searches(round: int) -> None:
    """Each choice is sought once, with the arguments of the call that asks for it, which keep what they hold."""
    seen: list[int] = []

    def prune(configs, named, **_):
        seen.append(named["n"])
        assert len(named["x_ptr"]) == named["n"]
        return configs

    configs = [tilewright.Config({"BLOCK": block}) for block in (64, 128, 256)]
    options = {"restore_value": ["x_ptr"], "prune_configs_by": {"early_config_prune": prune}, "warmup": 0.1, "rep": 0.1}
    tuned = tilewright.autotune(configs, key=["n"], **options)(new_kernel())

    def work(number: int) -> None:
        n = 100 * (number // 2 + 1)
        x = np.full(n, number * 1000, np.float32)
        for launches in range(1, 6):
            tuned[lambda meta: (tilewright.cdiv(n, meta["BLOCK"]),)](x, n, 1)
            assert (x == number * 1000 + launches).all()

    at_once(work)
    assert Counter(seen) == {100 * half: 1 for half in range(1, THREADS // 2 + 1)}
    assert len(tuned.cache) == THREADS // 2


def test_an_interrupt_is_for_the_thread_that_gets_it(monkeypatch) -> None:
    """Those that wait for what it was compiling compile it themselves."""
    compiling, waiting = threading.Event(), threading.Event()
    compile_one, interrupted = jit.compile_request, []

    def interrupt_first(*args, **kwargs):
        if not interrupted:
            interrupted.append(True)
            compiling.set()
            waiting.wait()
            time.sleep(0.1)  # the others wait for what this one compiles
            raise KeyboardInterrupt
        return compile_one(*args, **kwargs)

    monkeypatch.setattr(jit, "compile_request", interrupt_first)
    kernel, outcomes = new_kernel(), []

    def work(number: int) -> None:
        x = np.zeros(100, np.float32)
        if number:
            compiling.wait()
            waiting.set()
        try:
            kernel[(1,)](x, 100, 1, BLOCK=128)
            outcomes.append(bool((x == 1).all()))
        except KeyboardInterrupt:
            outcomes.append(number)

    at_once(work)
    assert Counter(outcomes) == {True: THREADS - 1, 0: 1}
