"""Where accesses to global memory need a barrier between them, and where not."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import built_ir, tile_ir
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.compile.specialize import Specialization
from tilewright.ops.atomic import AtomicCASOp, AtomicRMWOp
from tilewright.passes.pipeline import run_passes
from tilewright.passes.united import note_shared_memory


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
def over_iterations(x_ptr, y_ptr):
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


@tilewright.jit
def ring(x_ptr, y_ptr):
    pointers = x_ptr + tl.arange(0, 1024) % 8  # threads have elements of one address
    tl.store(pointers, tl.load(pointers) + 1)


@tilewright.jit
def twice_around(x_ptr, y_ptr):
    pointers = x_ptr + tl.arange(0, 1024) // 8
    tl.store(pointers, 1)
    tl.store(pointers, 2)


@tilewright.jit
def by_a_table(x_ptr, y_ptr):
    pointers = x_ptr + tl.load(y_ptr + tl.arange(0, 1024))
    tl.store(pointers, tl.load(pointers) + 1)


@tilewright.jit
def rows_end_with_the_mask(x_ptr, n):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 64)[None, :]
    pointers = x_ptr + i * n + j
    tl.store(pointers, tl.load(pointers, j < n) + 1, j < n)


@tilewright.jit
def rows_of_any_stride(x_ptr, n):
    pointers = x_ptr + tl.arange(0, 16)[:, None] * n + tl.arange(0, 64)[None, :]
    tl.store(pointers, tl.load(pointers) + 1)


@pytest.mark.parametrize(
    ("kernel", "barriers"),
    [
        (apart, 0), (in_place, 0), (shifted, 1), (copies, 1), (counter, 1), (written_then_read, 1), (user_waits, 1),
        (over_iterations, 1), (atomics, 0), (loops_apart, 0), (ring, 1), (twice_around, 1), (by_a_table, 1),
        (rows_end_with_the_mask, 0), (rows_of_any_stride, 1),
    ],
    ids=lambda given: getattr(getattr(given, "fn", None), "__name__", ""),
)  # fmt: skip
def test_barriers(kernel: Any, barriers: int) -> None:
    types = {name: "i32" if name == "n" else "*i32" for name in kernel.arg_names}
    module = lay_out_module(tile_ir(kernel, types), CudaOptions(), target_of(90))
    assert sum(op.name == "ttg.barrier" for op in module.walk()) == barriers


@pytest.mark.parametrize(("kernel", "barriers"), [(apart, 1), (loops_apart, 2), (in_place, 0)])
def test_arguments_that_overlap(kernel: Any, barriers: int) -> None:
    types = dict.fromkeys(kernel.arg_names, "*i32")
    module = built_ir(kernel, types)
    note_shared_memory(module, Specialization((), (), (), meeting=((1, 0),)))
    module = lay_out_module(run_passes(module), CudaOptions(), target_of(90))
    assert sum(op.name == "ttg.barrier" for op in module.walk()) == barriers


@tilewright.jit
def locked(lock, x_ptr, SEM: tl.constexpr):
    pointers = x_ptr + tl.arange(0, 128)
    while tl.atomic_cas(lock, 0, 1, sem=SEM) == 1:
        pass
    tl.store(pointers, tl.load(pointers) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=SEM)


@tilewright.jit
def counted(count, x_ptr, y_ptr, SEM: tl.constexpr):
    offsets = tl.arange(0, 128)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) + 1)
    tl.atomic_add(count, 1, sem=SEM)
    tl.atomic_cas(count + 1, 0, 1, sem=SEM)


def orders(kernel: Any, types: dict[str, str], sem: str) -> list[str]:
    module = lay_out_module(tile_ir(kernel, types, SEM=sem), CudaOptions(), target_of(90))
    return [op.attr_values()["sem"] for op in module.walk() if isinstance(op, (AtomicCASOp, AtomicRMWOp))]


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
def test_a_lock_orders_what_it_guards(sem: str) -> None:
    assert orders(locked, {"lock": "*i32", "x_ptr": "*i32"}, sem) == ["acq_rel", "acq_rel"]


def test_what_guards_nothing_keeps_its_order() -> None:
    types = {"count": "*i32", "x_ptr": "*i32", "y_ptr": "*i32"}
    assert orders(counted, types, "relaxed") == ["relaxed", "relaxed"]
