"""`triton.runtime.driver`: the driver in use."""

from tilewright.runtime.drivers import DriverConfig, driver

__all__ = ["DriverConfig", "driver"]
