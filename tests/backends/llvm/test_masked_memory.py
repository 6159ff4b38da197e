"""Masked loads and stores for CPUs without AVX-512 and with it, where LLVM knows part of the mask.

Arrays end at a page that must not be touched, so that a lane too many ends the process.
"""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from tests.backends.llvm.harness import NUMPY
from tests.fuzz.arguments import Guarded
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.codegen import assembly, compile_object, load
from tilewright.backends.llvm.features import describe, host
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I1, I8, I16, I32, I64, PTR, VOID, T, V, const, iota, zero

_LESSER = "x86-64-v3" if host().is_x86 else "neoverse-n1"
_CPUS = ["", _LESSER] if host().has_masks else [""]
_KINDS = ("literal", "partly", "unknown")


def _mask(f: Function, kind: str, lanes: int, on: V, count: int) -> V:
    """A mask of the first `count` lanes (the number `on` says so too), made such that LLVM sees through all, some or
    nothing of it."""
    lane = iota(I32.vec(lanes))
    if kind == "literal":
        return f.icmp("slt", lane, count)
    if kind == "partly":  # where the scalar `on` is positive
        return f.and_(f.splat(f.icmp("sgt", on, 0), lanes), f.icmp("slt", lane, count))
    return f.icmp("slt", lane, f.splat(on, lanes))


@pytest.mark.parametrize("name", ["i8", "i32", "i64", "f16", "f32", "f64", "ptr"])
@pytest.mark.parametrize("cpu", _CPUS)
def test_only_lanes_that_are_on_are_touched(name: str, cpu: str) -> None:
    isa = describe("", cpu)
    dtype = NUMPY.get(name, np.int64)
    cases = [(kind, n, count) for kind in _KINDS for n in (2, 4, 8, 16) for count in sorted({0, 1, n // 2, n - 1})]
    module = Module(isa)
    for kind, lanes, count in cases:
        t = storage(name, lanes)
        f = module.function(f"{kind}{lanes}.{count}", VOID, (PTR, PTR, PTR, I32), linkage="")
        source, target, whole, on = f.args
        mask = _mask(f, kind, lanes, on, count)
        loaded = f.masked_load(t, source, mask, other=const(t, 3))
        f.store(loaded, whole)
        f.masked_store(loaded, target, mask)
        f.ret()
    library = load(compile_object(module.render(), isa), [f"{kind}{n}.{count}" for kind, n, count in cases])
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int32)
    for kind, lanes, count in cases:
        data = np.arange(1, count + 1).astype(dtype)
        source, target = (Guarded(values, aligned=False) for values in (data, np.zeros_like(data)))
        whole = np.zeros(lanes, dtype)
        call = prototype(library.address(f"{kind}{lanes}.{count}"))
        call(source.array.ctypes.data, target.array.ctypes.data, whole.ctypes.data, count)
        assert (target.array == data).all(), (kind, lanes, count)
        assert whole[:count].tolist() == data.tolist() and (whole[count:] == 3).all(), (kind, lanes, count)


@pytest.mark.parametrize("lanes", [2, 16])
@pytest.mark.parametrize(("wide", "narrow"), [(I64, I32), (I64, I16), (I64, I8), (I32, I16), (I32, I8), (I16, I8)])
def test_one_narrowed_lane_is_stored_no_wider(wide: T, narrow: T, lanes: int) -> None:
    isa = describe("x86_64-unknown-linux-gnu", "x86-64-v4")
    module = Module(isa)
    f = module.function("store", VOID, (PTR, PTR), linkage="")
    value = f.cast("trunc", f.load(wide.vec(lanes), f.args[0]), narrow)
    f.masked_store(value, f.args[1], f.icmp("slt", iota(I32.vec(lanes)), 1))
    f.ret()
    stores = re.findall(r"^\s+(\w+)\s+.*, \(%rsi\)$", assembly(module.render(), isa), re.MULTILINE)
    whole = {I8: ("movb", "vpextrb"), I16: ("movw", "vpextrw"), I32: ("movl", "vmovd", "vmovss", "vextractps")}
    assert len(stores) == 1 and stores[0] in whole[narrow]


def test_masks_of_any_lanes_without_avx512_are_not_left_to_llvm() -> None:
    isa = describe("x86_64-unknown-linux-gnu", "x86-64-v3")
    module = Module(isa)
    f = module.function("copy", VOID, (PTR, PTR, I1.vec(16)), linkage="")
    f.masked_store(f.masked_load(I32.vec(16), f.args[0], f.args[2]), f.args[1], f.args[2])
    f.ret()
    text = module.render()
    assert text.count("call <8 x float> @llvm.x86.avx.maskload.ps.256") == 2
    assert text.count("call void @llvm.x86.avx.maskstore.ps.256") == 2 and "llvm.masked" not in text


@pytest.mark.parametrize(
    "t", [storage(name, n) for name in ("i8", "i16", "f32", "f64", "ptr") for n in (2, 4, 16)], ids=str
)
def test_with_sve_no_lane_is_tested_by_itself(t: T) -> None:
    def copied(cpu: str) -> str:
        isa = describe("aarch64-unknown-linux-gnu", cpu)
        module = Module(isa)
        f = module.function("copy", VOID, (PTR, PTR, I32), linkage="")
        mask = _mask(f, "unknown", t.lanes, f.args[2], 0)
        f.masked_store(f.masked_load(t, f.args[0], mask), f.args[1], mask)
        f.ret()
        return assembly(module.render(), isa)

    registers = -(-t.bytes // 16)
    with_sve, without = copied("neoverse-v2"), copied("neoverse-n1")
    assert len(re.findall(r"^\s+ld1[bhwd]\s+\{ z", with_sve, re.MULTILINE)) == registers
    assert len(re.findall(r"^\s+st1[bhwd]\s+\{ z", with_sve, re.MULTILINE)) == registers
    assert not re.search(r"^\s+(tbn?z|cbn?z|b\.)", with_sve, re.MULTILINE)
    assert re.search(r"^\s+tbn?z", without, re.MULTILINE)


def test_masks_of_eight_bytes_are_not_widened_by_llvm() -> None:
    """Parts of a mask of 64 lanes, more than there are mask registers: LLVM would clear the bits of the others by
    `kmovb`, and take it for a copy where it must spill it."""
    isa = describe("x86_64-unknown-linux-gnu", "x86-64-v4")
    module = Module(isa)
    f = module.function("store", VOID, (PTR, PTR), linkage="")
    bytes = f.load(I8.vec(64), f.args[0])
    mask = f.icmp("ne", bytes, zero(I8.vec(64)))
    for part in range(8):
        at = f.gep(f.args[1], 24 * part)
        kept = f.masked_load(I8.vec(8), at, f.slice(mask, 8 * part, 8))
        f.masked_store(f.add(kept, f.slice(bytes, 8 * part, 8)), at, f.slice(mask, 8 * part, 8))
    f.ret()
    text = module.render()
    assert "llvm.masked.store.v16i8" in text and "masked.store.v8i8" not in text and "masked.load.v8i8" not in text
    assert not re.search(r"kmovb\t%k\d, %k\d", assembly(text, isa))
