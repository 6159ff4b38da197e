"""A learner's folder: a file for each exercise, and `progress.json` with what is done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.base.errors import TilewrightError
from tilewright.tools.learn.catalogue import EXERCISES, Exercise
from tilewright.tools.learn.check import Verdict, check

_TEXTS = Path(__file__).parent / "exercises"
_PART = re.compile(r"^ *# <solution>\n(.*?)^ *# <exercise>\n(.*?)^ *# </exercise>\n", re.MULTILINE | re.DOTALL)


def shipped(exercise: Exercise) -> str:
    """The text that a learner begins with."""
    return _PART.sub(r"\2", _text(exercise))


def solved(exercise: Exercise) -> str:
    """The text of the solution."""
    return _PART.sub(r"\1", _text(exercise))


def _text(exercise: Exercise) -> str:
    return (_TEXTS / f"{exercise.name}.py").read_text(encoding="utf-8").removeprefix("# mypy: ignore-errors\n")


def _read(progress: Path) -> dict[str, Any]:
    try:
        known = json.loads(progress.read_text(encoding="utf-8"))
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise TilewrightError(f"{progress} cannot be read", hint="remove it, then run `tilewright learn check --all`")
    return known


class Course:
    """The files of a learner.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._progress = folder / "progress.json"
        known = _read(self._progress) if self._progress.is_file() else {}
        self.passed: list[str] = known.get("passed", [])
        self._hints: dict[str, int] = known.get("hints", {})

    @classmethod
    def opened(cls, folder: Path) -> Course:
        """The course in a folder.

        Raises:
            TilewrightError: there is none.
        """
        course = cls(folder)
        if not any(course.path(exercise).is_file() for exercise in EXERCISES):
            raise TilewrightError(
                f"there are no exercises in {folder}",
                hint="tilewright learn start exercises   puts them into a folder; go there, or name it with --dir",
            )
        return course

    def start(self) -> list[Exercise]:
        """Write the files that are not there yet; gives the exercises written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = [exercise for exercise in EXERCISES if not self.path(exercise).exists()]
        for exercise in missing:
            self.path(exercise).write_text(shipped(exercise), encoding="utf-8")
        self._save()
        return missing

    def path(self, exercise: Exercise) -> Path:
        """Its file."""
        return self.folder / exercise.file

    def reset(self, exercise: Exercise) -> Path | None:
        """Put a file back as it came; what was there is kept beside it, in the file that is given back."""
        path, kept = self.path(exercise), None
        if path.is_file() and path.read_text(encoding="utf-8") != shipped(exercise):
            kept = path.with_suffix(".py.mine")
            path.replace(kept)
        path.write_text(shipped(exercise), encoding="utf-8")
        self.passed = [name for name in self.passed if name != exercise.name]
        self._save()
        return kept

    def next(self) -> Exercise | None:
        """The first exercise that is not done; None if all are."""
        return next((exercise for exercise in EXERCISES if exercise.name not in self.passed), None)

    def check(self, exercise: Exercise, interpret: bool = False) -> Verdict:
        """Check an attempt, and remember it.

        Raises:
            TilewrightError: its file is not there.
        """
        path = self.path(exercise)
        if not path.is_file():
            raise TilewrightError(f"{path} is not there", hint=f"tilewright learn reset {exercise.number} writes it")
        verdict = check(exercise, path.resolve(), shipped(exercise), interpret)
        if not interpret and verdict.passed != (exercise.name in self.passed):
            done = {*self.passed, exercise.name} if verdict.passed else set(self.passed) - {exercise.name}
            self.passed = [other.name for other in EXERCISES if other.name in done]
            self._save()
        return verdict

    def checked_on(self) -> Iterator[Verdict]:
        """Check the first exercise that is not done, and those behind it, up to one that is wrong."""
        while (exercise := self.next()) is not None:
            verdict = self.check(exercise)
            yield verdict
            if not verdict.passed:
                return

    def hint(self, exercise: Exercise) -> tuple[list[str], int]:
        """The hints asked for so far and one more; and how many are left."""
        count = min(self._hints.get(exercise.name, 0) + 1, len(exercise.hints))
        self._hints[exercise.name] = count
        self._save()
        return list(exercise.hints[:count]), len(exercise.hints) - count

    def changed(self) -> int:
        """When a file was last changed, in nanoseconds since the epoch."""
        paths = map(self.path, EXERCISES)
        return max((path.stat().st_mtime_ns for path in paths if path.exists()), default=0)

    def _save(self) -> None:
        text = json.dumps({"passed": self.passed, "hints": self._hints}, indent=1)
        self._progress.write_text(text + "\n", encoding="utf-8")
