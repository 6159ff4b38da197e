"""`triton.errors`: the root of all errors."""

from tilewright import TritonError

__all__ = ["TritonError"]
