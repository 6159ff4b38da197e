r"""Division and square roots of float32, correctly rounded, without a call.

The assembler calls functions for `div.rn`, `rcp.rn` and `sqrt.rn`, and one call makes every wgmma of a kernel serial
(C7509). So kernels with wgmma get these, many elements of a thread at a time:

    all operands in range? --yes--> quotients by a reciprocal, and one correction
                           \--no--> the same in float64, rounded once more

In range nothing underflows, so that the remainder a - b*q is exact; q is then within one unit in the last place of
a / b and the reciprocal is correctly rounded, hence so is the corrected quotient (Markstein, 1990). Divisors whose
fraction is all ones but for three bits, where the reciprocal may be off and spoil a quotient, are out of range. No
quotient and no root of float32 is so near to the middle of two others that rounding a float64 of it goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.backends.llvm.types import F32, F64, I1, I32, V, const
from tilewright.backends.nvidia.emit.context import Kernel

_TOGETHER = 32  # elements that share a branch, of which as many operands live until it is taken
_LEAST, _MOST = 2.0**-100, 2.0**100  # of operands and results: every product below then is a normal number
_FRACTION, _ALL_ONES = 0x7FFFFF, 0x7FFFF8

Rows = Sequence[tuple[V, ...]]


@dataclass(frozen=True, slots=True)
class Ways:
    """How results are made.

    Args:
        in_range: whether operands take the short way (i1).
        short, long: the results.
    """

    in_range: Callable[..., V]
    short: Callable[..., V]
    long: Callable[..., V]


def rounded(k: Kernel, name: str, rows: Rows) -> list[V]:
    """Results of `precise_divf` or `precise_sqrt` on scalars of float32.

    Args:
        k: the kernel.
        name: of the entry.
        rows: operands of one thread's elements.
    """
    found: list[V] = []
    own = len({value.ref for row in rows for value in row}) / len(rows)  # operands of an element
    count = _TOGETHER >> (own > 1.5) * 2
    for start in range(0, len(rows), count):
        found += _some(k, ROUNDED[name], rows[start : start + count])
    return found


def _some(k: Kernel, way: Ways, rows: Rows) -> list[V]:
    inside = const(I1, 1)
    for row in rows:
        inside = k.f.and_(inside, way.in_range(k, *row))
    sides = [lambda of=of: [of(k, *row) for row in rows] for of in (way.short, way.long)]
    return k.f.if_else(inside, *sides, likely=True)


def _fma(k: Kernel, a: V, b: V, c: V) -> V:
    return k.f.intrinsic("fma", a, b, c)


def _divides(k: Kernel, a: V, b: V) -> V:
    """Whether `_quotient` is right; what depends on b alone is computed once for equal divisors, by LLVM."""
    f = k.f
    size, divisor = f.intrinsic("fabs", a), f.intrinsic("fabs", b)
    fraction = f.and_(f.cast("bitcast", b, I32), _FRACTION)
    usual = f.and_(f.fcmp("oge", divisor, _LEAST), f.fcmp("ole", divisor, _MOST))
    usual = f.and_(usual, f.icmp("ult", fraction, _ALL_ONES))
    least = f.intrinsic("maxnum", f.fmul(divisor, _LEAST), const(F32, _LEAST))
    least = f.select(usual, least, const(F32, float("inf")))
    most = f.intrinsic("minnum", f.fmul(divisor, _MOST), const(F32, _MOST))
    return f.and_(f.fcmp("oge", size, least), f.fcmp("ole", size, most))


def _quotient(k: Kernel, a: V, b: V) -> V:
    """a / b in range."""
    f = k.f
    minus, one = f.fneg(b), const(F32, 1.0)
    near = f.call("llvm.nvvm.rcp.approx.ftz.f", F32, (b,))
    reciprocal = _fma(k, near, _fma(k, minus, near, one), near)
    rest = f.fmul(_fma(k, minus, reciprocal, one), reciprocal)
    quotient = _fma(k, a, reciprocal, f.fmul(a, rest))
    return _fma(k, _fma(k, minus, quotient, a), reciprocal, quotient)


def _long_quotient(k: Kernel, a: V, b: V) -> V:
    """a / b of any numbers, in float64, which holds every quotient of float32 and every divisor's reciprocal."""
    f = k.f
    a, b = f.cast("fpext", a, F64), f.cast("fpext", b, F64)
    minus, one = f.fneg(b), const(F64, 1.0)
    near = reciprocal = f.call("llvm.nvvm.rcp.approx.ftz.d", F64, (b,))
    for _ in range(2):
        reciprocal = _fma(k, reciprocal, _fma(k, minus, reciprocal, one), reciprocal)
    reciprocal = f.select(f.fcmp("uno", reciprocal, reciprocal), near, reciprocal)  # of 0 and infinity
    quotient = f.fmul(a, reciprocal)
    corrected = _fma(k, _fma(k, minus, quotient, a), reciprocal, quotient)
    regular = f.fcmp("one", quotient, f.fadd(quotient, quotient))  # neither 0, nor infinite, nor NaN
    return f.cast("fptrunc", f.select(regular, corrected, quotient), F32)


def _has_root(k: Kernel, x: V) -> V:
    """Whether `_root` is right."""
    return k.f.and_(k.f.fcmp("oge", x, _LEAST), k.f.fcmp("ole", x, _MOST))


def _root(k: Kernel, x: V) -> V:
    """The square root of x in range."""
    f = k.f
    near = f.call("llvm.nvvm.rsqrt.approx.ftz.f", F32, (x,))
    root, half = f.fmul(x, near), f.fmul(near, 0.5)
    return _fma(k, _fma(k, f.fneg(root), root, x), half, root)


def _long_root(k: Kernel, x: V) -> V:
    """The square root of any number, in float64."""
    f = k.f
    wide = f.cast("fpext", x, F64)
    near = f.call("llvm.nvvm.rsqrt.approx.ftz.d", F64, (wide,))
    root, half = f.fmul(wide, near), f.fmul(near, 0.5)
    for _ in range(2):
        root = _fma(k, _fma(k, f.fneg(root), root, wide), half, root)
    itself = f.or_(f.fcmp("oeq", x, 0.0), f.fcmp("oeq", x, float("inf")))
    return f.select(itself, x, f.cast("fptrunc", root, F32))


ROUNDED = {
    "precise_divf": Ways(_divides, _quotient, _long_quotient),
    "precise_sqrt": Ways(_has_root, _root, _long_root),
}
"""Entry of the elementwise table -> how it is made."""

__all__ = ["ROUNDED", "Ways", "rounded"]
