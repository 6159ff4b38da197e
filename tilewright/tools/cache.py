"""``tilewright cache``: what the disk cache holds, and ways to check it, shrink it and carry it elsewhere.

The archive of `export` is a plain tar file of entries as they lie in the folder, and of tuning results. `import` takes
only what is whole: an entry is bound to its key by a checksum. Entries hold machine code, so import what you trust.
"""

from __future__ import annotations

import io
import re
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from tilewright.base.disk_cache import DiskCache, decode
from tilewright.base.errors import ArgumentError
from tilewright.tuning.report import TuningResults, results_of

_ENTRY = re.compile(r"[0-9a-z]{2}/[0-9a-z]{1,128}\.tile")
_RESULTS = re.compile(r"tuning/[0-9A-Za-z_.-]{1,200}\.json")
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as it is listed.

    Args:
        key: its name.
        size: of the file in bytes.
        used: when it was last read, in seconds since the epoch, to the hour.
        metadata: facts; None if the entry is damaged.
    """

    key: str
    size: int
    used: float
    metadata: dict[str, Any] | None

    @property
    def kernel(self) -> str:
        """Name of the kernel; what it is otherwise, in parentheses."""
        if self.metadata is None:
            return "(damaged)"
        return str(self.metadata.get("name", "(code of Tilewright's own)"))


def rows(cache: DiskCache) -> Iterator[Row]:
    """Every entry of a cache, most recently used first."""
    found = sorted(cache.entries(), key=lambda item: -item[2].st_mtime)
    for key, path, status in found:
        try:
            entry = decode(key, path.read_bytes())
        except OSError:
            continue  # another process removed it
        yield Row(key, status.st_size, status.st_mtime, None if entry is None else entry.metadata)


def show(console: Console, cache: DiskCache, text: str) -> None:
    """List the entries.

    Args:
        console: where to print.
        cache: whose.
        text: only kernels whose name contains it.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (
        ("key", "left"),
        ("kernel", "left"),
        ("target", "left"),
        ("size", "right"),
        ("used", "right"),
    ):
        table.add_column(column, justify=justify, no_wrap=column != "kernel")  # type: ignore[arg-type]
    for row in rows(cache):
        if text in row.kernel:
            target = str((row.metadata or {}).get("target", ""))
            table.add_row(row.key[:12], row.kernel, target, decimal(row.size), _ago(row.used))
    console.print(table)


def _ago(moment: float) -> str:
    hours = max(0.0, time.time() - moment) / 3600
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"


def collect(cache: DiskCache, max_bytes: int | None, days: float | None) -> tuple[int, int]:
    """Drop old entries.

    Args:
        cache: whose.
        max_bytes: the least recently used go until no more than this is left; None is the cap of the cache.
        days: those that were not used for so long go in any case; None for none.

    Returns:
        Entries dropped, and their bytes.
    """
    before = cache.size()
    if days is not None:
        for _, path, status in list(cache.entries()):
            if time.time() - status.st_mtime > days * 86400:
                path.unlink(missing_ok=True)
    DiskCache(cache.folder, cache.max_bytes if max_bytes is None else max_bytes).sweep(1.0)
    after = cache.size()
    return before[0] - after[0], before[1] - after[1]


def verify(cache: DiskCache, remove: bool) -> tuple[int, list[str]]:
    """Check every entry; returns how many there are and the keys of damaged ones.

    Args:
        cache: whose.
        remove: remove those.
    """
    found = list(rows(cache))
    damaged = [row.key for row in found if row.metadata is None]
    for key in damaged if remove else ():
        cache.remove(key)
    return len(found), damaged


def export(cache: DiskCache, archive: Path) -> tuple[int, int]:
    """Write every whole entry and every tuning result to an archive; returns how many of each."""
    kept, results = 0, 0
    with tarfile.open(archive, "w") as tar:
        for key, path, _ in sorted(cache.entries()):
            data = path.read_bytes()
            if decode(key, data) is not None:
                _add(tar, f"{path.parent.name}/{path.name}", data)
                kept += 1
        for path in sorted(cache.folder.glob("tuning/*.json")):
            _add(tar, f"tuning/{path.name}", path.read_bytes())
            results += 1
    return kept, results


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o600
    tar.addfile(info, io.BytesIO(data))


def import_archive(cache: DiskCache, archive: Path) -> tuple[int, int, list[str]]:
    """Take the entries and tuning results of an archive.

    Returns:
        Entries and results taken, and the names of what was refused.

    Raises:
        ArgumentError: the file is no archive.
    """
    kept, results, refused = 0, 0, []
    try:
        with tarfile.open(archive, "r") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isreg() and member.size <= _MOST_BYTES else None
                data = b"" if file is None else file.read()
                if _ENTRY.fullmatch(member.name) and _take(cache, member.name, data):
                    kept += 1
                elif _RESULTS.fullmatch(member.name) and _merge(cache, member.name, data):
                    results += 1
                else:
                    refused.append(member.name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ArgumentError(
            f"{archive} cannot be imported: {error}", hint="give a file that `tilewright cache export` wrote"
        ) from error
    return kept, results, refused


def _take(cache: DiskCache, name: str, data: bytes) -> bool:
    key = name.removesuffix(".tile").replace("/", "")
    entry = decode(key, data)
    return entry is not None and cache.put(key, entry.payload, entry.metadata)


def _merge(cache: DiskCache, name: str, data: bytes) -> bool:
    found = results_of(data)
    if found is not None:
        TuningResults(cache.folder / name).merge(found)
    return found is not None
