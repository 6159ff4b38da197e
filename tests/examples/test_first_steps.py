"""docs/first_steps.md: what it shows is what its program prints and the debugger answers; its notebook is in step."""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys

import pytest

from tests.meta.sources import ROOT
from tilewright.tools import notebook

PAGE = (ROOT / "docs" / "first_steps.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|text|console)\n(.*?)```", PAGE, re.DOTALL)
PROGRAM = "\n".join(text for kind, text in BLOCKS if kind == "python")
SHOWN = "".join(text for kind, text in BLOCKS if kind == "text")


def _run(folder, program, **environment):
    """What `subprocess.run` is called with."""
    (folder / "first_steps.py").write_text(program, encoding="utf-8")
    settings = {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(folder / "cache")}
    return {
        "args": [sys.executable, "first_steps.py"], "cwd": folder, "text": True, "capture_output": True,
        "env": {**os.environ, **settings, **environment},
    }  # fmt: skip


def _plain(text, folder):
    return text.replace(f"{folder}{os.sep}", "")


def test_the_program_prints_what_the_page_shows(tmp_path):
    done = subprocess.run(**_run(tmp_path, PROGRAM))
    assert done.returncode == 0, done.stderr
    assert _plain(done.stdout, tmp_path) == SHOWN


def test_the_debugger_answers_what_the_page_shows(tmp_path):
    (session,) = [text for kind, text in BLOCKS if kind == "console"]
    commands = re.findall(r"^\(Pdb\) (.*)$", session, re.MULTILINE)
    assert len(commands) >= 5 and commands[-1] == "quit"
    program = PROGRAM.replace("# breakpoint()", "breakpoint()").split("import tilewright.sanitize")[0]
    run = _run(tmp_path, program, TILEWRIGHT_INTERPRET="1", PYTHONBREAKPOINT="")
    done = subprocess.run(**run, input="\n".join(commands) + "\n")
    answers = re.findall(r"\(Pdb\) ((?!> |-> )\S.*)", done.stdout)
    shown = [line for line in session.splitlines()[1:] if not line.startswith("(Pdb)")]
    assert answers == shown, done.stdout + done.stderr


def test_the_notebook_is_in_step():
    assert notebook.written("first_steps") == notebook.path("first_steps").read_text(encoding="utf-8"), (
        "run python -m tilewright.tools.notebook"
    )


def test_the_notebook_has_all_of_the_page_and_runs_cell_by_cell(capsys, monkeypatch):
    cells = json.loads(notebook.path("first_steps").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "\n\n".join(code).split() == PROGRAM.split()
    scope = {"__name__": "__main__"}
    for number, text in enumerate(code):
        name = f"<cell {number}>"
        monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
        exec(compile(text, name, "exec"), scope)
    assert "no combined sums" in capsys.readouterr().out


@pytest.mark.parametrize("name", re.findall(r"\]\((pictures/\w+\.png)\)", PAGE))
def test_pictures_exist(name):
    assert (ROOT / "docs" / name).stat().st_size > 5000
