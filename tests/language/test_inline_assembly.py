"""Inline PTX where there is no NVIDIA GPU: instructions on registers, compiled and interpreted, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright.base.errors import CompilationError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(params=["compiled", "interpreted"])
def way(request, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.runtime, "interpret", request.param == "interpreted")


@tilewright.jit
def run(x, y, z, out, ASM: tl.constexpr, LETTERS: tl.constexpr, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    args = [tl.load(x + at), tl.load(y + at), tl.load(z + at)]
    tl.store(out + at, tl.inline_asm_elementwise(ASM, LETTERS, args, KIND, is_pure=True, pack=1))


FLOATS = np.array(
    [0.0, -0.0, 1.5, -2.25, 1e-41, -1e-41, 3e38, np.inf, -np.inf, np.nan, 0.3, 7.5, 8.5, -1.5, 1e10, 260.7]
)
INTEGERS = np.array([0, 1, -1, 5, -7, 31, 32, 255, 256, 0x12345678, -0x12345678, 2**31 - 1, -(2**31), 40, 7, 100])


def floats(kind=np.float32):
    rng = np.random.default_rng(0)
    return [np.concatenate([rng.permutation(FLOATS), rng.standard_normal(48)]).astype(kind) for _ in range(3)]


def integers(kind=np.int32):
    rng = np.random.default_rng(0)
    more = rng.integers(-(2**31), 2**31, 48)
    return [np.concatenate([rng.permutation(INTEGERS), rng.permutation(more)]).astype(kind) for _ in range(3)]


def check(asm, given, wanted, kind, letters, tolerance=0.0):
    out = np.zeros(64, wanted.dtype)
    run[(1,)](*given, out, asm, letters, kind, 64)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=0)
        exact = (wanted == 0) & (tolerance == 0)
        assert (np.signbit(out) == np.signbit(wanted))[exact].all()
    else:
        assert out.tolist() == wanted.tolist()


def flush(x):
    return np.where(np.abs(x) < np.float32(2**-126), np.copysign(np.float32(0), x), x)


def fma(x, y, z):
    return (x.astype(np.float64) * y + z).astype(np.float32)


def to_tf32(x):
    bits = x.view(np.uint32)
    return np.where(np.isfinite(x), (bits + 0x1000) & 0xFFFFE000, bits).astype(np.uint32).view(np.float32)


def to_int(x):
    return (
        np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0, posinf=2.0**40, neginf=-(2.0**40))
        .clip(-(2**31), 2**31 - 1)
        .astype(np.int32)
    )


OF_FLOATS = {
    "add.f32 $0, $1, $2;": lambda x, y, z: x + y,
    "sub.rn.f32 $0, $1, $2;": lambda x, y, z: x - y,
    "mul.rn.f32 $0, $1, $2;": lambda x, y, z: x * y,
    "mul.rn.ftz.f32 $0, $1, $2;": lambda x, y, z: flush(flush(x) * flush(y)),
    "fma.rn.f32 $0, $1, $2, $3;": fma,
    "add.sat.f32 $0, $1, $2;": lambda x, y, z: (
        np.nan_to_num(x + y, nan=0, posinf=1, neginf=0).clip(0, 1) + np.float32(0)
    ),
    "neg.f32 $0, $1;": lambda x, y, z: -x,
    "neg.ftz.f32 $0, $1;": lambda x, y, z: flush(-x),
    "abs.f32 $0, $1;": lambda x, y, z: np.abs(x),
    "min.f32 $0, $1, 0f3F800000;": lambda x, y, z: np.fmin(x, np.float32(1)),
    "max.f32 $0, $1, 0.5;": lambda x, y, z: np.fmax(x, np.float32(0.5)),
    "copysign.f32 $0, $1, $2;": lambda x, y, z: np.copysign(y, x),
    "div.rn.f32 $0, $1, $2;": lambda x, y, z: x / y,
    "cvt.rna.tf32.f32 $0, $1;": lambda x, y, z: to_tf32(x),
    "cvt.rni.f32.f32 $0, $1;": lambda x, y, z: np.rint(x),
    "cvt.rmi.f32.f32 $0, $1;": lambda x, y, z: np.floor(x),
    "{ .reg .pred p; setp.gt.f32 p, $1, $2; selp.f32 $0, $1, $3, p; }": lambda x, y, z: np.where(x > y, x, z),
    "{ .reg .pred p; mov.f32 $0, $3; setp.lt.f32 p, $1, 0.0; @p neg.f32 $0, $1; }": (
        lambda x, y, z: np.where(x < 0, -x, z)
    ),
    # A product that an instruction has rounded stays so: the sum behind it takes in nothing.
    "{ .reg .f32 t; mul.rn.f32 t, $1, $2; add.rn.f32 $0, t, $3; }  // two": lambda x, y, z: x * y + z,
}


@pytest.mark.parametrize("asm", OF_FLOATS)
def test_floats(asm, way):
    given = floats()
    check(asm, given, np.asarray(OF_FLOATS[asm](*given), np.float32), tl.float32, "=f,f,f,f")


APPROXIMATE = {
    "ex2.approx.ftz.f32 $0, $1;": np.exp2,
    "lg2.approx.f32 $0, $1;": lambda x: np.log2(np.abs(x)),
    "rcp.approx.ftz.f32 $0, $1;": lambda x: 1 / x,
    "rsqrt.approx.f32 $0, $1;": lambda x: 1 / np.sqrt(np.abs(x)),
    "sqrt.approx.f32 $0, $1;": lambda x: np.sqrt(np.abs(x)),
    "sin.approx.f32 $0, $1;": np.sin,
    "cos.approx.f32 $0, $1;": np.cos,
    "tanh.approx.f32 $0, $1;": np.tanh,
}


@pytest.mark.parametrize("asm", APPROXIMATE)
def test_what_gpus_approximate(asm, way):
    x = np.random.default_rng(0).uniform(0.1, 3, 64).astype(np.float32)
    check(asm, [x, x, x], APPROXIMATE[asm](x.astype(np.float64)).astype(np.float32), tl.float32, "=f,f,f,f", 1e-6)


def shifted_left(x, by):
    return np.array([int(a) << int(n) & 0xFFFFFFFF if n < 32 else 0 for a, n in zip(x, by)], np.uint32)


def permuted(x, y, selector):
    made = []
    for a, c, s in zip(x.tolist(), y.tolist(), selector.tolist()):
        data = (a | c << 32).to_bytes(8, "little")
        nibbles = [s >> 4 * i & 15 for i in range(4)]
        made.append(
            int.from_bytes([(255 if data[n & 7] >> 7 else 0) if n & 8 else data[n & 7] for n in nibbles], "little")
        )
    return np.array(made, np.uint32)


def nth_set(mask, number):
    places = [i for i in range(32) if mask >> i & 1]
    if number == 0:
        return 0 if mask & 1 else 0xFFFFFFFF
    if number < 0:
        return 0 if mask & 1 and number == -1 else 0xFFFFFFFF
    return places[number - 1] if number <= len(places) else 0xFFFFFFFF


OF_BITS = {
    "add.u32 $0, $1, $2;": lambda x, y, z: x + y,
    "mul.lo.u32 $0, $1, $2;": lambda x, y, z: x * y,
    "mul.hi.u32 $0, $1, $2;": lambda x, y, z: (x.astype(np.uint64) * y >> np.uint64(32)).astype(np.uint32),
    "mad.lo.u32 $0, $1, $2, $3;": lambda x, y, z: x * y + z,
    "and.b32 $0, $1, 0xFF00FF;": lambda x, y, z: x & 0xFF00FF,
    "{ or.b32 $0, $1, $2; xor.b32 $0, $0, $3; not.b32 $0, $0; }": lambda x, y, z: ~((x | y) ^ z),
    "shl.b32 $0, $1, $2;": lambda x, y, z: shifted_left(x, y),
    "shr.u32 $0, $1, 7;": lambda x, y, z: x >> 7,
    "shr.s32 $0, $1, 40;": lambda x, y, z: (x.view(np.int32) >> 31).view(np.uint32),
    "lop3.b32 $0, $1, $2, $3, 0xEA;": lambda x, y, z: (x & y) | z,
    "lop3.b32 $0, $1, $2, $3, 0x96;": lambda x, y, z: x ^ y ^ z,
    "prmt.b32 $0, $1, $2, 0x7531;": lambda x, y, z: permuted(x, y, x * 0 + 0x7531),
    "prmt.b32 $0, $1, $2, $3;": permuted,
    "bfe.u32 $0, $1, 4, 12;": lambda x, y, z: x >> 4 & 0xFFF,
    "bfe.s32 $0, $1, 28, 8;": lambda x, y, z: (x.view(np.int32) >> 28).view(np.uint32),
    "shf.l.wrap.b32 $0, $1, $2, 8;": lambda x, y, z: y << 8 | x >> 24,
    "shf.r.clamp.b32 $0, $1, $2, 8;": lambda x, y, z: x >> 8 | y << 24,
    "popc.b32 $0, $1;": lambda x, y, z: np.array([bin(v).count("1") for v in x.tolist()], np.uint32),
    "clz.b32 $0, $1;": lambda x, y, z: np.array([32 - v.bit_length() for v in x.tolist()], np.uint32),
    "brev.b32 $0, $1;": lambda x, y, z: np.array([int(f"{v:032b}"[::-1], 2) for v in x.tolist()], np.uint32),
    "min.s32 $0, $1, -3;": lambda x, y, z: np.minimum(x.view(np.int32), -3).view(np.uint32),
    "sad.u32 $0, $1, $2, $3;": lambda x, y, z: np.maximum(x, y) - np.minimum(x, y) + z,
    "fns.b32 $0, $1, 0, 4;": lambda x, y, z: np.array([nth_set(v, 4) for v in x.tolist()], np.uint32),
    "fns.b32 $0, $1, 0, $2;": (
        lambda x, y, z: np.array([nth_set(v, n) for v, n in zip(x.tolist(), y.view(np.int32).tolist())], np.uint32)
    ),
    "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; }": lambda x, y, z: x << 16 | x >> 16,
    "{ .reg .u64 w<2>; mul.wide.u32 w0, $1, $2; shr.u64 w1, w0, 16; cvt.u32.u64 $0, w1; }": (
        lambda x, y, z: (x.astype(np.uint64) * y >> np.uint64(16)).astype(np.uint32)
    ),
    "{ .reg .b8 t; cvt.u8.u32 t, $1; cvt.s32.s8 $0, t; }": lambda x, y, z: (
        x.astype(np.int8).astype(np.int32).view(np.uint32)
    ),
    "cvt.pack.sat.u8.s32.b32 $0, $1, $2, $3;": (
        lambda x, y, z: (x.view(np.int32).clip(0, 255) << 8 | y.view(np.int32).clip(0, 255)).astype(np.uint32) | z << 16
    ),
}


@pytest.mark.parametrize("asm", OF_BITS)
def test_bits(asm, way):
    given = integers(np.uint32)
    check(asm, given, np.asarray(OF_BITS[asm](*given), np.uint32), tl.uint32, "=r,r,r,r")


def test_between_kinds(way):
    x, y, z = floats()
    check("cvt.rzi.s32.f32 $0, $1;", [x, y, z], to_int(x), tl.int32, "=r,f,f,f")
    whole = integers()[0]
    check("cvt.rn.f32.s32 $0, $1;", [whole] * 3, whole.astype(np.float32), tl.float32, "=f,r,r,r")
    x, y = (np.where(np.isnan(v), np.float32(-3), v) for v in (x, y))
    halves = (torch.from_numpy(y).to(torch.bfloat16).view(torch.uint16).numpy().astype(np.uint32)
              | torch.from_numpy(x).to(torch.bfloat16).view(torch.uint16).numpy().astype(np.uint32) << 16)  # fmt: skip
    check("cvt.rn.bf16x2.f32 $0, $1, $2;", [x, y, z], halves, tl.uint32, "=r,f,f,f")


def test_halves(way):
    pairs = [np.random.default_rng(i).standard_normal(128).astype(np.float16) for i in range(3)]
    wanted = (pairs[0].astype(np.float64) * pairs[1] + pairs[2]).astype(np.float16)
    check(
        "fma.rn.f16x2 $0, $1, $2, $3;",
        [p.view(np.uint32) for p in pairs],
        wanted.view(np.uint32),
        tl.uint32,
        "=r,r,r,r",
    )


@tilewright.jit
def packed(
    x, out, ASM: tl.constexpr, LETTERS: tl.constexpr, KIND: tl.constexpr, SHAPE: tl.constexpr, PACK: tl.constexpr
):
    at = tl.arange(0, SHAPE[0])[:, None] * SHAPE[1] + tl.arange(0, SHAPE[1])[None, :]
    tl.store(out + at, tl.inline_asm_elementwise(ASM, LETTERS, [tl.load(x + at)], KIND, is_pure=True, pack=PACK))


@pytest.mark.parametrize("shape", [(4, 16), (8, 2), (3, 4)])
def test_elements_that_share_registers(shape, way):
    x = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    out = np.zeros_like(x)
    packed[(1,)](x, out, "xor.b32 $0, $1, 0x01020304;", "=r,r", tl.uint8, shape, 4)
    assert (out == (x.reshape(-1, 4) ^ np.array([4, 3, 2, 1], np.uint8)).reshape(shape)).all()
    wide = np.zeros(shape, np.uint16)  # bytes to 16 bits: one register becomes two
    packed[(1,)](x, wide, "prmt.b32 $0, $2, 0, 0x4140; prmt.b32 $1, $2, 0, 0x4342;", "=r,=r,r", tl.uint16, shape, 4)
    assert (wide == x).all()
    floats = np.random.default_rng(0).uniform(-300, 300, shape).astype(np.float32)
    code = """{
        .reg .s32 a<4>;  /* truncated and cut to a byte */
        cvt.rzi.s32.f32 a0, $1; cvt.rzi.s32.f32 a1, $2; cvt.rzi.s32.f32 a2, $3; cvt.rzi.s32.f32 a3, $4;
        cvt.pack.sat.u8.s32.b32 $0, a3, a2, 0;
        cvt.pack.sat.u8.s32.b32 $0, a1, a0, $0;
    }"""
    packed[(1,)](floats, out, code, "=r,f,f,f,f", tl.uint8, shape, 4)
    assert (out == np.trunc(floats).clip(0, 255)).all()


def test_narrow_floats(way):
    """Conversions to eight and four bits, two numbers an instruction, against PyTorch and a table."""
    x = np.concatenate([floats()[0], np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.75] * 8, np.float32)])
    x = x[np.isfinite(x)][:64].copy()
    asm = "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $2, $1; cvt.u32.u16 $0, t; }"
    low = torch.from_numpy(x).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy().astype(np.uint32)
    check(asm, [x, x, x], low << 8 | low, tl.uint32, "=r,f,f,f")
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    code = [
        min(range(8), key=lambda c: (abs(values[c] - min(abs(v), 6)), c % 2)) | (8 if np.signbit(v) else 0) for v in x
    ]
    asm = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, 0.0; cvt.u32.u8 $0, t; }"
    check(asm, [x, x, x], np.array(code, np.uint32) << 4, tl.uint32, "=r,f,f,f")


@pytest.mark.parametrize(
    ("asm", "message"),
    [
        ("ld.global.b32 $0, [$1];", "'ld.global.b32 .*' is not"),
        ("mov.u32 $0, %tid.x;", "'mov.u32 .*tid.x' is not"),
        ("loop: bra loop;", "'loop: bra loop' is not"),
        ("add.rz.f32 $0, $1, $2;", "'add.rz.f32 .*' is not"),
        ("add $0, $1, $2;", "'add .*' is not"),
        ("add.f32 $0, $1;", "gives add 1 operands"),
        ("add.f32 t, $1, $2;", "writes 't', which it does not declare"),
        ("{ .reg .f32 t; add.f32 $0, $1, t; }", "reads 't' before it has a value"),
        ("{ .reg .f32 t; add.f32 t, $1, $2; }", "gives its result .0 no value"),
        ("add.f32 $0, $1, $7;", "names the operand '.7'"),
    ],
)
def test_what_has_no_meaning_says_so(asm, message):
    x = np.zeros(64, np.float32)
    with pytest.raises(CompilationError, match=message) as error:
        run[(1,)](x, x, x, x, asm, "=f,f,f,f", tl.float32, 64)
    assert "tl.inline_asm_elementwise(ASM" in str(error.value)
