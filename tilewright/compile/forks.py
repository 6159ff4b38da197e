"""Child processes that compile, with everything that was there when they were forked off.

    submit, submit, ...; whoever waits --fork--> children, as many as cores
    calls: a pipe of numbers, from which a free child takes the next --> fn(*args) --its own pipe--> result

Nothing is imported or sent to a child, so that kernels of any kind can be compiled there, without the second that a
fresh process takes to start. A child only computes: it launches nothing, touches no GPU, starts no threads, and leaves
without running what the parent has registered for its end.
"""

from __future__ import annotations

import math
import os
import pickle
import selectors
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tilewright.base import system
from tilewright.base.errors import InternalError

_NUMBER = struct.Struct("<i")  # of a call, in the pipe of calls: children take turns, and nobody reads half of one
_REPLY = struct.Struct("<iq")  # number of a call, bytes of its result that follow; 0 bytes: a child has taken it
_MOST = 4096  # calls that children are forked off for; their numbers fit into a pipe
_FEW, _SECONDS_ANYWAY = 4, 3.0  # calls that must have ended before one is too slow; what none is too slow within


def can_fork() -> bool:
    """Whether children can be forked off safely."""
    return system.this().forks


class ForkExecutor(Executor):
    """Runs calls in children, a few at a time. Whoever waits for a result starts all calls submitted so far.

    Args:
        workers: children at a time.
        patience: once half of the calls that were started together have ended, one that takes longer than so many times
            their median, and than some seconds, is ended with a `TimeoutError`; None: none is.
        deadline: the `time.monotonic()` at which what has begun gets a `TimeoutError`, and the rest a `CancelledError`.
        lost: the error of a call whose child has died; whoever waits for a compilation takes a `BrokenExecutor` as a
            reason to compile in its own process.

    Attributes:
        limit: seconds after which any call is ended with a `TimeoutError`.
    """

    def __init__(
        self,
        workers: int,
        patience: float | None = None,
        deadline: float = math.inf,
        lost: type[Exception] = BrokenExecutor,
    ) -> None:
        self._workers, self._patience, self._deadline, self._lost = workers, patience, deadline, lost
        self.limit = math.inf
        self._lock = threading.RLock()
        self._waiting: list[_Task] = []
        self._batch: _Batch | None = None  # the last one that was begun
        self._running = selectors.DefaultSelector()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Have a child call `fn`; the result, or the error, is pickled."""
        task = _Task(lambda: fn(*args, **kwargs), CallFuture(self))
        with self._lock:
            self._waiting.append(task)
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for everything that was submitted."""
        with self._lock:
            for task in self._waiting if cancel_futures else ():
                task.future.cancel()
        while wait and self.pump(None):
            pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for everything that was submitted; an interrupt ends what has begun, and the rest does not begin."""
        if kind is not None and not issubclass(kind, Exception):
            self._deadline = time.monotonic()
        self.shutdown()

    def pump(self, timeout: float | None) -> bool:
        """Start children while there is room for them, and take in what they have sent. False if there is nothing to
        wait for.

        Args:
            timeout: seconds to wait for one of them; None for as long as it takes.
        """
        with self._lock:
            while self._room() and (batch := self._open()) is not None:
                child = batch.fork()
                self._running.register(child.replies, selectors.EVENT_READ, child)
            for child in self._heard(timeout):
                if not child.receive():
                    self._running.unregister(child.replies)
                    self._waiting[:0] = child.end(self._lost)
            return bool(self._running.get_map() or self._waiting)

    def _room(self) -> bool:
        return len(self._running.get_map()) < self._workers

    def _open(self) -> _Batch | None:
        """The calls that further children are for; None if all have been taken."""
        late = time.monotonic() >= self._deadline
        if self._batch is not None and self._batch.is_open():
            return None if late else self._batch
        tasks = [task for task in self._waiting[:_MOST] if task.begins()]
        del self._waiting[:_MOST]
        for task in tasks if late else ():
            task.future.set_exception(CancelledError("not begun: there was no more time"))
        self._batch = _Batch(tasks) if tasks and not late else None
        return self._batch

    def _heard(self, timeout: float | None) -> list[_Child]:
        """The children that have something to say within `timeout` seconds; those that are too slow are ended, so that
        they have."""
        children: list[_Child] = [key.data for key in self._running.get_map().values()]
        busy = [child for child in children if child.taken is not None and not child.late]
        if not children:
            return []
        ends = [child.began + min(self.limit, child.batch.limit(self._patience)) for child in busy]
        last = min([*ends, self._deadline]) if busy else math.inf
        if last < math.inf:
            left = max(0.0, last - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        heard: list[_Child] = [key.data for key, _ in self._running.select(timeout)]
        now = time.monotonic()
        for child, end in zip(busy, ends, strict=True):
            if now >= self._deadline:
                child.stop("stopped: there was no more time")
            elif now >= end and child not in heard:
                child.stop(f"stopped after {end - child.began:.1f} s{child.batch.described()}")
        return heard


class CallFuture(Future[Any]):
    """The result of a call; whoever waits for it keeps the children going.

    Args:
        executor: has it called.

    Attributes:
        seconds: that the call took.
    """

    def __init__(self, executor: ForkExecutor) -> None:
        super().__init__()
        self._executor, self.seconds = executor, 0.0

    def result(self, timeout: float | None = None) -> Any:
        while not self.done() and self._executor.pump(timeout):
            pass
        return super().result(timeout)


@dataclass(eq=False)
class _Task:
    call: Callable[[], Any]
    future: CallFuture

    def begins(self) -> bool:
        """Whether it is to be called; not if somebody has cancelled it."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def finish(self, reply: bytes) -> None:
        """Take the outcome that a child has sent."""
        try:
            good, value = pickle.loads(reply)
        except Exception as error:  # something that cannot be made anew here
            good, value = False, BrokenExecutor(f"a result of a child cannot be read: {error!r}")
        if good:
            self.future.set_result(value)
        else:
            self.future.set_exception(value)


@dataclass(eq=False)
class _Batch:
    """Calls that were started together.

    Args:
        tasks: the calls.

    Attributes:
        seconds: of those that have ended.
    """

    tasks: Sequence[_Task]
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._calls, end = os.pipe()
        os.write(end, b"".join(map(_NUMBER.pack, range(len(self.tasks)))))
        os.close(end)
        self._forked = self._ended = self._taken = 0

    def is_open(self) -> bool:
        """Whether a further child has something to do."""
        return max(self._forked, self._taken) < len(self.tasks)

    def fork(self) -> _Child:
        """A child for its calls."""
        self._forked += 1
        return _Child.fork(self, self._calls)

    def take(self, number: int) -> _Task:
        """A child has taken a call."""
        self._taken += 1
        return self.tasks[number]

    def leave(self) -> list[_Task]:
        """A child has ended: what is left if it was the last one, as children have died."""
        self._ended += 1
        if self._ended < self._forked:
            return []
        self._forked = len(self.tasks)
        os.close(self._calls)
        return [task for task in self.tasks if not task.future.done()]

    def limit(self, patience: float | None) -> float:
        """Seconds that a call may take; infinity while too few have ended to tell."""
        if patience is None or len(self.seconds) < max(_FEW, len(self.tasks) // 2):
            return math.inf
        return max(_SECONDS_ANYWAY, patience * self._median())

    def described(self) -> str:
        """How the other calls did, in words."""
        ended = f", when {len(self.seconds)} of {len(self.tasks)} had ended"
        return f"{ended}, half of them within {self._median():.2f} s" if self.seconds else ended

    def _median(self) -> float:
        import statistics  # not needed to import the package

        return statistics.median(self.seconds)


@dataclass(eq=False)
class _Child:
    """A child, as its parent sees it.

    Args:
        pid: of the process.
        replies: the end of the pipe on which it sends results.
        batch: the calls that it and its siblings take.

    Attributes:
        taken: the call that it is at.
        began: when it took that call, or ended the one before.
        late: what is said of that call if it took too long.
    """

    pid: int
    replies: int
    batch: _Batch
    taken: _Task | None = None
    began: float = field(default_factory=time.monotonic)
    late: str = ""
    received: bytearray = field(default_factory=bytearray)

    @staticmethod
    def fork(batch: _Batch, calls: int) -> _Child:
        """Start a child that takes numbers of calls from the pipe `calls`."""
        replies, end = os.pipe()
        with warnings.catch_warnings():  # of threads, whose locks a child may find taken: it needs none of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _live(batch.tasks, calls, end)
        os.close(end)
        return _Child(pid, replies, batch)

    def receive(self) -> bool:
        """Take in what it has sent; False if that was all."""
        data = os.read(self.replies, 1 << 20)
        self.received += data
        while len(self.received) >= _REPLY.size:
            number, size = _REPLY.unpack_from(self.received)
            end = _REPLY.size + size
            if len(self.received) < end:
                break
            if size:
                task, seconds = self.batch.tasks[number], time.monotonic() - self.began
                self.batch.seconds.append(seconds)
                task.future.seconds = seconds
                task.finish(bytes(self.received[_REPLY.size : end]))
            self.taken, self.began = None if size else self.batch.take(number), time.monotonic()
            del self.received[:end]
        return bool(data)

    def stop(self, late: str) -> None:
        """End it, and say that of the call that it has taken."""
        self.late = late
        os.kill(self.pid, signal.SIGKILL)

    def end(self, lost: type[Exception]) -> list[_Task]:
        """It has closed its pipe: a call that it has taken and not answered is lost. Given are calls for others."""
        os.close(self.replies)
        _, status = os.waitpid(self.pid, 0)
        if self.taken is not None:
            died = lost(f"a process that compiled ended with status {status}")
            self.taken.future.set_exception(TimeoutError(self.late) if self.late else died)
        return self.batch.leave()


def _live(batch: Sequence[_Task], calls: int, replies: int) -> None:
    """The life of a child."""
    try:
        with os.fdopen(replies, "wb") as pipe:
            while taken := os.read(calls, _NUMBER.size):
                (number,) = _NUMBER.unpack(taken)
                pipe.write(_REPLY.pack(number, 0))
                pipe.flush()
                reply = _outcome(batch[number].call)
                pipe.write(_REPLY.pack(number, len(reply)) + reply)
                pipe.flush()
    finally:
        os._exit(0)


def _outcome(call: Callable[[], Any]) -> bytes:
    """What a call gives, or its error."""
    try:
        outcome = True, call()
    except BaseException as error:
        outcome = False, error
    try:
        return pickle.dumps(outcome)
    except Exception:
        return pickle.dumps((False, InternalError(f"a result that cannot be sent: {outcome[1]!r}")))
