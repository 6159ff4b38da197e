"""Steps that the vector math functions share.

Horner evaluation, bit views, powers of two, rounding by adding a large constant, calls of the target's math library.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import F64, I64, T, V, const


def horner(f: Function, x: V, terms: Sequence[float]) -> V:
    """The polynomial with coefficients `terms`, lowest order first, at `x`."""
    result = f.mad(x, terms[-1], terms[-2])
    for term in reversed(terms[:-2]):
        result = f.mad(result, x, term)
    return result


def to_bits(f: Function, x: V) -> V:
    """The lanes of `x` as integers of the same width."""
    return f.cast("bitcast", x, x.type.as_int)


def from_bits(f: Function, bits: V, t: T) -> V:
    """Integer lanes as floats of type `t`."""
    return f.cast("bitcast", bits, t)


def signed_like(f: Function, size: V, x: V) -> V:
    """`size` with the sign of `x`."""
    return f.intrinsic("copysign", size, x)


def power_of_two(f: Function, k: V, t: T) -> V:
    """2^k of type `t` for integer lanes `k` within the range of normal exponents."""
    bias, mantissa = (127, 23) if t.elem == "float" else (1023, 52)
    return from_bits(f, f.shl(f.add(k, bias), mantissa), t)


def magic_round(f: Function, x: V, factor: float) -> tuple[V, V]:
    """`x * factor` rounded to the nearest integer, as float and as integer.

    Adding 1.5 * 2^mantissa leaves the integer in the low bits; right for results below 2^(mantissa - 2).
    """
    anchor = const(x.type, 1.5 * 2.0 ** (23 if x.type.elem == "float" else 52))
    raised = f.fadd(x, anchor) if factor == 1.0 else f.mad(x, factor, anchor)
    return f.fsub(raised, anchor), f.sub(to_bits(f, raised), to_bits(f, anchor))


def any_lane(f: Function, mask: V) -> V:
    """Whether any lane of an `i1` vector (or scalar) is set."""
    return f.reduce("or", mask)


def libm(f: Function, name: str, *args: V) -> V:
    """The double function `name` of the target's library, for every lane.

    On a CPU it is the process's libm, called in a loop through stack memory; on a GPU it is that of NVIDIA's libdevice.
    """
    if f.isa.arch == "nvptx64":
        return f.call(f"__nv_{name}", F64, args)
    t = args[0].type
    if not t.lanes:
        return f.call(name, F64, args)
    places = [f.alloca(t) for _ in args]
    for arg, place in zip(args, places, strict=True):
        f.store(arg, place, 64)
    with f.loop(0, const(I64, t.lanes), 1) as loop:
        values = [f.load(F64, f.gep(place, loop.index, F64)) for place in places]
        f.store(f.call(name, F64, values), f.gep(places[0], loop.index, F64))
    return f.load(t, places[0], 64)
