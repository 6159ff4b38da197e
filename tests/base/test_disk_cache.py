"""The disk cache: what was put comes back whole or not at all, from any process, within a size."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from tilewright.base import system
from tilewright.base.disk_cache import DiskCache, Entry, _sealed, write_whole

ROOT = Path(__file__).resolve().parents[2]
KEY = "0123456789abcdef" * 4


def entry_file(cache: DiskCache) -> Path:
    (path,) = cache.folder.glob("*/*.tile")
    return path


def test_round_trip(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "deep" / "cache", 1 << 20)
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"\0code\xff", {"scratch": 64, "types": ["*fp32"]})
    assert cache.get(KEY) == Entry(b"\0code\xff", {"scratch": 64, "types": ["*fp32"]})
    assert DiskCache(cache.folder, 1).get_bytes(KEY) == b"\0code\xff"
    assert cache.get(KEY[::-1]) is None
    assert cache.size()[0] == 1 and cache.clear() == 1 and cache.get(KEY) is None


def test_an_entry_is_replaced(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put_bytes(KEY, b"old")
    cache.put_bytes(KEY, b"new")
    assert cache.get_bytes(KEY) == b"new" and cache.size()[0] == 1


@pytest.mark.parametrize("cut", [0, 1, 30, 60, -1])
def test_truncated_entry_is_a_miss_and_removed(tmp_path: Path, cut: int) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"x" * 100, {"a": 1})
    path = entry_file(cache)
    path.write_bytes(path.read_bytes()[:cut])
    assert cache.get(KEY) is None
    assert not path.exists()


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"payload", {"a": 1})
    path = entry_file(cache)
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        assert cache.get(KEY) is None, index
    path.write_bytes(whole + b"more")
    assert cache.get(KEY) is None


def test_oldest_entries_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    now = time.time()
    for index in range(20):
        key = f"{index:064x}"
        cache.put(key, b"x" * 1000)
        age = now - 1000 + index
        os.utime(cache._path(key), (age, age))
    DiskCache(tmp_path, 10_000).sweep()
    kept = [index for index in range(20) if cache.get(f"{index:064x}")]
    assert kept == list(range(20 - len(kept), 20)) and 5 <= len(kept) <= 9
    assert cache.size()[1] <= 9_000


def test_reading_keeps_an_entry_young(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    old = time.time() - 100_000
    for index in range(4):
        key = f"{index:064x}"
        cache.put(key, b"x" * 1000)
        os.utime(cache._path(key), (old + index, old + index))
    assert cache.get(f"{0:064x}")
    DiskCache(tmp_path, 3_500).sweep()
    assert cache.get(f"{0:064x}") and not cache.get(f"{1:064x}")


def test_put_sweeps_when_the_cap_is_exceeded(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 50_000)
    for index in range(200):
        cache.put(f"{index:064x}", b"x" * 1000)
    assert cache.size()[1] <= 50_000 * 34 // 32


def test_stale_temporary_files_are_swept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put_bytes(KEY, b"x")
    stale, fresh = entry_file(cache).with_suffix(".a.tmp"), entry_file(cache).with_suffix(".b.tmp")
    stale.touch(), fresh.touch()
    os.utime(stale, (0, 0))
    cache.sweep()
    assert not stale.exists() and fresh.exists() and cache.get(KEY)


def test_a_folder_that_cannot_be_written_warns_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = DiskCache(blocked / "cache", 1 << 20)
    with pytest.warns(RuntimeWarning, match="TILEWRIGHT_CACHE_DIR"):
        assert not cache.put(KEY, b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.put(KEY, b"x")
        assert cache.get(KEY) is None and cache.size() == (0, 0) and cache.clear() == 0


def test_what_is_no_folder_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match="file is no folder"):
        assert DiskCache(tmp_path / "file", 1 << 20).get(KEY) is None


def test_size_zero_keeps_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 0)
    assert not cache.put(KEY, b"x") and cache.get(KEY) is None


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_an_entry_that_anybody_may_write_is_not_trusted(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"x")
    entry_file(cache).chmod(0o666)
    assert cache.get(KEY) is None


def test_an_entry_of_another_key_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"x")
    other = cache._path("0" + KEY[1:-1] + "0")
    shutil.copy(entry_file(cache), other)
    assert cache.get("0" + KEY[1:-1] + "0") is None and cache.get(KEY) and not other.exists()


@pytest.mark.parametrize("metadata", [b"[]", b"null", b"{bad", b"\xff\xfe", b"[" * 100_000])
def test_metadata_that_is_no_object_is_a_miss(tmp_path: Path, metadata: bytes) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"x")
    entry_file(cache).write_bytes(_sealed(KEY, b"x", metadata))
    assert cache.get(KEY) is None


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and modes")
def test_what_is_no_plain_file_of_ours_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 1 << 20)
    cache.put(KEY, b"x")
    path, aside = entry_file(cache), tmp_path / "aside"
    os.rename(path, aside)
    makers = {
        "link": lambda: path.symlink_to(aside),
        "device": lambda: path.symlink_to("/dev/zero"),
        "pipe": lambda: os.mkfifo(path),
        "group": lambda: (shutil.copy(aside, path), path.chmod(0o660)),
        "folder": path.mkdir,
    }
    for name, make in makers.items():
        make()
        assert cache.get(KEY) is None, name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copy(aside, path)
    assert cache.get(KEY)


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_folders_are_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = DiskCache(tmp_path / "a" / "b", 1 << 20)
        assert cache.put(KEY, b"x")
    finally:
        os.umask(before)
    made = [tmp_path / "a", cache.folder, entry_file(cache).parent, cache.folder / "swept", entry_file(cache)]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o700, 0o600, 0o600]
    for level in (cache.folder, entry_file(cache).parent):
        level.chmod(0o777)
        with pytest.warns(RuntimeWarning, match="written by others"):
            other = DiskCache(cache.folder, 1 << 20)
            assert other.get(KEY) is None and not other.put(KEY, b"y")
        level.chmod(0o700)
    assert DiskCache(cache.folder, 1 << 20).get(KEY)


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_nobody_else_can_replace_a_folder_above(tmp_path: Path) -> None:
    above = tmp_path / "above"
    assert DiskCache(above / "between" / "cache", 1 << 20).put(KEY, b"x")
    link = tmp_path / "link"
    link.symlink_to(above)
    above.chmod(0o777)
    for way in (above, link):
        other = DiskCache(way / "between" / "cache", 1 << 20)
        with pytest.warns(RuntimeWarning, match="others could replace it"):
            assert other.get(KEY) is None and not other.put(KEY, b"y")
    above.chmod(0o1777)  # as the folder for temporary files
    assert DiskCache(above / "between" / "cache", 1 << 20).get(KEY)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root can give files away")
def test_entries_of_other_users_are_not_trusted(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 1 << 20)
    cache.put(KEY, b"x")
    os.chown(entry_file(cache), 65534, 65534)
    assert cache.get(KEY) is None
    os.chown(entry_file(cache), 0, 0)
    assert cache.get(KEY)
    os.chown(entry_file(cache).parent, 65534, 65534)
    with pytest.warns(RuntimeWarning, match="written by others"):
        assert DiskCache(cache.folder, 1 << 20).get(KEY) is None


WRITER = """
import sys
from pathlib import Path
from tilewright.base.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), 60_000)
for turn in range(150):
    for index in range(8):
        key = f"{index:064x}"
        found = cache.get(key)
        assert found is None or (found.payload == bytes([index]) * 5000 and found.metadata == {"index": index}), index
        cache.put(key, bytes([index]) * 5000, {"index": index})
    if turn % 20 == 0:
        cache.sweep()
"""


def test_a_folder_that_is_removed_meanwhile_has_no_entries(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", 1 << 20)
    for first in "0123456789":
        cache.put_bytes(first + KEY, b"x")
    entries = cache.entries()
    next(entries)
    shutil.rmtree(cache.folder)
    assert list(entries) == [] and cache.size() == (0, 0)
    assert cache.put(KEY, b"x")


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_child_that_is_forked_off_meanwhile_does_not_keep_the_right_to_make_an_entry(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    with cache.making(KEY):
        (lock,) = tmp_path.glob("*/*.lock")
        with lock.open("rb") as waiting:  # has it open, as who waits has
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            with pytest.raises(BlockingIOError):
                system.this().lock(waiting.fileno())
            waits = os.dup(waiting.fileno())
    try:
        system.this().lock(waits)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(waits)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "taken", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_processes_share_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    workers = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(3)]
    for worker in workers:
        _, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err.decode()
    assert not list(tmp_path.glob("*/*.tmp"))
