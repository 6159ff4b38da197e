"""`triton.backends.driver`: what drivers have in common."""

from tilewright.backends.driver import DriverBase

__all__ = ["DriverBase"]
