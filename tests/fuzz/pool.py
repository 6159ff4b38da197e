"""Worker processes for case files: a crash or a hang becomes an outcome, and a new process takes the place of the old.

parent --path--> worker --outcome--> parent        worker dies or is silent --> "crash" / "timeout"
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fuzz.check import Outcome

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """A case file to run and how (see `check`), and a label for who asked."""

    label: int
    path: Path
    interpreter: bool = True
    gpu: bool = False


class _Worker:
    """One process, and the job that it is at.

    Args:
        timeout: seconds that a job may take.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.job: Job | None = None
        self.process: subprocess.Popen[str] | None = None
        self.since = 0.0

    def start(self, job: Job) -> None:
        """Give the process a job; it is idle, or not there yet."""
        if self.process is None:
            path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
            env = dict(os.environ, PYTHONPATH=path, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=env,
            )  # fmt: skip
        assert self.process.stdin is not None
        self.job, self.since = job, time.monotonic()
        try:
            self.process.stdin.write(json.dumps({**asdict(job), "path": str(job.path)}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # it died at the end of its last job; `answer` sees the end of its output
            pass

    def answer(self) -> Outcome:
        """The outcome that the process wrote, or how it died."""
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return Outcome(*json.loads(line))
        code = self.process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.process = None
        return Outcome("crash", f"the process ended with {name}", f"crash: {name}")

    def overdue(self) -> bool:
        return self.job is not None and time.monotonic() - self.since > self.timeout

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Pool:
    """A few workers.

    Args:
        size: number of processes.
        timeout: seconds that a case may take before it counts as hanging.
    """

    def __init__(self, size: int = 2, timeout: float = 60.0) -> None:
        self.workers = [_Worker(timeout) for _ in range(size)]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Run jobs, as they come; gives outcomes in the order in which they are found."""
        waiting = iter(jobs)
        while True:
            for worker in self.workers:
                if worker.job is None:
                    job = next(waiting, None)
                    if job is not None:
                        worker.start(job)
            busy = [w for w in self.workers if w.job is not None]
            if not busy:
                return
            yield from self._wait(busy)

    def _wait(self, busy: list[_Worker]) -> Iterator[tuple[Job, Outcome]]:
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                assert worker.process is not None and worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select(timeout=1.0)]
        for worker in busy:
            job = worker.job
            if worker in ready:
                worker.job = None
                yield job, worker.answer()
            elif worker.overdue():
                worker.stop()
                worker.job = None
                yield job, Outcome("timeout", f"not done after {worker.timeout:g} s", "timeout")
