"""What the package asks of an operating system. The answers here are those of one that offers nothing."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

L = TypeVar("L", bound=Any)  # a lock of `threading`, whose classes differ between versions


class FaultLayout(NamedTuple):
    """Where a handler of signals finds what it needs, in bytes.

    Args:
        context: of the pointer in `ucontext_t` behind which the registers lie; None: they lie in it.
        stack_pointer, program_counter: of the registers, from there.
        address: that was accessed, in `siginfo_t`.
        code: of the reason, in `siginfo_t`.
        unknown: the reason that comes without an address.
        action: size of `struct sigaction`, or more.
        flags: of the flags, an int, in it. The handler lies at its start.
        wanted: flags that give the handler `siginfo_t`, and a stack of its own where there is one.
        bus, segment: numbers of SIGBUS and SIGSEGV.
    """

    context: int | None
    stack_pointer: int
    program_counter: int
    address: int
    code: int
    unknown: int
    action: int
    flags: int
    wanted: int
    bus: int
    segment: int


class System:
    """An operating system.

    Attributes:
        name: for people.
        loads_objects: whether our own loader of objects knows it; elsewhere llvmlite's does the work.
        forks: whether a child may be forked off and live on beside the system's libraries.
        interrupts: whether a Ctrl-C can be seen by machine code through the signals of CPython.
    """

    name = "an unknown system"
    loads_objects = False
    forks = False
    interrupts = False

    def processors(self) -> int:
        """Processors that this process may use."""
        return os.cpu_count() or 1

    def user(self) -> str:
        """A text that differs between users of the machine."""
        return "user"

    def identity(self) -> tuple[str, ...] | None:
        """What tells this system, its release and its machine apart from others; None if it does not say."""
        return None

    def arm_features(self) -> frozenset[str] | None:
        """Features of this 64-bit Arm processor by LLVM's names; None if it is none, or the system does not say."""
        return None

    def hold_at_forks(self, lock: L) -> L:
        """A lock of threads that whoever forks this process holds meanwhile.

        A child has the locks of its parent as they were, and none of the threads that would release them: it finds this
        one free, and what it guards whole.

        A lock inside which another one is taken must be given to this later than that: forks take the latest first.
        """
        return lock

    def lock(self, handle: int) -> None:
        """Lock a file until it is unlocked, or its handle is closed.

        Raises:
            BlockingIOError: another process, or another handle of this one, has it.
            OSError: files cannot be locked here.
        """
        raise OSError("this system has no locks of files")

    def unlock(self, handle: int) -> None:
        """Unlock a file, also where a child that was forked off meanwhile has its handle too."""

    def is_only_ours(self, status: os.stat_result) -> bool:
        """Whether nobody but the user and the administrator could have written a file or folder."""
        return True

    def is_guarded(self, status: os.stat_result) -> bool:
        """Whether nobody else could replace what lies in a folder above ours."""
        return True

    def map_private(self, size: int, sparse: bool = False) -> mmap.mmap:
        """Zeroed memory of this process alone.

        Args:
            size: in bytes.
            sparse: it is a reserve, of which little may ever be touched.
        """
        return mmap.mmap(-1, size)

    def fault_layout(self, arch: str) -> FaultLayout | None:
        """How a handler of faults is installed, and reads what it is given.

        Args:
            arch: "x86_64" or "aarch64".
        """
        return None

    def mappings(self) -> Iterable[tuple[int, int, str, str]]:
        """Memory of this process: start, end, rights ("r-xp"), and the file that it is of, if any. Nothing if the
        system does not say."""
        return ()
