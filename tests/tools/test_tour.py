"""The tour: its reference data, its verdicts, and the whole of it on small sizes."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from rich.console import Console

from tilewright.tools import examples
from tilewright.tools.timing import Sample
from tilewright.tools.tour import show
from tilewright.tools.tour.cases import CASES, Case, Work, philox_uniform
from tilewright.tools.tour.run import Result, run
from tilewright.tools.tour.third_party import TITLE, unchanged

torch = pytest.importorskip("torch")


def _console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=140, force_terminal=terminal, color_system=None, legacy_windows=False)


def test_philox_gives_the_published_numbers():
    # Known-answer vectors of the generator's authors (Random123), as uniform numbers of the first word.
    zero = np.int32(0x6627E8D5)
    assert philox_uniform(0, 1)[0] == np.float32(zero) * np.float32(4.6566127342e-10)
    np.testing.assert_array_equal(
        philox_uniform(123, 3), np.array([0.13389548659324646, 0.7207006216049194, 0.34458476305007935], np.float32)
    )
    assert not np.array_equal(philox_uniform(1 << 40, 4), philox_uniform(0, 4))


def test_philox_is_uniform():
    numbers = philox_uniform(7, 1 << 16)
    counts, _ = np.histogram(numbers, bins=16, range=(0, 1))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(counts - 4096).max() < 5 * 4096**0.5


def _fake(ours, tolerance: float = 1e-6) -> Case:
    x = torch.arange(1.0, 5.0)
    return Case("fake", "vector_add", lambda quick: Work("4", ours, lambda: x, lambda: x.double(), tolerance))


def _run(monkeypatch, ours) -> Result:
    monkeypatch.setattr("tilewright.tools.tour.run.examples.load", lambda stem: None)
    return run(_fake(ours), True, lambda step: None)


def test_a_right_kernel_passes(monkeypatch):
    result = _run(monkeypatch, lambda module: torch.arange(1.0, 5.0))
    assert result.passed and result.error == 0 and result.ours is not None


@pytest.mark.parametrize("wrong", [1.001, float("nan"), float("inf")])
def test_a_wrong_kernel_fails(monkeypatch, wrong):
    result = _run(monkeypatch, lambda module: torch.tensor([1.0, 2.0, 3.0, 4.0 * wrong]))
    assert not result.passed and not result.failure


def test_a_kernel_that_raises_becomes_a_failure(monkeypatch):
    def broken(module):
        raise ValueError("no such luck")

    result = _run(monkeypatch, broken)
    assert not result.passed and result.failure == "ValueError: no such luck"


@pytest.mark.parametrize("terminal", [False, True])
def test_table_shows_results_and_failures(monkeypatch, terminal):
    sample, slow = Sample((1e-3,) * 5), Sample((2e-3,) * 5)
    results = iter(
        [
            Result("fake", "4", 1e-7, None, 1e-6, sample, slow, 0.05, 0.001),
            Result("other", "5", failure="ValueError: [red]oh no"),
        ]
    )
    monkeypatch.setattr(show, "run", lambda case, quick, step: next(results))
    monkeypatch.setattr(show, "CASES", (CASES[0], CASES[1]))
    monkeypatch.setattr(show, "unchanged", lambda: (True, "theirs on cpu"))
    console = _console(terminal)
    assert show.tour(console, quick=True) is False
    text = console.file.getvalue()
    for expected in (
        "2.00×",
        "1.00 ms",
        "50.0 ms",
        "1.0e-07",
        "failed",
        "[red]oh no",
        "✓ theirs on cpu",
        "1 of 3 kernels failed",
    ):
        assert expected in text, text


def test_nothing_selected_is_not_a_pass():
    assert show.tour(_console(), quick=True, only="no such kernel") is False


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_every_case_passes_on_small_sizes(case):
    result = run(case, True, lambda step: None)
    assert not result.failure, result.failure
    assert result.passed, result


def test_the_tour_shows_examples():
    assert {case.example for case in CASES} <= {path.stem for path in examples.folder().glob("*.py")}


def test_a_program_that_says_import_triton_runs_as_it_is():
    console = _console()
    assert show.tour(console, quick=True, only=TITLE)
    text = console.file.getvalue()
    assert "on cpu, forward and backward: max error" in text and "All 1 checks passed" in text


def test_a_third_party_kernel_that_fails_fails_the_tour(monkeypatch, tmp_path):
    (tmp_path / "third_party").mkdir()
    (tmp_path / "third_party" / "program.py").write_text("import triton\nraise ValueError('no such luck')\n")
    monkeypatch.setattr(examples, "folder", lambda: tmp_path)
    found = unchanged()
    assert found == (False, "ValueError: no such luck")
    monkeypatch.setattr(show, "unchanged", lambda: found)
    console = _console()
    assert not show.tour(console, quick=True, only=TITLE)
    assert "✗ ValueError: no such luck" in console.file.getvalue()


def test_times_of_compiling_are_what_the_kernels_say():
    results = [run(case, True, lambda step: None) for case in CASES[:3]]
    assert all(result.passed and result.cold > 0 and result.warm > 0 for result in results)


def test_the_first_row_counts_no_import(monkeypatch):
    """Neither that of the example, nor that of what compiles, which a kernel of the tour's own waits for."""
    load, done = examples.load, []

    def slowly(stem):
        time.sleep(0.4)
        return load(stem)

    def measured(case, quick, step):
        done.append(case.title)
        return run(case, quick, step)

    monkeypatch.setattr(examples, "load", slowly)
    monkeypatch.setattr(show, "load_compiler", lambda: done.append("the compiler"))
    monkeypatch.setattr(show, "run", measured)
    monkeypatch.setattr(show, "_line", lambda result: done.append(result) or "")
    assert show.tour(_console(), quick=True, only=CASES[0].title)
    compiler, title, result = done
    assert (compiler, title) == ("the compiler", CASES[0].title)
    assert 0 < result.warm < 0.3 and 0 < result.cold < 0.3 + result.warm


def test_no_time_is_printed_as_nothing(monkeypatch):
    """Of a kernel that took less than the clock tells, and of one that nobody compiled."""
    results = [Result("fake", "4", 1e-7, None, 1e-6, Sample((2e-9,) * 5), Sample((3e-9,) * 5), 4e-9, float("nan"))]
    monkeypatch.setattr(show, "run", lambda case, quick, step: results[0])
    monkeypatch.setattr(show, "unchanged", lambda: (True, ""))
    console = _console()
    assert show.tour(console, quick=True)
    text = console.file.getvalue()
    assert "2.00 ns" in text and "–" in text and "0.00 µs" not in text and "nan" not in text


def test_a_kernel_that_is_not_compiled_has_no_time_of_compiling(monkeypatch):
    result = _run(monkeypatch, lambda module: torch.arange(1.0, 5.0))
    assert result.passed and result.cold != result.cold and result.warm != result.warm
