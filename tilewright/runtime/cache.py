"""`triton.runtime.cache`: what names the compiler, and texts of hashes."""

import base64

from tilewright.base.knobs import knobs
from tilewright.compile.request import fingerprint as triton_key


def default_cache_dir() -> str:
    """Folder of the disk cache."""
    return str(knobs.cache.dir)


def _base32(key: str) -> str:
    """A hexadecimal hash in the alphabet of file names."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


__all__ = ["default_cache_dir", "triton_key"]
