"""`triton.backends.nvidia.driver`: the driver, which is there without a GPU and says so when it is asked."""

from tilewright.backends.nvidia.device.active import CudaDriver

__all__ = ["CudaDriver"]
