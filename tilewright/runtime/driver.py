"""`triton.runtime.driver`: the driver in use."""

from tilewright.devices.drivers import DriverConfig, driver

__all__ = ["DriverConfig", "driver"]
