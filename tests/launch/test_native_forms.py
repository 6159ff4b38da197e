"""Every form of a launch is taken by machine code once it was seen: tuples, descriptors, hooks, foreign arrays."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.launch.warming import warm
from tilewright.backends.cpu.device.arena import spare
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    out: Any
    factor: int


def through_tuple(pair, inner, SIZES: tl.constexpr):
    where = tl.arange(0, 4)
    tl.store(pair[0] + where, pair[1] * inner[1][0] + SIZES[0] * 100)


def named(pair):
    tl.store(pair.out + tl.arange(0, 4), pair.factor)


def through_descriptor(desc, value):
    desc.store([0, 4], tl.full((4, 4), value, tl.float32))


def fill(out_ptr, value, BLOCK: tl.constexpr = 4):
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)


def half(out_ptr, scale: tl.float16, flag):
    tl.store(out_ptr, scale + flag)


def checked(out_ptr, n):
    tl.device_assert(n < 10, "too large")
    tl.store(out_ptr, n)


@pytest.fixture
def out():
    return torch.zeros(64)


def test_tuples_and_tuple_constants(out):
    kernel = warm(tilewright.jit(through_tuple), (out, 5), (1, (7,)), SIZES=(2, "a"))
    kernel[(1,)]((out, 3), (1, (9,)), SIZES=(2, "a"))
    assert out[:4].tolist() == [227.0] * 4
    for pair, inner, sizes in [
        ((out, 3, 4), (1, (9,)), (2, "a")),
        ((out[1:], 3), (1, (9,)), (2, "a")),
        ((out, 1), (1, (9,)), (2, "a")),
        ((out, 3), (1, (16,)), (2, "a")),
        ((out, 3), (1, (9,)), (3, "a")),
        ((out, 3), (1, (9,)), (2, "b")),
    ]:
        with pytest.raises(AssertionError, match="through Python"):
            kernel[(1,)](pair, inner, SIZES=sizes)


def test_named_tuples(out):
    kernel = warm(tilewright.jit(named), Pair(out, 5))
    kernel[(1,)](Pair(out, 6))
    assert out[:4].tolist() == [6.0] * 4
    with pytest.raises(AssertionError, match="through Python"):
        kernel[(1,)]((out, 6))


def test_descriptors():
    base = torch.zeros(8, 8)
    kernel = warm(tilewright.jit(through_descriptor), TensorDescriptor.from_tensor(base, [4, 4]), 2.0)
    other = torch.zeros(12, 24)
    kernel[(1,)](TensorDescriptor.from_tensor(other[:, :8], [4, 4]), 3.0)
    assert other[:4, 4:8].eq(3).all() and other.sum() == 48 and base[:4, 4:8].eq(2).all()
    for desc in (
        TensorDescriptor.from_tensor(base, [4, 8]),
        TensorDescriptor.from_tensor(base, [4, 4], "nan"),
        TensorDescriptor(base, (8, 8), (8, 1), (4, 4)),
        TensorDescriptor.from_tensor(torch.zeros(16, 16), [4, 4]),
        TensorDescriptor.from_tensor(base.double(), [4, 4]),
    ):
        with pytest.raises(AssertionError, match="through Python"):
            kernel[(1,)](desc, 3.0)


def test_launch_hooks_hear_of_each_launch(out):
    told: list[Any] = []
    kernel = tilewright.jit(launch_metadata=lambda grid, metadata, args: {"grid": grid, "n": args["value"]})(fill)
    runtime = tilewright.knobs.runtime

    def enter(facts):
        told.append({**facts.get()})

    runtime.launch_enter_hook.add(enter)
    runtime.launch_exit_hook.calls.append(lambda facts: told.append("left"))
    try:
        warm(kernel, out, 5)
        told.clear()
        kernel[lambda meta: (meta["BLOCK"] // 2,)](out, 6)
        kernel[(0,)](out, 7)
    finally:
        runtime.launch_enter_hook.remove(enter)
        runtime.launch_exit_hook.calls.clear()
    assert out[:9].tolist() == [6.0] * 8 + [0]
    assert [row if row == "left" else (row["name"], row["grid"], row["n"]) for row in told] == [
        ("fill", (2,), 6), "left", ("fill", (0,), 7), "left",
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="through Python"):  # what was learned with hooks is forgotten
        kernel[(1,)](out, 6)


def test_hooks_ahead_of_a_launch_run_once_also_for_kept_launches(out):
    kernel = tilewright.jit(fill)
    early = kernel[(1,)]
    warm(kernel, out, 5)
    early(out, 9)
    assert out[0] == 9
    seen: list[Any] = []
    kept = kernel[(1,)]
    kernel.pre_run_hooks.append(lambda *args, **kwargs: seen.append((len(args), kwargs)))
    del kernel._binder._in_python  # back to the class's own way
    kernel._binder._in_python = kernel._binder.launch_slow
    for launch in (early, kept, kernel[(1,)], early, kept):
        launch(out, 3, BLOCK=4)
    assert seen == [(2, {"BLOCK": 4})] * 5
    warm(kernel, out, 3, BLOCK=4)
    kernel[(1,)](out, 4, BLOCK=4)
    assert len(seen) == 9 and out[0] == 4

    def refuse(*args, **kwargs):
        raise ValueError("not now")

    kernel.pre_run_hooks[:] = [refuse]
    with pytest.raises(ValueError, match="not now"):
        kept(out, 3, BLOCK=4)
    assert out[0] == 4


class Mine(torch.Tensor):
    pass


class Pointer:
    """Only `data_ptr` and `dtype`."""

    def __init__(self, tensor):
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self):
        return self.tensor.data_ptr()


class Exchanged:
    """Only DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Interfaced:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize(
    "make",
    [
        lambda array: array,
        lambda array: torch.from_numpy(array).as_subclass(Mine),
        lambda array: torch.nn.Parameter(torch.from_numpy(array), requires_grad=False),
        lambda array: Pointer(torch.from_numpy(array)),
        lambda array: Exchanged(torch.from_numpy(array)),
        Interfaced,
    ],
    ids=["numpy", "subclass", "parameter", "pointer", "dlpack", "interface"],
)
def test_arrays_of_any_library(make, untraced):
    first, second = np.zeros(64, np.float32), np.zeros(64, np.float32)
    kernel = warm(tilewright.jit(fill), make(first), 5)
    kernel[(1,)](make(second), 6)
    assert second[:5].tolist() == [6, 6, 6, 6, 0] and first[0] == 5
    for other in (second[1:], second.astype(np.float64), np.zeros(64, np.float32)[:0]):
        if other.size:
            with pytest.raises(AssertionError, match="through Python"):
                kernel[(1,)](make(other), 6)


def through_optional(out_ptr, bias_ptr, n, BIAS: tl.constexpr, BLOCK: tl.constexpr = 4):
    where = tl.arange(0, BLOCK)
    value = tl.load(bias_ptr + where, where < n) if BIAS else tl.full((BLOCK,), n, tl.float32)
    tl.store(out_ptr + where, value, where < n)


def test_tensors_of_no_elements_stand_for_what_is_not_there(out, untraced):
    kernel = warm(tilewright.jit(through_optional), out, torch.empty(0), 3, False)
    kernel[(1,)](out, torch.empty(0, 5), 2, False)
    kernel[(1,)](out, out[9:9], 2, False)
    assert out[:4].tolist() == [2, 2, 3, 0]
    for other in (torch.empty(0, dtype=torch.float64), torch.ones(4), None, torch.empty(0).as_subclass(Mine)):
        with pytest.raises(AssertionError, match="through Python"):
            kernel[(1,)](out, other, 3, False)


def test_a_tensor_of_no_elements_is_stored_to(out, untraced):
    nothing = torch.empty(0)
    kernel = warm(tilewright.jit(through_optional), nothing, nothing, 0, True)
    kernel[(1,)](torch.empty(0), torch.empty(0), 0, True)
    with pytest.raises(AssertionError, match="through Python"):
        kernel[(1,)](out, nothing, 0, True)


def test_tensors_of_no_elements_without_machine_code(out):
    kernel = tilewright.jit(through_optional)
    for _ in range(3):
        kernel[(1,)](out, torch.empty(0), 3, False)
    variant = next(iter(kernel._binder._variants.values()))
    assert variant.knows((out, torch.empty(0), 3, False, 4), {})
    assert not variant.knows((out, torch.empty(1), 3, False, 4), {})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.int64(5), np.int64(6)),
        (np.uint8(5), np.uint8(6)),
        (np.float32(5), np.float32(6)),
        (np.bool_(0), np.bool_(1)),
    ],
    ids=["int64", "uint8", "float32", "bool"],
)
def test_scalars_of_numpy_are_numbers(out, first, second):
    kernel = warm(tilewright.jit(fill), out, first)
    kernel[(1,)](out, second)
    assert out[:5].tolist() == [float(second)] * 4 + [0]
    for other in (second.item(), np.int16(6), np.complex64(1)):
        with pytest.raises(AssertionError, match="through Python"):
            kernel[(1,)](out, other)


def test_an_integer_of_numpy_is_specialised_as_a_number(out):
    kernel = warm(tilewright.jit(fill), out, np.int64(5))
    for other in (np.int64(1), np.int64(16), np.int64(1 << 40)):
        with pytest.raises(AssertionError, match="through Python"):
            kernel[(1,)](out, other)


def constant(out_ptr, SIZE: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, 4), SIZE[1] if isinstance(SIZE, tuple) else SIZE)


@pytest.mark.parametrize(
    ("first", "equal", "other"),
    [
        (np.int64(5), np.int64(5), np.int64(6)),
        (np.float64(0.5), np.float64(0.5), np.float64(-0.5)),
        (tl.constexpr(5), tl.constexpr(5), tl.constexpr(6)),
        (Pair(4, 5), Pair(4, 5), Pair(4, 6)),
        (torch.Size([4, 5]), torch.Size([4, 5]), torch.Size([4, 6])),
    ],
    ids=["integer", "float", "constexpr", "named tuple", "size"],
)
def test_constants_in_other_objects_are_known_by_value(out, first, equal, other):
    kernel = warm(tilewright.jit(constant), out, first)
    kernel[(1,)](out, equal)
    with pytest.raises(AssertionError, match="through Python"):
        kernel[(1,)](out, other)
    with pytest.raises(AssertionError, match="through Python"):
        kernel[(1,)](out, (4, 5) if isinstance(first, tuple) else 5)


def test_read_only_arrays_are_refused_as_before():
    array = np.zeros(8, np.float32)
    kernel = tilewright.jit(fill)
    for _ in range(3):
        kernel[(1,)](array, 5)
    array.flags.writeable = False
    with pytest.raises(tilewright.errors.ReadOnlyError, match="out_ptr"):
        kernel[(1,)](array, 6)
    assert array[0] == 5


def test_grids_of_every_form(out):
    kernel = warm(tilewright.jit(fill), out, 5, BLOCK=4)
    calls = []

    def grid(meta):
        calls.append((meta["BLOCK"], meta["value"], meta["out_ptr"] is out, list(meta)))
        return [2]

    kernel[grid](out, 6, BLOCK=4)
    assert calls == [(4, 6, True, ["out_ptr", "value", "BLOCK"])] and out[:9].tolist() == [6.0] * 8 + [0]
    kernel[3](out, 7, BLOCK=4)
    assert out[:13].tolist() == [7.0] * 12 + [0]
    kernel[[1, np.int64(1)]](out, 8, BLOCK=4)
    assert out[:5].tolist() == [8.0] * 4 + [7.0]
    assert kernel[lambda meta: (0, 1)](out, 9, BLOCK=4) is not None and out[0] == 8
    for bad in ((-1,), (1.5,), (1, 2, 3, 4), None, lambda meta: None, lambda meta: ("a",)):
        with pytest.raises(tilewright.errors.GridError):
            kernel[bad](out, 9, BLOCK=4)
    with pytest.raises(ZeroDivisionError):
        kernel[lambda meta: (1 // 0,)](out, 9, BLOCK=4)
    assert out[0] == 8


def test_half_scalars_booleans_and_assertions(out):
    kernel = warm(tilewright.jit(half), out, 1.5, True)
    kernel[(1,)](out, 0.1, False)
    assert out[0] == np.float32(np.float16(0.1))
    kernel = warm(tilewright.jit(debug=True)(checked), out, 5)
    kernel[(1,)](out, 6)
    assert out[0] == 6
    with pytest.raises(tilewright.errors.DeviceAssertionError, match="too large"):
        kernel[(1,)](out, 11)


def gram(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :] + tl.program_id(0) * N * N
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.dot(x, tl.trans(x)))


def test_scratch_is_taken_by_machine_code(untraced):
    def arrays(grid):
        x = torch.randn(grid, 16, 16)
        return x, torch.empty_like(x)

    kernel = tilewright.jit(gram)
    for grid in (1, 40):
        kernel[(grid,)](*arrays(grid), 16)
    kernel = warm(kernel, *arrays(1), 16)
    assert kernel[(1,)](*arrays(1), 16).metadata["scratch_bytes"]

    def launches():
        for grid in (1, 40) * 20:
            x, out = arrays(grid)
            kernel[(grid,)](x, out, 16)
            wrong.extend([grid] * (not torch.allclose(out, x @ x.mT, atol=1e-4)))

    wrong = []
    threads = [threading.Thread(target=launches) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not spare.words[2]
    spare.words[2] = 1  # another launch has it
    launches()
    spare.words[2] = 0
    assert not wrong


def test_equal_constants_need_not_be_one_object(out):
    kernel = warm(tilewright.jit(fill), out, 5, BLOCK=int("1024") // 64)
    kernel[(1,)](out, 6, BLOCK=int("2048") // 128)
    assert out[:16].eq(6).all()


def test_autotuned_launches_that_are_known(out, untraced):
    seen: list[Any] = []
    configs = [tilewright.Config({"BLOCK": 4}), tilewright.Config({"BLOCK": 8})]
    tuned = tilewright.autotune(configs, key=["value"], do_bench=lambda call, quantiles: [1.0, 1.0, 1.0])(
        tilewright.jit(fill)
    )
    for _ in range(3):
        tuned[lambda meta: (8 // meta["BLOCK"],)](out, 5)
    choose, tuned._choose = tuned._choose, lambda *args: seen.append("asked") or choose(*args)
    tuned.best_config = None
    tuned[lambda meta: (8 // meta["BLOCK"],)](out, 5)
    assert not seen and out[:9].tolist() == [5.0] * 8 + [0] and tuned.best_config is configs[0]
    tuned[(1,)](out, 7)
    assert seen == ["asked"] and out[0] == 7
    tuned.cache.clear()
    tuned[(1,)](out, 5)
    assert len(seen) == 2
    tuned.fn.add_pre_run_hook(lambda *args, **kwargs: seen.append("hook"))
    tuned[(1,)](out, 5)
    assert seen[2:] == ["asked", "hook"]


@pytest.mark.parametrize("form", ["tuple", "descriptor", "hooks", "numpy", "grid", "dlpack"])
def test_nothing_is_left_behind(out, form):
    array = np.zeros(64, np.float32)
    forms: dict[str, Any] = {
        "tuple": (through_tuple, ((out, 70_001), (1, (7,)), (2, "a")), (1,)),
        "descriptor": (through_descriptor, (TensorDescriptor.from_tensor(torch.zeros(8, 8), [4, 4]), 2.0), (1,)),
        "numpy": (fill, (array, 70_001), (1,)),
        "dlpack": (fill, (Exchanged(out), 70_001), (1,)),
        "hooks": (fill, (out, 70_001), (1,)),
        "grid": (fill, (out, 70_001), lambda meta: [1]),
    }
    fn, args, grid = forms[form]
    runtime = tilewright.knobs.runtime

    def enter(facts):
        return None

    if form == "hooks":
        runtime.launch_enter_hook.add(enter)
    try:
        kernel = warm(tilewright.jit(fn), *args, grid=grid)
        watched = [kernel[grid](*args), out, array, grid, *args, kernel.ready]
        gc.collect()
        before, blocks = [sys.getrefcount(thing) for thing in watched], sys.getallocatedblocks()
        for _ in range(3_000):
            kernel[grid](*args)
        gc.collect()
        assert [sys.getrefcount(thing) for thing in watched] == before
        assert sys.getallocatedblocks() - blocks < 500
    finally:
        runtime.launch_enter_hook.remove(enter)
