"""`triton._C`: Triton's compiler in C++, of which Tilewright has nothing but what torch's analysis of kernels asks."""

from . import libtriton

__all__ = ["libtriton"]
