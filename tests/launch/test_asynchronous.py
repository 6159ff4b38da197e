"""Compilations in an executor: launches wait for their own, errors are raised where they belong."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.launch import asynchronous_kernels as kernels
from tilewright import AsyncCompileMode, FutureKernel
from tilewright.base.errors import CompilationError, LaunchError


@pytest.fixture(autouse=True)
def _nothing_on_disk(tmp_path):
    before, tilewright.knobs.cache.dir = tilewright.knobs.cache.dir, tmp_path
    for kernel in (kernels.scale, kernels.wrong):
        kernel.clear()
    yield
    tilewright.knobs.cache.dir = before


@pytest.fixture
def compiled():
    """The names of kernels, once for each time that one was compiled in this process."""
    names: list[str] = []
    tilewright.knobs.runtime.jit_post_compile_hook = lambda **facts: names.append(facts["fn"].name)
    yield names
    tilewright.knobs.runtime.jit_post_compile_hook = None


class Never(Executor):
    """Takes everything and does nothing, like a cluster that is busy."""

    def submit(self, fn, /, *args, **kwargs):
        return Future()


class Manual(ThreadPoolExecutor):
    """A pool of threads that begins when it is told to."""

    def __init__(self):
        super().__init__(1)
        self.begin = threading.Event()
        super().submit(self.begin.wait)


def arguments(n=100):
    return np.arange(n, dtype=np.float32), np.zeros(n, np.float32), n


def test_warm_ups_return_at_once_and_launches_wait_for_their_own(compiled):
    x, out, n = arguments()
    with Manual() as pool, AsyncCompileMode(pool):
        first = kernels.scale.warmup(x, out, n, 2.0, BLOCK=128, grid=(1,))
        other = kernels.scale.warmup(x, out, n, 3.0, BLOCK=128, grid=(1,))
        assert isinstance(first, FutureKernel) and not compiled
        kernels.scale[(1,)](x, out, n, 2.0, BLOCK=128)  # nobody has begun: the launch does it, and only its own
        assert compiled == ["scale"] and (out == 2 * x).all()
        pool.begin.set()
    assert compiled == ["scale"] * 2
    assert other.name == "scale" and other.result() is other.result() is not first.result()
    other[(1,)](x, out, n, 3.0, 128)
    assert (out == 3 * x).all()


def test_one_variant_is_submitted_once(compiled):
    x, out, n = arguments()
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        futures = [kernels.scale.warmup(x, out, n, 2.0, BLOCK=64, grid=(1,)) for _ in range(5)]
    assert compiled == ["scale"] and len({id(future.result()) for future in futures}) == 1
    assert kernels.scale.warmup(x, out, n, 2.0, BLOCK=64, grid=(1,)) is futures[0].result()


def test_one_variant_is_sent_once():
    x, out, n = arguments()
    sent = []

    class Counting(Never):
        def submit(self, fn, /, *args, **kwargs):
            sent.append(args)
            future = Future()
            future.set_result(fn(*args, **kwargs))
            return future

    with AsyncCompileMode(Counting()):
        for _ in range(3):
            kernels.scale.warmup(x, out, n, 2.0, BLOCK=64, grid=(1,))
    assert len(sent) == 1
    kernels.scale.clear()
    with AsyncCompileMode(Counting()):
        kept = kernels.scale.warmup(x, out, n, 2.0, BLOCK=64, grid=(1,))
    assert len(sent) == 1 and kept.from_disk  # what the disk has is not sent
    assert kept.metadata.target == kept.target


@pytest.mark.parametrize("kernel, said", [(kernels.wrong, "too small"), (kernels.calls_wrong, "too small")])
def test_a_failed_compilation_raises_at_its_launch_and_leaves_nothing(kernel, said):
    x, out, n = arguments()
    with ThreadPoolExecutor(1) as pool:
        with AsyncCompileMode(pool, ignore_errors=True):
            future = kernel.warmup(x, out, n, BLOCK=64, grid=(1,))
            with pytest.raises(CompilationError, match=said):
                kernel[(1,)](x, out, n, BLOCK=64)
        with pytest.raises(CompilationError, match=said):
            future.result()
        with pytest.raises(CompilationError, match=said), AsyncCompileMode(pool):
            kernel.warmup(x, out, n, BLOCK=64, grid=(1,))
    with pytest.raises(CompilationError, match=said):
        kernel[(1,)](x, out, n, BLOCK=64)
    assert kernel.variants() == []


def test_the_mode_is_not_nested():
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        with pytest.raises(LaunchError, match="nested"), AsyncCompileMode(pool):
            pass
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pass


def test_processes_compile(compiled):
    x, out, n = arguments()
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        AsyncCompileMode(pool, ignore_errors=True),
    ):
        good = kernels.scale.warmup(x, out, n, 5.0, BLOCK=128, grid=(1,))
        bad = kernels.calls_wrong.warmup(x, out, n, BLOCK=64, grid=(1,))
        kernels.scale[(1,)](x, out, n, 5.0, BLOCK=128)
        with pytest.raises(CompilationError, match=r"calls_wrong[\s\S]*too small"):
            bad.result()
    assert (out == 5 * x).all() and compiled == ["scale"]
    assert "tt.func" in good.asm["ttir"]  # made here when it is asked for


def test_a_kernel_that_cannot_be_sent_is_compiled_here(compiled):
    @tilewright.jit
    def local(out_ptr, BLOCK: tl.constexpr):
        tl.store(out_ptr + tl.arange(0, BLOCK), 7.0)

    out = np.zeros(8, np.float32)
    with AsyncCompileMode(Never()):
        local.warmup(out, BLOCK=8, grid=(1,))
        local[(1,)](out, BLOCK=8)
    assert (out == 7).all() and compiled[0].endswith("local")


@pytest.mark.parametrize("mode", ["plain", "asynchronous"])
def test_threads_share_one_compilation(compiled, mode):
    x, out, n = arguments()
    failed: list[BaseException] = []
    barrier = threading.Barrier(16)

    def launch():
        mine = np.zeros_like(out)
        barrier.wait()
        try:
            kernels.scale[(1,)](x, mine, n, 11.0, BLOCK=128)
            assert (mine == 11 * x).all()
        except BaseException as error:
            failed.append(error)

    def launch_from_everywhere():
        threads = [threading.Thread(target=launch) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    if mode == "plain":
        launch_from_everywhere()
    else:
        with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
            kernels.scale.warmup(x, out, n, 11.0, BLOCK=128, grid=(1,))
            launch_from_everywhere()
    assert not failed and compiled == ["scale"]
