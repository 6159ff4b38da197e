"""What differs between operating systems, one file each: `this()` answers for the one that this process runs on.

The rest of the package asks here and says nothing of Linux, macOS or Windows; a test puts another system in its place
with `pretend`. docs/platforms.md says which of it has run where.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from tilewright.base.system.protocol import FaultLayout, System

if sys.platform == "win32":
    from tilewright.base.system.windows import Windows as _Here
elif sys.platform == "darwin":
    from tilewright.base.system.darwin import Darwin as _Here
elif sys.platform == "linux":
    from tilewright.base.system.linux import Linux as _Here
else:
    from tilewright.base.system.posix import Posix as _Here

__all__ = ["FaultLayout", "System", "pretend", "this"]

_systems: list[System] = [_Here()]


def this() -> System:
    """The system that this process runs on."""
    return _systems[-1]


@contextlib.contextmanager
def pretend(system: System) -> Iterator[None]:
    """A block in which `this()` is another system.

    Args:
        system: it.
    """
    _systems.append(system)
    try:
        yield
    finally:
        _systems.pop()
