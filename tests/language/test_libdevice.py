"""`tl.extra.libdevice`: every function against numpy, math or exact fractions on each back end, and the refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.errors import CompilationError
from tilewright.language.extra import libdevice

N = 64
LETTERS = {
    "b": np.bool_,
    "i": np.int32,
    "I": np.uint32,
    "l": np.int64,
    "L": np.uint64,
    "f": np.float32,
    "d": np.float64,
}
MODES = ("rn", "rz", "rd", "ru")


def kernel(x_ptr, y_ptr, z_ptr, t_ptr, o_ptr, NAMES: tl.constexpr, ARITY: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y, z, t = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i), tl.load(t_ptr + i)
    operands = (x, y, z, t)
    for k in tl.static_range(len(NAMES)):
        result = getattr(libdevice, NAMES[k])(*operands[0:ARITY])
        tl.store(o_ptr + k * N + i, result)


def cast(values, letter):
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, LETTERS[letter])


def evaluate(names, signature, operands):
    """Results of the functions `names`, which have the signature "ff>f", one row each."""
    kinds, result = signature.split(">")
    arrays = [cast(v, k) for v, k in zip(operands, kinds, strict=True)]
    arrays += [arrays[-1]] * (4 - len(arrays))
    out = np.zeros((len(names), N), LETTERS[result])
    run(kernel, *arrays, out, NAMES=tuple(names), ARITY=len(kinds), N=N)
    return dict(zip(names, out, strict=True))


def check(expected, signature, *operands, ulp=0):
    """Compare each function of `expected` (name -> array) with its result on `operands`."""
    found = evaluate(list(expected), signature, operands)
    for name, want in expected.items():
        want = cast(want, signature.split(">")[1])
        if want.dtype.kind == "f" and ulp:
            both_nan = np.isnan(want) & np.isnan(found[name])
            same = both_nan | (want == found[name])
            with np.errstate(invalid="ignore"):
                close = np.abs(found[name] - want) <= ulp * np.spacing(np.abs(want))
            assert np.all(same | close), (name, found[name][~(same | close)], want[~(same | close)])
        else:
            np.testing.assert_array_equal(found[name], want, err_msg=name)


def each(fn, *arrays):
    return [fn(*(float(v) if isinstance(v, np.floating) else int(v) for v in row)) for row in zip(*arrays, strict=True)]


def spread(rng, letter, low=-4.0, high=4.0):
    """Floats of both signs and many sizes, with zeros."""
    values = rng.choice([-1.0, 1.0], N) * np.exp(rng.uniform(low, high, N))
    values[:2] = [0.0, -0.0]
    return cast(values, letter)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_there_are_198_functions_and_the_refused_ones_say_why():
    assert len(libdevice.FUNCTIONS) == 198
    for name in libdevice.REFUSED:
        assert name in libdevice.FUNCTIONS[name].__doc__ and "Refused" in libdevice.FUNCTIONS[name].__doc__


@pytest.mark.parametrize("letter", ["f", "d"])
def test_elementary_functions(backend, rng, letter):
    x = spread(rng, letter)
    p, u = np.abs(x) + cast(0.001, letter), np.clip(np.tanh(x), -0.999, 0.999)
    wide = [a.astype(np.longdouble) for a in (x, p, u)]
    one = f"{letter}>{letter}"
    plain = ("sqrt", "cbrt", "log", "log2", "log10", "log1p")
    expected = {n: getattr(np, n)(wide[1]) for n in plain} | {
        "rsqrt": 1 / np.sqrt(wide[1]),
        "rcbrt": 1 / np.cbrt(wide[1]),
    }
    check(expected, one, p, ulp=4)
    names = ("exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh")
    check({n: getattr(np, n)(wide[0]) for n in names}, one, x, ulp=4)
    check({"exp10": np.power(np.longdouble(10), wide[0]), "erf": each(math.erf, x)}, one, x, ulp=4)
    check({"asin": np.arcsin(wide[2]), "acos": np.arccos(wide[2]), "atanh": np.arctanh(wide[2])}, one, u, ulp=6)
    check({"atan": np.arctan(wide[0]), "asinh": np.arcsinh(wide[0])}, one, x, ulp=6)
    above = cast(np.concatenate([1 + p, 1 + p / 2**20, [1, 1e9, 1.5e9, 1e30]])[-N:], letter)
    check({"acosh": np.arccosh(above.astype(np.longdouble))}, one, above, ulp=4)
    quarters = cast(rng.integers(-40, 40, N) / 4, letter)
    sine = np.sin(np.pi * np.remainder(quarters, 2))
    assert np.allclose(evaluate(["sinpi"], one, [quarters])["sinpi"], sine, atol=1e-6)
    assert np.allclose(
        evaluate(["cospi"], one, [quarters])["cospi"], np.cos(np.pi * np.remainder(quarters, 2)), atol=1e-6
    )
    halves = cast(np.concatenate([np.arange(-16, 16) / 2, rng.uniform(-99, 99, 32)]), letter)
    away = np.copysign(np.floor(np.abs(halves) + 0.5), halves)
    rounding = {"floor": np.floor(halves), "ceil": np.ceil(halves), "trunc": np.trunc(halves), "round": away}
    check(rounding | {"rint": np.rint(halves), "nearbyint": np.rint(halves)}, one, halves)
    check({"llrint": np.rint(halves), "llround": away}, f"{letter}>l", halves)
    check({"abs": np.abs(x)}, one, x)


def check_fast(backend, expected, signature, *operands):
    """As `check`; GPUs have instructions of about 20 bits for these functions, of 11 for the hyperbolic tangent."""
    if backend != "cuda":
        check(expected, signature, *operands, ulp=4)
        return
    found = evaluate(list(expected), signature, operands)
    for name, want in expected.items():
        want = want.astype(np.float64)
        bound = np.abs(want) * (1e-3 if "tanh" in name else 1e-4) + 2e-5 * (1 + (want**2 if "tan" in name else 0))
        close = np.abs(found[name] - want) <= bound
        assert np.all(close | (found[name] == cast(want, "f"))), (name, found[name][~close], want[~close])


def test_float32_only_functions(backend, rng):
    x = spread(rng, "f")
    p = np.abs(x) + np.float32(0.001)
    of_all = {f"fast_{n}f": getattr(np, n)(x.astype("f8")) for n in ("sin", "cos", "tan", "tanh", "exp")}
    check_fast(backend, of_all | {"fast_exp10f": 10.0 ** x.astype("f8")}, "f>f", x)
    check_fast(backend, {f"fast_{n}f": getattr(np, n)(p.astype("f8")) for n in ("log", "log2", "log10")}, "f>f", p)
    check({"rsqrt_rn": 1 / np.sqrt(p.astype("f8"))}, "f>f", p)
    check({"saturatef": np.clip(x, 0, 1)}, "f>f", x)
    base = np.exp(rng.uniform(-1, 1, N)).astype("f4")
    check({"fast_dividef": x.astype("f8") / base}, "ff>f", x, base, ulp=2 if backend == "cuda" else 1)
    power = evaluate(["fast_powf"], "ff>f", [base, x])["fast_powf"]
    np.testing.assert_allclose(power, base.astype("f8") ** x, rtol=1e-4 if backend == "cuda" else 1e-5)


@pytest.mark.parametrize("letter", ["f", "d"])
def test_functions_of_several_floats(backend, rng, letter):
    x, y, z, t = (spread(rng, letter, -2, 2) for _ in range(4))
    two, three, four = (f"{letter * n}>{letter}" for n in (2, 3, 4))
    nonzero = np.where(y == 0, cast(1.5, letter), y)
    check({"hypot": np.hypot(x, y), "atan2": np.arctan2(x.astype("g"), y)}, two, x, y, ulp=6)
    check({"rhypot": 1 / np.hypot(x.astype("g"), nonzero)}, two, x, nonzero, ulp=6)
    check({"copysign": np.copysign(x, y), "nextafter": np.nextafter(x, y)}, two, x, y)
    check({"fdim": np.where(x > y, x - y, 0)}, two, x, y)
    check({"fmod": np.fmod(x, nonzero), "remainder": each(math.remainder, x, nonzero)}, two, x, nonzero)
    length = [np.sqrt(sum(v.astype("g") ** 2 for v in part)) for part in ((x, y, z), (x, y, z, t))]
    check({"norm3d": length[0]}, three, x, y, z, ulp=4)
    check({"norm4d": length[1]}, four, x, y, z, t, ulp=4)
    some = np.abs(x) + 1
    check({"rnorm3d": 1 / np.sqrt(sum(v.astype("g") ** 2 for v in (some, y, z)))}, three, some, y, z, ulp=4)
    check({"rnorm4d": 1 / np.sqrt(sum(v.astype("g") ** 2 for v in (some, y, z, t)))}, four, some, y, z, t, ulp=4)
    n = rng.integers(-20, 20, N)
    check({"ldexp": np.ldexp(x, n), "scalbn": np.ldexp(x, n)}, f"{letter}i>{letter}", x, n)
    base = np.abs(x) + cast(0.5, letter)
    np.testing.assert_allclose(evaluate(["pow"], two, [base, y])["pow"], base.astype("g") ** y, rtol=1e-5)
    powers = evaluate(["pow"], f"{letter}i>{letter}", [base, n % 5])["pow"]
    np.testing.assert_allclose(powers, base.astype("g") ** (n % 5), rtol=1e-5)


def test_ldexp_reaches_both_ends_of_the_range(backend):
    x = np.resize([1.5, -1.0, 3.0, 1.9999999], N)
    n = np.resize([1023, -1074, -1070, 2000, -2000, -1022, 52, -1060], N)
    with np.errstate(over="ignore", under="ignore"):
        check({"ldexp": np.ldexp(x, n)}, "di>d", x, n)
        check({"ldexp": np.ldexp(x.astype("f4"), n // 8)}, "fi>f", x, n // 8)


@pytest.mark.parametrize("letter", ["f", "d"])
def test_parts_of_floats(backend, rng, letter):
    x = spread(rng, letter, -80, 80)
    x[2:6] = [np.inf, -np.inf, np.nan, 1.0]
    check({"isnan": np.isnan(x), "isinf": np.isinf(x)}, f"{letter}>b", x)
    name = "finitef" if letter == "f" else "isfinited"
    check({"signbit": np.signbit(x), name: np.isfinite(x)}, f"{letter}>i", x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        exponent = np.frexp(x)[1] - 1
        logb = np.where(x == 0, -np.inf, np.where(np.isfinite(x), exponent, x * x))
    check({"logb": logb}, f"{letter}>{letter}", x)
    special = np.where(np.isinf(x), 2**31 - 1, -(2**31))
    check({"ilogb": np.where(np.isfinite(x) & (x != 0), exponent, special)}, f"{letter}>i", x)


def rounded(exact, letter, mode):
    """An exact number as a float of `letter`, rounded by `mode`."""
    kind = LETTERS[letter]
    if exact == 0:
        return kind(0)
    nearest = kind(float(exact)) if letter == "d" else _nearest32(exact)
    off = Fraction(float(nearest)) - exact
    if mode == "rn" or off == 0:
        return nearest
    down = mode == "rd" or (mode == "rz" and exact > 0)
    if down and off > 0:
        return np.nextafter(nearest, kind(-np.inf))
    return np.nextafter(nearest, kind(np.inf)) if not down and off < 0 else nearest


def _nearest32(exact):
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    even = {float(v): int(np.float32(v).view(np.int32)) & 1 for v in around}
    return min(around, key=lambda v: (abs(Fraction(float(v)) - exact), even[float(v)]))


@pytest.mark.parametrize("letter", ["f", "d"])
def test_directed_rounding_of_arithmetic(backend, rng, letter):
    x, y, z = (spread(rng, letter, -3, 3) for _ in range(3))
    y[:2] = [0.7, -3.1]
    exact = [[Fraction(float(v)) for v in a] for a in (x, y, z)]
    two, one = f"{letter * 2}>{letter}", f"{letter}>{letter}"
    formulas = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    }  # fmt: skip
    expected = {
        f"{name}_{mode}": [rounded(formula(a, b), letter, mode) for a, b in zip(exact[0], exact[1], strict=True)]
        for name, formula in formulas.items()
        for mode in MODES
    }
    check(expected, two, x, y)
    check({f"rcp_{m}": [rounded(1 / b, letter, m) for b in exact[1]] for m in MODES}, one, y)
    triples = list(zip(*exact, strict=True))
    sums = {f"fma_{m}": [rounded(a * b + c, letter, m) for a, b, c in triples] for m in MODES}
    check(sums | {"fma": sums["fma_rn"]}, f"{letter * 3}>{letter}", x, y, z)
    roots = evaluate([f"sqrt_{m}" for m in MODES], one, [np.abs(y)])
    for value, low, high, nearest, cut in zip(
        np.abs(y), *(roots[f"sqrt_{m}"] for m in ("rd", "ru", "rn", "rz")), strict=True
    ):
        assert Fraction(float(low)) ** 2 <= Fraction(float(value)) <= Fraction(float(high)) ** 2
        assert cut == low and nearest in (low, high) and nearest == np.sqrt(value)
        assert low == high or np.nextafter(low, high) == high


def test_conversions(backend, rng):
    halves = np.concatenate([np.arange(-16, 16) / 2, rng.uniform(-99, 99, 32)])
    to_whole = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
    for letter, word in (("f", "float"), ("d", "double")):
        x = cast(halves, letter)
        for target, result in (("int", "i"), ("ll", "l")):
            check({f"{word}2{target}_{m}": to_whole[m](x) for m in MODES}, f"{letter}>{result}", x)
            positive = np.abs(x)
            check({f"{word}2u{target}_{m}": to_whole[m](positive) for m in MODES}, f"{letter}>{result}", positive)
    doubles = spread(rng, "d")
    narrow = {f"double2float_{m}": [rounded(Fraction(float(v)), "f", m) for v in doubles] for m in MODES}
    check(narrow, "d>f", doubles)
    for letter, word in (("i", "int"), ("I", "uint"), ("l", "ll"), ("L", "ull")):
        info = np.iinfo(LETTERS[letter])
        whole = rng.integers(info.min, info.max, N, LETTERS[letter], endpoint=True)
        whole[:3] = [info.max, info.min, 0]
        exact = [Fraction(int(v)) for v in whole]
        check({f"{word}2float_{m}": [rounded(v, "f", m) for v in exact] for m in MODES}, f"{letter}>f", whole)
        wide = MODES if letter in "lL" else ("rn",)
        check({f"{word}2double_{m}": [rounded(v, "d", m) for v in exact] for m in wide}, f"{letter}>d", whole)


def test_bits(backend, rng):
    x, d = rng.standard_normal(N).astype(np.float32), rng.standard_normal(N)
    check({"float_as_int": x.view(np.int32), "float_as_uint": x.view(np.int32)}, "f>i", x)
    check({"int_as_float": x}, "i>f", x.view(np.int32))
    check({"uint_as_float": x}, "I>f", x.view(np.uint32))
    check({"double_as_longlong": d.view(np.int64)}, "d>l", d)
    check({"longlong_as_double": d}, "l>d", d.view(np.int64))
    low, high = d.view(np.int32)[0::2], d.view(np.int32)[1::2]
    check({"double2loint": low, "double2hiint": high}, "d>i", d)
    check({"hiloint2double": d}, "ii>d", high, low)


def test_integers(backend, rng):
    for letter, bits in (("i", 32), ("l", 64)):
        info = np.iinfo(LETTERS[letter])
        x = rng.integers(info.min, info.max, N, LETTERS[letter]) >> rng.integers(0, bits, N).astype(LETTERS[letter])
        x[:3] = [0, -1, info.min]
        raw = [int(v) % (1 << bits) for v in x]
        text = [f"{v:0{bits}b}" for v in raw]
        lowest = [0 if v == 0 else (v & -v).bit_length() for v in raw]
        expected = {"clz": [bits - v.bit_length() for v in raw], "popc": [t.count("1") for t in text], "ffs": lowest}
        check(expected, f"{letter}>i", x)
        reverse = np.array([int(t[::-1], 2) for t in text], f"uint{bits}").view(LETTERS[letter])
        check({"brev": reverse, "abs": np.abs(x)}, f"{letter}>{letter}", x)
    for letter, bits in (("i", 32), ("I", 32), ("l", 64), ("L", 64)):
        info = np.iinfo(LETTERS[letter])
        x, y = (rng.integers(info.min, info.max, N, LETTERS[letter]) for _ in range(2))
        high = [int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)]
        expected = {"mulhi": np.array(high, LETTERS[letter])}
        if bits == 32:
            sums = x.astype(object) + y
            expected |= {"hadd": sums >> 1, "rhadd": (sums + 1) >> 1}
            small = [((v << 8) >> 8).astype(LETTERS[letter]) for v in (x, y)]
            expected["mul24"] = (small[0].astype(np.int64) * small[1].astype(np.int64)).astype(LETTERS[letter])
        check(expected, f"{letter * 2}>{letter}", x, y)
        if bits == 32:
            z = rng.integers(0, 9, N)
            near = [np.array(v, LETTERS[letter]) >> 4 for v in (x, y)]
            apart = np.abs(near[0].astype(np.int64) - near[1]) + z
            check({"sad": apart}, f"{letter * 2}I>{letter}", *near, z)
    x, y, s = (rng.integers(-(2**31), 2**31, N).astype(np.int32) for _ in range(3))
    pairs = [int(a) % 2**32 | (int(b) % 2**32) << 32 for a, b in zip(x, y, strict=True)]
    picked = [
        sum((p >> 8 * (int(c) >> 4 * k & 7) & 0xFF) << 8 * k for k in range(4)) for p, c in zip(pairs, s, strict=True)
    ]
    check({"byte_perm": np.array(picked, np.uint32).view(np.int32)}, "iii>i", x, y, s)


def wrong_type(x_ptr):
    tl.store(x_ptr, libdevice.tanh(tl.load(x_ptr).to(tl.float16)).to(tl.float32))


def estimate(x_ptr):
    tl.store(x_ptr, libdevice.rcp64h(tl.load(x_ptr).to(tl.float64)).to(tl.float32))


def test_other_types_and_refused_functions_name_the_function():
    x = np.zeros(1, np.float32)
    with pytest.raises(
        CompilationError, match=r"libdevice.tanh takes \(fp32\) -> fp32, \(fp64\) -> fp64; got \(fp16\)"
    ):
        build(wrong_type, x)
    with pytest.raises(CompilationError, match="libdevice function rcp64h is not available on cpu"):
        build(estimate, x)


def test_math_has_the_hyperbolic_tangent_and_powers_of_libdevice(backend, rng):
    def kernel(x_ptr, o_ptr, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(o_ptr + i, tl.math.tanh(tl.math.pow(tl.load(x_ptr + i), 3)))

    x = spread(rng, "f", -2, 1)
    out = np.zeros_like(x)
    run(kernel, x, out, N=N)
    np.testing.assert_allclose(out, np.tanh(x.astype("f8") ** 3), rtol=1e-6, atol=1e-9)
