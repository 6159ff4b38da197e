"""Work in child processes, with a limit of time for each task: what hangs or dies loses its own task alone."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

import torch

Task = tuple[Any, ...]


def spread(
    work: Callable[..., Any], tasks: Sequence[Task], jobs: int, limit: float, seconds: float
) -> Iterator[tuple[Task, Any]]:
    """(task, what `work(*task)` gave) as they are done; an exception in place of a result says what became of it.

    Args:
        work: a function of a module.
        tasks: its arguments, in the order in which they are begun.
        jobs: processes beside each other; each works on one CPU thread.
        limit: seconds of a task.
        seconds: of all: tasks that are not done by then are left out.
    """
    waiting, end = deque(tasks), time.monotonic() + seconds
    children = [_Child(work) for _ in range(min(jobs, len(tasks)))]
    try:
        while time.monotonic() < end and (waiting or any(child.task for child in children)):
            for child in children:
                if child.task is None and waiting:
                    child.begin(waiting.popleft(), limit)
            connection.wait([child.pipe for child in children if child.task], timeout=0.2)
            for at, child in enumerate(children):
                found = child.found()
                if found is None:
                    continue
                yield found
                if not child.process.is_alive():
                    children[at] = _Child(work)
    finally:
        for child in children:
            child.stop()


class _Child:
    """A process that does one task after another."""

    def __init__(self, work: Callable[..., Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, work))
        self.process.start()
        other.close()
        self.task: Task | None = None
        self.end = 0.0

    def begin(self, task: Task, limit: float) -> None:
        self.task, self.end = task, time.monotonic() + limit
        self.pipe.send(task)

    def found(self) -> tuple[Task, Any] | None:
        """What became of the task, once it is known; a process that is late or dead is stopped."""
        task = self.task
        if task is None:
            return None
        result: Any = None
        try:
            if self.pipe.poll():
                result = self.pipe.recv()
            elif time.monotonic() > self.end:
                result = TimeoutError("took too long")
                self.stop()
            else:
                return None
        except (EOFError, OSError):
            result = ChildProcessError("the process died")
            self.stop()
        self.task = None
        return task, result

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def _serve(pipe: Any, work: Callable[..., Any]) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            result = work(*task)
        except Exception as error:
            result = RuntimeError(f"{type(error).__name__}: {error}"[:300])
        pipe.send(result)
