"""Objects that machine code may call."""

from tilewright.launch.called import Called

__all__ = ["Called"]
