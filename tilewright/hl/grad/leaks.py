"""Numbers of a derived kernel that may be made of the sizes that a trace invents.

PyTorch's formulas are C++, to which the size of a sample is a number: the derivative of a variance holds `2 / (n - 1)`.
Sizes are primes that divide no constant of the kernel, so what they were made into is seen but for a coincidence, and
a number that only may be one costs a second derivation, with other primes: then a size is a number that changed.
"""

from __future__ import annotations

import itertools
import math
import re

from tilewright.hl.trace.host import Traced

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TOLERANCE = 1e-6  # a formula may compute in float32
_SMALL = sorted({one / other for one in range(1, 9) for other in range(1, 9)})
"""What a size may be multiplied with."""


def are_possible(text: str, traced: Traced) -> bool:
    """Whether a number of a derived kernel's text may come of a size that `traced` invented."""
    primes = [prime for prime in traced.factors.atoms if prime > 1]
    sizes = [math.prod(some) for count in (1, 2, 3) for some in itertools.combinations(primes, count)]
    made = [(size, _SMALL, _SMALL) for size in sizes]
    # What is one more, or less, or a sum may divide a constant, which a prime does not: fewer ratios of these.
    others = [*(size + more for size in sizes for more in (-1, 1)), *map(sum, itertools.combinations(primes, 2))]
    made += [(other, [0.5, 1.0], [0.5, 1.0, 2.0]) for other in others]
    numbers = {float(found) for found in _NUMBER.findall(text)} - {0.0, 1.0}
    roots = {number * number for number in numbers if not number.is_integer()}  # no size is a square
    return any(
        _is_near(number / size, times) or _is_near(number * size, over)
        for number in numbers | roots
        for size, times, over in made
    )


def _is_near(number: float, several: list[float]) -> bool:
    return any(abs(number - one) < _TOLERANCE * one for one in several)
