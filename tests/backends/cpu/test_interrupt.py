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
PROGRAMS, ITERATIONS = 800, 500_001  # a program takes a millisecond or two
heard = []


class Stop(Exception):
    """Raised by a handler of the program's own."""


def note(*_):
    heard.append(1)
    if not quiet:
        raise Stop


signal.signal(signal.SIGINT, signal.default_int_handler if quiet is None else note)  # it may have been ignored


@tilewright.jit
def slow(out, iterations):
    value = tl.load(out + tl.program_id(0))
    for _ in range(iterations):
        value = value * 0.999 + 1.0
    tl.store(out + tl.program_id(0), value)


def run(iterations, signalled=False):
    """The error of a launch, if there is one, and how many programs have run; Ctrl-C comes when the first ones have."""
    out = numpy.zeros(PROGRAMS, numpy.float32)
    if signalled:
        threading.Thread(target=interrupt, args=(out,)).start()
    try:
        slow[(PROGRAMS,)](out, iterations)
    except BaseException as error:
        return type(error).__name__, int((out != 0).sum())
    return "", int((out != 0).sum())


def interrupt(out):
    while not out.any():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


run(3)
results = [run(ITERATIONS, signalled=True)]
if elsewhere:  # a launch of another thread is not the signal's affair
    finished = threading.Event()
    threading.Thread(target=lambda: (results.append(run(ITERATIONS, signalled=True)), finished.set())).start()
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
