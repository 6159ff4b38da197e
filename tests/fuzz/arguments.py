"""Argument arrays of random kernels: contents by recipe, and memory that ends at a page nobody may touch.

An access past the end of an array that masks should have prevented then stops the process instead of passing unseen.
"""

from __future__ import annotations

import ctypes
import mmap
import zlib
from typing import Any

import numpy as np

from tests.fuzz.case import Param
from tilewright.base import dtypes
from tilewright.base.minifloat import from_memory, to_memory

Array = np.ndarray[Any, Any]
_PAGE = mmap.PAGESIZE
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0)


def element(name: str) -> dtypes.dtype:
    """The language type of a name as kernels spell it."""
    return {d.name: d for d in dtypes.ALL_DTYPES}[_SHORT.get(name, name)]


_SHORT = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "float8e5": "fp8e5", "float8e4nv": "fp8e4nv",
}  # fmt: skip


def filled(param: Param, seed: int) -> Array:
    """Contents of an array in memory form.

    The recipes: "zeros"; "ints" of the whole range of an integer type, or -8..8 for floats; "quarters", multiples of
    1/4 in -4..4; "reals" in -4..4; "special", "ints" with NaN, infinities and -0 among them; "extreme", these beside
    the smallest and largest floats; "sentinel", one value; "ends N" and "near N" of integers, N, or some around it.
    """
    rng = np.random.default_rng([seed, zlib.crc32(param.name.encode())])
    type_ = element(param.dtype)
    if type_.is_bool():
        return (rng.integers(0, 2, param.size) * (param.fill != "zeros")).astype(np.int8)
    if not type_.is_floating():
        return _integers(param, type_, rng)
    values = {
        "zeros": lambda: np.zeros(param.size),
        "sentinel": lambda: np.full(param.size, 13.0),
        "ints": lambda: rng.integers(-8, 9, param.size).astype(np.float64),
        "quarters": lambda: rng.integers(-16, 17, param.size) / 4,
        "reals": lambda: rng.uniform(-4, 4, param.size),
        "special": lambda: rng.integers(-8, 9, param.size).astype(np.float64),
        "extreme": lambda: rng.choice(_extremes(type_), param.size),
    }[param.fill]()
    if param.fill == "special":
        at = rng.random(param.size) < 0.1
        values[at] = rng.choice(_SPECIAL, int(at.sum()))
    _poison(values, param, rng.choice(_SPECIAL[:3], param.size))
    return np.asarray(to_memory(values.astype(type_.work_dtype), type_)).astype(type_.memory_dtype)


def _extremes(type_: dtypes.dtype) -> Array:
    """The ends of a type of floats, of its normal numbers and of those below, of either sign; and the special ones."""
    digits, least = {"fp16": (10, -14), "bf16": (7, -126), "fp32": (23, -126), "fp64": (52, -1022)}[type_.name]
    ends = [2.0**least, 2.0 ** (least - digits), 2.0**least * (1 - 2.0**-digits), 1.0, 2.0**digits + 1, 0.75]
    ends.append((2 - 2.0**-digits) * 2.0 ** (1 - least))
    return np.array([*ends, *(-end for end in ends), *_SPECIAL, 0.0])


def _integers(param: Param, type_: dtypes.dtype, rng: np.random.Generator) -> Array:
    memory = np.dtype(type_.memory_dtype)
    if param.fill in ("zeros", "sentinel"):
        return np.full(param.size, 0 if param.fill == "zeros" else 85, memory)
    low, high = type_.get_int_min_value(), type_.get_int_max_value()
    if param.fill.startswith(("ends", "near")):
        number, around = int(param.fill.split()[1]), rng.integers(-2, 3, param.size)
        some = [number + int(by) if param.fill.startswith("near") else number for by in around]
        return np.array([min(max(n, low), high) for n in some], memory)
    wide = rng.integers(low, high, param.size, dtype=np.uint64 if low == 0 else np.int64, endpoint=True)
    small = rng.integers(0 if low == 0 else -5, 6, param.size)
    edge = rng.choice(np.array([low, high], dtype=wide.dtype), param.size)
    kind = rng.random(param.size)
    chosen = np.where(kind < 0.4, small.astype(wide.dtype), np.where(kind < 0.92, wide, edge))
    _poison(chosen, param, np.full(param.size, high).astype(chosen.dtype))
    return chosen.astype(memory)


def _poison(values: Array, param: Param, poison: Array) -> None:
    """Put `poison` in every place that the kernel may not use."""
    if param.valid is None:
        return
    places = np.array([param.valid[0]])
    for count, stride in param.valid[1]:
        places = np.add.outer(places, np.arange(count) * stride).ravel()
    hidden = np.ones(param.size, bool)
    hidden[places] = False
    values[hidden] = poison[hidden]


def working(values: Array, param: Param) -> Array:
    """Memory form as numbers."""
    type_ = element(param.dtype)
    return values if type_.is_bool() else np.asarray(from_memory(values, type_))


class Guarded:
    """An array that ends where a page begins that must not be touched.

    Args:
        values: contents.
        aligned: whether the first byte must lie at a multiple of 16, else it lies off one if it can.
    """

    def __init__(self, values: Array, *, aligned: bool) -> None:
        size = values.nbytes
        pages = (size + 64 + _PAGE - 1) // _PAGE
        self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        end = (pages + 1) * _PAGE
        for guard in (start, start + end):
            if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(_PAGE), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        offset = end - size
        if aligned:
            offset -= offset % 16
        elif offset % 16 == 0:
            offset -= values.itemsize
        self.array = np.frombuffer(self._map, values.dtype, values.size, offset)
        self.array[:] = values
