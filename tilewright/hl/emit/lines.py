"""Lines of generated code with indentation and the user's line that each came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of text; `origin` is the line of the user's file, 0 for none."""

    text: str
    origin: int = 0


class Lines:
    """A growing piece of code.

    Attributes:
        origin: line of the user's file that lines written now come from.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.origin = 0
        self._depth = 0

    def write(self, text: str) -> None:
        """Add a line at the present indentation."""
        self.lines.append(Line("    " * self._depth + text, self.origin))

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Lines written inside are a level deeper."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def here(self) -> tuple[int, int]:
        """A place at which lines can be put in later: position and depth."""
        return len(self.lines), self._depth

    def insert(self, place: tuple[int, int], texts: list[str]) -> None:
        """Put lines in at a place that `here` gave."""
        at, depth = place
        self.lines[at:at] = [Line("    " * depth + text, self.origin) for text in texts]
