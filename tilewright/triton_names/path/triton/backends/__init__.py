"""`triton.backends`: the back ends by name, each as the pair of a compiler and a driver."""

from typing import Any, NamedTuple

from tilewright.backends.cpu.device.active import CpuDriver
from tilewright.backends.nvidia.device.active import CudaDriver
from tilewright.compiler import backends as compiler
from tilewright.compiler.backends import BaseBackend, CpuBackend, CudaBackend

from .driver import DriverBase


class Backend(NamedTuple):
    """The two halves of a back end, as classes."""

    compiler: type[BaseBackend]
    driver: Any


backends = {"cpu": Backend(CpuBackend, CpuDriver), "nvidia": Backend(CudaBackend, CudaDriver)}

__all__ = ["Backend", "BaseBackend", "DriverBase", "backends", "compiler"]
