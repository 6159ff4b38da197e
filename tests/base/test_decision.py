"""Answers as data, and their text."""

from __future__ import annotations

import json

from tilewright.base.decision import Decision, counted, from_records, lines_of, render
from tilewright.base.knobs import CompilationKnobs

_YES = Decision("ring buffer", True, "3 buffers", file="k.py", line=7)
_NO = Decision("wgmma", False, "its rows are too few", "64 rows or more", "k.py", 5, "k.py", 9)


def test_decisions_survive_json():
    records = json.loads(json.dumps([_YES.record(), _NO.record()]))
    assert from_records(records) == (_YES, _NO)


def test_equal_decisions_are_told_once_in_the_order_of_lines():
    assert counted([_YES, _NO, _YES]) == [(_NO, 1), (_YES, 2)]


def test_a_no_says_where_the_reason_is_and_what_to_write():
    assert lines_of(_NO) == ["no   wgmma: its rows are too few (line 9)", "     write 64 rows or more"]
    assert lines_of(_NO, first_line=5)[0].endswith("(line 5)")


def test_rendered_text():
    assert render([_YES, _YES, _NO], "kernel") == (
        "kernel\nk.py:5\n    no   wgmma: its rows are too few (line 9)\n         write 64 rows or more\n"
        "k.py:7\n    yes  ring buffer: 3 buffers (2 times)\n"
    )


def test_the_knob(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_EXPLAIN", "1")
    assert CompilationKnobs().explain
