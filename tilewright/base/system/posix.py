"""What Linux, macOS and other Unix systems have in common."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat

from tilewright.base.system.protocol import L, System

_NOBODY = 65534  # the user of files whose owner a name space does not know


class Posix(System):
    """A Unix of which no more is known than what POSIX says."""

    name = "a Unix"
    interrupts = True

    def user(self) -> str:
        return str(os.getuid())

    def hold_at_forks(self, lock: L) -> L:
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
        return lock

    def lock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(self, handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)

    def is_only_ours(self, status: os.stat_result) -> bool:
        return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def is_guarded(self, status: os.stat_result) -> bool:
        """A folder that others may write is safe if it is sticky, as that for temporary files: nobody can rename there
        what is not theirs. A group that has the number of the owner is that user's alone, as usual on Linux. Within a
        container folders of its host may be nobody's."""
        if status.st_uid not in (os.geteuid(), 0, _NOBODY):
            return False
        others = stat.S_IWOTH | (0 if status.st_gid == status.st_uid else stat.S_IWGRP)
        return not status.st_mode & others or bool(status.st_mode & stat.S_ISVTX)

    def map_private(self, size: int, sparse: bool = False) -> mmap.mmap:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
