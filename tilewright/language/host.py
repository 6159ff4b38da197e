"""Small functions that launch code and kernels share: they take host integers or compile-time constants."""

from __future__ import annotations

from tilewright.language.library import constexpr_function


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """Ceiling of x / y: how many blocks of `y` cover `x`.

    >>> cdiv(1000, 256)
    4
    """
    return -(-x // y)


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`.

    >>> next_power_of_2(1000)
    1024
    """
    return 1 if n <= 1 else 1 << (n - 1).bit_length()
