"""The `tl.extra` namespace: functions of a vendor's library, and what only one kind of device has."""

from __future__ import annotations

from tilewright.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
