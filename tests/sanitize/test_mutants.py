"""Mutants of the corpus: what an oracle names, the checks find; the large draw is `python -m tests.sanitize`."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

from tests.sanitize.__main__ import in_turns
from tests.sanitize.check import examine, warm_up
from tests.sanitize.mutants import every_mutant

FEW = 60 if os.environ.get("TILEWRIGHT_STRESS") else 3


def test_rules_apply_all_over_the_corpus() -> None:
    drawn = list(every_mutant())
    assert len({mutant.rule for mutant in drawn}) == 10 and len(drawn) > 2000
    assert all("\n" in mutant.text() for mutant in drawn[::500])


def test_marked_kernels_are_the_same_but_for_their_names() -> None:
    drawn = [mutant for mutant in every_mutant() if mutant.file == "norms"][::40]
    plain = [mutant.text() for mutant in drawn]
    marked = [mutant.text("_mutant7") for mutant in drawn]
    assert all("_mutant7[" in text for text in marked) and [mutant.text() for mutant in drawn] == plain
    assert [text.replace("_mutant7", "") for text in marked] == plain


def test_what_the_oracle_names_is_found() -> None:
    warm_up()
    faulty = 0
    for mutant in in_turns(20):
        row = examine(mutant)
        faulty += row.is_faulty
        assert not row.is_faulty or row.is_found, (row, mutant.text())
        assert row.is_faulty or row.unusable or set(row.kinds) <= {"uninitialised", "never written"} or row.error, row
        if faulty == FEW:
            break
