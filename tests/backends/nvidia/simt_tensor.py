"""Tensor cores of the simulated GPU: mma.sync and wgmma, written from the figures of the PTX ISA.

Fragments and shared-memory matrices are indexed here by the formulas of the manual, not by Tilewright's layouts, so
that running a product checks those. A wgmma reads shared memory from its start to the wait that covers it: what it
read must not have changed by then. Importing this file adds the instructions to the tables of the simulator.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.backends.nvidia import simt_ops as ops
from tests.backends.nvidia.simt_intrinsics import Machine, intrinsic
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_ptx import Statement, ptx
from tests.backends.nvidia.simt_text import Ty
from tilewright.base import dtypes, minifloat

Array = np.ndarray
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "e4m3": 8, "e5m2": 8}
_FP8 = {"e4m3": dtypes.float8e4nv, "e5m2": dtypes.float8e5}


def decoded(kind: str, words: Array) -> Array:
    """Words of 32 bits (..., n) as the numbers in them (..., n * 32 / bits)."""
    raw = np.ascontiguousarray(words).view(f"u{_BITS[kind] // 8}")
    if kind == "f16":
        return raw.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return ops.widened(Ty("bfloat"), raw).astype(np.float64)
    if kind == "tf32":
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind == "s8":
        return raw.view(np.int8).astype(np.float64)
    return minifloat.decode(raw, _FP8[kind]).astype(np.float64)


# --- fragments ----------------------------------------------------------------------------------------------


def fragment_a(kind: str, words: Array) -> Array:
    """Rows and K of A of m16n8k*: words (warp, lane, 4) -> (warp, 16, k)."""
    per = 32 // _BITS[kind]
    values = decoded(kind, words).reshape(len(words), 32, 4, per)
    matrix = np.zeros((len(words), 16, 8 * per))
    for lane in range(32):
        for word in range(4):
            row, column = lane // 4 + 8 * (word % 2), per * (lane % 4) + 4 * per * (word // 2)
            matrix[:, row, column : column + per] = values[:, lane, word]
    return matrix


def fragment_b(kind: str, words: Array) -> Array:
    """K and columns of B of m16n8k*: words (warp, lane, 2) -> (warp, k, 8)."""
    per = 32 // _BITS[kind]
    values = decoded(kind, words).reshape(len(words), 32, 2, per)
    matrix = np.zeros((len(words), 8 * per, 8))
    for lane in range(32):
        for word in range(2):
            row = per * (lane % 4) + 4 * per * word
            matrix[:, row : row + per, lane // 4] = values[:, lane, word]
    return matrix


def accumulator_places(lane: int, register: int) -> tuple[int, int]:
    """Row and column of a register of C of m16n8k*; in wgmma, columns go on by 8 every 4 registers."""
    return lane // 4 + 8 * (register // 2 % 2), 2 * (lane % 4) + register % 2 + 8 * (register // 4)


def _gather(registers: list[Array], columns: int) -> Array:
    """Registers (warp, lane) of an accumulator -> (warp, 16, columns)."""
    matrix = np.zeros((len(registers[0]), 16, columns))
    for lane in range(32):
        for i, register in enumerate(registers):
            matrix[(slice(None), *accumulator_places(lane, i))] = register[:, lane]
    return matrix


def _scatter(matrix: Array, count: int) -> list[Array]:
    """The inverse of `_gather`."""
    made = [np.zeros((len(matrix), 32)) for _ in range(count)]
    for lane in range(32):
        for i in range(count):
            made[i][:, lane] = matrix[(slice(None), *accumulator_places(lane, i))]
    return made


# --- mma.sync -----------------------------------------------------------------------------------------------


def _mma(m: Machine, kind_a: str, kind_b: str, args: tuple[Array, ...], halves: bool) -> tuple[Array, ...]:
    assert len(m.whole_warps()) * 32 == m.count
    words = [ops.bits_of(Ty("half", 2), m.spread(x)) if halves else m.spread(x) for x in args[:6]]
    words = [np.ascontiguousarray(w).view(np.uint32).reshape(-1, 32) for w in words]
    a = fragment_a(kind_a, np.stack(words[:4], axis=2))
    b = fragment_b(kind_b, np.stack(words[4:], axis=2))
    integer = kind_a == "s8"
    c = [m.spread(x).reshape(-1, 32) for x in args[6:]]
    total = a @ b + _gather([x.view(np.int32) if integer else x for x in (np.ascontiguousarray(x) for x in c)], 8)
    made = (x.reshape(-1) for x in _scatter(total, 4))
    return tuple(x.astype(np.int64).astype(np.uint32) if integer else x.astype(np.float32) for x in made)


def _register_mma() -> None:
    names = {
        "m16n8k16.row.col.f32.f32": ("f16", "f16"), "m16n8k16.row.col.bf16": ("bf16", "bf16"),
        "m16n8k8.row.col.tf32": ("tf32", "tf32"), "m16n8k32.row.col.s8": ("s8", "s8"),
    }  # fmt: skip
    names |= {f"m16n8k32.row.col.f32.{a}.{b}.f32": (a, b) for a in _FP8 for b in _FP8}
    for name, (a, b) in names.items():
        intrinsic(f"llvm.nvvm.mma.{name}")(lambda m, inst, *args, a=a, b=b: _mma(m, a, b, args, a == "f16"))


_register_mma()


@intrinsic("llvm.nvvm.f2tf32.rna")
def _round_tf32(m: Machine, inst: Any, x: Array) -> Array:
    bits = np.ascontiguousarray(x).view(np.uint32)
    return np.where(np.isfinite(x), (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits)


@intrinsic("llvm.nvvm.f2tf32.rn")
def _round_tf32_to_even(m: Machine, inst: Any, x: Array) -> Array:
    bits = np.ascontiguousarray(x).view(np.uint32)
    half = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    finite = (bits & np.uint32(0x7FFFFFFF)) < np.uint32(0x7F800000)
    return np.where(finite, bits + half, np.where(np.isnan(x), bits | np.uint32(1 << 22), bits)) & np.uint32(0xFFFFE000)


# --- wgmma --------------------------------------------------------------------------------------------------

_WIDTHS = {0: 16, 1: 128, 2: 64, 3: 32}


def matrix_addresses(descriptor: int, outer: int, depth: int, bits: int, transposed: bool) -> Array:
    """Byte addresses (outer, depth) of the elements of a matrix in shared memory.

    PTX ISA, "Shared Memory Matrix Layout", in the form of CUTLASS' canonical layouts (`mma_sm90_desc.hpp`).
    """
    start, leading, stride = ((descriptor >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    width = _WIDTHS[descriptor >> 62 & 3]
    i, j = np.meshgrid(np.arange(outer), np.arange(depth), indexing="ij")
    size = bits // 8
    if transposed:
        assert bits == 16, "only matrices of 16-bit elements can be transposed"
        line, across, along = j, i * size, (leading, stride)
    else:
        line, across, along = i, j * size, (leading, stride)
    if width == 16:
        first, second = (along[1], along[0]) if transposed else (along[0], along[1])
    else:
        first, second = along
        assert transposed or (across < width).all()
    places = start + across % width + across // width * first + line % 8 * width + line // 8 * second
    phases = {128: 7, 64: 3, 32: 1, 16: 0}[width]
    return places ^ (places >> 7 & phases) << 4


def _read_matrix(
    m: Machine, group: Array, descriptor: int, shape: tuple[int, int], kind: str, transposed: bool
) -> Array:
    places = matrix_addresses(descriptor, *shape, _BITS[kind], transposed)
    flat = places.reshape(-1)
    # Every warp of the group counts as a reader.
    for warp in group:
        m.shared.load(np.full(flat.size, warp * 32), flat, _BITS[kind] // 8)
    raw = m.shared.load(np.full(flat.size, group[0] * 32), flat, _BITS[kind] // 8)
    m.wgmma[-1].append((group, flat, raw))
    if _BITS[kind] == 32:
        words = np.ascontiguousarray(raw).view(np.uint32)
        return decoded(kind, words).reshape(shape)
    padded = np.zeros((flat.size, 4), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return decoded(kind, padded.view(np.uint32)).reshape(flat.size, -1)[:, 0].reshape(shape)


def _state(m: Machine) -> None:
    if not hasattr(m, "wgmma"):
        m.wgmma = [[]]
        m.flying = [set()]  # of each group the numbers of results that are not there yet
        m.made, m.results = 0, {}


@ptx("wgmma")
def _wgmma(s: Statement) -> None:
    m = s.machine
    _state(m)
    if s.has("fence"):
        return
    if s.has("commit_group"):
        m.wgmma.append([])
        m.flying.append(set())
        return
    if s.has("wait_group"):
        _wait(m, int(s.operands[0]))
        _arrive(s)
        return
    shape = next(mod for mod in s.mods if re.fullmatch(r"m64n\d+k\d+", mod))
    n, k = map(int, re.findall(r"\d+", shape)[1:])
    kind_a, kind_b = s.mods[-2:]
    integer = kind_a == "s8"
    d, a, b, scale, *flags = s.operands
    in_registers = isinstance(a, list)
    transposed = [int(flag) for flag in flags[2:]] if _BITS[kind_b] == 16 else []
    transposed = [0] * (2 - len(transposed)) + transposed
    t = Ty("i32") if integer else Ty("float")
    warps = m.whole_warps()
    assert len(d) == n // 2 and len(warps) % 4 == 0 and warps[0] % 4 == 0 and warps[-1] - warps[0] + 1 == len(warps)
    keep = m.spread(s.read(scale, Ty("i1")))[0]
    sums = [_there(m, s.read(r, Ty("i32")), t) if keep else np.zeros(1, t.dtype) for r in d]
    registers = [m.spread(value).reshape(-1, 32) for value in sums]
    c = _gather([np.ascontiguousarray(x).view(np.int32) if integer else x for x in registers], n)
    words = [m.spread(s.read(x, Ty("i32"))).reshape(-1, 32) for x in a] if in_registers else []
    rows = fragment_a(kind_a, np.stack(words, axis=2)) if in_registers else None
    total = np.zeros_like(c)
    for first in warps[::4]:
        group = np.arange(first, first + 4)
        b_matrix = _read_matrix(m, group, _uniform(s, b, group), (n, k), kind_b, bool(transposed[1])).T
        if rows is None:
            held = _read_matrix(m, group, _uniform(s, a, group), (64, k), kind_a, bool(transposed[0]))
            a_matrix = held.reshape(4, 16, k)
        else:
            a_matrix = rows[group]
        total[group] = a_matrix @ b_matrix + c[group]
    for name, made in zip(d, _scatter(total, len(d)), strict=True):
        made = made.reshape(-1)
        if integer:
            s.write(name, t, made.astype(np.int64).astype(np.uint32))
        else:
            s.write(name, Ty("i32"), _under_way(m, made.astype(np.float32)))


# Results of products are not there before somebody has waited for their group: registers hold numbers of them till
# then, as NaNs of a kind that nothing else makes. Only a product that goes on with a sum, and the wait, look behind.
_MARK, _NUMBERS = 0x7FE00000, (1 << 20) - 1


def _under_way(m: Machine, made: Array) -> Array:
    """What registers hold of a result."""
    number = m.made & _NUMBERS
    m.made += 1
    m.results[number] = made
    m.flying[-1].add(number)
    return np.full(made.shape, _MARK | number, np.uint32)


def _number(bits: Array) -> int | None:
    """Which result registers hold the number of."""
    marked = (bits & np.uint32(0xFFFFFFFF ^ _NUMBERS)) == _MARK
    return int(bits[marked][0] & _NUMBERS) if marked.any() else None


def _there(m: Machine, bits: Array, t: Ty) -> Array:
    """The sum that a product goes on with."""
    bits = np.ascontiguousarray(bits).view(np.uint32)
    number = None if not t.is_float else _number(bits)
    return bits.view(t.dtype) if number is None else m.results.pop(number)


def _arrive(s: Statement) -> None:
    """The registers that a wait is given have their results, if these are there."""
    m = s.machine
    left, seen = set().union(*m.flying), set()
    for name, bits in list(s.registers.items()):
        number = _number(m.spread(bits)[m.mask]) if bits.dtype == np.uint32 else None
        if number is not None and number not in left:
            s.write(name, Ty("float"), m.results[number])
            seen.add(number)
    for number in seen:
        del m.results[number]


def _uniform(s: Statement, name: str, group: Array) -> int:
    values = s.machine.spread(s.read(name, Ty("i64"))).reshape(-1, 32)[group]
    if (values != values[0, 0]).any():
        raise SimtError("the warps of a group pass different descriptors")
    return int(values[0, 0])


def _wait(m: Machine, pendings: int) -> None:
    """Groups that end here have read until now: nobody may have written to what they read."""
    while len(m.flying) - 1 > pendings:
        m.flying.pop(0)
    while len(m.wgmma) - 1 > pendings:
        for group, places, raw in m.wgmma.pop(0):
            where = places[:, None] + np.arange(raw.shape[1])
            if (m.shared.data[where] != raw).any():
                raise SimtError("shared memory changed while wgmma was reading it")
            for warp in group:
                m.shared.load(np.full(places.size, warp * 32), places, raw.shape[1])
