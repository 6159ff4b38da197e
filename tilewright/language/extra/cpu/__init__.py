"""The `tl.extra.cpu` namespace: the mathematical functions under the name that programs written for CPUs import."""

from __future__ import annotations

from tilewright.language.extra import libdevice

__all__ = ["libdevice"]
