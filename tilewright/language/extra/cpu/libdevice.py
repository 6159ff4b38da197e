"""`tilewright.language.extra.libdevice` under the name that programs written for CPUs import it by."""

from __future__ import annotations

from tilewright.language.extra.libdevice import *  # noqa: F403
from tilewright.language.extra.libdevice import __all__ as __all__
