"""Calls of functions around launches, made by machine code once they were recorded."""

from tilewright.launch.native.replayed import Argument, Launch, Recorded, Replayed, launched

__all__ = ["Argument", "Launch", "Recorded", "Replayed", "launched"]
