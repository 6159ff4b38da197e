"""Small functions that launch code and kernels share: they take host integers or compile-time constants.

They are plain Python and use only what symbolic integers can do, so a tracer of launches follows them.
"""

from __future__ import annotations

from tilewright.language.library import host_and_kernel


@host_and_kernel
def cdiv(x: int, y: int) -> int:
    """Ceiling of x / y: how many blocks of `y` cover `x`.

    >>> cdiv(1000, 256)
    4
    """
    return -(-x // y)


@host_and_kernel
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`: always a plain integer.

    Of a symbolic integer no more is fixed than between which powers of two it lies.

    >>> next_power_of_2(1000)
    1024
    """
    power = 1
    while power < n:
        power *= 2
    return power
