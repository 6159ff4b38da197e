"""`triton.backends.driver`: what drivers have in common, for programs that check for it."""

from tilewright.devices.drivers import CpuDriver, CudaDriver

DriverBase = CpuDriver | CudaDriver

__all__ = ["DriverBase"]
