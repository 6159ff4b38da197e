"""The disk cache: content-addressed single files, safe for many processes on a network disk.

An entry is written to a temporary file and renamed into place, so a reader sees all of it or none. A header
carries a checksum: a truncated or damaged entry is a miss and is removed. Reading an entry refreshes its time;
when the folder outgrows its cap the oldest entries go. A folder that cannot be written is reported once and then
left alone: the process keeps what it compiles in memory anyway.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.knobs import knobs

_MAGIC = b"TILEWRT1"
_HEADER = struct.Struct("<8s32sIQ")  # magic, sha256 of what follows, bytes of metadata, bytes of payload
_SUFFIX = ".tile"
_TOUCH_AFTER = 3600.0  # seconds; how stale the time of a read entry may get
_SWEEP_AFTER = 3600.0  # seconds between two looks at the size of the whole folder


@dataclass(frozen=True, slots=True)
class Entry:
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
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._warned = False
        self._written = 0  # bytes since the last sweep of this process

    def get(self, key: str) -> Entry | None:
        """The entry kept under `key`, or None.

        Args:
            key: hexadecimal digest (or other text that is safe in a file name), at least 3 characters.
        """
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                data = file.read()
        except OSError:
            return None
        entry = None if _writable_by_others(status) else _decode(data)
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
        data = _encode(payload, json.dumps(dict(metadata or {}), sort_keys=True).encode())
        temporary = ""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                _remove(Path(temporary))
            if not path.exists():  # else another process has just written the same entry
                self._warn(error)
            return False
        self._account(len(data))
        return True

    def get_bytes(self, key: str) -> bytes | None:
        """The payload of `get(key)`."""
        entry = self.get(key)
        return None if entry is None else entry.payload

    def put_bytes(self, key: str, payload: bytes) -> None:
        """`put` without metadata."""
        self.put(key, payload)

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes."""
        sizes = [status.st_size for _, status in self._entries(_SUFFIX)]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Remove every entry; returns how many there were."""
        removed = 0
        for path, _ in self._entries(_SUFFIX):
            removed += _remove(path)
        return removed

    def sweep(self) -> None:
        """Drop the oldest entries until nine tenths of the cap are left, and stale temporary files."""
        entries = sorted(self._entries(_SUFFIX), key=lambda item: item[1].st_mtime)
        total = sum(status.st_size for _, status in entries)
        if total > self.max_bytes:
            for path, status in entries:
                if total <= self.max_bytes * 9 // 10:
                    break
                _remove(path)
                total -= status.st_size
        for path, status in self._entries(".tmp"):
            if time.time() - status.st_mtime > _SWEEP_AFTER:
                _remove(path)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / (key[2:] + _SUFFIX)

    def _entries(self, suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.glob(f"*/*{suffix}"):
            try:
                yield path, path.stat()
            except OSError:
                continue  # another process removed it

    def _account(self, size: int) -> None:
        """Sweep once an hour (over all processes: the stamp's time), or after many bytes of our own."""
        with self._lock:
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
                stamp.touch()
        self.sweep()

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"compiled kernels are not kept on disk: {self.folder} cannot be written ({error.strerror}); "
                "set TILEWRIGHT_CACHE_DIR to a folder that can",
                RuntimeWarning,
                stacklevel=3,
            )


def _encode(payload: bytes, metadata: bytes) -> bytes:
    digest = hashlib.sha256(metadata + payload).digest()
    return _HEADER.pack(_MAGIC, digest, len(metadata), len(payload)) + metadata + payload


def _decode(data: bytes) -> Entry | None:
    """The entry, or None when the bytes are not exactly what `_encode` made."""
    if len(data) < _HEADER.size:
        return None
    magic, digest, metadata_bytes, payload_bytes = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC or len(body) != metadata_bytes + payload_bytes:
        return None
    if hashlib.sha256(body).digest() != digest:
        return None
    return Entry(body[metadata_bytes:], json.loads(body[:metadata_bytes]))


def _writable_by_others(status: os.stat_result) -> bool:
    """Entries hold machine code: one that any user could have changed is not trusted."""
    return os.name == "posix" and bool(status.st_mode & 0o002)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # a read-only cache still serves
        os.utime(path)


# --- the cache of this process ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _disk_cache(folder: Path, max_bytes: int) -> DiskCache:
    return DiskCache(folder, max_bytes)


def disk_cache() -> DiskCache:
    """The disk cache that the knobs name."""
    return _disk_cache(knobs.cache.dir, knobs.cache.size)


class SmallObjects:
    """The disk cache that the knobs name at each use, for what a back end keeps beside kernels."""

    def get_bytes(self, key: str) -> bytes | None:
        """The bytes kept under `key`, or None."""
        return None if knobs.cache.disabled else disk_cache().get_bytes(key)

    def put_bytes(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key`."""
        if not knobs.cache.disabled:
            disk_cache().put_bytes(key, payload)
