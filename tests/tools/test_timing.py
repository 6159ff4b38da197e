"""The stopwatch: turns, repeats and ratios."""

from __future__ import annotations

import time

import pytest

from tilewright.tools.timing import Sample, compare, duration


def test_ratio_is_the_median_of_paired_rounds():
    ours, theirs = Sample((1.0, 2.0, 4.0)), Sample((2.0, 6.0, 4.0))
    assert ours.ratio_to(theirs) == 2.0  # of 2, 3, 1
    assert ours.median == 2.0 and ours.iqr == 3.0


def test_candidates_take_turns_and_start_rounds_alternately():
    calls: list[str] = []

    def candidate(name):
        def run():
            calls.append(name)
            time.sleep(2e-3)

        return run

    samples = compare({"a": candidate("a"), "b": candidate("b")}, seconds=0, min_rounds=4, warmup=0)
    assert [len(sample.times) for sample in samples.values()] == [4, 4]
    assert calls[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert all(sample.median >= 2e-3 for sample in samples.values())


def test_short_functions_are_repeated_within_a_sample():
    count = 0

    def tick():
        nonlocal count
        count += 1

    samples = compare({"tick": tick}, seconds=0, min_rounds=3, sample_seconds=1e-3)
    assert count > 1000
    assert 0 < samples["tick"].median < 1e-5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1.50 s"), (0.0134, "13.4 ms"), (0.134, "134 ms"), (1.34e-6, "1.34 µs"), (5e-9, "0.01 µs")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
