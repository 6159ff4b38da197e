"""Where accesses to global memory need a barrier between them, and where not."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module


@tilewright.jit
def apart(x_ptr, y_ptr):
    offsets = tl.arange(0, 1024)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets + 1))


@tilewright.jit
def in_place(x_ptr, y_ptr):
    pointers = x_ptr + tl.arange(0, 1024)
    tl.store(pointers, tl.load(pointers) + 1)


@tilewright.jit
def shifted(x_ptr, y_ptr):
    offsets = tl.arange(0, 1024)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets + 1))


@tilewright.jit
def copies(x_ptr, y_ptr):
    pointers = x_ptr + tl.arange(0, 4)  # fewer elements than threads: several load what one stores
    tl.store(pointers, tl.load(pointers) + 1)


@tilewright.jit
def counter(x_ptr, y_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1)


@tilewright.jit
def written_then_read(x_ptr, y_ptr):
    offsets = tl.arange(0, 1024)
    tl.store(x_ptr + offsets, offsets)
    tl.store(y_ptr + offsets, tl.load(x_ptr + 1023 - offsets))


@tilewright.jit
def user_waits(x_ptr, y_ptr):
    offsets = tl.arange(0, 1024)
    tl.store(x_ptr + offsets, offsets)
    tl.debug_barrier()
    tl.store(y_ptr + offsets, tl.load(x_ptr + 1023 - offsets))


@tilewright.jit
def over_trips(x_ptr, y_ptr):
    pointers = x_ptr + tl.arange(0, 1024)
    for _ in range(8):
        tl.store(pointers, tl.load(pointers) + 1)
        pointers += 1


@tilewright.jit
def atomics(x_ptr, y_ptr):
    offsets = tl.arange(0, 1024)
    tl.atomic_add(x_ptr + offsets, 1)
    tl.atomic_add(x_ptr + offsets + 1, 1)


@tilewright.jit
def loops_apart(x_ptr, y_ptr):
    offsets = tl.arange(0, 1024)
    for i in range(8):
        tl.store(y_ptr + i * 1024 + offsets, tl.load(x_ptr + i * 1024 + offsets))


@pytest.mark.parametrize(
    ("kernel", "barriers"),
    [
        (apart, 0), (in_place, 0), (shifted, 1), (copies, 1), (counter, 1), (written_then_read, 1), (user_waits, 1),
        (over_trips, 1), (atomics, 0), (loops_apart, 0),
    ],
    ids=lambda given: getattr(getattr(given, "fn", None), "__name__", ""),
)  # fmt: skip
def test_barriers(kernel: Any, barriers: int) -> None:
    module = lay_out_module(tile_ir(kernel, {"x_ptr": "*i32", "y_ptr": "*i32"}), CudaOptions(), target_of(90))
    assert sum(op.name == "ttg.barrier" for op in module.walk()) == barriers
