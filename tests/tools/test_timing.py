"""The stopwatch: turns, repeats and ratios."""

from __future__ import annotations

import time

import pytest

from tilewright.tools.timing import Sample, compare, duration


def test_ratio_is_the_median_of_paired_rounds():
    ours, theirs = Sample((1.0, 2.0, 4.0)), Sample((2.0, 6.0, 4.0))
    assert ours.ratio_to(theirs) == 2.0  # of 2, 3, 1
    assert ours.median == 2.0 and ours.iqr == 3.0


def test_candidates_take_turns_and_come_after_each_other():
    calls: list[str] = []

    def candidate(name):
        def run():
            calls.append(name)
            time.sleep(2e-3)

        return run

    samples = compare({name: candidate(name) for name in "abc"}, seconds=0, min_rounds=12, warmup=0)
    assert [len(sample.times) for sample in samples.values()] == [12, 12, 12]
    rounds = ["".join(calls[-36 + 3 * n :][:3]) for n in range(12)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert {order[n : n + 2] for order in rounds for n in range(2)} == {"ab", "ac", "ba", "bc", "ca", "cb"}
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
    [(1.5, "1.50 s"), (0.0134, "13.4 ms"), (0.134, "134 ms"), (1.34e-6, "1.34 µs"), (5e-9, "5.00 ns")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_what_was_not_measured_is_a_dash():
    assert duration(float("nan")) == "–"
