"""The plugin of pytest for tests of tile kernels; it is found by its entry point.

    pytest --tilewright-sanitize                                        every test runs its kernels with checks
    pytest --tilewright-sanitize --tilewright-checks bounds,overflow    these
    pytest --tilewright-interpret                                       every kernel runs as Python

    def test_add(device): ...                   once interpreted, once on the CPU, once on a GPU where there is one
    def test_compiles(tilewright_cache): ...    with an empty disk cache

It is a module of its own, as every run of pytest loads it: Tilewright is imported when a test or an option asks for it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
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
    group.addoption("--tilewright-interpret", action="store_true", help="run kernels as Python")


def pytest_configure(config: pytest.Config) -> None:
    """Do what the options say."""
    if config.getoption("--tilewright-sanitize"):
        module = importlib.import_module("tilewright.sanitize.tests")
        config.pluginmanager.register(module.CheckedTests(config.getoption("--tilewright-checks")), "tilewright-checks")
    if config.getoption("--tilewright-interpret"):
        runtime = _knobs().runtime
        config.add_cleanup(functools.partial(setattr, runtime, "interpret", runtime.interpret))
        runtime.interpret = True


@pytest.fixture(params=["interpreter", "cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the kernels of a test run: the name of the device for its tensors, "cpu" or "cuda". With "interpreter" in
    the name of the test launches are interpreted, on tensors of the CPU. Without a GPU the third is skipped."""
    wanted = request.param
    if wanted == "cuda" and not importlib.import_module("tilewright.comparing.sides").has_gpu():
        pytest.skip("no GPU")
    runtime = _knobs().runtime
    with runtime.scope():
        runtime.interpret = wanted == "interpreter" or runtime.interpret
        yield "cuda" if wanted == "cuda" else "cpu"


@pytest.fixture
def tilewright_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a disk cache that is empty and this test's own; processes that it starts use it too. What was
    compiled before in this process stays in memory."""
    folder, cache = tmp_path / "tilewright-cache", _knobs().cache
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
    with cache.scope():
        cache.dir, cache.layers, cache.shared, cache.disabled = folder, (), None, False
        yield folder


def _knobs() -> Any:
    return importlib.import_module("tilewright").knobs
