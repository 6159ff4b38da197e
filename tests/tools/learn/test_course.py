"""`tilewright learn`: the commands, a learner's folder, and what is remembered."""

from __future__ import annotations

import threading
import time

import pytest
from click.testing import CliRunner

from tilewright.tools import cli
from tilewright.tools.learn.catalogue import EXERCISES, found
from tilewright.tools.learn.course import Course, shipped, solved

FIRST, SECOND = EXERCISES[:2]


@pytest.fixture
def folder(tmp_path):
    assert _learn("start", str(tmp_path)).exit_code == 0
    return tmp_path


def _learn(*arguments):
    return CliRunner().invoke(cli.main, ["learn", *map(str, arguments)])


def test_start_writes_twelve_files_and_leaves_those_that_are_there(folder):
    assert sorted(path.name for path in folder.glob("*.py")) == [exercise.file for exercise in EXERCISES]
    assert len(EXERCISES) == 12 and (folder / SECOND.file).read_text() == shipped(SECOND)
    (folder / FIRST.file).write_text("mine")
    (folder / SECOND.file).unlink()
    assert "1 exercises written" in _learn("start", folder).output
    assert (folder / FIRST.file).read_text() == "mine" and (folder / SECOND.file).read_text() == shipped(SECOND)


def test_check_goes_on_up_to_the_first_that_is_wrong_and_remembers(folder):
    (folder / FIRST.file).write_text(solved(FIRST))
    done = _learn("check", "-d", folder)
    assert done.exit_code == 1
    assert "01_constant.py: right, in 1 case" in done.output and "02_vector_add.py: not yet" in done.output
    assert "1 of 12 done; next: 02_vector_add.py" in done.output
    again = _learn("check", "-d", folder).output
    assert "01_constant" not in again and "02_vector_add.py: not yet" in again
    listed = _learn("list", "-d", folder).output.splitlines()
    assert listed[0].startswith("done  01_") and listed[1].startswith("next  02_") and len(listed) == 12
    assert _learn("check", "1", "-d", folder).exit_code == 0
    (folder / FIRST.file).write_text(shipped(FIRST))
    assert _learn("check", "1", "-d", folder).exit_code == 1
    assert Course(folder).next() is FIRST


def test_breakpoints_and_prints_work_in_an_attempt(folder):
    text = solved(FIRST).replace("    tl.store", "    print('first', x.numpy()[0])\n    tl.store")
    (folder / FIRST.file).write_text(text)
    done = _learn("check", "1", "--interpret", "-d", folder)
    assert done.exit_code == 0 and done.output.count("first 1.1176") == 1 and "run as Python" in done.output
    assert not Course(folder).passed  # what runs as Python alone is not done yet


def test_hints_come_one_by_one_and_the_solution_is_shown(folder):
    hints = FIRST.hints
    first = _learn("hint", "-d", folder).output
    assert hints[0] in first and hints[1] not in first and "1 more: ask again" in first
    second = _learn("hint", "1", "-d", folder).output
    assert hints[0] in second and hints[1] in second and "learn show 1" in second
    assert _learn("show", "1").output == solved(FIRST)


def test_reset_keeps_what_was_there(folder):
    (folder / FIRST.file).write_text("mine")
    assert "yours is" in _learn("reset", "1", "-d", folder).output
    assert (folder / FIRST.file).read_text() == shipped(FIRST)
    assert (folder / f"{FIRST.file}.mine").read_text() == "mine"


def test_a_damaged_file_of_progress_is_said_to_be_so(folder):
    (folder / "progress.json").write_text("{")
    done = _learn("check", "-d", folder)
    assert done.exit_code == 1 and "cannot be read" in done.output and "check --all" in done.output


def test_a_folder_without_exercises_says_how_to_begin(tmp_path):
    done = _learn("check", "-d", tmp_path)
    assert done.exit_code == 1 and "tilewright learn start" in done.output
    assert _learn("list", "-d", tmp_path).exit_code == 0
    assert "there is no exercise" in _learn("show", "99").output


def test_watch_checks_again_when_a_file_is_saved(folder):
    def save():
        time.sleep(1)
        (folder / FIRST.file).write_text(solved(FIRST))

    thread = threading.Thread(target=save)
    thread.start()
    done = _learn("watch", "-d", folder, "--seconds", "0.05", "--rounds", "2")
    thread.join()
    assert done.exit_code == 0
    before, after = done.output.split("waiting for", 1)
    assert "01_constant.py: not yet" in before and "01_constant.py: right" in after and "1 of 12 done" in after


def test_when_all_are_done_it_says_so(folder):
    course = Course(folder)
    course.passed = [exercise.name for exercise in EXERCISES]
    course._save()
    done = _learn("check", "-d", folder)
    assert done.exit_code == 0 and "12 of 12 done: that is all of them" in done.output
    assert found("12") is EXERCISES[-1]
