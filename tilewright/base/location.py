"""Places in a user's source: file, line, column, excerpt and the chain of inlined calls.

A location is attached to every operation of the tile IR and to every compile error;
:meth:`Location.render` draws the excerpt with a caret.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

_sources: dict[str, tuple[str, Sequence[int]]] = {}


@dataclass(frozen=True, slots=True)
class Location:
    """A position in a source file.

    Args:
        file: path of the file.
        line: 1-based line number.
        col: 0-based column.
        end_col: 0-based column just past the construct when it ends on the same line, else ``None``.
        caller: the call site when this place was reached by inlining a call.
        function: name of the function that contains the place.
        inside: the place in a function of the language, called here, that found the mistake; or "".
    """

    file: str
    line: int
    col: int = 0
    end_col: int | None = None
    caller: Location | None = None
    function: str = ""
    inside: str = ""

    @staticmethod
    def say_generated(file: str, source: str, lines: Sequence[int]) -> None:
        """Say of what the text of a file was generated.

        Args:
            file: its name in `linecache`.
            source: the file that somebody wrote.
            lines: for each line of the text the line of `source` that it came from, 0 for none.
        """
        _sources[file] = source, lines

    @classmethod
    def of_line(cls, file: str, line: int, function: str = "") -> Location:
        """The whole text of a line, where no more is known of a place."""
        text = linecache.getline(file, line)
        start = len(text) - len(text.lstrip())
        return cls(file, line, start, max(start + 1, len(text.rstrip())), function=function)

    def written(self) -> Location:
        """The line that somebody wrote, of a place in text that was generated (`say_generated`); else the place."""
        source, lines = _sources.get(self.file, ("", ()))
        origin = lines[self.line - 1] if 0 < self.line <= len(lines) else 0
        if not origin:
            return self
        return Location.of_line(source, origin, self.function)

    def source_line(self) -> str:
        """The text of the line, without its newline; empty when the file is not readable."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self, context: int = 2) -> str:
        """Excerpt with a caret, preceded by up to `context` lines, innermost place first; each place once."""
        shown: dict[tuple[str, int, int], Location] = {}
        repeated = 0
        place: Location | None = self
        while place is not None:
            repeated += shown.setdefault((place.file, place.line, place.col), place) is not place
            place = place.caller
        parts = [place._excerpt(0 if place is not self else context) for place in shown.values()]
        if repeated:
            parts[-1:] = [f"... {repeated} more calls of the same places", parts[-1]]
        return "\ncalled from:\n".join(parts)

    def _excerpt(self, context: int) -> str:
        """The place alone."""
        where = f", in {self.function}" if self.function else ""
        out = [f'File "{self.file}", line {self.line}, column {self.col + 1}{where}:']
        width = len(str(self.line))
        for number in range(max(1, self.line - context), self.line + 1):
            text = linecache.getline(self.file, number).rstrip("\n")
            if text or number == self.line:
                out.append(f" {number:>{width}} | {text}")
        span = max(1, (self.end_col or self.col + 1) - self.col)
        out.append(f" {'':>{width}} | {' ' * self.col}{'^' * span}")
        if self.inside:
            out.append(f"found inside {self.inside}:")
        return "\n".join(out)
