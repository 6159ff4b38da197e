"""The answers that planners have given in one compilation, with the places in the source that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from xdsl.ir import Block, Operation

from tilewright.base.decision import Answer, Decision, Subject, Yes
from tilewright.base.location import Location
from tilewright.ir.op import location_of

P = TypeVar("P")
_OWN = str(Path(__file__).resolve().parent.parent)  # the package: library functions are no place of a user


class Decisions:
    """What a compilation carries from planner to planner."""

    def __init__(self) -> None:
        self._found: list[Decision] = []
        self._told: set[tuple[str, Operation]] = set()

    def note(self, subject: Subject, op: Operation | None, answer: Answer[P]) -> P | None:
        """Keep an answer.

        Args:
            subject: what was asked.
            op: about which operation.
            answer: what the planner said.

        Returns:
            The plan, or None if the answer is no.
        """
        place, taken = user_place(op), isinstance(answer, Yes)
        if isinstance(answer, Yes):
            decision = Decision(subject.name, taken, answer.what, file=place[0], line=place[1])
        else:
            cause = user_place(answer.op)
            decision = Decision(subject.name, taken, answer.reason, answer.instead, *place, *cause)
        self._found.append(decision)
        return answer.plan if isinstance(answer, Yes) else None

    def once(self, subject: Subject, op: Operation, answer: Callable[[], Answer[Any]]) -> None:
        """Keep the first answer to a question on an operation of which code may be made several times.

        Args:
            subject: what was asked.
            op: about which operation.
            answer: called for the first answer alone.
        """
        if (subject.name, op) not in self._told:
            self._told.add((subject.name, op))
            self.note(subject, op, answer())

    def extend(self, other: Decisions) -> None:
        """Keep what another part of the compilation has kept."""
        self._found += other._found

    def records(self) -> list[dict[str, Any]]:
        """All of them as data that JSON holds."""
        return [decision.record() for decision in self]

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._found)


def user_place(op: Operation | Block | None) -> tuple[str, int]:
    """File and line of an operation; of library functions where they are called. ("", 0) if nothing is known."""
    place: Location | None = location_of(op) if isinstance(op, Operation) else None
    while place is not None and place.caller is not None and place.file.startswith(_OWN):
        place = place.caller
    return (place.file, place.line) if place is not None else ("", 0)


def describe_op(op: Operation) -> str:
    """The name of an operation in a sentence: "a load", "an atomic rmw"."""
    name = op.name.rpartition(".")[2].replace("_", " ")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
