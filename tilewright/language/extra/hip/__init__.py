"""The `tl.extra.hip` namespace: the mathematical functions under the name that programs written for AMD's GPUs import.

There is no back end for those GPUs, and nothing else of the namespace: the functions are portable.
"""

from __future__ import annotations

from tilewright.language.extra import libdevice

__all__ = ["libdevice"]
