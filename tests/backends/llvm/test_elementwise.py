"""The elementwise table against numpy, bit for bit, on edge values and random bits, on several instruction sets."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.llvm.harness import NO_AVX512, NO_CONVERTS, conversion, memory, operation
from tilewright.backends.llvm import elementwise
from tilewright.base import minifloat
from tilewright.base.dtypes import dtype

RNG = np.random.default_rng(1234)
INTS = ("i8", "i16", "i32", "i64")
LANES = (0, 4, 64)
CPUS = ("", NO_AVX512)


def integers(name: str, count: int = 512) -> np.ndarray:
    kind = np.iinfo(memory(name))
    edges = [0, 1, 2, 3, 7, -1, -2, -3, kind.max, kind.max - 1, kind.min, kind.min + 1]
    bits = RNG.integers(kind.min, kind.max, count, dtype=memory(name), endpoint=True)
    small = RNG.integers(-9, 9, count // 2).astype(memory(name))
    return np.concatenate([np.array(edges, memory(name)), bits, small])


def floats(name: str, count: int = 4096) -> np.ndarray:
    """Edge values and random bit patterns of a float type (bf16 as codes)."""
    width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[name]
    unsigned = np.dtype(f"uint{width}")
    random = RNG.integers(0, 1 << width, count, dtype=np.uint64 if width == 64 else np.int64).astype(unsigned)
    numbers = np.array([0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 3, 1e-3, 7.25, np.inf, -np.inf, np.nan], np.float64)
    ordinary = np.concatenate([numbers, RNG.normal(0, 3, count)])
    if name == "bf16":
        return np.concatenate([to_bf16(ordinary.astype(np.float32)), random])
    return np.concatenate([ordinary.astype(memory(name)), random.view(memory(name))])


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each value with others: all pairs of the first (edge) values, then shuffled."""
    head = values[:14]
    a = np.concatenate([np.repeat(head, head.size), values])
    b = np.concatenate([np.tile(head, head.size), RNG.permutation(values)])
    return a, b


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 to bf16 codes, to nearest even, NaN quiet."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (bits >> 16).astype(np.uint16) | 0x40, rounded)


def from_bf16(code: np.ndarray) -> np.ndarray:
    return (code.astype(np.uint32) << 16).view(np.float32)


def same(got: np.ndarray, want: np.ndarray, context: object = "") -> None:
    """Equal values, NaN equal to NaN, zeros of the same sign."""
    if got.dtype.kind == "f":
        ok = (np.isnan(got) & np.isnan(want)) | ((got == want) & (np.signbit(got) == np.signbit(want)))
    else:
        ok = got == want
    bad = np.flatnonzero(~ok)[:5]
    assert bad.size == 0, (context, bad, got[bad], want[bad])


def c_division(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Truncated quotient and remainder; 0 for a zero divisor, wrapping for MIN / -1."""
    x, y = a.tolist(), b.tolist()
    quotient = [
        0 if q == 0 else abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(x, y, strict=True)
    ]
    rest = [0 if q == 0 else p - r * q for p, q, r in zip(x, y, quotient, strict=True)]
    mask = (1 << (8 * a.dtype.itemsize)) - 1
    return tuple(np.array([v & mask for v in values], np.uint64).astype(a.dtype) for values in (quotient, rest))


@pytest.mark.parametrize("element", INTS)
@pytest.mark.parametrize("cpu", CPUS)
def test_integer_division(element: str, cpu: str) -> None:
    a, b = pairs(integers(element))
    unsigned = np.dtype(memory(element)).str.replace("i", "u")
    for lanes in LANES:
        quotient, rest = c_division(a, b)
        same(operation("divsi", element, lanes, flags=cpu)(a, b), quotient, "divsi")
        same(operation("remsi", element, lanes, flags=cpu)(a, b), rest, "remsi")
        quotient, rest = c_division(a.view(unsigned), b.view(unsigned))
        same(operation("divui", element, lanes, flags=cpu)(a, b).view(unsigned), quotient, "divui")
        same(operation("remui", element, lanes, flags=cpu)(a, b).view(unsigned), rest, "remui")


@tilewright.jit
def by_one_number(x_ptr, quotient_ptr, rest_ptr, number_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = tl.load(number_ptr)
    x = tl.load(x_ptr + i, i < n, 0)
    tl.store(quotient_ptr + i, x // number, i < n)
    tl.store(rest_ptr + i, x % number, i < n)


@pytest.mark.parametrize("element", INTS)
@pytest.mark.parametrize("sign", ["i", "u"])
def test_division_by_a_number_that_lanes_share(element: str, sign: str) -> None:
    kind = np.dtype(np.dtype(memory(element)).str.replace("i", sign))
    numbers = integers(element, 24)
    for number in [*numbers[:12], *numbers[-36:]]:
        whole = int(number.view(kind))
        near = [q * whole + d for q in (*range(-3, 4), *map(int, integers(element, 40))) for d in (-1, 0, 1)]
        mask = (1 << 8 * kind.itemsize) - 1
        x = np.concatenate(
            [integers(element), np.array([v & mask for v in near], np.uint64).astype(kind).view(number.dtype)]
        )
        quotient, rest = np.empty_like(x), np.empty_like(x)
        by_one_number[(tilewright.cdiv(x.size, 64),)](
            x.view(kind), quotient.view(kind), rest.view(kind), np.array([number]).view(kind), x.size, 64
        )
        want = c_division(x.view(kind), np.full_like(x, number).view(kind))
        same(quotient.view(kind), want[0], (number, "quotient"))
        same(rest.view(kind), want[1], (number, "rest"))


@pytest.mark.parametrize("element", INTS)
def test_integer_arithmetic(element: str) -> None:
    a, b = pairs(integers(element))
    unsigned = np.dtype(memory(element)).str.replace("i", "u")
    ua, ub = a.view(unsigned), b.view(unsigned)
    with np.errstate(all="ignore"):
        want = {
            "addi": a + b, "subi": a - b, "muli": a * b, "andi": a & b, "ori": a | b, "xori": a ^ b,
            "maxsi": np.maximum(a, b), "minsi": np.minimum(a, b),
            "maxui": np.maximum(ua, ub).view(a.dtype), "minui": np.minimum(ua, ub).view(a.dtype),
        }  # fmt: skip
        for lanes in LANES:
            for name, result in want.items():
                same(operation(name, element, lanes)(a, b), result, name)
            same(operation("absi", element, lanes)(a), np.abs(a), "absi")


@pytest.mark.parametrize("element", INTS)
@pytest.mark.parametrize("cpu", CPUS)
def test_shifts_beyond_the_width_and_high_products(element: str, cpu: str) -> None:
    bits = 8 * np.dtype(memory(element)).itemsize
    a = integers(element)
    b = RNG.integers(0, 2 * bits, a.size).astype(a.dtype)
    b[:4] = [bits, bits - 1, -1, 0]
    mask = (1 << bits) - 1

    def wrapped(values: list[int]) -> np.ndarray:
        return np.array([v & mask for v in values], np.uint64).astype(a.dtype)

    whole = list(zip(a.tolist(), b.tolist(), strict=True))
    other = RNG.permutation(a)
    products = list(zip(a.tolist(), other.tolist(), strict=True))
    for lanes in LANES:
        run = {
            name: operation(name, element, lanes, flags=cpu)
            for name in ("shli", "shrsi", "shrui", "mulhisi", "mulhiui")
        }
        same(run["shli"](a, b), wrapped([x << (y & mask) if y & mask < bits else 0 for x, y in whole]), "shli")
        same(run["shrsi"](a, b), wrapped([x >> min(y & mask, bits - 1) for x, y in whole]), "shrsi")
        same(run["shrui"](a, b), wrapped([(x & mask) >> (y & mask) for x, y in whole]), "shrui")
        same(run["mulhisi"](a, other), wrapped([x * y >> bits for x, y in products]), "mulhisi")
        same(run["mulhiui"](a, other), wrapped([(x & mask) * (y & mask) >> bits for x, y in products]), "mulhiui")


@pytest.mark.parametrize("element", INTS)
def test_counting_bits(element: str) -> None:
    bits = 8 * np.dtype(memory(element)).itemsize
    a = integers(element)
    texts = [format(v & ((1 << bits) - 1), f"0{bits}b") for v in a.tolist()]
    for lanes in LANES:
        same(operation("ctpop", element, lanes)(a), np.array([t.count("1") for t in texts], a.dtype), "ctpop")
        same(
            operation("ctlz", element, lanes)(a),
            np.array([len(t) - len(t.lstrip("0")) for t in texts], a.dtype),
            "ctlz",
        )
        same(
            operation("cttz", element, lanes)(a),
            np.array([len(t) - len(t.rstrip("0")) for t in texts], a.dtype),
            "cttz",
        )


def test_integer_comparisons() -> None:
    a, b = pairs(integers("i16"))
    ua, ub = a.view("u2"), b.view("u2")
    compare = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    for predicate in elementwise.CMPI_PREDICATES:
        x, y = (ua, ub) if predicate[0] == "u" else (a, b)
        function = compare.get(predicate) or compare[predicate[1:]]
        for lanes in LANES:
            same(operation("cmpi", "i16", lanes, predicate)(a, b), function(x, y), predicate)


def wide(element: str, x: np.ndarray) -> np.ndarray:
    """Values in the type that the operation computes in."""
    if element == "bf16":
        x = from_bf16(x)
    x = x.astype(np.float32) if element == "f16" else x
    return np.where(np.isnan(x), np.copysign(x.dtype.type(np.nan), x), x)  # numpy's fmax does not skip signalling NaNs


def check_floats(name: str, element: str, lanes: int, cpu: str, want: np.ndarray, *args: np.ndarray) -> None:
    got = operation(name, element, lanes, flags=cpu)(*args)
    if element == "bf16":
        got, want = from_bf16(got), from_bf16(to_bf16(want))
    same(got, want.astype(got.dtype), (name, element, lanes))


@pytest.mark.parametrize("element", ("f16", "bf16", "f32", "f64"))
@pytest.mark.parametrize("cpu", ("", NO_AVX512, NO_CONVERTS))
def test_float_arithmetic(element: str, cpu: str) -> None:
    a, b = pairs(floats(element, 1024))
    with np.errstate(all="ignore"):
        x, y = wide(element, a), wide(element, b)
        want = {"addf": x + y, "subf": x - y, "mulf": x * y, "divf": x / y, "precise_divf": x / y,
                "remf": np.fmod(x, y),
                "copysign": np.copysign(x, y)}  # fmt: skip
        one = {"negf": -x, "absf": np.abs(x), "sqrt": np.sqrt(x), "rsqrt": 1 / np.sqrt(x), "floor": np.floor(x),
               "ceil": np.ceil(x), "trunc": np.trunc(x), "roundeven": np.rint(x)}  # fmt: skip
        for lanes in (0, 64) if not cpu else (16,):
            for name, result in want.items():
                check_floats(name, element, lanes, cpu, result, a, b)
            for name, result in one.items():
                check_floats(name, element, lanes, cpu, result.astype(x.dtype), a)


@pytest.mark.parametrize("element", ("f16", "bf16", "f32", "f64"))
def test_minimum_and_maximum_follow_their_nan_rules(element: str) -> None:
    a, b = pairs(floats(element, 1024))
    x, y = wide(element, a), wide(element, b)
    both_zero = (x == 0) & (y == 0)  # either zero may be returned
    a, b, x, y = a[~both_zero], b[~both_zero], x[~both_zero], y[~both_zero]
    with np.errstate(all="ignore"):
        want = {
            "maxnumf": np.fmax(x, y),
            "minnumf": np.fmin(x, y),
            "maximumf": np.maximum(x, y),
            "minimumf": np.minimum(x, y),
        }
        for lanes in LANES:
            for name, result in want.items():
                check_floats(name, element, lanes, "", result, a, b)


@pytest.mark.parametrize("element", ("f16", "f32", "f64"))
def test_float_comparisons(element: str) -> None:
    a, b = pairs(floats(element, 512))
    unordered = np.isnan(a) | np.isnan(b)
    compare = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    for predicate in elementwise.CMPF_PREDICATES:
        if predicate in ("false", "true"):
            want = np.full(a.shape, predicate == "true")
        elif predicate in ("ord", "uno"):
            want = unordered == (predicate == "uno")
        else:
            with np.errstate(invalid="ignore"):
                plain = compare[predicate[1:]](a, b)
            want = plain | unordered if predicate[0] == "u" else plain & ~unordered
        for lanes in LANES:
            same(operation("cmpf", element, lanes, predicate)(a, b), want, predicate)


def test_remainder_takes_both_routes() -> None:
    x = np.array([5.5, -7.25, 1e-40, 3, 6, -0.0], np.float32)
    for divisor in (np.inf, 2.0, 1e-38):
        for scale in (1.0, 1e30):
            a, b = (x * np.float32(scale)), np.full(x.shape, divisor, np.float32)
            for lanes in LANES:
                same(operation("remf", "f32", lanes)(a, b), np.fmod(a, b), (divisor, scale, lanes))


def test_fma_rounds_once() -> None:
    a = np.array([1 + 2.0**-12], np.float32)
    want = np.float32(float(a[0]) ** 2 - 1)
    for lanes in LANES:
        assert operation("fma", "f32", lanes)(a, a, np.array([-1], np.float32))[0] == want


@pytest.mark.parametrize("element", ("f16", "bf16"))
def test_half_fma_rounds_once(element: str) -> None:
    count = 3000
    if element == "f16":
        a, b, c = (RNG.normal(0, 1, count).astype(np.float16) for _ in range(3))
        c *= np.exp2(RNG.integers(-20, 2, count)).astype(np.float16)
    else:
        a, b, c = (to_bf16(RNG.normal(0, 1, count) * np.exp2(RNG.integers(-30, 2, count))) for _ in range(3))
    # Products half way between two results, with an addend that float alone would lose.
    units = 1024 if element == "f16" else 128
    numbers = [64 * (1 + np.arange(1, units // 3, 2) / units), np.float64(1.5), np.float64(2.0**-24)]
    ties = [to_bf16(v) if element == "bf16" else v.astype(np.float16) for v in np.broadcast_arrays(*numbers)]
    a, b, c = (np.concatenate([v, tie, tie]) for v, tie in zip((a, b, c), ties, strict=True))
    c.view(np.uint16)[-ties[0].size :] ^= 0x8000
    got = operation("fma", element, 16)(a, b, c)
    values = [[Fraction(float(v)) for v in wide(element, x)] for x in (a, b, c)]
    codes = got.view(np.uint16)
    below, above = (wide(element, (codes + np.uint16(step)).view(got.dtype)) for step in (0xFFFF, 1))
    for i, result in enumerate(wide(element, got).tolist()):
        exact = values[0][i] * values[1][i] + values[2][i]
        error = abs(Fraction(result) - exact)
        if result == 0:
            continue
        others = [abs(Fraction(float(side[i])) - exact) for side in (below, above) if np.isfinite(side[i])]
        assert error < min(others) or (error == min(others) and codes[i] % 2 == 0), (i, result, float(exact))


@pytest.mark.parametrize("dst", INTS)
@pytest.mark.parametrize("src", ("f16", "bf16", "f32", "f64"))
def test_float_to_integer_saturates(src: str, dst: str) -> None:
    x = floats(src)
    with np.errstate(invalid="ignore"):
        values = wide(src, x).astype(np.float64)
    for op, kind in (
        ("fptosi", np.iinfo(memory(dst))),
        ("fptoui", np.iinfo(np.dtype(memory(dst)).str.replace("i", "u"))),
    ):
        want = [
            0 if v != v else kind.max if v >= kind.max else kind.min if v <= kind.min else int(v)
            for v in values.tolist()
        ]
        for lanes in LANES:
            got = conversion(op, src, dst, lanes)(x).view(kind.dtype)
            same(got, np.array(want, kind.dtype), op)


@pytest.mark.parametrize("src", INTS)
def test_integer_to_float(src: str) -> None:
    x = integers(src)
    unsigned = x.view(np.dtype(memory(src)).str.replace("i", "u"))
    for op, values in (("sitofp", x), ("uitofp", unsigned)):
        for lanes in LANES:
            same(conversion(op, src, "f64", lanes)(x), values.astype(np.float64), op)
            same(conversion(op, src, "f32", lanes)(x), values.astype(np.float32), op)
            with np.errstate(over="ignore"):
                same(conversion(op, src, "f16", lanes)(x), values.astype(np.float32).astype(np.float16), op)


@pytest.mark.parametrize("cpu", ("", NO_AVX512, NO_CONVERTS))
def test_narrowing_floats_rounds_once_to_nearest_even(cpu: str) -> None:
    single, double = floats("f32", 1 << 15), floats("f64", 1 << 15)
    # Doubles a hair beside the middle of two halves: rounding through float would lose the hair.
    middles = (np.arange(1, 4096).astype(np.uint16).view(np.float16).astype(np.float64) * (1 + 2.0**-12)) * (
        1 + 2.0**-45
    )
    with np.errstate(all="ignore"):
        double = np.concatenate([double, middles, RNG.normal(0, 1e-6, 4096), single.astype(np.float64)])
        for lanes in (0, 16, 64):
            same(conversion("truncf", "f32", "f16", lanes, flags=cpu)(single), single.astype(np.float16), "f32 f16")
            same(conversion("truncf", "f64", "f16", lanes, flags=cpu)(double), double.astype(np.float16), "f64 f16")
            same(conversion("truncf", "f64", "f32", lanes, flags=cpu)(double), double.astype(np.float32), "f64 f32")
            got = conversion("truncf", "f32", "bf16", lanes, flags=cpu)(single)
            same(from_bf16(got), from_bf16(to_bf16(single)), "f32 bf16")


@pytest.mark.parametrize("lanes", (0, 64))
def test_double_to_bf16_rounds_once(lanes: int) -> None:
    codes = RNG.integers(0x3F00, 0x4080, 2000).astype(np.uint16)
    below, above = from_bf16(codes).astype(np.float64), from_bf16(codes + np.uint16(1)).astype(np.float64)
    middle = (below + above) / 2
    same(conversion("truncf", "f64", "bf16", lanes)(middle * (1 + 2.0**-45)), codes + np.uint16(1), "above")
    same(conversion("truncf", "f64", "bf16", lanes)(middle * (1 - 2.0**-45)), codes, "below")
    same(conversion("truncf", "f64", "bf16", lanes)(middle), codes + (codes & 1), "tie")


@pytest.mark.parametrize("cpu", ("", NO_CONVERTS))
def test_widening_is_exact_for_every_code(cpu: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    for lanes in (0, 64):
        same(
            conversion("extf", "f16", "f32", lanes, flags=cpu)(every.view(np.float16)),
            every.view(np.float16).astype(np.float32),
        )
        same(conversion("extf", "bf16", "f32", lanes, flags=cpu)(every), from_bf16(every))
        same(conversion("extf", "bf16", "f16", lanes, flags=cpu)(every), narrow_half(from_bf16(every)))


def narrow_half(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float16)


def test_rounding_toward_zero() -> None:
    x = floats("f32", 1 << 14)
    finite = x[np.isfinite(x)]
    half = conversion("truncf", "f32", "f16", 64, "rtz")(finite)
    assert np.isfinite(half).all()
    assert (np.abs(half.astype(np.float64)) <= np.abs(finite.astype(np.float64))).all()
    with np.errstate(over="ignore"):
        following = np.nextafter(np.abs(half), np.float16(np.inf)).astype(np.float64)
    assert (following > np.abs(finite.astype(np.float64)))[np.abs(half) < 65504].all()
    same(
        conversion("truncf", "f32", "bf16", 64, "rtz")(finite), (finite.view(np.uint32) >> 16).astype(np.uint16), "bf16"
    )
    d = floats("f64", 1 << 14)
    d = d[np.isfinite(d)]
    got = conversion("truncf", "f64", "f32", 64, "rtz")(d).astype(np.float64)
    assert (np.abs(got) <= np.abs(d)).all()


def test_one_bit_integers() -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for lanes in (0, 16):
        same(operation("divui", "i1", lanes)(a, b), a & b)
        same(operation("remui", "i1", lanes)(a, b), np.zeros(4, bool))
        same(operation("addi", "i1", lanes)(a, b), a ^ b)
        same(conversion("uitofp", "i1", "f32", lanes)(a), a.astype(np.float32))
        same(conversion("extsi", "i1", "i32", lanes)(a), -a.astype(np.int32))
        same(
            conversion("fptosi", "f32", "i1", lanes)(np.array([0, -0.0, 0.5, np.nan], np.float32)),
            a.dtype.type([0, 0, 1, 1]),
        )


SMALL = ("fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16", "bf16")


# The bits of a bf16 NaN are those of the source, so rounding to nearest is compared as numbers above.
@pytest.mark.parametrize(("name", "rounding"), [(n, "rtne") for n in SMALL[:-1]] + [(n, "rtz") for n in SMALL])
def test_small_floats_encode_like_the_reference(name: str, rounding: str) -> None:
    to = dtype(name)
    for src in ("f32", "f64", "f16"):
        x = floats(src, 1 << 14)
        ladder = minifloat.decode(np.arange(128), to).astype(np.float64)
        with np.errstate(all="ignore"):
            steps = np.concatenate([ladder[:-1] + np.diff(ladder) * part for part in (0.25, 0.5, 0.75)])
            x = np.concatenate([x, steps.astype(x.dtype), -steps.astype(x.dtype)])
            want = minifloat.encode(x, to, rounding=rounding)
        for lanes in (0, 64):
            got = conversion("fp_to_fp", src, to.ir_name, lanes, rounding)(x)
            same(got, want, (src, name, rounding))


@pytest.mark.parametrize("name", SMALL)
def test_small_floats_decode_like_the_reference(name: str) -> None:
    codes = np.arange(1 << dtype(name).primitive_bitwidth).astype(dtype(name).memory_dtype)
    want = minifloat.decode(codes, dtype(name))
    for lanes in (0, 64):
        for dst in ("f32", "f16", "f64"):
            got = conversion("fp_to_fp", dtype(name).ir_name, dst, lanes)(codes)
            with np.errstate(all="ignore"):
                expected = want.astype(got.dtype)
            ok = (np.isnan(got) & np.isnan(expected)) | (got == expected)
            assert ok.all(), (dst, codes[~ok][:5])
