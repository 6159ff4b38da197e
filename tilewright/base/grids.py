"""What a launch is told of its grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias

# One to three numbers of programs, or one number; or a function that makes them of the kernel's arguments by name.
GridSizes: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
Grid: TypeAlias = GridSizes | Callable[[Any], GridSizes]
