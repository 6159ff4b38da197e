"""`tl.load` and `tl.store`: masks, other, casts, bool memory, hints, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import Held, build, run
from tilewright.base.errors import CompilationError
from tilewright.ops.memory import CachePolicy, LoadOp, StoreOp

pytestmark = pytest.mark.usefixtures("backend")


def masked_kernel(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n, other=-1)
    tl.store(out + i, v * 2, i < n + 1)


def test_masked_lanes_take_other_and_are_not_stored() -> None:
    x, out = np.arange(4, dtype=np.int32), np.full(8, 77, np.int32)  # x is shorter than the tile
    run(masked_kernel, x, out, 4, N=8)
    assert out.tolist() == [0, 2, 4, 6, -2, 77, 77, 77]


def scalar_kernel(x, out, flag):
    v = tl.load(x + 2)
    tl.store(out, v)
    tl.store(out + 1, 5, mask=flag > 0)


@pytest.mark.parametrize("flag", [0, 1])
def test_scalars(flag: int) -> None:
    x, out = np.array([1.0, 2.0, 3.0], np.float32), np.zeros(2, np.float32)
    run(scalar_kernel, x, out, flag)
    assert out.tolist() == [3.0, 5.0 * flag]


def bool_kernel(flags, out, N: tl.constexpr):
    i = tl.arange(0, N)
    f = tl.load(flags + i, mask=i < 6, other=True)
    tl.static_assert(f.dtype == tl.int1)
    tl.store(out + i, ~f)
    tl.store(out + N, True)


def test_a_bool_in_memory_is_any_byte_that_is_not_zero() -> None:
    flags = np.array([0, 1, 2, 255, 0, 128], np.uint8).view(bool)
    out = np.zeros(9, bool)
    run(bool_kernel, flags, out, N=8)
    assert out.view(np.uint8).tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1]


def cast_kernel(x, half, small, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(half + i, v)
    tl.store(small + i, v)


def test_values_are_cast_to_the_element_type() -> None:
    x = np.array([1.5, -2.25, 300.7, 1e-3], np.float32)
    half, small = np.zeros(4, np.float16), np.zeros(4, np.int16)
    run(cast_kernel, x, half, small, N=4)
    np.testing.assert_array_equal(half, x.astype(np.float16))
    np.testing.assert_array_equal(small, [1, -2, 300, 0])


@pytest.mark.parametrize("type_", [tl.bfloat16, tl.float8e5, tl.float8e4nv])
def test_types_that_numpy_lacks_go_through_memory(type_: Any) -> None:
    x = np.array([0.5, -1.0, 3.0, 96.0], np.float32)
    held, back = Held(np.zeros(4, np.float32), type_), np.zeros(4, np.float32)

    run(cast_kernel, x, held, back, N=4)
    np.testing.assert_array_equal(held.values, x)
    run(cast_kernel, held, back, np.zeros(4, np.int32), N=4)
    np.testing.assert_array_equal(back, x)


def column_mask_kernel(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    block = x + i[:, None] * N + i[None, :]
    v = tl.load(block, mask=(i < n)[:, None], other=0)
    tl.store(out + i[:, None] * N + i[None, :], v, mask=(i < n)[None, :])


def test_masks_broadcast_to_the_pointers() -> None:
    x, out = np.arange(16, dtype=np.int32).reshape(4, 4) + 1, np.zeros((4, 4), np.int32)
    run(column_mask_kernel, x, out, 2, N=4)
    wanted = x.copy()
    wanted[2:] = 0
    wanted[:, 2:] = 0
    np.testing.assert_array_equal(out, wanted)


def hints_kernel(x, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, cache_modifier=".cg", eviction_policy="evict_last", volatile=True)
    w = tl.load(x + i, cache_modifier="ca")
    tl.store(x + i, v + w, cache_modifier=".wt")


def test_hints_are_kept_in_the_ir() -> None:
    module = build(hints_kernel, np.zeros(8, np.float32), N=8)
    loads = [op for op in module.walk() if isinstance(op, LoadOp)]
    (store,) = [op for op in module.walk() if isinstance(op, StoreOp)]
    assert loads[0].attr_values() == {"cachePolicy": CachePolicy("cg", "evict_last"), "isVolatile": True}
    assert loads[1].attr_values() == {"cachePolicy": CachePolicy("ca", "evict_normal"), "isVolatile": False}
    assert store.attr_values() == {"cachePolicy": CachePolicy("wt", "evict_normal")}


def method_kernel(x):
    (x + 1).store(x.load() + 1)


def test_method_forms() -> None:
    x = np.array([4, 0], np.int32)
    run(method_kernel, x)
    assert x.tolist() == [4, 5]


def no_mask(x):
    tl.load(x + tl.arange(0, 4), other=0)


def int_mask(x):
    tl.store(x + tl.arange(0, 4), 1, mask=tl.arange(0, 4))


def int_load_mask(x):
    tl.store(x, tl.sum(tl.load(x + tl.arange(0, 4), mask=tl.arange(0, 4))))


def block_mask(x):
    tl.store(x, 1, mask=tl.arange(0, 4) < 2)


def block_value(x):
    tl.store(x, tl.arange(0, 4))


def not_a_pointer(x):
    tl.load(tl.arange(0, 4))


def number(x):
    tl.load(3)


def too_wide(x):
    tl.store(x + tl.arange(0, 4)[:, None], tl.zeros((4, 4), tl.float32))


def bad_modifier(x):
    tl.load(x, cache_modifier=".xx")


def bad_eviction(x):
    tl.store(x, 1, eviction_policy="later")


def boundary_of_a_tile(x):
    tl.load(x + tl.arange(0, 4), boundary_check=(0,))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (no_mask, "`other` cannot be provided without `mask`"),
        (int_mask, "Mask must have boolean scalar type"),
        (int_load_mask, "Mask must have boolean scalar type"),
        (block_mask, "Mask argument cannot be block type if pointer argument is not a block"),
        (block_value, "Value argument cannot be block type if pointer argument is not a block"),
        (not_a_pointer, "Unsupported ptr type int32[4] in `tl.load`"),
        (number, "Unsupported ptr type 3 in `tl.load`"),
        (too_wide, "Expected pointer argument to have shape [4, 4] but got [4, 1]"),
        (bad_modifier, "Unsupported cache modifier '.xx'"),
        (bad_eviction, "Unsupported eviction policy 'later'"),
        (boundary_of_a_tile, "`boundary_check` argument is not supported for a tensor of pointers"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, np.zeros(8, np.float32))
    assert message in str(error.value)
    assert kernel is not no_mask or "mask=offsets < n" in str(error.value)
