"""A plugin of pytest for the emulated lane: fewer tests, and none that starts a program.

QEMU's user mode runs one program. What that program starts is a program of the machine below it, which has none for Arm
unless the system was told how (binfmt), so a test that starts one is skipped, and the summary names it. Children that
are forked off live on.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, help="of each file, run one of so many tests")


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._child_created = False  # what the end of an object asks
        _skip()


_REASON = "starts a program, which emulation cannot"


def _skip(*args: Any, **kwargs: Any) -> NoReturn:
    pytest.skip(_REASON)


@pytest.fixture(autouse=True, scope="session")
def no_programs() -> Iterator[None]:
    """No test, and no fixture of a module, starts a program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", _Popen)
        patch.setattr("multiprocessing.util.spawnv_passfds", _skip)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = config.getoption("--every")
    files: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    kept = {id(item) for found in files.values() for item in found[::every]}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that were skipped for it."""
    for report in terminalreporter.stats.get("skipped", []):
        if _REASON in str(report.longrepr):
            terminalreporter.write_line(f"{report.nodeid}: {_REASON}")
