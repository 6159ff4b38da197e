"""The option `--tilewright-sanitize` of pytest: every test runs its kernels with checks, and fails of their faults.

    pytest --tilewright-sanitize                                        bounds, races and deadlocks
    pytest --tilewright-sanitize --tilewright-checks bounds,overflow    these

It is found by its entry point; nothing else of Tilewright is loaded unless the option is given.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("tilewright")
    group.addoption(
        "--tilewright-sanitize",
        action="store_true",
        help="run kernels with checks, on the CPU; a test whose kernels have faults fails",
    )
    group.addoption(
        "--tilewright-checks",
        default="bounds,races,deadlocks",
        metavar="CHECKS",
        help="what is looked for then, or all (default: bounds,races,deadlocks)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Follow the tests, if they are to be checked."""
    if config.getoption("--tilewright-sanitize"):
        module = importlib.import_module("tilewright.sanitize.tests")
        config.pluginmanager.register(module.CheckedTests(config.getoption("--tilewright-checks")), "tilewright-checks")
