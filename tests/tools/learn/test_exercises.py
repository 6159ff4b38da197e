"""The exercises: solutions are right, files as they come are not, and typical mistakes are told what is wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.base.errors import TilewrightError
from tilewright.tools.learn.catalogue import EXERCISES, MARK, found, untouched
from tilewright.tools.learn.check import check
from tilewright.tools.learn.course import shipped, solved

NAMES = [exercise.name for exercise in EXERCISES]


def verdict(name, text, folder, **options):
    exercise = found(name)
    file = folder / exercise.file
    file.write_text(text, encoding="utf-8")
    return check(exercise, file, shipped(exercise), **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_is_right_compiled_and_as_python(name, tmp_path):
    text = solved(found(name))
    for interpret in (False, True):
        done = verdict(name, text, tmp_path, interpret=interpret)
        assert done.passed and done.text.startswith("right in"), done.text


@pytest.mark.parametrize("name", NAMES)
def test_a_file_as_it_comes_compiles_is_wrong_and_says_what_is_missing(name, tmp_path):
    done = verdict(name, shipped(found(name)), tmp_path)
    assert not done.passed and "The file is as it came" in done.text
    first = done.text.splitlines()[1]
    assert re.match(r"\w+ was never written: none of its \d+ elements|\w+\[[\d, ]+\] is (0|inf|nan), and ", first), (
        first
    )


def test_texts_differ_by_what_is_to_be_written_alone():
    for exercise in EXERCISES:
        ours, theirs = solved(exercise), shipped(exercise)
        assert ours != theirs and not re.search(r"<\w+>|mypy", ours + theirs)
        assert {line for line in theirs.splitlines() if not line.strip().startswith("#")} < set(ours.splitlines())
        assert ours.startswith('"""') and "In numpy:" in ours and len(exercise.hints) >= 2


MISTAKES = [
    ("constant", "x + 10", "x + 9", "all that are wrong are 1 too small"),
    ("vector_add", "x_ptr + offsets, mask=mask", "x_ptr + offsets", r"loads x_ptr\[1023\] at 02_\w+.py:22, .* a mask"),
    ("vector_add", "x + y, mask=mask", "x + y", r"stores out_ptr\[1023\] .* a mask keeps it inside"),
    ("vector_add", "tl.program_id(0) * BLOCK + ", "", r"race: .* offsets of its own \(tl\.program_id\)"),
    ("vector_add", "offsets < n", "offsets < n - 1", r"out\[999\] was never written, as 1 of 1000 elements"),
    ("vector_add", "store(out_ptr", "store(x_ptr", "x was changed: it is only to be read"),
    ("vector_add", "x + y, mask=mask)", "x + y, mask=mask", "SyntaxError"),
    ("vector_add", "x + y", "x + z", r"line 24, column 37.*\n.*z is not defined"),
    ("vector_add", "def add(", "def plus(", "no kernel with the name add"),
    ("outer_sum", "[:, None] * m", "[:, None] * n",
     r"belongs to out\[1, 0\]: look at .* strides.*program \(0, 0, 0\), element \[1, 0\] of its tile, at 03_\w+.py:26"),
    ("outer_sum", "(rows[:, None] < n) & ", "", r"out of bounds: .* a mask"),
    ("scaled_rows", "x_stride + j", "columns + j", r"out\[1, 0\] is .* by program \(0, 0, 0\), element \[1, 0\]"),
    ("scaled_rows", "out_stride + j", "x_stride + j", r"out of bounds: program \(2, 0, 0\) .* stores out_ptr"),
    ("row_sum", ", other=0.0", "", "by chance: elements that a mask leaves out"),
    ("row_sum", "out_ptr + row", "out_ptr", "race: "),
    ("softmax", " - tl.max(x, axis=0)", "", r"out\[0, 0\] is nan, .* is exp given large numbers"),
    ("softmax", 'other=-float("inf")', "other=0.0", r"out\[1, 24\] is 0, and 0\.996"),
    ("long_softmax", "total * tl.exp(largest - now)", "total", r"out\[0, \d+\] is .* element \[\d+\] of its tile"),
    ("histogram", "tl.atomic_add(counts_ptr + x, 1, mask", "tl.store(counts_ptr + x, tl.load(counts_ptr + x) + 1, mask",
     r"race: .* tl\.atomic_add"),
    ("histogram", "x, 1, mask=mask", "x, 1", r"counts\[0\] is 122, and 98 is wanted; 1 of 10"),
    ("matmul", "mask=(k[:, None] < K) & (n[None, :] < N)", "mask=n[None, :] < N", r"out of bounds: .* loads b_ptr"),
    ("quantised_matmul", "(packed >> 4).to(tl.float32) - 8", "(packed >> 4).to(tl.float32)", r"c\[0, 0\] is "),
    ("flash_attention", "acc * factor[:, None]", "acc", r"out\[\d+, 0\] is "),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong", "said"), MISTAKES)
def test_a_mistake_is_told_what_is_wrong(name, right, wrong, said, tmp_path):
    text = solved(found(name))
    assert right in text
    done = verdict(name, text.replace(right, wrong), tmp_path)
    assert not done.passed and str(tmp_path) not in done.text
    assert re.search(said, done.text, re.DOTALL), done.text


def test_places_are_those_of_this_file_whatever_was_compiled_before(tmp_path):
    """Code from the disk cache was compiled for the same text in another folder."""
    text = solved(found("vector_add")).replace("x_ptr + offsets, mask=mask", "x_ptr + offsets")
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        assert str(tmp_path) not in verdict("vector_add", text, folder).text


def test_the_mark_is_no_number_that_kernels_make():
    assert np.isnan(MARK) and untouched(np.full(3, MARK, np.float32)).all()
    assert not untouched(np.array([np.nan, np.inf, 0], np.float32)).any()


@pytest.mark.parametrize("which", ["3", "03", "outer_sum", "03_outer_sum.py"])
def test_an_exercise_is_found_by_number_and_by_name(which):
    assert found(which).name == "outer_sum" and found(which).number == 3


@pytest.mark.parametrize("which", ["0", "13", "outer"])
def test_what_is_no_exercise_is_refused(which):
    with pytest.raises(TilewrightError, match="from 1 to 12"):
        found(which)
