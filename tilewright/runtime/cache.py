"""`triton.runtime.cache`: files that programs keep, what names the compiler, and texts of hashes."""

from tilewright.base.knobs import SHARED_CACHE, knobs
from tilewright.base.refusal import Refusal
from tilewright.compile.managers import (
    CacheManager,
    FileCacheManager,
    _base32,
    get_cache_key,
    get_cache_manager,
    get_dump_manager,
    get_override_manager,
    make_so_cache_key,
)
from tilewright.compile.request import fingerprint as triton_key

RemoteCacheManager = Refusal("runtime.cache.RemoteCacheManager", SHARED_CACHE)
RemoteCacheBackend = Refusal("runtime.RemoteCacheBackend", SHARED_CACHE)
RedisRemoteCacheBackend = Refusal("runtime.RedisRemoteCacheBackend", SHARED_CACHE)


def default_cache_dir() -> str:
    """Folder of the disk cache."""
    return str(knobs.cache.dir)


__all__ = [
    "CacheManager", "FileCacheManager", "RedisRemoteCacheBackend", "RemoteCacheBackend", "RemoteCacheManager",
    "_base32", "default_cache_dir", "get_cache_key", "get_cache_manager", "get_dump_manager", "get_override_manager",
    "make_so_cache_key", "triton_key",
]  # fmt: skip
