"""`python -m tests.fuzz`: run random kernels, shrink what fails, and keep it as regression tests.

seeds --generator--> case files --pool--> outcomes --shrink--> tests/fuzz/found/
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import llvmlite
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz.case import Case
from tests.fuzz.check import Outcome
from tests.fuzz.generator import Profile, generate
from tests.fuzz.pool import Job, Pool
from tests.fuzz.shrink import shrink
from tilewright.base.version import __version__

FOUND = Path(__file__).resolve().parent / "found"
CONSOLE = Console(stderr=True)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="number of kernels (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first kernel; the others follow")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that one kernel may take")
    parser.add_argument("--any-shape", action="store_true", help="also extents that are not powers of two")
    parser.add_argument("--products", action="store_true", help="each kernel multiplies matrices over the whole grid")
    parser.add_argument("--long", action="store_true", help="kernels of some 2,000 operations, element by element")
    parser.add_argument(
        "--cpu", default="", help="CPU for all kernels, or host; AVX-512 and AMX are emulated if need be"
    )
    parser.add_argument("--gpu", action="store_true", help="run the kernels on an NVIDIA GPU rather than on the CPU")
    parser.add_argument("--no-interpreter", action="store_true", help="leave interpreter mode out")
    parser.add_argument("--no-shrink", action="store_true", help="report failures as they are")
    parser.add_argument("--log", type=Path, help="write a summary as JSON to this file")
    parser.add_argument("--found", type=Path, default=FOUND, help="folder for the cases that fail")
    return parser.parse_args()


def main() -> int:
    """Run; the exit status is 1 if a kernel failed."""
    options = arguments()
    begin = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="tilewright-fuzz-"))
    try:
        with Pool(options.jobs, options.timeout) as pool:
            counts, failures = run(options, pool, folder)
            for seed, outcome in first_of_each_kind(failures):
                report(options, pool, folder, seed, outcome)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - begin
    CONSOLE.print(f"{options.cases} kernels, {len(failures)} failures, {seconds:.0f} s: {dict(counts)}")
    if options.log:
        options.log.write_text(json.dumps(summary(options, counts, seconds), indent=2) + "\n")
    return 1 if failures else 0


def profile_of(options: argparse.Namespace) -> Profile:
    """What the command line says of kernels."""
    statements = 300 if options.long else 4 if options.products else Profile.statements
    return Profile(options.any_shape, statements, products=options.products, cpu=options.cpu, long=options.long)


def run(
    options: argparse.Namespace, pool: Pool, folder: Path
) -> tuple[collections.Counter[str], list[tuple[int, Outcome]]]:
    """All kernels; gives how often each kind of outcome occurred, and the failures."""
    counts: collections.Counter[str] = collections.Counter()
    failures: list[tuple[int, Outcome]] = []
    profile = profile_of(options)

    def jobs() -> Iterator[Job]:
        for seed in range(options.seed, options.seed + options.cases):
            path = folder / f"case_{seed}.py"
            path.write_text(generate(seed, profile).source())
            yield Job(seed, path, not options.no_interpreter, options.gpu)

    columns = (TextColumn("kernels"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"))
    with Progress(*columns, TimeRemainingColumn(), console=CONSOLE) as progress:
        task = progress.add_task("", total=options.cases, failed=0)
        for job, outcome in pool.run(jobs()):
            counts[outcome.kind or "ok"] += 1
            if outcome.passed:
                job.path.unlink()
            else:
                failures.append((job.label, outcome))
                CONSOLE.print(f"seed {job.label}: {outcome.kind}", highlight=False)
            progress.update(task, advance=1, failed=len(failures))
    return counts, failures


def first_of_each_kind(failures: list[tuple[int, Outcome]]) -> list[tuple[int, Outcome]]:
    """Up to three failures of each kind."""
    kinds: dict[str, list[tuple[int, Outcome]]] = collections.defaultdict(list)
    for seed, outcome in sorted(failures, key=lambda f: f[0]):
        kinds[outcome.kind].append((seed, outcome))
    return [failure for group in kinds.values() for failure in group[:3]]


def report(options: argparse.Namespace, pool: Pool, folder: Path, seed: int, outcome: Outcome) -> None:
    """Shrink a failure, print it and save it."""
    case = generate(seed, profile_of(options))
    candidate = folder / "candidate.py"
    count = 0

    def fails(changed: Case) -> bool:
        nonlocal count, candidate
        count += 1
        candidate = folder / f"shrink_{seed}_{count}.py"  # a new name: Python keeps the text of files that it has seen
        candidate.write_text(changed.source())
        with_interpreter = outcome.stage.startswith("interpreter")
        return any(
            found.kind == outcome.kind for _, found in pool.run([Job(seed, candidate, with_interpreter, options.gpu)])
        )

    if not options.no_shrink:
        case = shrink(case, fails)
    case.note = f"Seed {seed}: {outcome.kind}."
    options.found.mkdir(parents=True, exist_ok=True)
    path = options.found / f"case_{seed}.py"
    path.write_text(case.source())
    final = next(iter(pool.run([Job(seed, path, gpu=options.gpu)])))[1]
    CONSOLE.rule(f"seed {seed}: {outcome.kind}")
    CONSOLE.print(case.source(), highlight=False, markup=False)
    CONSOLE.print((final.detail or outcome.detail)[-2500:], highlight=False, markup=False)
    CONSOLE.print(f"saved as {path}", highlight=False)


def summary(options: argparse.Namespace, counts: collections.Counter[str], seconds: float) -> dict[str, object]:
    """What a log says of a run."""
    return {
        "command": " ".join(["python -m tests.fuzz", *sys.argv[1:]]),
        "kernels": options.cases,
        "first_seed": options.seed,
        "outcomes": dict(counts),
        "seconds": round(seconds, 1),
        "versions": {
            "tilewright": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "llvmlite": llvmlite.__version__,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
