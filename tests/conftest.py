"""Shared set-up of the tests: a disk cache of their own, a patient hypothesis, and GPU tests only where one is."""

from __future__ import annotations

import compileall
import functools
import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Before tilewright reads the environment, and inherited by the processes that tests start.
_CACHE = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
os.environ["TILEWRIGHT_CACHE_DIR"] = _CACHE.name
os.environ.setdefault("TILEWRIGHT_DEFAULT_BACKEND", "cpu")  # where there is a GPU, only tests/gpu uses it

settings.register_profile("shared-machine", deadline=None, print_blob=True)
settings.load_profile("shared-machine")


_PACKAGE = Path(__file__).parents[1] / "tilewright"


def pytest_configure(config: pytest.Config) -> None:
    # Many tests start processes. Where Python may write no bytecode, each would compile the package anew.
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(_PACKAGE, quiet=2)
    gc.disable()  # until everything is collected, which stays


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


@functools.cache
def _gpu_is_there() -> bool:
    return Path("/dev/nvidiactl").exists()


# Tests of tens of seconds go first, so that no process is left with them at the end.
_LONG = ("triton_names/test_inductor.py", "torch/test_caches.py", "fuzz/test_fuzz.py", "hl/test_fuzz.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(_LONG))
    for item in items:
        if item.get_closest_marker("gpu") and not _gpu_is_there():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from tests.backends.cpu import families  # loads tilewright, which must read the environment set above

    terminalreporter.write_line(families.report())


def pytest_unconfigure() -> None:
    _CACHE.cleanup()
