"""Many processes and one cold cache: each kernel is compiled a bounded number of times, whoever is killed meanwhile.

`make test` runs it small; `make stress` (TILEWRIGHT_STRESS=1) runs it large, with more kills and more kernels.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.disk_cache import DiskCache

LARGE = bool(os.environ.get("TILEWRIGHT_STRESS"))
PROCESSES, KERNELS, KILLS, ROUNDS = (16, 8, 8, 10) if LARGE else (16, 3, 4, 1)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def kernel_of(number: int) -> tilewright.JITFunction:
    @tilewright.jit
    def scale(x_ptr, out_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * FACTOR, mask)

    return scale


def launch_all(log: Path, order: list[int]) -> None:
    """Launch each kernel; a line per compilation is added to `log`."""

    def note(**facts):
        if not facts["already_compiled"]:
            with log.open("a") as file:
                file.write(f"{facts['compile']['constants'][(3,)]}\n")

    tilewright.knobs.runtime.jit_post_compile_hook = note
    x = np.arange(100, dtype=np.float32)
    kernel = kernel_of(0)
    for factor in order:
        out = np.zeros_like(x)
        kernel[(1,)](x, out, 100, factor, BLOCK=128)
        assert (out == factor * x).all(), factor


def work(folder: Path, log: Path, seed: int, corrupt: bool) -> None:
    tilewright.knobs.cache.dir = folder
    order = list(range(2, 2 + KERNELS))
    random.Random(seed).shuffle(order)
    launch_all(log, order)
    if corrupt:  # damage something that is there, and go on
        victims = [path for _, path, _ in DiskCache(folder, 1 << 30).entries()]
        if victims:
            damage(random.Random(seed).choice(victims), seed)
        launch_all(log, order)


def damage(path: Path, seed: int) -> None:
    """Change a byte of a file and perhaps cut its last; another process may have removed what was damaged before."""
    with contextlib.suppress(FileNotFoundError):
        data = bytearray(path.read_bytes() or b"x")
        data[seed % len(data)] ^= 0xFF
        path.write_bytes(bytes(data[: len(data) - seed % 2]))


def hammer(folder: Path, log: Path, kills: int, corrupt: bool, seed: int) -> int:
    """Run all processes, kill some of them; returns how many were killed while they ran."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(folder, log, seed + i, corrupt)) for i in range(PROCESSES)]
    for worker in workers:
        worker.start()
    killed, dice = 0, random.Random(seed)
    for worker in dice.sample(workers, kills):
        time.sleep(dice.random() * 0.2)
        if worker.is_alive():
            os.kill(worker.pid, signal.SIGKILL)
            killed += 1
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers if worker.exitcode not in (0, -signal.SIGKILL)] == []
    return killed


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_each_kernel_is_compiled_a_bounded_number_of_times(tmp_path, seed):
    log = tmp_path / "log"
    log.touch()
    killed = hammer(tmp_path / "cache", log, KILLS, False, seed)
    compiled = Counter(log.read_text().split())
    assert len(compiled) >= KERNELS - killed  # one that was killed may have compiled without saying so
    assert max(compiled.values()) <= 1 + killed, compiled
    assert not [path for path in (tmp_path / "cache").glob("*/*.lock") if killed == 0]


def test_nobody_compiles_twice_where_nobody_dies(tmp_path):
    log = tmp_path / "log"
    hammer(tmp_path / "cache", log, 0, False, 1)
    assert Counter(log.read_text().split()) == {str(factor): 1 for factor in range(2, 2 + KERNELS)}


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_damaged_entries_are_made_anew_under_way(tmp_path, seed):
    log = tmp_path / "log"
    hammer(tmp_path / "cache", log, 0, True, seed)
    DiskCache(tmp_path / "cache", 1 << 30)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_threads_and_settings_that_change(tmp_path, seed):
    """Threads launch while another forgets everything that was compiled: results stay right."""
    before, tilewright.knobs.cache.dir = tilewright.knobs.cache.dir, tmp_path
    kernel, failed, stop = kernel_of(1), [], threading.Event()
    x = np.arange(100, dtype=np.float32)

    def launch(factor: int) -> None:
        try:
            for _ in range(200 if LARGE else 40):
                out = np.zeros_like(x)
                kernel[(1,)](x, out, 100, 2 + factor % 2, BLOCK=128)
                assert (out == (2 + factor % 2) * x).all()
        except BaseException as error:
            failed.append(error)

    def disturb() -> None:
        while not stop.wait(0.01):
            kernel.clear()

    threads = [threading.Thread(target=launch, args=(factor,)) for factor in range(16)]
    other = threading.Thread(target=disturb)
    try:
        for thread in (*threads, other):
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        other.join()
        tilewright.knobs.cache.dir = before
    assert not failed
