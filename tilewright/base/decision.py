"""Answers of planners as data: what is done to a kernel, or why it is not done and what to write instead.

A planner answers `Yes(plan, "what is done")` or `No("why not", op, instead="what to write")`. A compilation collects
the answers (`ir.decisions`), the compiled kernel keeps them as plain records, and `tilewright explain` prints them
beside the source:

    14 |     acc += tl.dot(a, b)
       |       no   asynchronous products: the sum is made by another operation (line 14)
       |            write acc = tl.dot(a, b, acc)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

P = TypeVar("P", covariant=True)


@dataclass(frozen=True, slots=True)
class Yes(Generic[P]):
    """It is done.

    Args:
        plan: how.
        what: the same for people, in a few words.
    """

    plan: P
    what: str = ""


@dataclass(frozen=True, slots=True)
class No:
    """It is not done.

    Args:
        reason: why not, in a few words.
        op: the operation that stands in the way, if it is another one than the question is about.
        instead: what to write to have it; "" where nothing in the source would help.
    """

    reason: str
    op: Any = None
    instead: str = ""


Answer: TypeAlias = Yes[P] | No


class Subject(NamedTuple):
    """What planners decide on.

    Args:
        name: of a few words; decisions are known by it.
        meaning: what it is and what it is good for, in a sentence.
    """

    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer, as the compiled kernel keeps it.

    Args:
        subject: name of the subject.
        taken: whether it is done.
        text: what is done, or why not.
        instead: what to write to have it; "" where nothing would help.
        file, line: where in the user's source; "" and 0 where that is not known.
        cause_file, cause_line: of what stands in the way; "" and 0 if it is nothing else.
    """

    subject: str
    taken: bool
    text: str
    instead: str = ""
    file: str = ""
    line: int = 0
    cause_file: str = ""
    cause_line: int = 0

    def explanation(self, count: int = 1, first_line: int = 1) -> str:
        """What is done or why not, with the line of the cause if that is another.

        Args:
            count: how often it was decided.
            first_line: what is called line 1.
        """
        text = self.text
        if self.cause_line and (self.cause_file, self.cause_line) != (self.file, self.line):
            text += f" (line {self.cause_line - first_line + 1})"
        return f"{text} ({count} times)" if count > 1 else text

    def record(self) -> dict[str, Any]:
        """The decision as data that JSON holds."""
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = tuple(field.name for field in fields(Decision))


def from_records(records: Iterable[Mapping[str, Any]]) -> tuple[Decision, ...]:
    """The decisions of which these are the records."""
    return tuple(Decision(**record) for record in records)


def counted(decisions: Iterable[Decision]) -> list[tuple[Decision, int]]:
    """Decisions by line, equal ones (of an unrolled loop, say) once with their number."""
    counts: dict[Decision, int] = {}
    for decision in decisions:
        counts[decision] = counts.get(decision, 0) + 1
    return sorted(counts.items(), key=lambda item: (item[0].file, item[0].line))  # stable: planners' order in a line


def lines_of(decision: Decision, count: int = 1, first_line: int = 1) -> list[str]:
    """A decision as text: the answer, and below it what to write instead; arguments as for `Decision.explanation`."""
    answer = "yes" if decision.taken else "no "
    text = f"{answer}  {decision.subject}: {decision.explanation(count, first_line)}"
    return [text, f"     write {decision.instead}"] if decision.instead else [text]


def render(decisions: Sequence[Decision], title: str = "") -> str:
    """All decisions as text, each with its place; one place after the other.

    Args:
        decisions: of a kernel.
        title: first line.
    """
    out = [title] if title else []
    place: tuple[str, int] | None = None
    for decision, count in counted(decisions):
        here = (decision.file, decision.line)
        if here != place:
            out.append(f"{decision.file}:{decision.line}" if decision.line else "in no line of the source")
            place = here
        out += [f"    {line}" for line in lines_of(decision, count)]
    return "\n".join(out) + "\n"
