"""Where two arrays differ by more than their type allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What may lie between two right results of one formula: twice the spacing of numbers near one for short types, some
# ten times for the others, whose sums are longer. Those of PyTorch's `torch.testing.assert_close`, but for 8 bits.
_TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float8_e4m3": (0.125, 0.01),
    "float8_e5m2": (0.25, 0.01),
}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be from what is expected: `atol + rtol * abs(expected)`."""

    rtol: float
    atol: float

    def __str__(self) -> str:
        return "exact" if not self.rtol and not self.atol else f"{self.rtol:g}, {self.atol:g}"


def tolerance_of(dtype: Any, rtol: float | None = None, atol: float | None = None) -> Tolerance:
    """The tolerance for a type; integers and truths are exact whatever is asked.

    Args:
        dtype: of numpy or torch.
        rtol, atol: in place of those of the type.
    """
    name = getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
    name = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    usual = next((both for known, both in _TOLERANCES.items() if name.startswith(known)), None)
    if usual is None:
        return Tolerance(0.0, 0.0)
    return Tolerance(usual[0] if rtol is None else rtol, usual[1] if atol is None else atol)


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different in an array.

    Args:
        count: elements that differ by more than they may.
        index: of the first of them, in the order of rows.
        got, expected: the element there.
        absolute, relative: the largest differences of elements that are finite on both sides.
    """

    count: int
    index: tuple[int, ...] = ()
    got: Any = None
    expected: Any = None
    absolute: float = 0.0
    relative: float = 0.0


def plain(array: Any) -> NDArray[Any]:
    """An array as numpy has it; floats that numpy does not have become float32."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        if array.is_floating_point() and str(array.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
            array = array.float()
        return np.asarray(array.resolve_conj().numpy())
    held: NDArray[Any] = np.asarray(array)
    is_short = held.dtype.kind == "V" or held.dtype.name.startswith(("bfloat", "float8"))
    return held.astype(np.float32) if is_short else held


def difference(got: NDArray[Any], expected: NDArray[Any], allowed: Tolerance) -> Difference:
    """Compare two arrays of one shape; a NaN is equal to a NaN, an infinity to itself."""
    if not allowed.rtol and not allowed.atol:
        wrong = got != expected
        if got.dtype.kind in "fc" and expected.dtype.kind in "fc":
            wrong &= ~(np.isnan(got) & np.isnan(expected))
    else:
        wide = np.result_type(got, expected, np.float64)
        with np.errstate(all="ignore"):
            close = np.isclose(got.astype(wide), expected.astype(wide), allowed.rtol, allowed.atol, equal_nan=True)
        wrong = ~close
    absolute, relative = _largest(got, expected)
    if not wrong.any():
        return Difference(0, absolute=absolute, relative=relative)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return Difference(int(wrong.sum()), index, got[index].item(), expected[index].item(), absolute, relative)


def _largest(got: NDArray[Any], expected: NDArray[Any]) -> tuple[float, float]:
    with np.errstate(all="ignore"):
        left, right = (np.asarray(side, np.result_type(side, np.float64)) for side in (got, expected))
        finite = np.isfinite(left) & np.isfinite(right)
        away = np.abs(left - right)[finite]
        size = np.abs(right)[finite]
        relative = away[size > 0] / size[size > 0]
    return float(away.max(initial=0.0)), float(relative.max(initial=0.0))
