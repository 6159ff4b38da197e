"""Which threads run a grid, and how many.

One `Team` per process owns the runtime table of `ir.py`. It follows what happens around it: torch being
imported later, `torch.set_num_threads`, the knobs, and `fork` (a child cannot use the parent's OpenMP threads,
so it gets a pool of its own).
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import threading
from typing import Any

from tilewright.backends.cpu.device import counting, ir
from tilewright.backends.cpu.device.arena import Memory
from tilewright.backends.cpu.device.interrupt import Interrupts
from tilewright.backends.cpu.device.native import Native
from tilewright.backends.cpu.device.openmp import OpenMP, find_openmp, torch_threads
from tilewright.backends.cpu.device.pool import ThreadPool
from tilewright.base import system
from tilewright.base.errors import TilewrightError
from tilewright.base.hooks import settings_changed
from tilewright.base.knobs import knobs

_MODES = ("auto", "openmp", "pool", "serial")
_UNLIMITED = 1 << 30


@functools.cache
def affinity_threads() -> int:
    """Threads to use when neither a knob nor torch says: `OMP_NUM_THREADS`, else the CPUs we may run on."""
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if given.isdigit() and int(given) > 0:
        return int(given)
    return system.this().processors()


class Team:
    """The threads of this process.

    Attributes:
        kind: `"openmp"`, `"pool"` or `"serial"`.
        openmp: the shared runtime, when `kind` is `"openmp"`.
    """

    def __init__(self) -> None:
        self.kind = "serial"
        self.openmp: OpenMP | None = None
        self._native: Native | None = None
        self._pool: ThreadPool | None = None
        self._runtime = Memory(ir.RUNTIME_BYTES)
        self._lock = threading.RLock()
        self._mode = ""  # the knob's value when the threads were chosen
        self._knew_torch = False
        self._forked = False
        self._ready = 0  # team size that needs nothing created first
        atexit.register(self.close)
        settings_changed.add(self._ask_python)  # knobs say how many there are
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def start(self, native: Native) -> int:
        """Choose the threads if that has not happened; return the address of the runtime table."""
        with self._lock:
            if self._native is None:
                self._native = native
                self._choose()
            if native.interrupts is not None:
                self._watch(native.interrupts)
        return self._runtime.address

    def threads(self, wanted: int | None = None) -> int:
        """Threads for the next launch: `wanted`, else the knob, else torch's, else the affinity mask's.

        Raises:
            TilewrightError: the knob `cpu.threading` is not one of its values.
        """
        cpu = knobs.cpu
        torch = sys.modules.get("torch")
        if cpu.threading != self._mode or (torch is not None and not self._knew_torch):
            self._choose()
        count = wanted or cpu.num_threads
        if count is None:
            try:
                count = int(torch.get_num_threads()) if torch is not None else affinity_threads()
            except AttributeError:  # torch is half imported
                count = affinity_threads()
        if count > self._ready:
            self._grow(count)
        self._tell(cpu.num_threads, torch)
        return count

    def _tell(self, usual: int | None, torch: Any) -> None:
        """Have machine code know what `threads` would say, until something changes."""
        if self._native is not None and (usual or hasattr(torch, "get_num_threads")):
            words = self._words(self._native)
            words[counting.COUNT_USUAL], words[counting.COUNT_ASK] = usual or 0, 0 if usual else torch_threads()
            words[counting.COUNT_READY] = min(self._ready, ir.MAX_TEAM)

    def _ask_python(self) -> None:
        if self._native is not None:
            self._words(self._native)[counting.COUNT_READY] = 0

    @staticmethod
    def _words(native: Native) -> Any:
        return (ctypes.c_int64 * counting.COUNT_WORDS).from_address(native.address["tw_threads_words"])

    def describe(self) -> str:
        """One line for people: the kind, the library, the number of threads."""
        count = self.threads()
        if self.openmp is not None:
            return f"{count} threads of {self.openmp.path} ({self.openmp.interface})"
        return f"{count} threads of our own pool" if self.kind == "pool" else "the caller's thread"

    def close(self) -> None:
        """Stop our own threads; later launches run on the caller's thread until the team is chosen again."""
        with self._lock:
            self._runtime.word(ir.RUNTIME_TEAM).value = 0
            if self._pool is not None:
                self._pool.close()
                self._pool = None
            self.kind, self.openmp, self._mode, self._ready = "serial", None, "", 0
            self._ask_python()

    def _choose(self) -> None:
        with self._lock:
            if self._native is None:
                return
            mode = knobs.cpu.threading
            if mode not in _MODES:
                raise TilewrightError(
                    f"cpu.threading is {mode!r}", hint=f"set TILEWRIGHT_THREADING to one of {', '.join(_MODES)}"
                )
            self.close()
            self._knew_torch = sys.modules.get("torch") is not None
            if mode in ("auto", "openmp") and not self._forked:
                self.openmp = find_openmp()
            if self.openmp is not None:
                self._use_openmp(self.openmp, self._native)
            elif mode != "serial":
                self._use_pool(self._native)
            else:
                self._ready = _UNLIMITED
            self._mode = mode

    def _watch(self, interrupts: Interrupts) -> None:
        interrupts.watch()
        word = self._runtime.word
        word(ir.RUNTIME_SELF).value, word(ir.RUNTIME_MAIN).value = interrupts.self, threading.main_thread().ident or 0
        word(ir.RUNTIME_STOP).value = interrupts.stop

    def _use_openmp(self, openmp: OpenMP, native: Native) -> None:
        word = self._runtime.word
        word(ir.RUNTIME_FORK).value = openmp.fork
        word(ir.RUNTIME_THREAD_NUM).value = openmp.thread_num
        word(ir.RUNTIME_PUSH).value = openmp.push_num_threads
        word(ir.RUNTIME_GTID).value = openmp.global_thread_num
        word(ir.RUNTIME_TEAM).value = native.address[f"tw_team_{openmp.interface}"]
        self.kind, self._ready = "openmp", _UNLIMITED

    def _use_pool(self, native: Native) -> None:
        # A forked child may well run beside its parent on the same cores: do not spin there.
        self._pool = ThreadPool(native.address["tw_pool_worker"], **({"spin": 0} if self._forked else {}))
        self._runtime.word(ir.RUNTIME_POOL).value = self._pool.address
        self._runtime.word(ir.RUNTIME_TEAM).value = native.address["tw_team_pool"]
        self.kind, self._ready = "pool", 1

    def _grow(self, count: int) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.grow(min(count, ir.MAX_TEAM) - 1)
                self._ready = count

    def _after_fork(self) -> None:
        """In a forked child: the parent's threads are gone, and its other launches are not ours."""
        self._lock = threading.RLock()
        self._forked = True
        self._pool = None  # without close: there is nobody to stop
        self._runtime.word(ir.RUNTIME_BUSY).value = 0
        self._runtime.word(ir.RUNTIME_TEAM).value = 0
        self.kind, self.openmp, self._mode, self._ready = "serial", None, "", 0
        self._ask_python()


team = Team()
