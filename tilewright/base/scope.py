"""What `with` may hold in a kernel: a name for a part of it."""

from __future__ import annotations

from typing import Self


class KernelScope:
    """A part of a kernel under a name. It makes no code, compiled or interpreted.

    Args:
        name: of the part.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None
