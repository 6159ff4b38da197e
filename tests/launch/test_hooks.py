"""Hooks and settings around launches: who is called when, and that they count from the next launch on."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, aligned
from tilewright.compile import build
from tilewright.compile.shared import Shared
from tilewright.frontend.content import GlobalsChangedError


def fill(out_ptr, value, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, value, mask=offsets < n)


@pytest.fixture
def runtime():
    runtime = tilewright.knobs.runtime
    yield runtime
    runtime.launch_enter_hook.calls.clear()
    runtime.launch_exit_hook.calls.clear()
    runtime.jit_cache_hook = runtime.jit_post_compile_hook = None


def test_a_compile_hook_can_keep_a_kernel_from_being_compiled(runtime):
    kernel, out = tilewright.jit(fill), np.zeros(4, np.int32)
    runtime.jit_cache_hook = lambda **facts: True
    assert kernel[(1,)](out, 7, 4, BLOCK=4) is None and kernel.warmup(out, 7, 4, BLOCK=4, grid=(1,)) is None
    runtime.launch_enter_hook.add(lambda facts: pytest.fail("nothing is launched"))
    assert kernel[(1,)](out, 7, 4, BLOCK=4) is None and not out.any()
    runtime.launch_enter_hook.calls.clear()
    runtime.jit_cache_hook = None
    assert kernel[(1,)](out, 7, 4, BLOCK=4).name == "fill" and out.all()


def test_compile_hooks_hear_of_a_warmup(runtime):
    kernel, seen = tilewright.jit(fill), []
    runtime.jit_cache_hook = lambda **facts: seen.append((facts["is_manual_warmup"], facts["compile"]["is_warmup"]))
    kernel.warmup(np.zeros(4, np.int32), 7, 4, BLOCK=4, grid=(1,))
    kernel[(1,)](np.zeros(4, np.int64), 7, 4, BLOCK=4)
    assert seen == [(True, True), (False, False)]


def test_a_kernel_survives_the_hook_after_it(runtime):
    kernel, out, compiled = tilewright.jit(fill), np.zeros(4, np.int32), []

    def angry(**facts):
        raise RuntimeError("angry")

    runtime.jit_post_compile_hook = angry
    with pytest.raises(RuntimeError, match="angry"):
        kernel[(1,)](out, 7, 4, BLOCK=4)
    runtime.jit_cache_hook = lambda **facts: compiled.append(facts)
    kernel[(1,)](out, 7, 4, BLOCK=4)
    assert out.all() and not compiled


def test_the_grid_of_a_watched_launch_is_called_once(runtime):
    kernel, calls = tilewright.jit(fill), []
    runtime.launch_enter_hook.add(lambda facts: None)

    def grid(meta):
        calls.append(meta["BLOCK"])
        return (1,)

    kernel[grid](np.zeros(4, np.int32), 7, 4, BLOCK=4)
    assert calls == [4]


def test_hooks_reach_proxies_that_are_kept(runtime):
    kernel, out, seen = tilewright.jit(fill), np.zeros(4, np.int32), []
    launch = kernel[(1,)]
    for _ in range(3):
        launch(out, 7, 4, BLOCK=4)
    warm = kernel[(1,)]  # made when the fast path is there
    warm(out, 7, 4, BLOCK=4)
    runtime.launch_enter_hook.add(lambda facts: seen.append("enter"))
    runtime.launch_exit_hook.add(lambda facts: seen.append("exit"))
    launch(out, 7, 4, BLOCK=4)
    warm(out, 7, 4, BLOCK=4)
    assert seen == ["enter", "exit"] * 2
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(len(args) + len(kwargs)))
    warm(out, 8, 4, BLOCK=4)
    assert seen[4:] == [4, "enter", "exit"] and (out == 8).all()


def test_hooks_before_runs_hear_of_warmups_and_of_interpreted_launches():
    seen, out = [], np.zeros(4, np.int32)
    for interpret in (False, True):
        kernel = tilewright.jit(interpret=interpret)(fill)
        kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(kwargs))
        kernel.warmup(out, 7, 4, BLOCK=4, grid=(1,))
        kernel[(1,)](out, 7, 4, BLOCK=4)
        assert (out == 7).all()
        out[:] = 0
    assert seen == [{"BLOCK": 4}] * 4


def test_knobs_that_are_defaults_count_at_the_next_launch():
    kernel, out = tilewright.jit(fill), np.zeros(4, np.int32)
    kept = kernel[(1,)]
    for _ in range(3):
        plain = kept(out, 7, 4, BLOCK=4)
    tilewright.knobs.runtime.debug = True
    try:
        assert kept(out, 7, 4, BLOCK=4).metadata.debug and not plain.metadata.debug
        tilewright.knobs.language.fp32_default = "ieee"
        assert kept(out, 7, 4, BLOCK=4).metadata.default_dot_input_precision == "ieee"
    finally:
        tilewright.knobs.runtime.debug, tilewright.knobs.language.fp32_default = False, None
    assert kept(out, 7, 4, BLOCK=4) is plain


SCALE = tl.constexpr(3)


@tilewright.jit
def scaled(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), SCALE)


@tilewright.jit
def three(x):
    return x * SCALE


@tilewright.jit
def applied(out_ptr, F: tl.constexpr):
    tl.store(out_ptr, F(1))


def test_code_is_never_filed_under_the_key_of_another_value(monkeypatch):
    global SCALE
    old, out = SCALE, np.zeros(4, np.int32)
    try:
        for kernel, arguments in ((scaled, {"BLOCK": 4}), (applied, {"F": three})):
            made = kernel.warmup(out, **arguments, grid=(1,))
            SCALE = tl.constexpr(5)
            kernel.clear()
            for ask in (lambda: kernel.warmup(out, **arguments, grid=(1,)), lambda: made.asm["ttir"]):
                with pytest.raises(GlobalsChangedError, match="SCALE"):
                    ask()
            SCALE = old
        real = build.run_stages

        def change_meanwhile(*args):
            global SCALE
            made = real(*args)
            SCALE = tl.constexpr(7)
            return made

        monkeypatch.setattr(build, "run_stages", change_meanwhile)
        with tilewright_recompiling(), pytest.raises(GlobalsChangedError, match="SCALE"):
            scaled.warmup(out, BLOCK=2, grid=(1,))
    finally:
        SCALE = old


class tilewright_recompiling:
    """Inside, the disk cache is not asked."""

    def __enter__(self):
        tilewright.knobs.cache.disabled = True

    def __exit__(self, *exception):
        tilewright.knobs.cache.disabled = False


def test_defaults_of_triton_may_be_written_out_and_repr_names_the_function():
    kernel = tilewright.jit(
        version=None, repr=lambda s: f"fill<{s.constants['BLOCK']}, {s.signature['out_ptr']}>", launch_metadata=None,
        do_not_specialize=None, do_not_specialize_on_alignment=None, debug=None, noinline=None,
    )(fill)  # fmt: skip
    out = np.zeros(4, np.int32)
    made = kernel[(1,)](out, 7, 4, BLOCK=4)
    assert made.name == made.metadata.name == "fill_4___i32_" and "@fill_4___i32_" in made.asm["ttir"] and out.all()


# --- threads ------------------------------------------------------------------------------------------


def test_threads_that_want_one_variant_share_one_compilation(runtime):
    kernel, compiled, gate = tilewright.jit(fill), [], threading.Barrier(16)
    runtime.jit_post_compile_hook = lambda **facts: compiled.append(facts["key"])
    made = []

    def launch():
        gate.wait()
        made.append(kernel[(1,)](np.zeros(4, np.int32), 7, 4, BLOCK=4))

    threads = [threading.Thread(target=launch) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1 and len(set(map(id, made))) == 1


def test_an_error_reaches_all_who_wait_and_is_forgotten():
    shared, waiting, errors = Shared[int](), threading.Event(), []

    def fail():
        waiting.wait(5)
        raise ValueError("no")

    def ask():
        try:
            shared.make("key", fail)
        except ValueError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    waiting.set()
    for thread in threads:
        thread.join()
    assert len(errors) == 4 and shared.make("key", lambda: 3) == 3
    assert shared.make("key", lambda: shared.make("key", lambda: 4) + 1) == 5  # asked again from within


# --- devices ------------------------------------------------------------------------------------------


def test_an_object_with_an_address_is_where_the_driver_says():
    memory = aligned(64)
    thing = SimpleNamespace(data_ptr=lambda: memory.ctypes.data, dtype=memory.dtype)
    with installed(FakeCuda(devices=2)) as fake:
        assert tilewright.jit(fill)[(1,)](thing, 7.0, 4, BLOCK=4).target.backend == "cuda"
        assert len(fake.launches) == 1
    assert tilewright.jit(fill)[(1,)](thing, 7.0, 4, BLOCK=4).target.backend == "cpu" and memory[3] == 7


def test_torch_imported_after_the_first_launch_gives_its_stream(monkeypatch):
    kernel = tilewright.jit(fill)
    monkeypatch.setitem(sys.modules, "torch", None)
    with installed(FakeCuda()) as fake:
        for stream in (0, 77):
            if stream:
                late = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: stream))
                monkeypatch.setitem(sys.modules, "torch", late)
            kernel[(1,)](CudaArray(aligned(64)), 7.0, 4, BLOCK=4)
        assert [told["stream"] for told in fake.launches] == [0, 77]
