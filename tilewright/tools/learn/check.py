"""One attempt at an exercise: its kernel is run with checks on every case, and compared; the first mistake is told."""

from __future__ import annotations

import contextlib
import copy
import io
import linecache
import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.base.knobs import knobs
from tilewright.launch.faults import Collected, Fault
from tilewright.launch.jit import JITFunction
from tilewright.sanitize.checking import checking
from tilewright.tools.learn.catalogue import Case, Exercise, Numbers
from tilewright.tools.learn.differences import difference, first_wrong, written_by
from tilewright.tools.learn.poison import poisoned_launch
from tilewright.tools.modules import load_file

CHECKS = "bounds,races,overflow"
_ADVICE = {
    "bounds": "the tile reaches past the end here: a mask keeps it inside, as in tl.load(pointers, mask=offsets < n)",
    "race": "two programs use one element, and one of them writes: has each program offsets of its own (tl.program_id)?"
    " What several add to is added to by tl.atomic_add",
    "lanes": "elements of one tile go to one place, so that one of them is lost: what several add to is added to by"
    " tl.atomic_add",
    "overflow": "the number does not fit 32 bits: cast one side to tl.int64 first",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check has found.

    Args:
        exercise: which.
        passed: whether all cases are right and no check has found a fault.
        text: what to tell: of a wrong attempt the first mistake, of a right one what was checked.
    """

    exercise: Exercise
    passed: bool
    text: str


def check(exercise: Exercise, file: Path, shipped: str = "", interpret: bool = False) -> Verdict:
    """Check an attempt.

    Args:
        exercise: which.
        file: with the kernel.
        shipped: the text of the exercise as it came, to tell who has not begun.
        interpret: run it as Python, so that `print` and `breakpoint()` work in it, without the checks of compiled code.
    """
    try:
        kernel = _kernel(exercise, file)
        runs = [_Run(exercise, kernel, case, file, interpret) for case in exercise.cases()]
        wrong = next(filter(None, (run.mistake() for run in runs)), "")
    except TilewrightError as error:
        wrong = f"{type(error).__name__}: {error}"  # of the compiler: with the line
    except Exception as error:  # of Python: a name that is missing, a syntax error
        wrong = _of_python(error, file)
    wrong = wrong.replace(f"{file.parent}{os.sep}", "")
    if not wrong:
        checked = "run as Python" if interpret else f"no faults ({CHECKS.replace(',', ', ')})"
        count = len(exercise.cases())
        return Verdict(exercise, True, f"right in {count} case{'s' * (count != 1)}, {checked}")
    if file.read_text(encoding="utf-8") == shipped:
        wrong += "\nThe file is as it came: write your code where the comments say so."
    return Verdict(exercise, False, wrong)


def _kernel(exercise: Exercise, file: Path) -> JITFunction:
    linecache.checkcache(str(file))
    module = load_file(file, f"tilewright_exercise_{exercise.name}")
    kernel = getattr(module, exercise.kernel, None)
    if not isinstance(kernel, JITFunction):
        raise TilewrightError(
            f"{file.name} has no kernel with the name {exercise.kernel}",
            hint=f"keep `def {exercise.kernel}(...)` and @tilewright.jit; `tilewright learn reset {exercise.number}` "
            "puts the file back as it came",
        )
    return kernel


def _of_python(error: Exception, file: Path) -> str:
    """An exception of Python, with the place in the learner's file."""
    places = [entry for entry in traceback.extract_tb(error.__traceback__) if entry.filename == str(file)]
    where = f"{file.name}:{places[-1].lineno}: " if places else ""
    return where + "".join(traceback.format_exception_only(error)).strip()


@dataclass(frozen=True)
class _Run:
    """A launch of an attempt."""

    exercise: Exercise
    kernel: JITFunction
    case: Case
    file: Path
    interpret: bool

    def mistake(self) -> str:
        """What is wrong with it first; "" if nothing is."""
        case = _copied(self.case)
        with knobs.runtime.scope(), self._checks() as faults:
            knobs.runtime.interpret = self.interpret
            self.kernel[case.grid](**case.arguments)
        found = faults.faults if faults is not None else []
        wrong = _told(found) or self._changed(case.arguments) or self._different(case.arguments)
        if found and all(fault.kind == "lanes" for fault in found):  # which elements lie wrong shows the stride
            wrong = "\n".join(filter(None, (wrong, self._different(case.arguments))))
        if not wrong and not self.interpret:
            wrong = self._by_chance()
        return f"{self._title()}\n{wrong}" if wrong else ""

    def _checks(self) -> contextlib.AbstractContextManager[Collected | None]:
        return contextlib.nullcontext() if self.interpret else checking(CHECKS)

    def _title(self) -> str:
        numbers = [f"{name} = {value}" for name, value in self.case.arguments.items() if isinstance(value, int | float)]
        grid = f"({', '.join(map(str, self.case.grid))}{',' * (len(self.case.grid) == 1)})"
        return f"with {', '.join(numbers)}, grid {grid}:"

    def _changed(self, arguments: dict[str, Any]) -> str:
        for name, before in self.case.arguments.items():
            is_input = isinstance(before, np.ndarray) and name not in self.case.wanted
            if is_input and not np.array_equal(before, arguments[name]):
                return f"{name.removesuffix('_ptr')} was changed: it is only to be read. Which pointer is stored to?"
        return ""

    def _by_chance(self) -> str:
        case = _copied(self.case)
        with contextlib.redirect_stdout(io.StringIO()):  # what it prints was printed
            poisoned_launch(self.kernel, case)
        if not any(difference(self.case, name, case.arguments[name], self.exercise.tolerance) for name in case.wanted):
            return ""
        return (
            "right on this machine, but by chance: elements that a mask leaves out of a load hold anything at all\n"
            "  (here 0), and some take part in the result. Say what they hold: tl.load(pointers, mask=mask, other=...)"
        )

    def _different(self, arguments: dict[str, Any]) -> str:
        for name in self.case.wanted:
            said = difference(self.case, name, arguments[name], self.exercise.tolerance)
            if said:
                place = first_wrong(self.case, name, arguments[name], self.exercise.tolerance)
                with contextlib.redirect_stdout(io.StringIO()):
                    case = _copied(self.case)
                    who = "" if place is None else written_by(self.kernel, case, name, place, self.file.name)
                return said + (f"\n  {who}" if who else "")
        return ""


def _copied(case: Case) -> Case:
    """With arrays of its own, that lie in memory as those of the case do."""
    return replace(case, arguments={name: _copy(value) for name, value in case.arguments.items()})


def _copy(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return copy.copy(value)
    whole: Numbers = value if value.base is None else value.base
    mine = whole.copy()
    offset = value.ctypes.data - whole.ctypes.data
    return np.ndarray(value.shape, value.dtype, mine, offset, value.strides)


def _told(faults: Sequence[Fault]) -> str:
    """What checks have found, with what to do about it; each kind of advice once."""
    parts = []
    for number, fault in enumerate(faults):
        parts.append(fault.render())
        if fault.kind not in {other.kind for other in faults[:number]} and fault.kind in _ADVICE:
            parts.append(f"-> {_ADVICE[fault.kind]}")
    return "\n".join(parts)
