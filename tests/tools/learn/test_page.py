"""docs/learn.md: its tables are those of the code, and what it shows is what is said."""

from __future__ import annotations

import re

from tests.meta.sources import ROOT
from tilewright.tools.learn.catalogue import EXERCISES, found
from tilewright.tools.learn.check import check
from tilewright.tools.learn.command import learn
from tilewright.tools.learn.course import shipped, solved

PAGE = (ROOT / "docs" / "learn.md").read_text(encoding="utf-8")


def test_every_exercise_has_its_row():
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(str(exercise.number), exercise.name, exercise.title) for exercise in EXERCISES]


def test_every_command_has_its_row():
    commands = PAGE.split("| command |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)", commands, re.MULTILINE)) == set(learn.commands)


def test_what_is_shown_is_what_is_said(tmp_path):
    mistakes = {
        "vector_add": ("x_ptr + offsets, mask=mask", "x_ptr + offsets"),
        "outer_sum": ("[:, None] * m", "[:, None] * n"),
    }
    for name, (right, wrong) in mistakes.items():
        exercise = found(name)
        file = tmp_path / exercise.file
        file.write_text(solved(exercise).replace(right, wrong))
        said = check(exercise, file, shipped(exercise)).text
        shown = f"{exercise.file}: not yet\n" + "\n".join(f"  {line}".rstrip() for line in said.splitlines())
        assert shown in PAGE, shown
