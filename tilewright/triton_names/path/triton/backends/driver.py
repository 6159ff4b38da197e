"""`triton.backends.driver`: what drivers have in common, for programs that check for it."""

from tilewright.backends.cpu.device.active import CpuDriver
from tilewright.backends.nvidia.device.active import CudaDriver

DriverBase = CpuDriver | CudaDriver

__all__ = ["DriverBase"]
