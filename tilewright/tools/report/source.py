"""The source of a kernel with the decisions about each line, and what the line costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tilewright.base.callable import BlockFunction
from tilewright.base.decision import Decision, counted
from tilewright.base.location import Location
from tilewright.frontend.source import source_of
from tilewright.launch.faults import Fault

_SMALL = 0.02  # of a kernel's bytes or flops: decisions about a line below are folded


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision as the page shows it.

    Args:
        taken: it is done.
        subject, text, instead: as in `Decision`.
        folded: it matters little: the line moves few bytes and does few operations, or it is said that something that
            nobody asked for is not done.
    """

    taken: bool
    subject: str
    text: str
    instead: str
    folded: bool


@dataclass(slots=True)
class Line:
    """A line of the source.

    Args:
        number: in the file.
        html: the line with the colours of its words.
        bytes_share, flops_share: of the kernel's, 0 to 1.
        answers: decisions about it.
        faults: what checks have found there.
    """

    number: int
    html: str
    bytes_share: float = 0.0
    flops_share: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a kernel.

    Args:
        file: path.
        lines: of the function.
        elsewhere: decisions about other places: (place, its line of source, decisions).
        faults: what checks have found at other places.
    """

    file: str
    lines: list[Line]
    elsewhere: list[tuple[str, str, list[Answer]]]
    faults: list[str] = field(default_factory=list)

    @property
    def taken(self) -> int:
        """Decisions that something is done."""
        return sum(answer.taken for answer in self._answers())

    @property
    def refused(self) -> int:
        """Decisions that something is not done."""
        return sum(not answer.taken for answer in self._answers())

    def _answers(self) -> list[Answer]:
        return [a for line in self.lines for a in line.answers] + [a for *_, found in self.elsewhere for a in found]


def source_rows(
    fn: BlockFunction,
    decisions: Sequence[Decision],
    moved: Mapping[int, int],
    flops: Mapping[int, int],
    faults: Sequence[Fault] = (),
) -> Source:
    """The source of a kernel with everything that is known about its lines.

    Args:
        fn: the kernel.
        decisions: of the compiled kernel.
        moved, flops: bytes and operations by line; empty where they are not known.
        faults: what checks have found in the kernel.
    """
    source = source_of(fn)
    texts = highlight(source.text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)).split("\n")
    texts = texts[: len(source.text.splitlines())]
    all_moved, all_flops = max(1, sum(moved.values())), max(1, sum(flops.values()))
    lines = {
        number: Line(number, html, moved.get(number, 0) / all_moved, flops.get(number, 0) / all_flops)
        for number, html in enumerate(texts, source.first_line)
    }
    elsewhere: dict[tuple[str, int], list[Answer]] = {}
    known = bool(moved or flops)
    for decision, count in counted(decisions):
        line = lines.get(decision.line) if decision.file == source.file else None
        cost = max(line.bytes_share, line.flops_share) if line is not None and known else 1.0
        minor = cost < _SMALL or (not decision.taken and not decision.instead and known and cost < 0.2)
        answer = Answer(decision.taken, decision.subject, decision.explanation(count), decision.instead, minor)
        if line is not None:
            line.answers.append(answer)
        else:
            elsewhere.setdefault((decision.file, decision.line), []).append(answer)
    places = [
        (f"{file}:{number}" if number else "the kernel as a whole", Location(file, number).source_line().strip(), found)
        for (file, number), found in elsewhere.items()
    ]
    beside: list[str] = []
    for fault in faults:
        place = fault.place
        line = lines.get(place.line) if place is not None and place.file == source.file else None
        (beside if line is None else line.faults).append(fault.title())
    return Source(source.file, list(lines.values()), places, beside)
