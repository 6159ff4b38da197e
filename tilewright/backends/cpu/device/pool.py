"""Our own worker threads, for processes without an OpenMP runtime and for forked children.

The loop that workers run, and the hand-over of a job, are native code (`ir.py`); this file creates the threads
with the system's own call and owns the table that they share. A worker spins for a short while after a job and
then sleeps on a condition variable.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.device import ir
from tilewright.backends.cpu.device.arena import Memory

_STACK_BYTES = 4 << 20


class ThreadPool:
    """Threads that wait for jobs of `tw_team_pool`.

    Args:
        worker: address of `tw_pool_worker`.
        spin: pauses before an idle worker sleeps.
    """

    def __init__(self, worker: int, *, spin: int = tuning.SPIN_PAUSES) -> None:
        self._worker = worker
        self._system = _Windows() if sys.platform == "win32" else _Posix()
        self._threads: list[tuple[int, Memory]] = []
        self._pid = os.getpid()
        self._table = Memory(ir.POOL_BYTES)
        self._table.word(ir.POOL_ENTRY).value = -(1 << 63)  # no job: the door is closed
        self._table.word(ir.POOL_SPIN).value = spin
        self._system.fill(self._table)

    @property
    def address(self) -> int:
        """Address of the table that workers and launches share."""
        return self._table.address

    @property
    def workers(self) -> int:
        return len(self._threads)

    def grow(self, workers: int) -> None:
        """Have at least `workers` threads; fewer if the system refuses to make more."""
        while len(self._threads) < workers:
            start = Memory(16)
            start.word(0).value = self.address
            start.word(8).value = len(self._threads) + 1
            thread = self._system.create(self._worker, start.address)
            if thread is None:
                return
            self._threads.append((thread, start))

    def close(self) -> None:
        """Stop the threads and wait for them; in a forked child there are none to wait for."""
        if os.getpid() == self._pid:
            self._table.word(ir.POOL_STOP).value = 1
            self._table.word(ir.POOL_GENERATION).value += 1
            self._system.wake(self._table)
            for thread, _ in self._threads:
                self._system.join(thread)
        self._threads.clear()


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _Posix:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def fill(self, table: Memory) -> None:
        libc = self._libc
        mutex = ctypes.c_void_p(table.address + ir.POOL_MUTEX)
        condition = ctypes.c_void_p(table.address + ir.POOL_CONDITION)
        libc.pthread_mutex_init(mutex, None)
        libc.pthread_cond_init(condition, None)
        table.word(ir.POOL_LOCK_FN).value = _address(libc.pthread_mutex_lock)
        table.word(ir.POOL_UNLOCK_FN).value = _address(libc.pthread_mutex_unlock)
        table.word(ir.POOL_WAIT_FN).value = _address(libc.pthread_cond_wait)
        table.word(ir.POOL_WAKE_FN).value = _address(libc.pthread_cond_broadcast)
        table.word(ir.POOL_YIELD_FN).value = _address(libc.sched_yield)

    def create(self, function: int, argument: int) -> int | None:
        thread = ctypes.c_size_t()
        attributes = ctypes.create_string_buffer(256)  # larger than any pthread_attr_t
        self._libc.pthread_attr_init(attributes)
        self._libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        failed = self._libc.pthread_create(
            ctypes.byref(thread), attributes, ctypes.c_void_p(function), ctypes.c_void_p(argument)
        )
        self._libc.pthread_attr_destroy(attributes)
        return None if failed else thread.value

    def wake(self, table: Memory) -> None:
        mutex = ctypes.c_void_p(table.address + ir.POOL_MUTEX)
        self._libc.pthread_mutex_lock(mutex)
        self._libc.pthread_cond_broadcast(ctypes.c_void_p(table.address + ir.POOL_CONDITION))
        self._libc.pthread_mutex_unlock(mutex)

    def join(self, thread: int) -> None:
        self._libc.pthread_join(ctypes.c_size_t(thread), None)


class _Windows:
    """Slim locks and condition variables; both are valid when zero."""

    def __init__(self) -> None:
        self._kernel32 = ctypes.CDLL("kernel32")
        self._kernel32.CreateThread.restype = ctypes.c_void_p

    def fill(self, table: Memory) -> None:
        kernel32 = self._kernel32
        table.word(ir.POOL_LOCK_FN).value = _address(kernel32.AcquireSRWLockExclusive)
        table.word(ir.POOL_UNLOCK_FN).value = _address(kernel32.ReleaseSRWLockExclusive)
        table.word(ir.POOL_WAIT_FN).value = _address(kernel32.SleepConditionVariableSRW)
        table.word(ir.POOL_WAKE_FN).value = _address(kernel32.WakeAllConditionVariable)
        table.word(ir.POOL_YIELD_FN).value = _address(kernel32.SwitchToThread)

    def create(self, function: int, argument: int) -> int | None:
        handle = self._kernel32.CreateThread(
            None, ctypes.c_size_t(_STACK_BYTES), ctypes.c_void_p(function), ctypes.c_void_p(argument), 0, None
        )
        return int(handle) if handle else None

    def wake(self, table: Memory) -> None:
        lock = ctypes.c_void_p(table.address + ir.POOL_MUTEX)
        self._kernel32.AcquireSRWLockExclusive(lock)
        self._kernel32.WakeAllConditionVariable(ctypes.c_void_p(table.address + ir.POOL_CONDITION))
        self._kernel32.ReleaseSRWLockExclusive(lock)

    def join(self, thread: int) -> None:
        self._kernel32.WaitForSingleObject(ctypes.c_void_p(thread), -1)
        self._kernel32.CloseHandle(ctypes.c_void_p(thread))
