"""Worker processes that compile and measure candidates, and may crash, hang or be killed.

    driver --jobs--> Pool --pipe--> worker: Bench
                       ^----outcomes----'   '--> a slot of shared memory: (candidate, since when)

What a worker is at stands in its slot, so that of one that ends or takes too long only that candidate is lost: another
worker takes its place and goes on with the rest of the job. Workers are forked off with the kernel and its arguments in
their memory; for a GPU, which a forked process cannot use, they are fresh processes that are sent both (program.py).
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Protocol, cast

import torch

import tilewright
from tilewright.hl.tune.bench import Bench, Subject
from tilewright.hl.tune.outcomes import Failed, Job, Outcome

_SLOT = struct.Struct("<qd")  # number of a candidate, `time.monotonic()` when it was taken up
_TICK, _GRACE = 0.25, 0.4  # seconds between two looks at the time; that a worker has behind a deadline to answer


class Slot:
    """Shared memory in which a worker says what it is at.

    Args:
        file: of the size of a slot.
    """

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, _SLOT.size)

    @staticmethod
    def file() -> int:
        """A new file for a slot, which nobody else can open."""
        with tempfile.TemporaryFile() as made:
            made.write(_SLOT.pack(-1, time.monotonic()))
            made.flush()
            return os.dup(made.fileno())

    def write(self, number: int) -> None:
        """Say that a candidate is taken up."""
        _SLOT.pack_into(self._memory, 0, number, time.monotonic())

    def read(self) -> tuple[int, float]:
        """The candidate, and since when."""
        number, since = _SLOT.unpack_from(self._memory)
        return number, since


class Process(Protocol):
    """A process that can be ended."""

    def kill(self) -> None:
        """End it at once."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    @property
    def exitcode(self) -> int | None:
        """Its status; minus a signal that ended it."""


Start = Callable[[Connection, int], Process]
"""Starts a worker, given its end of the pipe and the file of its slot."""


def live(subject: Callable[[], Subject], connection: Connection, slot: Slot) -> None:
    """The life of a worker: jobs until the pipe ends.

    Args:
        subject: gives what the jobs are about.
        connection: the pipe.
        slot: says what it is at.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    bench: Bench | None = None
    with connection:
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            slot.write(job.items[0][0])
            bench = bench or Bench(subject(), slot.write)
            bench.do(job, lambda number, outcome: connection.send((number, outcome)))
            connection.send(None)


def forked(subject: Callable[[], Subject]) -> Start:
    """Workers that are forked off."""
    threads = tilewright.knobs.cpu.num_threads or torch.get_num_threads()

    def start(connection: Connection, file: int) -> Process:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with warnings.catch_warnings():  # of threads, whose locks a child may find taken: it needs none of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return _Forked(pid)
        status = 1
        try:
            # Threads of OpenMP do not survive a fork: torch gets by with one, and kernels have a team of their own.
            tilewright.knobs.cpu.num_threads = threads
            torch.set_num_threads(1)
            live(subject, connection, Slot(file))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    return start


class _Forked:
    """A process that was forked off, in the words of `Process`; one of `multiprocessing` may not have children where
    it is a daemon, as those of a `DataLoader` are.

    Args:
        pid: of the process.

    Attributes:
        exitcode: its status; minus a signal that ended it; None while it lives, or is not waited for.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self.exitcode = pid, cast("int | None", None)

    def kill(self) -> None:
        """End it at once."""
        if self.exitcode is None:
            os.kill(self._pid, signal.SIGKILL)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        last = None if timeout is None else time.monotonic() + timeout
        while self.exitcode is None:
            pid, status = os.waitpid(self._pid, 0 if last is None else os.WNOHANG)
            if pid:
                self.exitcode = os.waitstatus_to_exitcode(status)
            elif last is not None and time.monotonic() >= last:
                return
            else:
                time.sleep(0.002)


@dataclass(eq=False)
class Worker:
    """A worker, as the pool sees it."""

    process: Process
    connection: Connection
    slot: Slot
    job: Job | None = None
    answered: set[int] = field(default_factory=set)

    @staticmethod
    def started(start: Start) -> Worker:
        """A new one."""
        ours, theirs = multiprocessing.Pipe()
        file = Slot.file()
        try:
            return Worker(start(theirs, file), ours, Slot(file))
        finally:
            theirs.close()
            os.close(file)

    def take(self, job: Job) -> None:
        """Have it do a job; one that has died meanwhile is found when its pipe is read."""
        job = job.begun()
        self.job, self.answered = job, set()
        self.slot.write(job.items[0][0])
        try:
            self.connection.send(job)
        except OSError:
            return

    def end(self) -> int | None:
        """Make an end of it; its status if it had one."""
        self.process.join(0.05)
        code = self.process.exitcode
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode if code is None else code


@dataclass
class Staff:
    """Workers of one kind.

    Args:
        starts: how each of them is started; one that has ended is started anew.

    Attributes:
        waiting: jobs that nobody has taken.
        workers: those that live, by their place in `starts`.
    """

    starts: Sequence[Start]
    waiting: list[Job] = field(default_factory=list)
    workers: dict[int, Worker] = field(default_factory=dict)

    def hand_out(self) -> None:
        """Give waiting jobs to workers that have none."""
        for at, start in enumerate(self.starts):
            worker = self.workers.get(at)
            if self.waiting and (worker is None or worker.job is None):
                worker = self.workers[at] = worker or Worker.started(start)
                worker.take(self.waiting.pop(0))

    def busy(self) -> list[Worker]:
        """Workers that have a job."""
        return [worker for worker in self.workers.values() if worker.job is not None]

    def dismiss(self, worker: Worker) -> int | None:
        """Make an end of one; its status."""
        self.workers = {at: other for at, other in self.workers.items() if other is not worker}
        return worker.end()


class Pool:
    """All workers of a tuning.

    Args:
        compilers: how each of those that compile is started.
        benches: how each of those that measure is started; a device has one.
        tick: called a few times a second while `outcomes` waits.
        together: compiling and measuring do not disturb each other, so both may go on at once.
    """

    def __init__(
        self,
        compilers: Sequence[Start],
        benches: Sequence[Start],
        tick: Callable[[], None] = lambda: None,
        together: bool = False,
    ) -> None:
        self._compilers, self._benches, self._tick = Staff(compilers), Staff(benches), tick
        self.together = together
        if together:  # a fresh process takes seconds to start: they begin with the first compilation
            self._benches.workers = {at: Worker.started(start) for at, start in enumerate(benches)}

    @property
    def devices(self) -> int:
        """How many candidates are measured at once."""
        return len(self._benches.starts)

    def submit(self, job: Job) -> None:
        """Have a job done; more may be submitted while outcomes come."""
        (self._compilers if job.plan is None else self._benches).waiting.append(job)

    def outcomes(self, deadline: float = float("inf")) -> Iterator[tuple[int, Outcome]]:
        """Outcomes as they come, with the candidate's number, until all jobs are done.

        Args:
            deadline: the `time.monotonic()` at which whoever is still busy is ended, and what nobody has taken dropped.
        """
        while (heard := self.turn(deadline)) is not None:
            yield from heard

    def turn(self, deadline: float, patience: float = _TICK) -> list[tuple[int, Outcome]] | None:
        """What comes within some seconds; None where nothing is to be done any more.

        Args:
            deadline: as of `outcomes`.
            patience: seconds to wait for somebody.
        """
        for staff in (self._compilers, self._benches):
            staff.hand_out()
        busy = [(staff, worker) for staff in (self._compilers, self._benches) for worker in staff.busy()]
        if not busy:
            return None
        now = time.monotonic()
        if now >= deadline + _GRACE or (now >= deadline and not self._benches.busy()):
            self._abandon()
            return None
        heard: list[tuple[int, Outcome]] = []
        by_pipe = {worker.connection: (staff, worker) for staff, worker in busy}
        for pipe in wait(list(by_pipe), min(patience, max(0.0, deadline + _GRACE - now))):
            heard += self._heard(*by_pipe[pipe])  # type: ignore[index]
        for staff, worker in busy:
            heard += self._overdue(staff, worker)
        self._tick()
        return heard

    def _heard(self, staff: Staff, worker: Worker) -> Iterator[tuple[int, Outcome]]:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            code = staff.dismiss(worker)
            how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
            yield from self._lost(staff, worker, Failed("crash", f"the process that had it ended with {how}"))
            return
        except Exception as error:  # an outcome that cannot be unpickled here
            message = worker.slot.read()[0], Failed.of(error)
        if message is None:
            worker.job = None
            return
        worker.answered.add(message[0])
        yield message

    def _overdue(self, staff: Staff, worker: Worker) -> Iterator[tuple[int, Outcome]]:
        """End a worker that takes too long."""
        if worker.job is None or time.monotonic() - worker.slot.read()[1] <= worker.job.limit:
            return
        staff.dismiss(worker)
        what = "compiled" if worker.job.plan is None else "run"
        why = f"it was stopped: it had not {what} within {worker.job.limit:.3g} s"
        yield from self._lost(staff, worker, Failed("timeout", why))

    def _lost(self, staff: Staff, worker: Worker, failed: Failed) -> Iterator[tuple[int, Outcome]]:
        """The candidate that a worker which is no more was at is lost, and the rest of its job is done anew."""
        job, number = worker.job, worker.slot.read()[0]
        if job is None:
            return
        worker.job = None
        out = worker.answered | {number}
        rest = [item for item in job.items if item[0] not in out]
        if rest:
            staff.waiting.insert(0, replace(job, items=rest))
        if number not in worker.answered:
            yield number, failed

    def _abandon(self) -> None:
        for staff in (self._compilers, self._benches):
            staff.waiting.clear()
            for worker in staff.busy():
                staff.dismiss(worker)

    def close(self) -> None:
        """Make an end of all workers."""
        for staff in (self._compilers, self._benches):
            staff.waiting.clear()
            for worker in list(staff.workers.values()):
                staff.dismiss(worker)
