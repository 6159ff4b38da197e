"""The command line: options, exit status, messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.base.version import __version__
from tilewright.runtime.disk_cache import DiskCache
from tilewright.tools import cli, doctor, examples


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)
    return DiskCache(tmp_path, knobs.cache.size)


def _invoke(*arguments: str):
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


def test_version():
    assert _invoke("--version").output == f"tilewright, version {__version__}\n"


def test_module_runs_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.tools.cli", "--version"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert __version__ in done.stdout


def test_cache_info_and_clear(cache):
    assert cache.put("ab" * 32, b"x" * 1000)
    assert ": 1 entries, 1." in _invoke("cache", "info").output
    assert "removed 1 entries" in _invoke("cache", "clear").output
    assert ": 0 entries, 0 bytes" in _invoke("cache", "info").output


def test_doctor_shows_machine_and_knobs(cache, tmp_path):
    output = _invoke("doctor").output
    assert doctor.cpu_name() in output
    for _, variable, _, _ in knobs.describe():
        assert variable in output
    facts = doctor.facts()
    assert str(tmp_path) in facts["disk cache"]
    assert f"numpy {doctor.version('numpy')}" in facts["packages"]
    assert doctor.version("no-such-package") == "not installed"


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 1)])
def test_tour_status_tells_whether_checks_passed(monkeypatch, passed, status):
    seen = []
    monkeypatch.setattr(cli.show, "tour", lambda console, *arguments: seen.append(arguments) or passed)
    assert _invoke("tour", "--threads", "2", "--quick", "--only", "soft").exit_code == status
    assert seen == [(2, True, "soft")]


def test_errors_of_the_library_are_messages(monkeypatch):
    def tour(*arguments):
        raise TilewrightError("the reason", hint="the remedy")

    monkeypatch.setattr(cli.show, "tour", tour)
    result = _invoke("tour")
    assert result.exit_code == 1
    assert "Error: the reason\nhint: the remedy" in result.output


def test_examples_are_found_and_loaded_anew():
    pytest.importorskip("torch")
    assert (examples.folder() / "matmul.py").is_file()
    first, second = examples.load("vector_add"), examples.load("vector_add")
    assert first is not second and first.add_kernel is not second.add_kernel
