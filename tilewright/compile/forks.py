"""Child processes that compile: each takes one call, with everything that was there when it was forked off.

    submit --fork--> child: fn(*args) --pipe--> result

Nothing is imported or sent to a child, so that kernels of any kind can be compiled there, without the second that a
fresh process takes to start. A child only computes: it launches nothing, touches no GPU, starts no threads, and leaves
without running what the parent has registered for its end.
"""

from __future__ import annotations

import os
import pickle
import selectors
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import InternalError


def can_fork() -> bool:
    """Whether children can be forked off safely: on Linux; elsewhere the system's libraries may not survive it."""
    return sys.platform == "linux" and hasattr(os, "fork")


class ForkExecutor(Executor):
    """Runs calls in children, a few at a time. Whoever waits for a result also starts the calls that wait.

    Args:
        workers: children at a time.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.RLock()
        self._waiting: deque[_Task] = deque()
        self._running = selectors.DefaultSelector()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a child call `fn`; the result, or the error, is pickled."""
        task = _Task(lambda: fn(*args, **kwargs), _ForkFuture(self))
        with self._lock:
            self._waiting.append(task)
            self._start()
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for everything that was submitted."""
        if cancel_futures:
            while self._waiting:
                self._waiting.popleft().future.cancel()
        while wait and self.pump(None):
            pass

    def pump(self, timeout: float | None) -> bool:
        """Take in what children have sent, and start others; False if there is nothing to wait for.

        Args:
            timeout: seconds to wait for one of them; None for as long as it takes.
        """
        with self._lock:
            self._start()
            if not self._running.get_map():
                return False
            for key, _ in self._running.select(timeout):
                data = os.read(key.fd, 1 << 20)
                task: _Task = key.data
                task.received += data
                if not data:
                    self._running.unregister(key.fd)
                    os.close(key.fd)
                    task.finish()
            self._start()
            return True

    def _start(self) -> None:
        while self._waiting and len(self._running.get_map()) < self._workers:
            task = self._waiting.popleft()
            if task.future.set_running_or_notify_cancel():
                self._running.register(task.fork(), selectors.EVENT_READ, task)


class _ForkFuture(Future[Any]):
    def __init__(self, executor: ForkExecutor) -> None:
        super().__init__()
        self._executor = executor

    def result(self, timeout: float | None = None) -> Any:
        while not self.done() and self._executor.pump(timeout):
            pass
        return super().result(timeout)


@dataclass(eq=False)
class _Task:
    call: Callable[[], Any]
    future: Future[Any]
    received: bytes = b""
    child: int = field(default=0)

    def fork(self) -> int:
        """Start the child; returns the end of the pipe on which it sends its result."""
        read, write = os.pipe()
        with warnings.catch_warnings():  # of threads, whose locks a child may find taken: it needs none of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            self.child = os.fork()
        if self.child == 0:
            _live(self.call, write)
        os.close(write)
        return read

    def finish(self) -> None:
        """The child has closed its pipe: take its result."""
        _, status = os.waitpid(self.child, 0)
        try:
            good, value = pickle.loads(self.received)
        except Exception:  # cut off, or something that cannot be made anew here
            good, value = False, BrokenExecutor(f"a process that compiled ended with status {status}")
        if good:
            self.future.set_result(value)
        else:
            self.future.set_exception(value)


def _live(call: Callable[[], Any], pipe: int) -> None:
    """The life of a child."""
    try:
        try:
            outcome = True, call()
        except BaseException as error:
            outcome = False, error
        with os.fdopen(pipe, "wb") as file:
            file.write(_pickled(outcome))
    finally:
        os._exit(0)


def _pickled(outcome: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(outcome)
    except Exception:
        return pickle.dumps((False, InternalError(f"a result that cannot be sent: {outcome[1]!r}")))
