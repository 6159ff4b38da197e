"""One compilation for all threads that ask for the same thing at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Shared(Generic[Made]):
    """Makes things by key; who asks for what another thread is making waits for it, and gets its error too.

    Nothing is kept: whoever uses it has a table of finished things and looks there first.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, tuple[tuple[int, int], Future[Made]]] = {}

    def make(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make()` gives, here or in the thread that is at it already.

        A thread that asks again while it makes the thing (from a hook) makes another, and so does a forked child, in
        which the maker does not run.
        """
        me = os.getpid(), threading.get_ident()
        mine: tuple[tuple[int, int], Future[Made]] = me, Future()
        maker, future = self._running.setdefault(key, mine)
        if maker[0] != me[0] or (maker == me and future is not mine[1]):
            return make()
        if future is not mine[1]:
            return future.result()
        try:
            made = make()
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(made)
            return made
        finally:
            del self._running[key]
