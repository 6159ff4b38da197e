"""What the planners decide on every example and on many spellings of the same computations is what it was.

A text that changed says which kernel, which line and why. Where the change is meant: `python -m tests.decisions`.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys

import pytest

from tests.decisions.examples import stems
from tests.decisions.families import CASES, FAMILIES, kernels_of
from tests.decisions.harness import GOLDEN, TARGETS, golden_file, golden_text
from tests.meta.sources import ROOT
from tilewright.backends.cpu.plan import subjects as cpu
from tilewright.backends.nvidia.plan import subjects as nvidia
from tilewright.ir.subjects import GENERAL
from tilewright.tools import examples

ALWAYS = {cpu.DOT.name, cpu.APART_AT_LAUNCH.name}  # of these there is no No: the answer says how
ALWAYS |= {cpu.VECTORS.name}  # its No is in tests/backends/cpu/test_fuse_rows.py: no kernel here needs it
NEVER = {nvidia.CLUSTER.name}  # and of these no Yes: the back end has none so far


@pytest.mark.parametrize(("family", "target"), CASES, ids=[f"{family}-{target}" for family, target in CASES])
def test_decisions_are_what_they_were(family, target):
    made, kept = golden_text(kernels_of(family), target), golden_file(family, target).read_text(encoding="utf-8")
    diff = list(difflib.unified_diff(kept.splitlines(), made.splitlines(), "kept", "made", lineterm="", n=6))
    assert not diff, "\n".join(["decisions changed; if that is meant: python -m tests.decisions", *diff])


def test_every_golden_text_is_checked():
    assert {path.name for path in GOLDEN.iterdir()} == {golden_file(*case).name for case in CASES}


def test_every_example_is_there():
    assert stems() == {path.stem for path in examples.folder().glob("*.py")}


def test_every_computation_has_a_dozen_other_spellings():
    assert all(len(kernels_of(family)) > 12 for family in FAMILIES)


@pytest.mark.parametrize("backend", [cpu, nvidia], ids=["cpu", "nvidia"])
def test_every_subject_is_seen_with_yes_and_with_no(backend):
    """A planner that stopped to answer would be missed here."""
    mine = [target for target, place in TARGETS.items() if place.startswith("cpu") == (backend is cpu)]
    text = "\n".join(golden_file(*case).read_text(encoding="utf-8") for case in CASES if case[1] in mine)
    seen = set(re.findall(r"^ +(yes|no ) +([A-Za-z -]+):", text, re.MULTILINE))
    answers = dict.fromkeys(ALWAYS, ("yes",)) | dict.fromkeys(NEVER, ("no ",))
    answers |= dict.fromkeys((subject.name for subject in GENERAL), ())  # tests/backends/test_answers.py
    answers["whole program"] = ()  # of assembled kernels: tests/backends/nvidia/test_cubin.py
    assert seen >= {(said, s.name) for s in backend.SUBJECTS for said in answers.get(s.name, ("yes", "no "))}
    assert {name for _, name in seen} == {
        subject.name for subject in backend.SUBJECTS if answers.get(subject.name) != ()
    }


def test_texts_do_not_depend_on_the_process():
    """Sets hashed by address or by random seeds would show in another process."""
    code = (
        "from tests.decisions.families import kernels_of; from tests.decisions.harness import golden_text\n"
        "print(golden_text(kernels_of('matmul'), 'cuda90') + golden_text(kernels_of('matmul'), 'avx512'), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "".join(golden_file("matmul", t).read_text(encoding="utf-8") for t in ("cuda90", "avx512"))
