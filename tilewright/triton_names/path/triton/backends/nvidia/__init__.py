"""`triton.backends.nvidia`: the compiler and the driver of NVIDIA's GPUs."""

from . import compiler, driver

__all__ = ["compiler", "driver"]
