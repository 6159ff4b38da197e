"""What to say about a result that differs from what is wanted: the first place, how many, and what it looks like."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import TilewrightError
from tilewright.launch.jit import JITFunction
from tilewright.tools.learn.catalogue import Case, Numbers, untouched
from tilewright.tools.report import accesses
from tilewright.tools.report.recording import Sample


def difference(case: Case, name: str, found: Numbers, tolerance: float) -> str:
    """What is wrong with a result, in a few lines; "" if nothing is.

    Args:
        case: the launch.
        name: of the parameter.
        found: its elements after the launch.
        tolerance: relative and absolute.
    """
    wanted, label = case.wanted[name], name.removesuffix("_ptr")
    wrong = ~np.isclose(found, wanted, rtol=tolerance, atol=tolerance)
    if not wrong.any():
        return ""
    missing = untouched(found)
    if missing.all():
        said = f"{label} was never written: none of its {wrong.size} elements"
        return f"{said}\n  tl.store(pointers, values) writes a tile"
    if (wrong & missing).all(where=wrong):
        return (
            f"{label}{_shown(_first(missing))} was never written, as {int(missing.sum())} of {wrong.size} elements\n"
            "  does every program store its whole tile, and only its own? look at the offsets and at the mask"
        )
    place = _first(wrong & ~missing)
    many = f"{int(wrong.sum())} of {wrong.size} elements are wrong"
    lines = [f"{label}{_shown(place)} is {found[place]:.6g}, and {wanted[place]:.6g} is wanted; {many}"]
    return "\n".join(lines + [f"  {remark}" for remark in _remarks(found, wanted, wrong & ~missing, place, label)])


def written_by(kernel: JITFunction, case: Case, name: str, place: tuple[int, ...], source: str) -> str:
    """Who writes an element last: program, element of its tile and line, by running the kernel as Python.

    Args:
        kernel: of the learner.
        case: the launch; its arguments are copies.
        name: of the parameter.
        place: of the element.
        source: name of the file, for the text.
    """
    found = case.arguments[name]
    address = found.ctypes.data + sum(i * stride for i, stride in zip(place, found.strides, strict=True))
    x, y, z = [*case.grid, 1, 1][:3]
    try:
        made = accesses.trace(Sample(kernel, case.arguments, (x, y, z)))
    except TilewrightError:
        return ""
    for access in reversed(made.accesses):
        lanes = np.nonzero(access.active & (access.addresses == address))[0]
        if access.writes and lanes.size and access.program < len(made.programs):
            where = np.unravel_index(lanes[-1], access.shape) if access.shape else ()
            element = f", element {_shown(tuple(map(int, where)))} of its tile" if access.shape else ""
            return f"written by program {made.programs[access.program]}{element}, at {source}:{access.line}"
    return ""


def first_wrong(case: Case, name: str, found: Numbers, tolerance: float) -> tuple[int, ...] | None:
    """The first element that was written and is wrong; None if there is none."""
    wrong = ~np.isclose(found, case.wanted[name], rtol=tolerance, atol=tolerance) & ~untouched(found)
    return _first(wrong) if wrong.any() else None


def _first(where: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(where)[0])


def _shown(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]"


def _remarks(
    found: Numbers, wanted: Numbers, wrong: NDArray[np.bool_], place: tuple[int, ...], label: str
) -> list[str]:
    """What the difference looks like."""
    if not np.isfinite(found[place]):
        return [
            "infinity or no number: is exp given large numbers, or divided by a sum of nothing?",
            "a tile that is masked off in part holds anything there: give the load an other= that changes nothing",
        ]
    if not found.any():
        return ["all of it is 0, as if nothing had been added"]
    remarks = []
    same = np.argwhere(np.isclose(wanted, found[place], rtol=1e-6, atol=0))
    if found[place] != 0 and len(same) == 1:
        there = tuple(int(i) for i in same[0])
        remarks.append(f"that is what belongs to {label}{_shown(there)}: look at offsets and strides")
    apart, ratio = (found - wanted)[wrong], (found / np.where(wanted == 0, np.nan, wanted))[wrong]
    if apart.size > 3 and np.ptp(apart) <= 1e-4 * abs(apart[0]):
        remarks.append(f"all that are wrong are {abs(apart[0]):.6g} too {'large' if apart[0] > 0 else 'small'}")
    elif ratio.size > 3 and np.ptp(ratio) <= 1e-4 * abs(ratio[0]):
        remarks.append(f"all that are wrong are {ratio[0]:.6g} times what is wanted")
    return remarks
