"""Files that programs keep beside the disk cache, by the managers that Triton has for that.

::

    get_cache_manager(key).put(data, "name.ext") -> path          <cache>/managed/<key>/name.ext
    ...has_file, get_file, put_group, get_group                    a group: files that count only together

A file is written beside its place and renamed, so a reader sees all of it or none. Compiled kernels are not kept here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tilewright.base.disk_cache import make_folder, write_whole
from tilewright.base.errors import ArgumentError
from tilewright.base.knobs import knobs
from tilewright.compile.request import fingerprint


class CacheManager:
    """What a manager of files of one key can do.

    Args:
        key: of the files.
        override, dump: keep them in the folder for overrides, or for dumps, instead.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key

    def has_file(self, filename: str) -> bool:
        """Whether there is a file of this name."""
        return self.get_file(filename) is not None

    def get_file(self, filename: str) -> str | None:
        """The path of a file, or None."""
        raise NotImplementedError

    def put(self, data: bytes | str | Any, filename: str, binary: bool = True) -> str:
        """Keep a file; gives its path."""
        raise NotImplementedError

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Path by name of the files of a group; None if one of them is missing."""
        raise NotImplementedError

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Keep the names of the files of a group; gives the path of what says so."""
        raise NotImplementedError


class FileCacheManager(CacheManager):
    """Files in a folder.

    Args:
        key: name of the folder.
        override, dump: below the folder for overrides, or for dumps, instead of beside the disk cache.

    Raises:
        ArgumentError: the key, or later a file name, is a path.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key)
        place = knobs.cache.dump_dir if dump else knobs.cache.override_dir if override else knobs.cache.dir / "managed"
        self._folder = place / _plain(key)

    @property
    def cache_dir(self) -> str:
        """The folder."""
        return str(self._folder)

    def get_file(self, filename: str) -> str | None:
        """As `CacheManager.get_file`."""
        path = self._make_path(filename)
        return path if os.path.isfile(path) else None

    def _make_path(self, filename: str) -> str:
        return str(self._folder / _plain(filename))

    def put(self, data: bytes | str | Any, filename: str, binary: bool = True) -> str:
        """As `CacheManager.put`; what is neither bytes nor text is kept as its text."""
        path = self._folder / _plain(filename)
        contents = bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else str(data).encode()
        make_folder(self._folder)
        write_whole(path, contents)
        return str(path)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """As `CacheManager.get_group`."""
        path = self.get_file(_group(filename))
        if path is None:
            return None
        found = {name: self.get_file(name) for name in json.loads(Path(path).read_bytes())["child_paths"]}
        whole = {name: file for name, file in found.items() if file is not None}
        return whole if len(whole) == len(found) else None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """As `CacheManager.put_group`."""
        return self.put(json.dumps({"child_paths": group}), _group(filename), binary=False)


def _plain(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or os.sep in name:
        raise ArgumentError(f"{name!r} is no name of a file")
    return name


def _group(filename: str) -> str:
    return f"__grp__{_plain(filename)}"


def get_cache_manager(key: str) -> FileCacheManager:
    """The files of a hash, beside the disk cache."""
    return FileCacheManager(_base32(key))


def get_override_manager(key: str) -> FileCacheManager:
    """The files of a hash in the folder for overrides."""
    return FileCacheManager(key, override=True)


def get_dump_manager(key: str) -> FileCacheManager:
    """The files of a hash in the folder for dumps."""
    return FileCacheManager(key, dump=True)


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: Any = None) -> str:
    """A text that differs whenever compiled code may; kernels are kept under another, `CompiledKernel.hash`.

    Args:
        src, backend, backend_options: each with a `hash()`.
        env_vars: further facts.
    """
    return (
        f"{fingerprint()}-{src.hash()}-{backend.hash()}-{backend_options.hash()}-{sorted(dict(env_vars or {}).items())}"
    )


def make_so_cache_key(version_hash: str, signature: Any, constants: Any, ids: Any, **kwargs: Any) -> str:
    """A hash of all of this.

    Args:
        version_hash, signature, constants, ids, kwargs: what a file depends on.
    """
    parts = [version_hash, dict(signature), dict(constants), dict(ids), sorted(kwargs.items())]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _base32(key: str) -> str:
    """A hexadecimal hash in the alphabet of file names; another text as it is."""
    try:
        return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")
    except ValueError:
        return key
