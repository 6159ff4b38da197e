"""Launches in machine code: they are taken, they do what the launches in Python do, and they leave nothing behind."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

import tilewright
import tilewright.language as tl
from tests.launch.warming import warm
from tilewright.base.errors import ArgumentError, GridError
from tilewright.frontend.content import GlobalsChangedError

torch = pytest.importorskip("torch")


def write(out_ptr, n, scale, extra, BLOCK: tl.constexpr, NAME: tl.constexpr = "a"):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + where, n * scale + tl.program_id(1) + 100 * tl.program_id(2) + (NAME == "b"))


@pytest.fixture
def out():
    return torch.zeros(64)


def test_a_known_call_is_launched_without_python(out):
    kernel = warm(tilewright.jit(write), out, 7, 0.5, None, BLOCK=4)
    made = kernel[(2,)](out, 9, 2.0, None, BLOCK=4)
    assert isinstance(made, tilewright.CompiledKernel)
    assert out[:8].tolist() == [18.0] * 8 and not out[8:].any()
    kernel[(1, 2, 3)](out, -7, 1e300, None, BLOCK=4)  # as a cast in C would
    assert out[0] == float("-inf")


@pytest.mark.parametrize("change", ["value 1", "divisible", "wide", "offset", "dtype", "name", "position", "option"])
def test_what_is_another_call_goes_through_python(out, change):
    kernel = warm(tilewright.jit(write), out, 7, 0.5, None, BLOCK=4)
    calls = {
        "value 1": lambda: kernel[(1,)](out, 1, 0.5, None, BLOCK=4),
        "divisible": lambda: kernel[(1,)](out, 32, 0.5, None, BLOCK=4),
        "wide": lambda: kernel[(1,)](out, 1 << 40, 0.5, None, BLOCK=4),
        "offset": lambda: kernel[(1,)](out[1:], 7, 0.5, None, BLOCK=4),
        "dtype": lambda: kernel[(1,)](out.double(), 7, 0.5, None, BLOCK=4),
        "name": lambda: kernel[(1,)](out, 7, 0.5, extra=None, BLOCK=4),
        "position": lambda: kernel[(1,)](out, 7, 0.5, None, 4),
        "option": lambda: kernel[(1,)](out, 7, 0.5, None, BLOCK=4, num_warps=2),
    }
    with pytest.raises(AssertionError, match="went through Python"):
        calls[change]()


def test_tensors_without_plain_memory_are_refused_as_before(out, untraced):
    kernel = tilewright.jit(write)
    for _ in range(3):
        kernel[(1,)](out, 7, 0.5, None, BLOCK=4)
    refused = [torch.zeros(64, device="meta"), torch.zeros(64).to_sparse(), None]
    for tensor in refused[:2]:
        with pytest.raises(tilewright.errors.LaunchError, match="out_ptr"):
            kernel[(1,)](tensor, 7, 0.5, None, BLOCK=4)
    with pytest.raises(tilewright.errors.LaunchError, match="out_ptr"):
        torch.vmap(lambda row: kernel[(1,)](row, 7, 0.5, None, BLOCK=4))(torch.zeros(2, 64))
    kernel[(1,)](out, 3, 1.0, None, BLOCK=4)
    assert out[0] == 3


def test_a_lazy_copy_is_made_before_it_is_written(out):
    kernel = warm(tilewright.jit(write), out, 7, 0.5, None, BLOCK=4)
    before = torch.full((64,), 5.0)
    copy = torch._lazy_clone(before)
    kernel[(1,)](copy, 3, 1.0, None, BLOCK=4)
    assert copy[0] == 3 and before[0] == 5


def test_errors_are_those_of_python(out):
    kernel = tilewright.jit(write)
    for _ in range(3):
        kernel[(1,)](out, 7, 0.5, None, BLOCK=4)
    with pytest.raises(ArgumentError, match="missing argument"):
        kernel[(1,)](out, 7, BLOCK=4)
    with pytest.raises(ArgumentError, match="multiple values"):
        kernel[(1,)](out, 7, 0.5, None, 4, out_ptr=out, BLOCK=4)
    for grid in ((1, 1 << 31), (-1,), (1, 1, 1, 1), ()):
        with pytest.raises(GridError):
            kernel[grid](out, 7, 0.5, None, BLOCK=4)
    out[:] = 0
    kernel[(0,)](out, 7, 0.5, None, BLOCK=4)
    assert not out.any()


def test_nothing_is_left_behind(out):
    kernel = warm(tilewright.jit(write), out, 70_001, 0.5, None, BLOCK=4)
    made, number, grid = kernel[(1,)](out, 70_001, 0.5, None, BLOCK=4), 70_003, (1,)
    watched = (made, number, grid, out, torch.Tensor)
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(20_000):
        kernel[grid](out, number, 0.5, None, BLOCK=4)
    assert [sys.getrefcount(thing) for thing in watched] == before


def test_a_kept_launch_outlives_its_kernel_and_hears_of_settings(out):
    kernel = tilewright.jit(write)
    for _ in range(3):
        made = kernel[(1,)](out, 7, 0.5, None, BLOCK=4)
    kept = kernel[(1,)]
    tilewright.knobs.runtime.debug = True
    try:
        assert kept(out, 7, 0.5, None, BLOCK=4) is not made
    finally:
        tilewright.knobs.runtime.debug = False
    del kernel
    gc.collect()
    assert kept(out, 9, 1.0, None, BLOCK=4) is made and out[0] == 9


OFFSET = tl.constexpr(2)


@tilewright.jit
def shifted(out_ptr, n):
    tl.store(out_ptr, n + OFFSET)


def test_globals_are_checked(out):
    global OFFSET
    warm(shifted, out, 5)[(1,)](out, 6 + 1)
    assert out[0] == 9
    OFFSET = tl.constexpr(3)
    try:
        with pytest.raises(GlobalsChangedError, match="OFFSET"):
            shifted[(1,)](out, 7)
    finally:
        OFFSET = tl.constexpr(2)


def test_threads_launch_at_once():
    kernel, wrong = tilewright.jit(write), []

    def work(index):
        mine = torch.zeros(4096)
        for turn in range(300):
            kernel[(1024,)](mine, 16 * index + 3, float(turn), None, BLOCK=4)
            if not (mine == (16 * index + 3) * turn).all():
                wrong.append((index, turn))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_was_kept_before_the_first_launch_is_machine_code_after_it(out, untraced):
    kernel, hinted = tilewright.jit(write), tilewright.jit(write)
    kept, other, dropped = kernel[(1,)], kernel[(2,)], hinted[(1,)]
    for _ in range(40):
        assert hinted[(1,)] is not dropped
    assert len(hinted.waiting) < 5  # what nobody keeps is forgotten
    for _ in range(3):
        made = kept(out, 7, 0.5, None, BLOCK=4)
    assert kept.func is other.func is kernel.ready and not hasattr(hinted, "ready")
    assert other(out, 3, 1.0, None, BLOCK=4) is made and out[4] == 3
