"""One compilation for all threads that ask for the same thing at the same time.

A thing that is asked for becomes a job. A job may be offered before anybody wants it, to an executor for instance; who
then needs it first makes it, be it the executor or the thread that asks, and all others wait for that one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tilewright.base.library import futures

Made = TypeVar("Made")


class Job(Generic[Made]):
    """Something that is made at most once, by whoever claims it.

    Args:
        make: gives it.
        drop: called when it is made or has failed, before anybody who waits goes on.
    """

    def __init__(self, make: Callable[[], Made], drop: Callable[[], None]) -> None:
        self._make, self._drop = make, drop
        self._claim: dict[str, tuple[int, int]] = {}  # "maker": its process and thread; `setdefault` is atomic
        self._future: futures.Future[Made] = futures.Future()

    def withdraw(self) -> None:
        """Take the offer back: who asks for the thing from now on makes another."""
        self._drop()

    def is_for(self, make: Callable[[], Made]) -> bool:
        """Whether this is the job that was offered with `make`, and not one that was there before."""
        return self._make is make

    def result(self, again: Callable[[], Made] | None = None) -> Made:
        """What `make()` gives, here or where it is running already; its error is raised for everybody who asks.

        A thread that asks again while it makes the thing (from a hook) makes another, and so does one that waits for a
        maker that is interrupted, or does not run in this process, a forked child: with `again`, if that is given.
        """
        me = os.getpid(), threading.get_ident()
        try:
            maker = self._claim.setdefault("maker", me)
            if maker is me:
                made = self._make()
                self._drop()
                self._future.set_result(made)
                return made
        except BaseException as error:
            if self._claim.get("maker") is me and not self._future.done():
                self._drop()
                self._future.set_exception(error if isinstance(error, Exception) else _InterruptedError())
            raise
        in_vain = maker == me or maker[0] != me[0]
        if not in_vain or self._future.done():
            with contextlib.suppress(_InterruptedError):
                return self._future.result()
        return (again or self._make)()


class _InterruptedError(Exception):
    """The maker was interrupted: a Ctrl-C is for the thread that gets it."""


class Shared(Generic[Made]):
    """Makes things by key; who asks for what another thread is making waits for it, and gets its error too.

    Nothing is kept: whoever uses it has a table of finished things and looks there first.
    """

    def __init__(self) -> None:
        self._jobs: dict[Hashable, Job[Made]] = {}

    def make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make()` gives, or what the job gives that is there for `key`."""
        return self.offer(key, make).result(make)

    def offer(self, key: Hashable, make: Callable[[], Made]) -> Job[Made]:
        """The job for `key`, which nobody has to start yet."""
        return self._jobs.setdefault(key, Job(make, functools.partial(self._drop, key)))

    def _drop(self, key: Hashable) -> None:
        self._jobs.pop(key, None)
