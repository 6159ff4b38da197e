"""Ctrl-C during a grid: it ends after the programs at hand, and what the handler raises is raised.

Each case in a process of its own, as handlers are the process's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
import json, os, signal, sys, threading, time
import numpy, tilewright, tilewright.language as tl

quiet, threads, elsewhere = json.loads(sys.argv[1])
tilewright.knobs.cpu.num_threads = threads
PROGRAMS = 800
heard = []


class Stop(Exception):
    """Raised by a handler of the program's own."""


def note(*_):
    heard.append(1)
    if not quiet:
        raise Stop


if quiet is not None:
    signal.signal(signal.SIGINT, note)


@tilewright.jit
def slow(out, trips):
    value = tl.load(out + tl.program_id(0))
    for _ in range(trips):
        value = value * 0.999 + 1.0
    tl.store(out + tl.program_id(0), value)


def run(trips):
    """The error of a launch, if there is one, and how many programs have run."""
    out = numpy.zeros(PROGRAMS, numpy.float32)
    try:
        slow[(PROGRAMS,)](out, trips)
    except BaseException as error:
        return type(error).__name__, int((out != 0).sum())
    return "", int((out != 0).sum())


run(3)
begin = time.perf_counter()
slow[(1,)](numpy.zeros(1, numpy.float32), 1_000_001)
trips = int(1_000_000 * 0.002 / (time.perf_counter() - begin)) | 1  # a program takes about two milliseconds
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
results = [run(trips)]
if elsewhere:  # a launch of another thread is not the signal's affair
    finished = threading.Event()
    threading.Thread(target=lambda: (results.append(run(trips)), finished.set())).start()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        finished.wait()
    except KeyboardInterrupt:
        heard.append(1)
    finished.wait()
results.append(run(3))
print(json.dumps([results, len(heard)]))
'''


def outcome(folder: Path, quiet: bool | None, threads: int, elsewhere: bool = False) -> list[object]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = dict(os.environ, TILEWRIGHT_CACHE_DIR=str(folder / "cache"))
    command = [sys.executable, str(program), json.dumps([quiet, threads, elsewhere])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("quiet", "threads", "raised"), [(None, 1, "KeyboardInterrupt"), (False, 2, "Stop")])
def test_a_grid_ends_with_what_the_handler_raises(
    tmp_path: Path, quiet: bool | None, threads: int, raised: str
) -> None:
    ((error, count), later), heard = outcome(tmp_path, quiet, threads)
    assert error == raised and 0 < count < 600
    assert later == ["", 800] and heard == (quiet is not None)


def test_a_handler_that_raises_nothing_ends_nothing(tmp_path: Path) -> None:
    assert outcome(tmp_path, True, 2) == [[["", 800], ["", 800]], 1]


def test_launches_of_other_threads_run_to_their_end(tmp_path: Path) -> None:
    results, heard = outcome(tmp_path, None, 1, elsewhere=True)
    assert results[0][0] == "KeyboardInterrupt" and results[1:] == [["", 800], ["", 800]] and heard == 1
