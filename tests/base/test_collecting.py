"""The collector waits during a compile, and goes on as it was, whatever happens."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.meta.sources import ROOT
from tilewright.base.collecting import uncollected


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_it_waits_and_goes_on() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


def test_of_several_threads_the_last_one_ends_it() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with uncollected():
        thread.start()
        entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_collects() -> None:
    with uncollected():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_stays_is_old_at_once() -> None:
    probe = """
import gc
from tests.meta.sources import ROOT
from tilewright.base.collecting import kept

with kept():
    assert not gc.isenabled()
    made = [[]]
assert gc.isenabled()
assert any(found is made for found in gc.get_objects(2))
assert gc.get_freeze_count() == 0
gc.freeze()
before = gc.get_freeze_count()
with kept():
    pass
assert gc.get_freeze_count() > before / 2
"""
    subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True)
