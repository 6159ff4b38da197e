"""A plugin of pytest for the emulated lane: fewer tests, and none that starts a program.

QEMU's user mode runs one program. What that program starts is a program of the machine below it, which has none for Arm
unless the system was told how (binfmt), so a test that starts one is skipped, and the summary names it. Children that
are forked off live on.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from typing import Any, NoReturn

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, help="of each file, run one of so many tests")


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._child_created = False  # what the end of an object asks
        _skip()


def _skip(*args: Any, **kwargs: Any) -> NoReturn:
    pytest.skip("starts a program, which emulation cannot")


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test starts a program."""
    monkeypatch.setattr(subprocess, "Popen", _Popen)
    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", _skip)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = config.getoption("--every")
    files: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    kept = {id(item) for found in files.values() for item in found[::every]}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]
