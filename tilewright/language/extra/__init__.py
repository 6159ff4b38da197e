"""The `tl.extra` namespace: functions of a vendor's library, and what only one kind of device has."""

from __future__ import annotations

from tilewright.language.extra import cpu, cuda, hip, libdevice

__all__ = ["cpu", "cuda", "hip", "libdevice"]
