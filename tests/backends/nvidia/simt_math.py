"""Arithmetic of the simulated GPU that is not LLVM's: approximations, conversions of pairs, libdevice.

Approximations are exact here, so that they show what the emitters do with them and not the error of a chip.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.nvidia.simt_intrinsics import INTRINSICS, intrinsic
from tests.backends.nvidia.simt_ops import signed
from tests.backends.nvidia.simt_text import Ty
from tilewright.base import minifloat
from tilewright.base.dtypes import dtype
from tilewright.ir.types import scalar_type
from tilewright.ops.math import OPS
from tilewright.ops.spec import REGISTRY, Call

Array = np.ndarray[Any, Any]


def _pure(name: str, function: Callable[..., Array]) -> None:
    def run(m: Any, inst: Any, *args: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*args))

    intrinsic(name)(run)


def _in_double(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *args: np.asarray(function(*[a.astype(np.float64) for a in args])).astype(np.float32)


for _name, _function in {
    "div.full": np.divide, "sqrt.approx.f": np.sqrt, "rsqrt.approx.f": lambda x: 1 / np.sqrt(x),
    "rsqrt.approx.ftz.f": lambda x: 1 / np.sqrt(x),
    "rcp.approx.ftz.f": lambda x: np.where(np.abs(x) > 2.0**126, np.copysign(0, x), 1 / x),
    "ex2.approx.f32": np.exp2, "ex2.approx.ftz.f32": lambda x: np.where(x < -126, 0, np.exp2(x)),
}.items():  # fmt: skip
    _pure(f"llvm.nvvm.{_name}", _in_double(_function))


def _upper_half(x: Array) -> Array:
    """PTX ISA, rcp.approx.ftz.f64: of the result the lower 32 bits are zero."""
    return np.where(np.isfinite(x), (x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64), x)


_pure("llvm.nvvm.rcp.approx.ftz.d", lambda x: _upper_half(1 / x))
_pure("llvm.nvvm.rsqrt.approx.ftz.d", lambda x: _upper_half(1 / np.sqrt(x)))


# --- integers and floats, rounded toward zero -------------------------------------------------------------


def _cut_to_float(x: Array) -> Array:
    near = x.astype(np.float32)
    exact = [int(v) for v in x]
    past = np.array([abs(int(n)) > abs(e) for n, e in zip(near, exact, strict=True)])
    return np.where(past, np.nextafter(near, np.float32(0)), near)


def _to_integer(bits: int, signed: bool) -> Callable[[Array], Array]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(x: Array) -> Array:
        whole = [0 if v != v else int(np.clip(np.trunc(np.float64(v)), low, high)) for v in x]
        return np.array([min(max(w, low), high) % (1 << bits) for w in whole], f"u{bits // 8}")

    return convert


for _bits, _kind in ((32, "i"), (64, "ll")):
    _pure(f"llvm.nvvm.{_kind}2f.rz", lambda x: _cut_to_float(x.view(f"i{x.dtype.itemsize}")))
    _pure(f"llvm.nvvm.u{_kind}2f.rz", _cut_to_float)
    _pure(f"llvm.nvvm.f2{_kind}.rz", _to_integer(_bits, True))
    _pure(f"llvm.nvvm.f2u{_kind}.rz", _to_integer(_bits, False))


# --- pairs: the first operand goes to the upper half --------------------------------------------------------


def _narrowed(name: str, mode: str) -> Callable[[Array, Array], Array]:
    type_ = dtype(name)

    def convert(high: Array, low: Array) -> Array:
        pair = np.stack(np.broadcast_arrays(low, high), 1)
        values = minifloat.round_to(pair, type_, rounding={"rn": "rtne", "rz": "rtz"}[mode])
        return minifloat.to_memory(values, type_) if name == "bf16" else values

    return convert


for _short, _long in (("f16", "fp16"), ("bf16", "bf16")):
    for _mode in ("rn", "rz"):
        _pure(f"llvm.nvvm.ff2{_short}x2.{_mode}", _narrowed(_long, _mode))


def _coded(name: str, low: Array, high: Array) -> Array:
    codes = [minifloat.encode(v, dtype(name)).astype(np.uint16) for v in (low, high)]
    return codes[0] | codes[1] << 8


def _decoded(name: str, code: Array) -> Array:
    return np.stack([minifloat.decode(code >> s & 0xFF, dtype(name)) for s in (0, 8)], 1).astype(np.float16)


for _short, _long in (("e4m3x2", "fp8e4nv"), ("e5m2x2", "fp8e5")):
    _pure(f"llvm.nvvm.ff.to.{_short}.rn", lambda high, low, name=_long: _coded(name, low, high))
    _pure(f"llvm.nvvm.f16x2.to.{_short}.rn", lambda pair, name=_long: _coded(name, pair[:, 0], pair[:, 1]))
    _pure(f"llvm.nvvm.{_short}.to.f16x2.rn", lambda code, name=_long: _decoded(name, code))


# --- libdevice ----------------------------------------------------------------------------------------------


def _library(name: str, element: str) -> Callable[..., Array]:
    """The reference of the `math` operation `name`."""
    reference, type_ = REGISTRY[f"math.{name}"].reference, scalar_type(element)
    assert reference is not None
    return lambda *args: reference(Call(operand_types=(type_,) * len(args), result_types=(type_,)), *args)


for _name in OPS:
    _stem = "pow" if _name == "powf" else _name
    _pure(f"__nv_{_stem}", _library(_name, "f64"))
    _pure(f"__nv_{_stem}f", _library(_name, "f32"))


# --- the block ------------------------------------------------------------------------------------------------


@intrinsic("llvm.nvvm.barrier.cta.red.or.aligned.all")
def _any_thread(m: Any, inst: Any, _: Array, flag: Array) -> Array:
    INTRINSICS["llvm.nvvm.barrier0"](m, inst)
    return np.full(m.count, bool(np.any(m.spread(flag)[m.mask])))


_FORMAT = re.compile(rb"%[0-9]*(?:ll)?([dufx%])")


def _text_at(m: Any, address: int) -> bytes:
    return bytes(m.memory.contents(address, 400)).split(b"\0")[0]


@intrinsic("vprintf")
def _vprintf(m: Any, inst: Any, form: Array, place: Array) -> Array:
    """The driver's printf: a line for each active thread, arguments aligned to their size."""
    for thread in m.threads:
        text = _text_at(m, int(m.spread(form)[thread]))
        offset, values = 0, []
        for found in _FORMAT.finditer(text):
            if found[1] == b"%":
                continue
            t = Ty("double") if found[1] == b"f" else Ty("i64") if b"ll" in found[0] else Ty("i32")
            offset = -(-offset // t.bytes) * t.bytes
            address = m.spread(place)[thread : thread + 1] + np.uint64(offset)
            bits = m._load_rows(t, address, np.array([thread]), t.bytes, 0)
            values.append(float(bits[0]) if t.is_float else int((signed(t, bits) if found[1] == b"d" else bits)[0]))
            offset += t.bytes
        m.result.printed.append(re.sub(r"%(\d*)ll", r"%\1", text.decode()) % tuple(values))
    return np.zeros(m.count, np.uint32)
