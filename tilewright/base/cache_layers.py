"""The disk cache of this machine and the layers behind it.

::

    get: folder of this user -> layers that are only read -> shared layer
    put: folder of this user, shared layer

Layers are folders, or URLs of any file system that fsspec knows (s3://, gs://, https://, memory://). What a layer has
is copied to the user's folder, so that it is fetched once. Entries carry checksums over key and content, so a layer can
lose or damage them, but they hold machine code: who can write to a layer can run code for all who read it, unless its
entries are signed (`Signature`).
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tilewright.base import system
from tilewright.base.disk_cache import DiskCache, Entry, decode, encode
from tilewright.base.errors import KnobError, UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.library import hmac, logs

_LEAST_SECRET = 32
_DIGEST_BYTES = 32


class Layer(Protocol):
    """A place behind the disk cache."""

    place: str  # as the user named it

    def read(self, key: str) -> Entry | None:
        """The entry kept under `key`, or None."""

    def write(self, key: str, data: bytes) -> None:
        """Keep an encoded entry under `key`."""


class FolderLayer:
    """A folder that is a disk cache of somebody whom the user trusts; it is never written.

    Args:
        folder: path.
    """

    def __init__(self, folder: Path) -> None:
        self.place, self._cache = str(folder), DiskCache(folder, 0, read_only=True)

    def read(self, key: str) -> Entry | None:
        """As `Layer.read`; the rules about owners and modes are those of the disk cache."""
        return self._cache.get(key)

    def write(self, key: str, data: bytes) -> None:
        """Nothing."""


class RemoteLayer:
    """A file system that fsspec knows. One that fails is reported once and left alone for the rest of the process.

    Args:
        url: of a folder.
        writable: whether entries are written.
        signature: what entries are signed with; None: they are not, and whoever can write there is trusted.

    Raises:
        UnsupportedError: fsspec, or what it needs for this kind of URL, is not installed.
    """

    def __init__(self, url: str, writable: bool, signature: Signature | None = None) -> None:
        try:
            import fsspec

            self._files, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UnsupportedError(
                f"the cache layer {url} cannot be used: {error}",
                hint="pip install 'tilewright[remote]', and what fsspec names for this kind of URL",
            ) from error
        self.place, self._root, self._writable, self._broken = url, path.rstrip("/"), writable, False
        self._signature, self._refused = signature, False

    def read(self, key: str) -> Entry | None:
        """As `Layer.read`."""
        if self._broken:
            return None
        try:
            data: bytes | None = self._files.cat_file(self._path(key))
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever the network raises
            self._give_up(error)
            return None
        if data is not None and self._signature is not None:
            data = self._signature.verified(key, data)
            if data is None:
                self._refuse(key)
        return None if data is None else decode(key, data)

    def write(self, key: str, data: bytes) -> None:
        """As `Layer.write`, if the layer is writable. A half-written entry is a miss for whoever reads it meanwhile."""
        if self._broken or not self._writable:
            return
        path = self._path(key)
        if self._signature is not None:
            data = self._signature.signed(key, data)
        try:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, data)
        except Exception as error:
            self._give_up(error)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key[2:]}.tile"

    def _refuse(self, key: str) -> None:
        if not self._refused:
            self._refused = True
            text = f"the cache layer {self.place} has entries that are not signed with our key: {key[:16]}..., for one"
            warnings.warn(text, RuntimeWarning, stacklevel=6)

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        warnings.warn(f"the cache layer {self.place} is not used any more: {error}", RuntimeWarning, stacklevel=5)


class Signature:
    """Signs entries with a secret that all who share a layer have (HMAC-SHA256, RFC 2104).

    Args:
        secret: at least 32 bytes.

    Raises:
        KnobError: it is shorter.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _LEAST_SECRET:
            raise KnobError(
                f"the key of cache layers has {len(secret)} bytes, of {_LEAST_SECRET} at least",
                hint="head -c 32 /dev/urandom > FILE, and TILEWRIGHT_CACHE_KEY=FILE",
            )
        self._secret = secret

    @classmethod
    def of_file(cls, path: Path) -> Signature:
        """With the contents of a file.

        Raises:
            KnobError: it cannot be read, or others could have written it.
        """
        try:
            if not system.this().is_only_ours(path.stat()):
                raise KnobError(f"the key of cache layers, {path}, could be written by others", hint="chmod go-w it")
            return cls(path.read_bytes())
        except OSError as error:
            raise KnobError(f"the key of cache layers, {path}, cannot be read: {error.strerror}") from error

    def signed(self, key: str, data: bytes) -> bytes:
        """An entry with its signature behind it."""
        return data + self._of(key, data)

    def verified(self, key: str, data: bytes) -> bytes | None:
        """The entry without its signature, if that is right for this key."""
        data, found = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        return data if hmac.compare_digest(found, self._of(key, data)) else None

    def _of(self, key: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, b"tilewright layer 1\0" + key.encode() + b"\0" + data, "sha256")


class LayeredCache:
    """The disk cache with layers behind it.

    Args:
        local: the folder of this user.
        layers: where else to look, in order.
    """

    def __init__(self, local: DiskCache, layers: list[Layer]) -> None:
        self.local, self._layers = local, layers

    def get(self, key: str) -> Entry | None:
        """The entry kept under `key` in the first place that has it, or None."""
        entry = self.local.get(key)
        for layer in self._layers if entry is None else ():
            entry = layer.read(key)
            if entry is not None:
                logs.caching.debug("copied %s from %s", key, layer.place)
                self.local.put(key, entry.payload, entry.metadata)
                break
        return entry

    def put(self, key: str, payload: bytes, metadata: Mapping[str, Any]) -> None:
        """Keep an entry under `key`, here and in the shared layer; that it is not possible is no error."""
        self.local.put(key, payload, metadata)
        for layer in self._layers:
            layer.write(key, encode(key, payload, metadata))

    def making(self, key: str) -> contextlib.AbstractContextManager[None]:
        """As `DiskCache.making`."""
        return self.local.making(key)


@functools.lru_cache(maxsize=4)
def _layered(folder: Path, max_bytes: int, read: tuple[str, ...], shared: str | None, key: Path | None) -> LayeredCache:
    signature = Signature.of_file(key) if key is not None and (read or shared) else None
    layers: list[Layer] = [_layer(place, False, signature) for place in read]
    if shared:
        layers.append(_layer(shared, True, signature))
    return LayeredCache(DiskCache(folder, max_bytes), layers)


def _layer(place: str, writable: bool, signature: Signature | None) -> Layer:
    if "://" in place:
        return RemoteLayer(place, writable, signature)
    if writable:
        return RemoteLayer(f"file://{Path(place).absolute()}", True, signature)
    return FolderLayer(Path(place))


def disk_cache() -> LayeredCache:
    """The disk cache that the knobs name."""
    wanted = knobs.cache
    return _layered(wanted.dir, wanted.size, tuple(wanted.layers), wanted.shared, wanted.key)


class SmallObjects:
    """The user's own folder, as the knobs name it at each use: for what a back end keeps of this machine."""

    def get_bytes(self, key: str) -> bytes | None:
        """The bytes kept under `key`, or None."""
        return None if knobs.cache.disabled else disk_cache().local.get_bytes(key)

    def put_bytes(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key`."""
        if not knobs.cache.disabled:
            disk_cache().local.put_bytes(key, payload)
