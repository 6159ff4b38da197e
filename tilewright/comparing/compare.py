"""`compare`: a kernel on every device that is here, beside a reference; what differs, where, and who wrote it.

arguments -> copies -> interpreter | CPU | GPU | reference -> arrays afterwards, results -> differences
the first difference -> the kernel interpreted once more, its stores noted -> the program that wrote that element
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import ArgumentError
from tilewright.base.grids import Grid
from tilewright.base.lazy import lazy_module
from tilewright.comparing.copies import Copies, is_tensor
from tilewright.comparing.differences import Difference, Tolerance, difference, plain, tolerance_of
from tilewright.comparing.sides import CPU, INTERPRETER, Asked, Outcome, run, running_as

if TYPE_CHECKING:
    from tilewright.comparing import writers
    from tilewright.launch import interpret
else:  # with the language; loaded when somebody wants to know who wrote an element
    interpret = lazy_module("tilewright.launch.interpret")
    writers = lazy_module("tilewright.comparing.writers")

GAPS = "memory beside the arguments"


class ComparisonError(AssertionError):
    """A kernel differs from its reference; `comparison` says where.

    Args:
        comparison: what was compared.
        more: text behind it.
    """

    def __init__(self, comparison: Comparison, more: str = "") -> None:
        super().__init__(f"{comparison}{more}")
        self.comparison = comparison


@dataclass(frozen=True, slots=True)
class Row:
    """An array of one side beside what is expected.

    Args:
        side: "interpreter", "cpu" or "cuda".
        array: its name: of an argument, "result", or a part of one.
        elements: of the array.
        difference: from what is expected.
        tolerance: that was allowed.
    """

    side: str
    array: str
    elements: int
    difference: Difference
    tolerance: Tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a kernel did on every side.

    Args:
        kernel: its name.
        rows: every array of every side that ran.
        errors: by side, what was raised; or the reason why it cannot run the kernel, if that is in `refused`.
        refused: sides that cannot run such a kernel.
        writer: of the first element that differs; None if there is none, or nobody wrote it.
    """

    kernel: str
    rows: tuple[Row, ...]
    errors: Mapping[str, str]
    refused: frozenset[str] = frozenset()
    writer: writers.Writer | None = None

    @property
    def differences(self) -> list[Row]:
        """Rows that differ by more than they may."""
        return [row for row in self.rows if row.difference.count]

    @property
    def ok(self) -> bool:
        """Whether nothing differs and nothing was raised."""
        return not self.differences and not self.errors.keys() - self.refused

    def table(self) -> Any:
        """All rows as a table of rich."""
        from rich.table import Table

        table = Table()
        for head in ("side", "array", "differ", "largest difference", "relative", "allowed (rtol, atol)"):
            table.add_column(head, justify="left" if head in ("side", "array") else "right")
        for row in self.rows:
            found = row.difference
            style = "red" if found.count else None
            figures = (f"{found.absolute:.3g}", f"{found.relative:.3g}")
            table.add_row(
                row.side, row.array, f"{found.count} of {row.elements}", *figures, str(row.tolerance), style=style
            )
        for side, error in self.errors.items():
            said = f"{'cannot run: ' if side in self.refused else ''}{error.splitlines()[0]}"
            table.add_row(side, said, style=None if side in self.refused else "red")
        return table

    def __rich__(self) -> Any:
        return self.table()

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=120, color_system=None)
        console.print(self.table())
        return "\n".join([*self._sentences(), console.file.getvalue().rstrip()])  # type: ignore[attr-defined]

    def _sentences(self) -> list[str]:
        if self.ok:
            return [f"{self.kernel} agrees with its reference"]
        lines = [f"{self.kernel} differs from its reference"]
        for number, row in enumerate(self.differences):
            found = row.difference
            lines.append(
                f"{row.side}: {row.array}{list(found.index)} is {found.got}, expected {found.expected}; "
                f"{found.count} of {row.elements} elements differ"
            )
            if number == 0 and row.array != GAPS:
                lines.append(f"  {self.writer or 'no program wrote this element, as far as the interpreter can say'}")
        lines.extend(f"{side}: {error}" for side, error in self.errors.items() if side not in self.refused)
        return lines


def compare(
    kernel: Any,
    reference: Callable[..., Any] | None,
    *args: Any,
    grid: Grid | None = None,
    sides: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    check: bool = True,
    **kwargs: Any,
) -> Comparison:
    """Run a kernel on every device that is here, each on copies of the arguments, and compare with a reference.

    Every array among the arguments is compared after the call, whether the kernel was to change it or not, the memory
    between the elements of views too, and every array among the results.

    Args:
        kernel: a kernel of `tl` (with `grid`) or `hl`, or a function that launches kernels.
        reference: what the kernel ought to do. Called with copies of those arguments that it names, or of all.
            It changes them in place and returns nothing, or returns arrays: the results, or for a kernel of `tl` its
            outputs (one, a tuple in order, or a dictionary by name). None for the interpreter.
        args, kwargs: of the call; arrays of numpy or torch, numbers, anything else.
        grid: of a launch.
        sides: "interpreter", "cpu", "cuda"; default is all that can run here.
        outputs: names of the arrays that what the reference returns stands for; default are those that the kernel
            stores to.
        rtol, atol: in place of what the type of each array allows; integers are exact.
        check: raise if something differs.

    Raises:
        ComparisonError: an AssertionError; a result differs by more than it may, or a side has raised.
        ArgumentError: a side cannot run here, or it is not known what the reference's result stands for.
    """
    asked = Asked(kernel, args, kwargs, grid)
    wanted = asked.sides(sides)
    outcomes = [run(asked, side) for side in wanted]
    if reference is None:
        first = next((outcome for outcome in outcomes if outcome.side == INTERPRETER), None) or run(asked, INTERPRETER)
        if first.error is not None:
            raise first.error
        expected = replace(first, side="reference")
        outcomes = [outcome for outcome in outcomes if outcome is not first]
    else:
        expected = _expected(asked, reference, outputs)
    rows: list[Row] = []
    errors = {outcome.side: _said(outcome.error) for outcome in outcomes if outcome.error is not None}
    for outcome in outcomes:
        if outcome.error is None:
            try:
                rows.extend(_rows(outcome, expected, rtol, atol))
            except ValueError as error:
                errors[outcome.side] = str(error)
    refused = frozenset(outcome.side for outcome in outcomes if outcome.refused)
    found = Comparison(asked.name, tuple(rows), errors, refused)
    if found.differences:
        found = replace(found, writer=_writer(asked, found.differences[0]))
    if check and not found.ok:
        raise ComparisonError(found)
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}"


# --- what is expected ---------------------------------------------------------------------------------------


def _expected(asked: Asked, reference: Callable[..., Any], outputs: Sequence[str] | None) -> Outcome:
    returned: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        returned.append(_called(reference, dict(zip(asked.names(), args)) | kwargs, args))
        return returned[0]

    outcome = run(asked, CPU, call)
    if outcome.error is not None:
        raise outcome.error
    if asked.grid is None or returned[0] is None:
        return outcome
    result = returned[0]
    if not isinstance(result, Mapping):
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
        names = list(outputs) if outputs is not None else _stored(asked)
        if len(names) != len(parts):
            raise ArgumentError(
                f"compare: the reference of {asked.name} returns {len(parts)} arrays, outputs are {', '.join(names)}",
                hint='return a dictionary by name, or say outputs=["..."]',
            )
        result = dict(zip(names, parts))
    given = {name: array for name, array in outcome.arrays.items() if not name.startswith("result")}
    return replace(outcome, arrays={**given, **result})


def _called(reference: Callable[..., Any], given: Mapping[str, Any], args: tuple[Any, ...]) -> Any:
    """The reference with those of the arguments that it names, or with all positional ones, in order."""
    try:
        params = inspect.signature(reference).parameters.values()
    except (TypeError, ValueError):
        return reference(*(args or given.values()))
    plain_kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    by_name = all(p.kind in plain_kinds and (p.name in given or p.default is not p.empty) for p in params)
    if by_name:
        return reference(**{p.name: given[p.name] for p in params if p.name in given})
    return reference(*(args or given.values()))


def _stored(asked: Asked) -> list[str]:
    """Names of the arguments that a kernel stores to, in order."""
    copies = Copies()
    try:
        with running_as(CPU):
            kwargs = {name: copies.of(value) for name, value in asked.kwargs.items()}
            kernel = asked.kernel.warmup(*map(copies.of, asked.args), grid=asked.grid, **kwargs)
    except AttributeError:
        kernel = None
    while isinstance(kernel, list):  # of an autotuner
        kernel = kernel[0]
    if kernel is None or kernel.metadata["stores_anywhere"]:
        raise ArgumentError(
            f"compare: which arrays {asked.name} stores to is not known",
            hint='say outputs=["..."], or return a dictionary',
        )
    paths = kernel.specialization.runtime_paths
    names = [kernel.specialization.names[paths[slot][0]] for slot in sorted(kernel.metadata["stored"])]
    return list(dict.fromkeys(names))


# --- what differs ---------------------------------------------------------------------------------------


def _rows(outcome: Outcome, expected: Outcome, rtol: float | None, atol: float | None) -> list[Row]:
    """Every array of a side beside what is expected.

    Raises:
        ValueError: an array is missing or has another shape.
    """
    rows = []
    for name, array in expected.arrays.items():
        if name not in outcome.arrays:
            raise ValueError(f"there is no {name}: it has {', '.join(outcome.arrays) or 'no arrays'}")
        got, wanted, allowed = (
            plain(outcome.arrays[name]),
            plain(array),
            tolerance_of(outcome.arrays[name].dtype, rtol, atol),
        )
        if got.shape != wanted.shape:
            raise ValueError(f"{name} has the shape {list(got.shape)}, expected {list(wanted.shape)}")
        rows.append(Row(outcome.side, name, got.size, difference(got, wanted, allowed), allowed))
    if outcome.gaps and expected.gaps:
        got, wanted = np.concatenate(outcome.gaps), np.concatenate(expected.gaps)
        if got.size and got.size == wanted.size:
            exact = Tolerance(0.0, 0.0)
            rows.append(Row(outcome.side, GAPS, got.size, difference(got, wanted, exact), exact))
    return rows


def _writer(asked: Asked, row: Row) -> writers.Writer | None:
    """Who wrote the first element that differs: the kernel is interpreted once more."""
    stores = writers.Stores()
    with interpret.reached_through(stores.memory):
        outcome = run(asked, INTERPRETER)
    array = outcome.arrays.get(row.array)
    return None if array is None else stores.last_at(_address(array, row.difference.index))


def _address(array: Any, index: tuple[int, ...]) -> int:
    if is_tensor(array):
        offset = sum(i * stride for i, stride in zip(index, array.stride()))
        return int(array.data_ptr() + offset * array.element_size())
    return int(array.__array_interface__["data"][0] + sum(i * stride for i, stride in zip(index, array.strides)))
