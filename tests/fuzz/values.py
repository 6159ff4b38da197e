"""What the generator knows of a value: its type, and how far two correct evaluations of it may differ.

A float carries a bound of its magnitude, a grain of which it is a multiple (so that sums in any order are exact while
they fit), and an absolute error bound; 0 says that every correct evaluation gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# name -> (kind, bits, bits of the significand)
TYPES: dict[str, tuple[str, int, int]] = {
    "int1": ("bool", 1, 0),
    **{f"int{b}": ("int", b, 0) for b in (8, 16, 32, 64)},
    **{f"uint{b}": ("uint", b, 0) for b in (8, 16, 32, 64)},
    "float16": ("float", 16, 11),
    "bfloat16": ("float", 16, 8),
    "float32": ("float", 32, 24),
    "float64": ("float", 64, 53),
}
INTS = tuple(n for n, t in TYPES.items() if t[0] in ("int", "uint"))
FLOATS = tuple(n for n, t in TYPES.items() if t[0] == "float")
WIDE_FLOATS = ("float32", "float64")
LIMIT = {"float16": 3e4, "bfloat16": 1e30, "float32": 1e30, "float64": 1e200}
Shape = tuple[int, ...]


class Unsuitable(Exception):
    """The choice at hand leads to a value that could not be compared; choose again."""


@dataclass(frozen=True)
class Value:
    """A named value of a kernel.

    Args:
        name: its name.
        shape: of the tile; empty for a scalar.
        dtype: name of the element type.
        mag: bound of the magnitude of finite elements (floats).
        grain: all finite elements are multiples of this power of two; None if that is not known.
        err: bound of the difference of two correct evaluations.
        special: whether NaN, infinities may be among the elements.
        product: a multiplication that a following addition may be fused with.
        frozen: the name must not be assigned again here.
    """

    name: str
    shape: Shape
    dtype: str
    mag: float = 0.0
    grain: float | None = None
    err: float = 0.0
    special: bool = False
    product: bool = False
    frozen: bool = False

    @property
    def kind(self) -> str:
        return TYPES[self.dtype][0]

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def bits(self) -> int:
        return TYPES[self.dtype][1]

    @property
    def numel(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def exact(self) -> bool:
        """Whether decisions may depend on it."""
        return self.err == 0 and not self.product

    def like(self, **changes: object) -> Value:
        """The same facts with `changes`."""
        return replace(self, **changes)  # type: ignore[arg-type]


def epsilon(dtype: str) -> float:
    """Twice the relative error of one rounding."""
    return float(2.0 ** (1 - TYPES[dtype][2]))


def facts(
    dtype: str, mag: float, grain: float | None, err: float, *, special: bool = False, inexact: bool = False
) -> dict[str, object]:
    """Facts of the result of one operation on floats, rounded to `dtype`.

    Args:
        dtype: type of the result.
        mag, grain, err: of the result before rounding.
        special: whether NaN or infinities may come out.
        inexact: whether correct evaluations may round differently even from the same operands.

    Raises:
        Unsuitable: it may overflow, or the error drowns the value.
    """
    if mag > LIMIT[dtype]:
        raise Unsuitable
    if grain is not None and (mag > grain * 2.0 ** TYPES[dtype][2] or grain < 2.0**-14):
        grain = None
    if grain is None and (inexact or err > 0):
        err += epsilon(dtype) * mag
    if err > 0.05 * max(mag, 1e-3):
        raise Unsuitable
    return {"mag": mag, "grain": grain if err == 0 else None, "err": err, "special": special}
