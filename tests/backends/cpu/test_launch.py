"""The launcher: every program runs exactly once, scratch is never shared, and threads are shared with torch."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.backends.cpu.device import KernelCode, coerce_slot, make_launch, slot_format, team
from tilewright.backends.cpu.device import native as native_module
from tilewright.backends.cpu.device.arena import PAGE, ArenaPool, Memory, Spare, arena_stride
from tilewright.backends.cpu.device.openmp import OpenMP, find_openmp
from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.codegen import Library, compile_object, load
from tilewright.backends.llvm.features import host
from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs

team_module = sys.modules["tilewright.backends.cpu.device.team"]  # the package's `team` is the object in it
ROOT = Path(__file__).resolve().parents[3]

# count:   counts[p] += 1, after work that grows with p mod 64
# scratch: keeps p in its scratch during that work; errors += 1 when it is gone afterwards; where[p] = scratch
# slots:   copies the argument slots to the address in the first one
KERNELS = """
define internal void @work(i64 %p, i64 %amount) noinline nounwind {
entry:
  %m = urem i64 %p, 64
  %n = mul i64 %m, %amount
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %i1 = add i64 %i, 1
  call void asm sideeffect "", "r"(i64 %i)
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
define i64 @count(i64 %lo, i64 %hi, ptr %args, ptr %arena) nounwind {
entry:
  %counts = load ptr, ptr %args
  %amount.p = getelementptr i64, ptr %args, i64 1
  %amount = load i64, ptr %amount.p
  br label %loop
loop:
  %p = phi i64 [ %lo, %entry ], [ %p1, %loop ]
  call void @work(i64 %p, i64 %amount)
  %slot = getelementptr i64, ptr %counts, i64 %p
  %old = atomicrmw add ptr %slot, i64 1 monotonic
  %p1 = add i64 %p, 1
  %more = icmp ult i64 %p1, %hi
  br i1 %more, label %loop, label %out
out:
  ret i64 %hi
}
define i64 @scratch(i64 %lo, i64 %hi, ptr %args, ptr %arena) nounwind {
entry:
  %errors = load ptr, ptr %args
  %where.p = getelementptr i64, ptr %args, i64 1
  %where = load ptr, ptr %where.p
  %amount.p = getelementptr i64, ptr %args, i64 2
  %amount = load i64, ptr %amount.p
  %last = getelementptr i8, ptr %arena, i64 9992
  br label %loop
loop:
  %p = phi i64 [ %lo, %entry ], [ %p1, %next ]
  %token = ptrtoint ptr %args to i64
  %mine = add i64 %token, %p
  store volatile i64 %mine, ptr %arena
  store volatile i64 %mine, ptr %last
  call void @work(i64 %p, i64 %amount)
  %a = load volatile i64, ptr %arena
  %b = load volatile i64, ptr %last
  %slot = getelementptr ptr, ptr %where, i64 %p
  store ptr %arena, ptr %slot
  %a.ok = icmp eq i64 %a, %mine
  %b.ok = icmp eq i64 %b, %mine
  %ok = and i1 %a.ok, %b.ok
  br i1 %ok, label %next, label %bad
bad:
  %old = atomicrmw add ptr %errors, i64 1 monotonic
  br label %next
next:
  %p1 = add i64 %p, 1
  %more = icmp ult i64 %p1, %hi
  br i1 %more, label %loop, label %out
out:
  ret i64 %hi
}
define i64 @slots(i64 %lo, i64 %hi, ptr %args, ptr %arena) nounwind {
entry:
  %out = load ptr, ptr %args
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %from = getelementptr i64, ptr %args, i64 %i
  %to = getelementptr i64, ptr %out, i64 %i
  %v = load i64, ptr %from
  store i64 %v, ptr %to
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 16
  br i1 %more, label %loop, label %done
done:
  ret i64 %hi
}
"""


@pytest.fixture(scope="module")
def code() -> Library:
    return load(compile_object(KERNELS, host()), ("count", "scratch", "slots"))


@pytest.fixture(params=["auto", "pool", "serial"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    before = knobs.cpu.threading
    knobs.cpu.threading = request.param
    yield request.param
    knobs.cpu.threading = before


def counter(code: Library, **changes: Any) -> Callable[..., None]:
    threads = changes.pop("num_threads", None)
    kernel = KernelCode(code.address("count"), ("*i64", "i64"), owner=code, **changes)
    return make_launch(kernel, num_threads=threads)


# --- each program once --------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_program_runs_exactly_once(code: Library, mode: str, threads: int) -> None:
    launch = counter(code, num_threads=threads)
    for total in (1, 2, 3, 15, 64, 1000):
        counts = np.zeros(total + 8, np.int64)
        for _ in range(5):
            launch(total, 1, 1, counts.ctypes.data, 20)
        assert (counts[:total] == 5).all() and (counts[total:] == 0).all(), (mode, total)


def test_grid_of_three_dimensions_is_linear(code: Library) -> None:
    counts = np.zeros(3 * 5 * 7 + 1, np.int64)
    counter(code, num_threads=2)(3, 5, 7, counts.ctypes.data, 0)
    assert (counts[:-1] == 1).all() and counts[-1] == 0


@pytest.mark.parametrize("repeat", range(3))
def test_stealing_under_uneven_work(code: Library, mode: str, repeat: int) -> None:
    """Home ranges differ in work: threads that finish early take from the others, and nothing runs twice."""
    launch = counter(code, num_threads=4)
    counts = np.zeros(64 * 40, np.int64)
    for _ in range(10):
        launch(counts.size, 1, 1, counts.ctypes.data, 5 * (repeat + 1))
    assert (counts == 10).all()


def test_serial_below_keeps_small_grids_on_the_caller(code: Library) -> None:
    kernel = KernelCode(code.address("scratch"), ("*i64", "*i64", "i64"), 10_000, serial_below=100, owner=code)
    errors, where = np.zeros(1, np.int64), np.zeros(99, np.int64)
    make_launch(kernel, num_threads=4)(99, 1, 1, errors.ctypes.data, where.ctypes.data, 2000)
    assert len(set(where)) == 1


def test_launches_from_several_python_threads(code: Library, mode: str) -> None:
    launch = counter(code)
    counts = np.zeros((4, 300), np.int64)
    _in_threads(4, lambda t: [launch(300, 1, 1, counts[t].ctypes.data, 20) for _ in range(50)])
    assert (counts == 50).all()


def _in_threads(count: int, body: Callable[[int], Any]) -> None:
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            body(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)


# --- scratch --------------------------------------------------------------------------------------------


def test_scratch_is_private_to_a_thread_of_a_launch(code: Library, mode: str) -> None:
    kernel = KernelCode(code.address("scratch"), ("*i64", "*i64", "i64"), 10_000, owner=code)
    launch = make_launch(kernel, num_threads=3)
    errors, where = np.zeros(1, np.int64), np.zeros((4, 128), np.int64)
    _in_threads(4, lambda t: [launch(128, 1, 1, errors.ctypes.data, where[t].ctypes.data, 50) for _ in range(40)])
    assert errors[0] == 0
    assert (where % 64 == 0).all() and (where != 0).all()
    stride = arena_stride(10_000)
    for one in where:
        assert {int(a) - int(one.min()) for a in one} <= {0, stride, 2 * stride}


def test_arena_stride_is_an_odd_number_of_pages() -> None:
    assert arena_stride(0) == 0
    for size in (1, PAGE, PAGE + 1, 2 * PAGE, 1 << 20):
        stride = arena_stride(size)
        assert stride >= size and stride % PAGE == 0 and (stride // PAGE) % 2 == 1


def test_arena_pool_reuses_and_grows() -> None:
    pool = ArenaPool()
    small = pool.take(1000)
    pool.give(small)
    assert pool.take(500) is small
    pool.give(small)
    large = pool.take(100_000)
    assert large is not small and large.size >= 100_000
    pool.give(large)
    assert pool.take(100_000) is large
    pool.clear()
    assert pool.bytes() == 0


def test_no_two_launches_hold_one_arena() -> None:
    pool, others = ArenaPool(), []

    class Large:
        @property
        def size(self) -> int:
            if not others:  # other launches come by while the first one looks at its size
                others.append(None)
                others[:] = [pool.take(1), pool.take(1)]
                pool.give(others[0])
            return 5000

    large = Large()
    for arena in (large, Memory(64), Memory(64)):
        pool.give(arena)  # type: ignore[arg-type]
    assert pool.take(5000) is large
    assert len(others) == 2 and large not in others


def test_a_block_that_machine_code_may_have_taken_is_kept() -> None:
    spare = Spare()
    spare.borrow(1000)
    first = ctypes.c_int64.from_address(spare.words[0])
    first.value = 7
    spare.borrow(100_000)
    assert spare.words[1] >= 100_000
    assert first.value == 7  # a launch that took it before may still run


def test_memory_is_zero_and_aligned() -> None:
    for size, alignment in ((64, 64), (10_000, PAGE), (8 << 20, 2 << 20)):
        memory = Memory(size)
        assert memory.address % alignment == 0 and memory.word(size - 8).value == 0


# --- slots ----------------------------------------------------------------------------------------------


def test_slots_of_the_kernel_abi(code: Library) -> None:
    types = ("*i64", "i32", "i64", "u64", "u1", "fp32", "fp64", "fp16", "bf16", "i8")
    values = (-5, -(1 << 40), (1 << 64) - 1, True, 1.5, -2.25, 0.5, 3.140625, -1)
    launch = make_launch(KernelCode(code.address("slots"), types, owner=code))
    out = np.zeros(16, np.int64)
    launch(3, 4, 5, out.ctypes.data, *values)
    raw = out.tobytes()
    assert out[0] == out.ctypes.data
    assert list(out[1:3]) == [-5, -(1 << 40)] and raw[24:32] == b"\xff" * 8 and out[4] == 1
    assert struct.unpack_from("<f", raw, 40)[0] == 1.5
    assert struct.unpack_from("<d", raw, 48)[0] == -2.25
    assert struct.unpack_from("<e", raw, 56)[0] == 0.5
    assert struct.unpack("<f", b"\0\0" + raw[64:66])[0] == 3.140625
    assert list(out[9:13]) == [-1, 3, 4, 5]


def test_values_outside_a_slot_convert_like_a_c_cast(code: Library) -> None:
    launch = make_launch(KernelCode(code.address("slots"), ("*i64", "fp32", "u64"), owner=code))
    out = np.zeros(16, np.int64)
    launch(1, 1, 1, out.ctypes.data, -1e300, -1)
    assert struct.unpack_from("<f", out.tobytes(), 8)[0] == float("-inf")
    assert out[2] == -1


def test_bf16_rounds_once_to_nearest_even() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    samples = [0.0, -0.0, 1.0, 1e-40, -1e-45, 1e39, float("inf"), float("-inf"), 3.4e38, 2.0**-126, 9.2e-41]
    samples += [float(x) for x in rng.standard_normal(500).astype(np.float32)]
    samples += [float(x) for x in rng.integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32) if x == x]
    for sample in samples:
        wanted = int(torch.tensor(sample, dtype=torch.float32).to(torch.bfloat16).view(torch.int16)) & 0xFFFF
        with np.errstate(over="ignore"):
            exact = float(np.float32(sample)) == sample
        if exact or sample > 3e38:  # torch rounds to f32 first
            assert coerce_slot(sample, "bf16") == wanted, sample
    assert coerce_slot(float("nan"), "bf16") & 0x7FFF > 0x7F80
    tie_in_f32 = 1.0 + 2.0**-8 + 2.0**-40  # rounding by way of f32 would lose the last bit and round down
    assert coerce_slot(tie_in_f32, "bf16") == 0x3F81


def test_slot_formats_are_eight_bytes() -> None:
    for kind in ("*fp32", "i1", "u1", "i8", "u8", "i32", "u32", "i64", "u64", "fp16", "bf16", "fp32", "fp64"):
        assert struct.calcsize("<" + slot_format(kind)) == 8


# --- threads --------------------------------------------------------------------------------------------


def test_unknown_threading_mode_is_an_error(code: Library) -> None:
    launch = counter(code)
    counts = np.zeros(8, np.int64)
    knobs.cpu.threading = "green"
    try:
        with pytest.raises(TilewrightError, match="green"):
            launch(8, 1, 1, counts.ctypes.data, 0)
    finally:
        knobs.cpu.threading = "auto"
    launch(8, 1, 1, counts.ctypes.data, 0)
    assert (counts == 1).all()


def test_thread_count_follows_knob_then_torch(code: Library) -> None:
    counter(code)
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert team.threads() == 1
        torch.set_num_threads(2)
        assert team.threads() == 2
        knobs.cpu.num_threads = 3
        assert team.threads() == 3 and team.threads(5) == 5
    finally:
        knobs.cpu.num_threads = None
        torch.set_num_threads(before)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads through /proc")
def test_no_more_threads_than_torch_has(code: Library) -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    x = torch.randn(1 << 18)
    torch.add(x, x)
    launch = counter(code)
    counts = np.zeros(256, np.int64)
    launch(256, 1, 1, counts.ctypes.data, 1)
    if team.kind != "openmp":
        pytest.skip("no OpenMP runtime to share")
    before = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        torch.add(x, x)
        launch(256, 1, 1, counts.ctypes.data, 1)
    assert len(os.listdir("/proc/self/task")) == before
    assert team.threads() == threads


def test_openmp_is_the_one_torch_uses() -> None:
    torch = pytest.importorskip("torch")
    found = find_openmp()
    if found is None:
        pytest.skip("no OpenMP runtime")
    assert str(Path(torch.__file__).parent) in found.path


class PlayedOpenMP:
    """`__kmpc_fork_call` played by Python: it calls the microtask on threads that begin together.

    Attributes:
        asked: sizes of the teams so far.
        delay: seconds that a team takes to begin.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.delay = 0.0
        integer, pointer = ctypes.c_int32, ctypes.c_void_p
        self._microtask = ctypes.CFUNCTYPE(None, ctypes.POINTER(integer), ctypes.POINTER(integer), pointer)
        self._functions = (
            ctypes.CFUNCTYPE(None, pointer, integer, pointer, pointer)(self._fork),
            ctypes.CFUNCTYPE(None, pointer, integer, integer)(self._push),
            ctypes.CFUNCTYPE(integer, pointer)(lambda ident: 100),
        )
        fork, push, gtid = (ctypes.cast(function, pointer).value or 0 for function in self._functions)
        self.runtime = OpenMP("played", "kmpc", fork, gtid, push, gtid)

    def _fork(self, ident: int, count: int, entry: int, job: int) -> None:
        assert count == 1
        time.sleep(self.delay)
        together = threading.Barrier(self.asked[-1])

        def member(thread: int) -> None:
            together.wait(60)
            self._microtask(entry)(ctypes.c_int32(100 + thread), ctypes.c_int32(thread), job)

        _in_threads(self.asked[-1], member)

    def _push(self, ident: int, gtid: int, threads: int) -> None:
        assert gtid == 100
        self.asked.append(threads)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedOpenMP]:
    found = PlayedOpenMP()
    with monkeypatch.context() as patch:
        patch.setattr(team_module, "find_openmp", lambda: found.runtime)
        patch.setattr(knobs.cpu, "threading", "openmp")
        yield found
    team.close()


def test_llvm_openmp_interface(code: Library, played: PlayedOpenMP) -> None:
    counts = np.zeros(100, np.int64)
    counter(code, num_threads=3)(100, 1, 1, counts.ctypes.data, 1)
    assert team.openmp is played.runtime and played.asked == [3]
    assert (counts == 1).all()


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"), reason="has no clock")
def test_a_team_that_costs_more_than_it_gives_is_asked_seldom(code: Library, played: PlayedOpenMP) -> None:
    """The team of another kernel, and of a larger grid, is asked as ever; one that is worth it comes back."""
    launch, other = (counter(code, num_threads=2) for _ in range(2))
    counts = np.zeros(1000, np.int64)

    def asked(run: Callable[..., None], work: int = 1, programs: int = 100) -> int:
        before = len(played.asked)
        run(programs, 1, 1, counts.ctypes.data, work)
        return len(played.asked) - before

    played.delay = 0.05  # more than a busy machine takes from the other way by chance
    assert [asked(launch) for _ in range(13)] == [1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]
    assert asked(launch, programs=101) == asked(other) == 1
    assert asked(other) == 0
    played.delay = 0.0
    runs: list[int] = []
    while runs[-3:] != [1, 1, 1]:  # whoever shares the machine may make it lose a time or two
        assert len(runs) < 60
        runs.append(asked(other, work=20_000))
    assert (counts[:100] == 16 + len(runs)).all() and counts[100] == 1


# --- the launcher's own code ----------------------------------------------------------------------------


class DictCache(dict[str, bytes]):
    def get_bytes(self, key: str) -> bytes | None:
        return self.get(key)

    def put_bytes(self, key: str, payload: bytes) -> None:
        self[key] = payload


def test_launcher_objects_are_cached_and_damaged_ones_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DictCache()
    native_module._load(cache)
    images = dict(cache)
    assert len(images) == 2  # the launcher, and what ends a grid on Ctrl-C
    with monkeypatch.context() as patch:
        patch.setattr(codegen, "compile_object", lambda *_: pytest.fail("compiled although cached"))
        native_module._load(cache)
    cache.update(dict.fromkeys(images, b"\0" * 100))
    native_module._load(cache)
    assert cache == images


# --- processes of their own -----------------------------------------------------------------------------

PRELUDE = f"""
import os, sys, signal
signal.alarm(60)  # a hang is a failure
if MODE == "torch": import torch
if MODE == "no-torch": sys.modules["torch"] = None
import numpy as np
from tilewright.backends.cpu.device import KernelCode, make_launch, team
from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.codegen import compile_object, load
from tilewright.backends.llvm.features import host
library = load(compile_object({KERNELS!r}, host()), ("count",))
launch = make_launch(KernelCode(library.address("count"), ("*i64", "i64"), owner=library), num_threads=2)
def check(times=20):
    counts = np.zeros(500, np.int64)
    for _ in range(times): launch(500, 1, 1, counts.ctypes.data, 5)
    assert (counts == times).all()
check()
"""


def _script(mode: str, body: str, **environment: str) -> str:
    text = f"MODE = {mode!r}\n{PRELUDE}\n{textwrap.dedent(body)}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("threading_mode", ["auto", "pool"])
def test_fork_rebuilds_the_threads(threading_mode: str) -> None:
    out = _script(
        "torch",
        """
        child = os.fork()
        if child == 0:
            check()
            print(team.kind, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        check()
        """,
        TILEWRIGHT_THREADING=threading_mode,
    )
    assert out.strip() == "pool"


def test_torch_imported_after_the_first_launch() -> None:
    """The runtime chosen before torch is the one that torch then loads."""
    pytest.importorskip("torch")
    out = _script(
        "late-torch",
        """
        assert "torch" not in sys.modules
        first = team.openmp
        import torch
        torch.add(torch.ones(1 << 18), 1)
        check()
        print(first is None or first.fork == team.openmp.fork, "torch" in team.describe())
        """,
    )
    assert out.split() == ["True", "True"]


def test_without_torch() -> None:
    out = _script("no-torch", "print(team.kind)")
    assert out.strip() in ("openmp", "pool")


def test_pool_workers_sleep_and_wake() -> None:
    _script(
        "no-torch",
        """
        import time
        assert team.kind == "pool"
        for pause in (0.0, 0.001, 0.02):
            for _ in range(10):
                time.sleep(pause)
                check(1)
        """,
        TILEWRIGHT_THREADING="pool",
    )
