"""What each operating system is asked, with the answers of systems that this machine is not."""

from __future__ import annotations

import errno
import os
import stat
import sys

import pytest

from tilewright.backends.cpu import machine
from tilewright.base import system
from tilewright.base.system import darwin, linux, windows
from tilewright.base.system.protocol import System

posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")


class Graviton(System):
    """A server that says what its processor can do."""

    def arm_features(self) -> frozenset[str]:
        return frozenset({"neon", "dotprod", "something new"})


def test_another_system_stands_in():
    here = system.this()
    with system.pretend(Graviton()):
        assert machine.features.__wrapped__("aarch64") == {"neon", "dotprod"}
        assert system.this() is not here
    assert system.this() is here


def test_features_by_the_words_of_linux():
    found = linux.features_of({16: 1 << 1 | 1 << 20, 26: 1 << 14})
    assert found == {"neon", "dotprod", "bf16"}
    assert linux.features_of({}) == frozenset()


def test_features_by_the_names_of_apple():
    assert darwin.features_of({"arm.FEAT_DotProd", "arm.FEAT_I8MM"}.__contains__) == {
        "neon", "fp-armv8", "dotprod", "i8mm",
    }  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "aarch64", reason="asks the kernel of Arm")
def test_this_processor_says_what_it_can_do():
    assert system.this().arm_features() >= {"neon", "fp-armv8"}


@posix
def test_a_lock_is_held_by_one(tmp_path):
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    system.this().lock(first)
    with pytest.raises(BlockingIOError):
        system.this().lock(second)
    os.close(first)
    system.this().lock(second)
    os.close(second)


def test_a_lock_of_windows(tmp_path):
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    taken: list[int] = []

    def locking(handle: int, count: int) -> None:
        if taken:
            raise PermissionError(errno.EACCES, "Permission denied")
        taken.append(os.lseek(handle, 0, os.SEEK_CUR))

    os.lseek(handle, 7, os.SEEK_SET)
    windows.lock_first_byte(handle, locking)
    assert taken == [0]
    with pytest.raises(BlockingIOError):
        windows.lock_first_byte(handle, locking)
    os.close(handle)


def _status(mode: int, user: int, group: int = 7) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, user, group, 0, 0, 0, 0))


@posix
def test_who_could_have_written():
    me, other = os.geteuid(), os.geteuid() + 1
    here = system.this()
    folder, sticky = stat.S_IFDIR, stat.S_ISVTX
    assert here.is_only_ours(_status(folder | 0o755, me)) and here.is_only_ours(_status(folder | 0o755, 0))
    assert not here.is_only_ours(_status(folder | 0o775, me)) and not here.is_only_ours(_status(folder | 0o755, other))
    assert here.is_guarded(_status(folder | sticky | 0o777, 0))  # as the folder for temporary files
    assert here.is_guarded(_status(folder | 0o775, me, me)) and not here.is_guarded(_status(folder | 0o775, me))
    assert not here.is_guarded(_status(folder | 0o777, 0)) and not here.is_guarded(_status(folder | 0o755, other))
