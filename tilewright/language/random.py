"""Random numbers: the counter-based generator Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011) in the block language, and distributions drawn from it.

The same seed and offset give the same number on every back end; offsets name the numbers of one stream.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.dtypes import float32, int32, int64, uint32, uint64
from tilewright.base.errors import DTypeError
from tilewright.language.annotations import constexpr
from tilewright.language.library import library
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.builtin import to_tensor as as_tensor
from tilewright.ops.casts import cast_to
from tilewright.ops.control import static_range
from tilewright.ops.creation import to_tensor, zeros_like
from tilewright.ops.functions.debug import static_assert
from tilewright.ops.functions.operators import add, mul, where
from tilewright.ops.math import cos, log, maximum, sin, sqrt, umulhi
from tilewright.ops.values import Operand, Size, tensor

ROUNDS = constexpr(10)
# Multipliers and key increments of Philox 4x32 and 4x64.
_A32, _B32, _KEY_A32, _KEY_B32 = (constexpr(n) for n in (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85))
_A64, _B64 = constexpr(0xD2E7470EE14C6C93), constexpr(0xCA5A826395121157)
_KEY_A64, _KEY_B64 = constexpr(0x9E3779B97F4A7C15), constexpr(0xBB67AE8584CAA73B)
_SCALE32, _SCALE64 = constexpr(4.6566127342e-10), constexpr(1.0842020432385337e-19)
_TWO_PI = constexpr(6.283185307179586)


@builtin(export=False)
def _key(b: Emitter, seed: Operand) -> tensor:
    """The key of a seed.

    Raises:
        DTypeError: the seed is no integer; a pointer would give other numbers in every process.
    """
    value = as_tensor(b, seed)
    if value.dtype.is_ptr() or not value.dtype.is_int():
        hint = "load it: tl.load(seed_ptr)" if value.dtype.is_ptr() else "round it with .to(tl.int32)"
        raise DTypeError(f"a seed is an integer, not a value of type {value.type}", hint=hint)
    return cast_to(b, value, uint64)


@library
def _rounds(
    c0: tensor,
    c1: tensor,
    c2: tensor,
    c3: tensor,
    k0: Operand,
    k1: Operand,
    n_rounds: Size,
    a: Operand,
    b: Operand,
    key_a: Operand,
    key_b: Operand,
) -> Any:
    for _ in static_range(n_rounds):
        high_a = umulhi(c0, a)
        high_b = umulhi(c2, b)
        low_a = mul(c0, a, sanitize_overflow=False)
        low_b = mul(c2, b, sanitize_overflow=False)
        c0 = high_b ^ c1 ^ k0
        c1 = low_b
        c2 = high_a ^ c3 ^ k1
        c3 = low_a
        k0 = add(k0, key_a, sanitize_overflow=False)
        k1 = add(k1, key_b, sanitize_overflow=False)
    return c0, c1, c2, c3


@library
def philox_impl(
    c0: tensor, c1: tensor, c2: tensor, c3: tensor, k0: Operand, k1: Operand, n_rounds: Size = ROUNDS
) -> Any:
    """Philox on a counter of four words and a key of two, all uint32 or all uint64.

    Returns:
        Four random words of the same type.
    """
    if c0.dtype == uint32:
        return _rounds(c0, c1, c2, c3, k0, k1, n_rounds, _A32, _B32, _KEY_A32, _KEY_B32)
    else:
        static_assert(c0.dtype == uint64, "philox_impl takes words of type uint32 or uint64")
        return _rounds(c0, c1, c2, c3, k0, k1, n_rounds, _A64, _B64, _KEY_A64, _KEY_B64)


@library
def philox(seed: Operand, c0: tensor, c1: tensor, c2: tensor, c3: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Philox on a counter of four 32-bit or 64-bit integers; the key is made of `seed`."""
    key = _key(seed)
    first = to_tensor(c0)
    if first.dtype.primitive_bitwidth == 32:
        return philox_impl(
            first.to(uint32, bitcast=True),
            to_tensor(c1).to(uint32, bitcast=True),
            to_tensor(c2).to(uint32, bitcast=True),
            to_tensor(c3).to(uint32, bitcast=True),
            (key & 0xFFFFFFFF).to(uint32),
            (key >> 32).to(uint32),
            n_rounds,
        )
    else:
        static_assert(first.dtype.primitive_bitwidth == 64, "philox takes 32-bit or 64-bit counters")
        return philox_impl(
            first.to(uint64, bitcast=True),
            to_tensor(c1).to(uint64, bitcast=True),
            to_tensor(c2).to(uint64, bitcast=True),
            to_tensor(c3).to(uint64, bitcast=True),
            key,
            zeros_like(key),
            n_rounds,
        )


@library
def randint4x(seed: Operand, offset: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Four tiles of random uint32, a quarter of the cost of drawing them one by one.

    Args:
        seed: integer scalar.
        offset: integer tensor; which numbers of the stream.
        n_rounds: rounds of Philox.
    """
    counter = to_tensor(offset)
    low = counter.to(uint32)
    zero = zeros_like(low)
    if counter.dtype.primitive_bitwidth > 32:
        return philox(seed, low, (counter >> 32).to(uint32), zero, zero, n_rounds)
    else:
        return philox(seed, low, zero, zero, zero, n_rounds)


@library
def randint(seed: Operand, offset: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Random uint32 of the shape of `offset`; arguments as in :func:`randint4x`."""
    word, _, _, _ = randint4x(seed, offset, n_rounds)
    return word


@library
def uint_to_uniform_float(x: tensor) -> Any:
    """Random integers (32 or 64 bits) as float32 in [0, 1)."""
    if x.dtype.primitive_bitwidth == 32:
        bits = x.to(int32, bitcast=True)
        return where(bits < 0, ~bits, bits).to(float32) * _SCALE32
    else:
        static_assert(x.dtype.primitive_bitwidth == 64, "uint_to_uniform_float takes 32-bit or 64-bit integers")
        wide = x.to(int64, bitcast=True)
        return where(wide < 0, ~wide, wide).to(float32) * _SCALE64


@library
def rand(seed: Operand, offset: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Random float32 in [0, 1) of the shape of `offset`; arguments as in :func:`randint4x`."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@library
def rand4x(seed: Operand, offset: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Four tiles of random float32 in [0, 1); arguments as in :func:`randint4x`."""
    i1, i2, i3, i4 = randint4x(seed, offset, n_rounds)
    return (
        uint_to_uniform_float(i1),
        uint_to_uniform_float(i2),
        uint_to_uniform_float(i3),
        uint_to_uniform_float(i4),
    )


@library
def pair_uniform_to_normal(u1: tensor, u2: tensor) -> Any:
    """Two tiles of uniform numbers as two of normal ones (Box and Muller, 1958)."""
    angle = _TWO_PI * u2
    radius = sqrt(-2.0 * log(maximum(1.0e-7, u1)))
    return radius * cos(angle), radius * sin(angle)


@library
def randn(seed: Operand, offset: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Random float32 from the normal distribution; arguments as in :func:`randint4x`."""
    i1, i2, _, _ = randint4x(seed, offset, n_rounds)
    n1, _ = pair_uniform_to_normal(uint_to_uniform_float(i1), uint_to_uniform_float(i2))
    return n1


@library
def randn4x(seed: Operand, offset: tensor, n_rounds: Size = ROUNDS) -> Any:
    """Four tiles of random float32 from the normal distribution; arguments as in :func:`randint4x`."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(u1, u2)
    n3, n4 = pair_uniform_to_normal(u3, u4)
    return n1, n2, n3, n4
