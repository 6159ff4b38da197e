"""The disk cache: content-addressed single files, safe for many processes on a network disk.

An entry is written to a temporary file and renamed into place, so a reader sees all of it or none. A header
carries a checksum over the key and the content: a truncated or damaged entry, or one of another key, is a miss and is
removed. Entries hold machine code, so files and folders count only if nobody but their owner, who is the user or root,
could have written them; links are not followed, and what is no plain file is not waited for. Reading an entry refreshes
its time; when the folder outgrows its cap the oldest entries go. A folder that cannot be used is reported once and then
left alone: the process keeps what it compiles in memory anyway.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.base import system
from tilewright.base.library import hashlib, json, logs

_MAGIC = b"TILEWRT2"
_HEADER = struct.Struct("<8s32sIQ")  # magic, sha256 of key and what follows, bytes of metadata, bytes of payload
_SUFFIX = ".tile"
_TOUCH_AFTER = 3600.0  # seconds; how stale the time of a read entry may get
_SWEEP_AFTER = 3600.0  # seconds between two looks at the size of the whole folder
_PATIENCE = 60.0  # seconds to wait for another process that makes the same entry
_MOST_BYTES = 1 << 30  # a larger file is none of ours
_GUARDED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | _GUARDED


class Entry(NamedTuple):
    """What was kept under a key.

    Args:
        payload: the bytes.
        metadata: a small JSON object.
    """

    payload: bytes
    metadata: dict[str, Any]


class DiskCache:
    """A folder of entries named by the hash of what they were made from.

    Args:
        folder: made when the first entry is written.
        max_bytes: size above which the oldest entries are dropped; 0 keeps nothing.
        read_only: leave the folder as it is: nothing is written, and damaged entries stay.
    """

    def __init__(self, folder: Path, max_bytes: int, read_only: bool = False) -> None:
        self.folder = Path(folder)
        self.max_bytes = 0 if read_only else max_bytes
        self._read_only = read_only
        self._warned = False
        self._trusted: set[Path] = set()
        self._written = 0  # bytes since the last sweep of this process, about

    def get(self, key: str) -> Entry | None:
        """The entry kept under `key`, or None.

        Args:
            key: hexadecimal digest (or other text that is safe in a file name), at least 3 characters.
        """
        path = self._path(key)
        if not self._is_private(path.parent):
            return None
        try:
            data, status = _read_plain(path)
        except OSError:
            return None
        entry = decode(key, data)
        if self._read_only:
            return entry
        if entry is None:
            _remove(path)
        elif time.time() - status.st_mtime > _TOUCH_AFTER:
            _touch(path)
        return entry

    def put(self, key: str, payload: bytes, metadata: Mapping[str, Any] | None = None) -> bool:
        """Keep an entry under `key`; False when that is not possible (which is no error)."""
        if self.max_bytes <= 0:
            return False
        path = self._path(key)
        data = encode(key, payload, metadata or {})
        try:
            make_folder(path.parent)
            if not self._is_private(path.parent):
                return False
            write_whole(path, data)
        except OSError as error:
            if not path.exists():  # else another process has just written the same entry
                self._warn(f"cannot be written ({error.strerror}); set TILEWRIGHT_CACHE_DIR to a folder that can")
            return False
        self._account(len(data))
        return True

    def has(self, key: str) -> bool:
        """Whether there is a file for `key`; reading it may still show that it is damaged."""
        return self.file(key) is not None

    def file(self, key: str) -> Path | None:
        """The file that has the entry of `key`, or None."""
        path = self._path(key)
        return path if path.is_file() else None

    def get_bytes(self, key: str) -> bytes | None:
        """The payload of `get(key)`."""
        entry = self.get(key)
        return None if entry is None else entry.payload

    def put_bytes(self, key: str, payload: bytes) -> None:
        """`put` without metadata."""
        self.put(key, payload)

    @contextlib.contextmanager
    def making(self, key: str) -> Iterator[None]:
        """Hold the right to make the entry of `key`; one process or thread at a time has it.

        It goes with the process that holds it, however that ends. Who waits too long, or where files cannot be locked,
        goes on without. Look for the entry again inside: another process may have written it meanwhile.
        """
        path = self._path(key).with_suffix(".lock")
        kept = not self._read_only and self.max_bytes > 0
        with locked(path, stays=False) if kept else contextlib.nullcontext():  # who waits looks for the entry first
            yield

    def entries(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        """(key, file, status) of every entry."""
        for path, status in self._entries(_SUFFIX):
            yield path.parent.name + path.name.removesuffix(_SUFFIX), path, status

    def remove(self, key: str) -> bool:
        """Remove an entry; whether there was one."""
        return _remove(self._path(key))

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes."""
        sizes = [status.st_size for _, _, status in self.entries()]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Remove every entry; returns how many there were."""
        return sum(_remove(path) for _, path, _ in self.entries())

    def sweep(self, keep: float = 0.9) -> None:
        """Drop the oldest entries until this part of the cap is left, and stale temporary files.

        Args:
            keep: part of the cap that may be filled afterwards, if more than the cap was.
        """
        entries = sorted(self._entries(_SUFFIX), key=lambda item: item[1].st_mtime)
        total = sum(status.st_size for _, status in entries)
        if total > self.max_bytes:
            logs.caching.debug(
                "dropping the oldest of %d entries, %d bytes, below %s", len(entries), total, self.folder
            )
            for path, status in entries:
                if total <= self.max_bytes * keep:
                    break
                _remove(path)
                total -= status.st_size
        for path, status in (*self._entries(".tmp"), *self._entries(".lock")):
            if time.time() - status.st_mtime > _SWEEP_AFTER:
                _remove(path)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / (key[2:] + _SUFFIX)

    def _entries(self, suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (path for folder in _in(self.folder) for path in _in(folder)):
            if path.name.endswith(suffix):
                with contextlib.suppress(OSError):  # another process removed it
                    yield path, path.stat()

    def _account(self, size: int) -> None:
        """Sweep once an hour (over all processes: the stamp's time), or after many bytes of our own.

        No lock, which a child might find taken: threads that come at once lose some bytes of the count, or both sweep.
        """
        self._written += size
        stamp = self.folder / "swept"
        try:
            recent = time.time() - stamp.stat().st_mtime < _SWEEP_AFTER
        except OSError:
            recent = False
        if recent and self._written < self.max_bytes // 32:
            return
        self._written = 0
        with contextlib.suppress(OSError):  # without a stamp, the next process sweeps again
            _stamp(stamp)
        self.sweep()

    def _is_private(self, folder: Path) -> bool:
        """Whether the folder of an entry, the cache's own and those above can be trusted; looked at once a process."""
        if folder in self._trusted:
            return True
        if not self._trusted and not self._is_guarded():
            return False
        for level in (self.folder, folder):
            try:
                status = os.stat(level) if level == self.folder else os.lstat(level)
            except OSError:
                return False  # not made yet
            if not stat.S_ISDIR(status.st_mode):
                self._warn(f"cannot be used ({level} is no folder); set TILEWRIGHT_CACHE_DIR to one")
                return False
            if not system.this().is_only_ours(status):
                self._warn(f"could be written by others ({level}); chmod go-w it, or set TILEWRIGHT_CACHE_DIR")
                return False
        self._trusted.add(folder)
        return True

    def _is_guarded(self) -> bool:
        """Whether nobody else can put another folder in the place of the cache's, or of one above it."""
        for above in Path(os.path.realpath(self.folder)).parents:
            try:
                guarded = system.this().is_guarded(os.stat(above))
            except OSError:
                continue  # not made yet, or not to be looked at
            if not guarded:
                self._warn(f"lies below {above}, where others could replace it; set TILEWRIGHT_CACHE_DIR")
                return False
        return True

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"compiled kernels are not kept on disk: {self.folder} {why}", RuntimeWarning, stacklevel=4)


def encode(key: str, payload: bytes, metadata: Mapping[str, Any]) -> bytes:
    """An entry as it lies in a file."""
    return _sealed(key, payload, json.dumps(dict(metadata), sort_keys=True).encode())


def _sealed(key: str, payload: bytes, metadata: bytes) -> bytes:
    digest = hashlib.sha256(key.encode() + metadata + payload).digest()
    return _HEADER.pack(_MAGIC, digest, len(metadata), len(payload)) + metadata + payload


def decode(key: str, data: bytes) -> Entry | None:
    """The entry, or None when the bytes are not exactly what `encode` made for this key."""
    if len(data) < _HEADER.size:
        return None
    magic, digest, metadata_bytes, payload_bytes = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC or len(body) != metadata_bytes + payload_bytes:
        return None
    if hashlib.sha256(key.encode() + body).digest() != digest:
        return None
    try:
        metadata = json.loads(body[:metadata_bytes])
    except (ValueError, RecursionError):
        return None
    return Entry(body[metadata_bytes:], metadata) if isinstance(metadata, dict) else None


def _read_plain(path: Path) -> tuple[bytes, os.stat_result]:
    """The bytes of a plain file that only the user or root could have written.

    Raises:
        OSError: it is missing, a link, a pipe, a device, somebody else's, or too large.
    """
    handle = os.open(path, _READ)
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        plain = stat.S_ISREG(status.st_mode) and system.this().is_only_ours(status) and status.st_size <= _MOST_BYTES
        if not plain:
            raise PermissionError(f"{path} is not an entry of ours")
        return file.read(status.st_size + 1), status


@contextlib.contextmanager
def locked(path: Path, stays: bool = True) -> Iterator[None]:
    """Hold the lock that a file stands for; one process or thread at a time has it.

    Who waits too long, or where files cannot be locked, goes on without.

    Args:
        path: of the file, which is made if it is missing.
        stays: whether the file does; else it is removed while it is locked, and who waits has the removed one open.
    """
    handle = _locked(path)
    try:
        yield
    finally:
        if handle is not None:
            if not stays:
                _remove(path)
            system.this().unlock(handle)
            os.close(handle)


def _locked(path: Path) -> int | None:
    """A file that this process and thread has locked, in a folder that is made if it is missing; None if it cannot."""
    try:
        make_folder(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _GUARDED, 0o600)
    except OSError:
        return None
    end, pause = time.monotonic() + _PATIENCE, 0.001
    while True:
        try:
            system.this().lock(handle)
            return handle
        except BlockingIOError:
            if time.monotonic() > end:
                break
        except OSError:  # a system or a file system without locks
            break
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.close(handle)
    return None


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each for the user alone."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):  # another process was faster, or it is no folder
            os.mkdir(folder, 0o700)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: who reads it sees what was there before, or all of this.

    Raises:
        OSError: it cannot be written.
    """
    import tempfile  # not needed to import the package

    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        _remove(Path(temporary))
        raise


def _in(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it is none, or has been removed."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _stamp(path: Path) -> None:
    """Set the time of an empty file to now, and make it if it is missing."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | _GUARDED, 0o600)
    os.close(handle)
    os.utime(path, follow_symlinks=False) if os.utime in os.supports_follow_symlinks else os.utime(path)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # a read-only cache still serves
        os.utime(path)
