"""Numbers beside symbols. A symbol is an `int` that invents its value: a number of another kind that computes with it
in a way of its own (`True + n`, `numpy.int64(3) * n`, `Fraction(1, 2) * n`) would take the invention for the value."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tilewright.hl import exc


def operand(value: Any) -> Any:
    """What stands beside a symbol, as one computes with it: an `int` or a `float` for a number, else itself.

    Args:
        value: a number of Python or numpy, or anything else, which is given back.

    Raises:
        UnsupportedPythonType: a number of a kind that kernels lack.
    """
    if type(value) is bool:
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, np.generic):
        return value
    if isinstance(value, np.generic):
        return operand(value.item())
    if isinstance(value, numbers.Number):
        raise exc.UnsupportedPythonType(
            f"{value!r} is a number of the type {type(value).__name__}, and stands beside a size or an index",
            hint="write it as an int or a float",
        )
    return value
