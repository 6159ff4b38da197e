"""A few random kernels in every test run, and every kernel that once failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.case import Statement
from tests.fuzz.coverage import counted, missing
from tests.fuzz.generator import Profile, generate
from tests.fuzz.pool import Job, Pool
from tests.fuzz.products import SPELLINGS as OF_PRODUCTS
from tests.fuzz.rows import SPELLINGS as OF_ROWS
from tests.fuzz.shrink import shrink

FOUND = sorted((Path(__file__).resolve().parent / "found").glob("*.py"))
FIRST = 20260
PROFILES = {
    "powers_of_two": (24, Profile(statements=10)),
    "any_shape": (12, Profile(any_shape=True, statements=10)),
    "products_with_amx": (6, Profile(statements=3, products=True, cpu="emeraldrapids")),
}


@pytest.mark.parametrize("name", PROFILES)
def test_random_kernels_agree(tmp_path: Path, name: str) -> None:
    count, profile = PROFILES[name]
    jobs = []
    for seed in range(FIRST, FIRST + count):
        path = tmp_path / f"case_{seed}.py"
        path.write_text(generate(seed, profile).source())
        jobs.append(Job(seed, path, interpreter=seed % 3 == 0))
    with Pool(2) as pool:
        outcomes = list(pool.run(jobs))
    failures = {job.label: (found.kind, found.detail) for job, found in outcomes if not found.passed}
    assert failures == {}


def test_every_spelling_is_drawn_and_agrees(tmp_path: Path) -> None:
    profile = Profile(statements=3, products=True)
    cases = [generate(seed, profile) for seed in range(240)]
    jobs, missing = [], set(OF_PRODUCTS | OF_ROWS)
    while missing:
        case = max(cases, key=lambda case: len(case.spelled & missing))
        assert case.spelled & missing, f"never drawn: {missing}"
        missing -= case.spelled
        path = tmp_path / f"case_{case.seed}.py"
        path.write_text(case.source())
        jobs.append(Job(case.seed, path, interpreter=False))
    with Pool(2) as pool:
        outcomes = list(pool.run(jobs))
    assert {job.label: found.detail for job, found in outcomes if not found.passed} == {}


def test_what_the_language_has_is_drawn() -> None:
    """Half as often as `python -m tests.fuzz.coverage` asks of more kernels."""
    count = 800
    single, _ = counted(range(count))
    assert missing(single, count, least=0.005) == []


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    with Pool(1) as pool:
        yield pool


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_kernel_that_once_failed(worker: Pool, path: Path) -> None:
    ((_, outcome),) = worker.run([Job(0, path)])
    assert outcome.passed, outcome.detail


def test_a_seed_gives_one_kernel() -> None:
    assert generate(5).source() == generate(5).source()
    assert generate(5).source() != generate(6).source()


_DIGEST = """
import hashlib, importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from tests.fuzz.generator import Profile, generate
text = "".join(generate(seed, Profile(any_shape=seed % 2 == 1)).source() for seed in range(12))
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_a_seed_gives_one_kernel_whatever_was_imported_first() -> None:
    orders = [], ["tests.fuzz.rows"], ["tests.fuzz.names", "tests.fuzz.shapes"]
    runs = [subprocess.run([sys.executable, "-c", _DIGEST, *o], capture_output=True, text=True) for o in orders]
    assert len({run.stdout for run in runs}) == 1 and runs[0].stdout, [run.stderr for run in runs]


def test_a_crash_is_an_outcome(tmp_path: Path) -> None:
    path = tmp_path / "crash.py"
    path.write_text("import os\nos.abort()\n")
    good = tmp_path / "good.py"
    good.write_text(generate(5).source())
    with Pool(1) as pool:
        kinds = [outcome.kind for _, outcome in pool.run([Job(0, path), Job(1, good, interpreter=False)])]
    assert kinds == ["crash: SIGABRT", ""]


def test_a_silent_worker_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "sleep.py"
    path.write_text("import time\ntime.sleep(60)\n")
    with Pool(1, timeout=2.0) as pool:
        ((_, outcome),) = pool.run([Job(0, path)])
    assert outcome.stage == "timeout"


def test_shrinking_keeps_what_fails() -> None:
    case = generate(11)
    case.body.append(Statement("marker = pid0 + 41"))
    small = shrink(case, lambda changed: "pid0 + 41" in changed.source(), budget=5000)
    assert [statement.text for statement in small.body] == ["marker = pid0 + 41"]
    assert small.grid == (1,) and small.cpu == ""
