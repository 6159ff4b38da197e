"""Binding calls: what reaches the kernel, how often code is resolved, and how mistakes are explained."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import (
    ArgumentError,
    DeviceError,
    GridError,
    ReadOnlyError,
    UnknownOptionError,
)
from tilewright.compile.grid import grid3
from tilewright.compile.specialize import parse_params, register_constant
from tilewright.launch.bind import Binder, Call, Prepared

torch = pytest.importorskip("torch")


class Recorder:
    """A kernel that is never compiled: it writes down what was resolved and launched."""

    def __init__(self, fn: Any, *, stored: frozenset[int] = frozenset(), before: Any = None, **lists: Any) -> None:
        self.calls: list[Call] = []
        self.launched: list[tuple[Any, ...]] = []
        self.stored = stored
        params = parse_params(inspect.signature(fn), **lists)
        self.binder = Binder(fn.__name__, params, self.resolve, before_launch=before)

    def resolve(self, call: Call) -> Prepared:
        self.calls.append(call)
        count = len(call.specialization.runtime_types)

        def launch(x: int, y: int, z: int, *values: Any) -> None:
            assert len(values) == count
            self.launched.append((x, y, z, *values))

        return Prepared(f"kernel {call.specialization.text()}", launch, self.stored)

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.binder.launch(grid, *args, **kwargs)


def add(x, y, n, BLOCK: tl.constexpr = 64): ...  # noqa: F821


@pytest.fixture
def kernel() -> Recorder:
    return Recorder(add)


X, Y = torch.zeros(64), torch.zeros(64)


# --- what reaches the kernel ------------------------------------------------------------------------------


def test_values_in_order(kernel: Recorder) -> None:
    for _ in range(3):
        kernel[(4,)](X, Y, 100, BLOCK=32)
        kernel[(4, 5)](x=X, y=Y, n=100, BLOCK=32)
        kernel[(4, 5, 6)](X, n=100, BLOCK=32, y=Y)
    assert kernel.launched == [(4, *yz, X.data_ptr(), Y.data_ptr(), 100) for yz in ((1, 1), (5, 1), (5, 6))] * 3
    assert len(kernel.calls) == 1


def test_constants_have_no_slot(kernel: Recorder) -> None:
    for _ in range(2):
        kernel[(1,)](X, None, 1)
        kernel[(1,)](X, None, 16)
        kernel[(1,)](X, True, 2.5)
    assert kernel.launched == [(1, 1, 1, X.data_ptr(), *rest) for rest in ((), (16,), (True, 2.5))] * 2
    assert len(kernel.calls) == 3


def test_the_launch_returns_the_kernel(kernel: Recorder) -> None:
    first = kernel[(1,)](X, Y, 100)
    assert first == kernel[(1,)](X, Y, 100) == kernel[(0,)](X, Y, 100)
    assert first != kernel[(1,)](X, Y, 16)


def test_numpy_torch_and_other_arrays_share_code(kernel: Recorder) -> None:
    array = np.zeros(64 + 4, np.float32)
    array = array[(-array.ctypes.data % 16) // 4 :]

    class Foreign:
        __array_interface__ = array.__array_interface__

    for _ in range(2):
        for value in (X, array, Foreign(), torch.nn.Parameter(X)):
            kernel[(1,)](value, Y, 100)
    assert len({call.specialization for call in kernel.calls}) == 1
    assert [row[3] for row in kernel.launched[:4]] == [X.data_ptr(), array.ctypes.data, array.ctypes.data, X.data_ptr()]
    assert kernel.launched[4:] == kernel.launched[:4]


def test_tuple_arguments_are_flattened(kernel: Recorder) -> None:
    for _ in range(2):
        kernel[(1,)]((X, (2, None)), Y, 3.0)
    assert kernel.launched == [(1, 1, 1, X.data_ptr(), 2, Y.data_ptr(), 3.0)] * 2


def test_star_and_keyword_only_parameters() -> None:
    def gather(out, *inputs, n, scale=2.0): ...

    kernel = Recorder(gather)
    kernel[(1,)](X, Y, 5, n=7)
    assert kernel.launched == [(1, 1, 1, X.data_ptr(), Y.data_ptr(), 5, 7, 2.0)]
    with pytest.raises(ArgumentError, match="`n`"):
        kernel[(1,)](X, Y, 7)


def test_parameters_called_like_builtins() -> None:
    def kernel_of_names(len, int, tuple, callable=3, Exception=None): ...

    kernel = Recorder(kernel_of_names)
    for grid in ((2,), [2, 3], lambda meta: (meta["len"],)):
        kernel[grid](5, X, 2.0, num_warps=2)
    assert len(kernel.calls) == 1
    assert kernel.launched == [(*grid, 5, X.data_ptr(), 2.0, 3) for grid in ((2, 1, 1), (2, 3, 1), (5, 1, 1))]


def test_a_kernel_without_parameters() -> None:
    def nothing(): ...

    kernel = Recorder(nothing)
    kernel[2](), kernel[3]()
    assert kernel.launched == [(2, 1, 1), (3, 1, 1)] and len(kernel.calls) == 1


# --- the key ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([100, 7, 33], 1),
        ([100, 16, 32, 1, 7], 3),
        ([5, 2**31, 2**32 + 3, 2**63, 2**63 + 1, -(2**40)], 5),
        ([5, 5.0, True, False, None, 2.5], 4),
    ],
)
def test_integers_resolve_once_per_kind(kernel: Recorder, values: list[Any], kinds: int) -> None:
    for value in values * 3:
        kernel[(1,)](X, Y, value)
    assert len({call.specialization for call in kernel.calls}) == kinds
    assert len(kernel.calls) <= len(values)
    wanted = [() if v is None or (v is not True and v == 1) else (v,) for v in values * 3]
    assert [row[5:] for row in kernel.launched] == wanted


def test_constexprs_that_look_alike(kernel: Recorder) -> None:
    for value in (1, True, 1.0, 0.0, -0.0, "a", None, (1, 2), (1.0, 2)) * 2:
        kernel[(1,)](X, Y, 5, BLOCK=value)
    assert len({call.specialization for call in kernel.calls}) == 9


def test_dtype_alignment_and_device_are_keyed(kernel: Recorder) -> None:
    base = torch.zeros(64)
    for tensor in (base, base[1:], base[4:], base.to(torch.int32), base.half()) * 2:
        kernel[(1,)](tensor, Y, 5)
    assert len(kernel.calls) == 4
    with pytest.raises(DeviceError, match="`x`"):
        kernel[(1,)](torch.zeros(64, device="meta"), Y, 5)


def test_memory_taken_away_after_the_first_call_is_noticed(kernel: Recorder) -> None:
    tensor = torch.zeros(64)
    kernel[(1,)](tensor, Y, 5)
    kernel[(1,)](tensor[:0], Y, 5)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="`x`.*no memory"):
        kernel[(1,)](tensor, Y, 5)


def test_do_not_specialize() -> None:
    kernel = Recorder(add, do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])
    for n in (1, 16, 7):
        for x in (X, X[1:]):
            kernel[(1,)](x, Y, n)
    assert len({call.specialization for call in kernel.calls}) == 1
    assert [row[5] for row in kernel.launched] == [1, 1, 16, 16, 7, 7]


def test_wrapped_constants() -> None:
    class Wrapped:
        def __init__(self, value: Any) -> None:
            self.value = value

    register_constant(Wrapped, lambda wrapped: wrapped.value)
    kernel = Recorder(add)
    for value in (8, Wrapped(8), Wrapped(4), Wrapped(8)):
        kernel[(1,)](X, Y, 5, BLOCK=value)
    assert len({call.specialization for call in kernel.calls}) == 2


def test_forget(kernel: Recorder) -> None:
    kernel[(1,)](X, Y, 5)
    kernel.binder.forget()
    kernel[(1,)](X, Y, 5)
    assert len(kernel.calls) == 2


def test_many_python_threads(kernel: Recorder) -> None:
    array = np.zeros(4, np.float32)

    def body(index: int) -> None:
        for turn in range(300):
            kernel[(1 + index,)]((X, array)[turn % 2], Y, (5, 16, 1)[turn % 3])

    threads = [threading.Thread(target=body, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernel.launched) == 1200


# --- options ----------------------------------------------------------------------------------------------


def test_options_are_separated(kernel: Recorder) -> None:
    for _ in range(2):
        kernel[(1,)](X, Y, 5, num_warps=8, num_threads=2)
        kernel[(1,)](X, Y, 5, num_warps=4)
    assert [call.options for call in kernel.calls] == [{"num_warps": 8}, {"num_warps": 4}]
    assert [call.num_threads for call in kernel.calls] == [2, None]


def test_a_constexpr_called_like_an_option_sets_it() -> None:
    def kernel_with_warps(x, num_warps: tl.constexpr): ...  # noqa: F821

    kernel = Recorder(kernel_with_warps)
    kernel[(1,)](X, num_warps=2)
    assert kernel.calls[0].options == {"num_warps": 2}


def test_unknown_keywords(kernel: Recorder) -> None:
    with pytest.raises(UnknownOptionError, match=r"Keyword argument BLOK was specified but unrecognised") as caught:
        kernel[(1,)](X, Y, 5, BLOK=64)
    assert isinstance(caught.value, KeyError) and isinstance(caught.value, TypeError)
    assert "did you mean BLOCK?" in str(caught.value)


@pytest.mark.parametrize("threads", [-1, 1.5, True, "2"])
def test_bad_num_threads(kernel: Recorder, threads: Any) -> None:
    with pytest.raises(ArgumentError, match="num_threads must be a positive integer"):
        kernel[(1,)](X, Y, 5, num_threads=threads)


# --- mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [False, True])
def test_missing_extra_and_doubled_arguments(kernel: Recorder, warm: bool) -> None:
    if warm:
        kernel[(1,)](X, Y, 5)
    with pytest.raises(ArgumentError, match=r"add: missing arguments `y`, `n`") as caught:
        kernel[(1,)](X)
    assert "add(x, y, n, BLOCK: constexpr = 64)" in str(caught.value) and isinstance(caught.value, TypeError)
    with pytest.raises(ArgumentError, match="1 positional argument too many"):
        kernel[(1,)](X, Y, 5, 64, 7)
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        kernel[(1,)](X, Y, 5, x=X)


def test_values_without_a_type(kernel: Recorder) -> None:
    with pytest.raises(ArgumentError, match="failed to specialize argument of type: str.*`n`"):
        kernel[(1,)](X, Y, "5")
    with pytest.raises(OverflowError):
        kernel[(1,)](X, Y, 2**64)


@pytest.mark.parametrize("warm", [False, True])
def test_read_only_arrays_that_are_stored_to(warm: bool) -> None:
    kernel = Recorder(add, stored=frozenset({1}))
    array = np.zeros(16, np.float32)
    if warm:
        kernel[(1,)](array, array, 5)
    array.flags.writeable = False
    writable = np.zeros(16, np.float32)
    for _ in range(2):
        kernel[(1,)](array, writable, 5)
        with pytest.raises(ReadOnlyError, match="stores to argument `y`"):
            kernel[(1,)](writable, array, 5)


def test_a_kernel_that_raises_is_not_run_twice(kernel: Recorder) -> None:
    runs = []

    def resolve(call: Call) -> Prepared:
        def launch(*_: Any) -> None:
            runs.append(1)
            raise KeyError("from the launch")

        return Prepared("kernel", launch)

    kernel.binder._resolve = resolve
    for count in (1, 2):
        with pytest.raises(KeyError, match="from the launch"):
            kernel[(1,)](X, Y, 5)
        assert len(runs) == count


def test_before_launch_runs_first_and_can_stop_it() -> None:
    order: list[str] = []

    def before() -> None:
        order.append("check")
        if len(order) > 3:
            raise RuntimeError("a global has changed")

    kernel = Recorder(add, before=before)
    for _ in range(3):
        kernel[(1,)](X, Y, 5)
    with pytest.raises(RuntimeError, match="changed"):
        kernel[(1,)](X, Y, 5)
    assert len(kernel.launched) == 3


# --- grids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (7, (7, 1, 1)),
        ((7,), (7, 1, 1)),
        ([2, 3], (2, 3, 1)),
        ((2, 3, 4), (2, 3, 4)),
        (torch.Size([2, 3]), (2, 3, 1)),
        ((np.int64(2), np.int32(3)), (2, 3, 1)),
        ((torch.tensor(5),), (5, 1, 1)),
        ((1, 2**31 - 1), (1, 2**31 - 1, 1)),
        ((0, 5), (0, 5, 1)),
    ],
)
def test_grids(grid: Any, expected: tuple[int, int, int]) -> None:
    assert grid3(grid) == expected


@pytest.mark.parametrize(
    "grid",
    [(), (1, 2, 3, 4), (1.0,), (True,), ("4",), 2.5, None, (-1,), (2**31,), (2**31 - 1,) * 3, ((1, 2),), [None]],
)
def test_bad_grids(kernel: Recorder, grid: Any) -> None:
    for _ in range(2):
        with pytest.raises(GridError, match="grid"):
            kernel[grid](X, Y, 5)
        kernel[(1,)](X, Y, 5)
    assert len(kernel.launched) == 2


def test_callable_grids_see_every_parameter(kernel: Recorder) -> None:
    seen: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        seen.append(meta)
        return (-(-meta["n"] // meta["BLOCK"]),)

    for _ in range(2):
        kernel[grid](X, y=Y, n=100, num_warps=8)
    assert [row[:3] for row in kernel.launched] == [(2, 1, 1)] * 2
    assert all(list(meta) == ["x", "y", "n", "BLOCK"] and meta["x"] is X and meta["BLOCK"] == 64 for meta in seen)


def test_an_empty_grid_launches_nothing(kernel: Recorder) -> None:
    for _ in range(2):
        kernel[(0,)](X, Y, 5)
        kernel[(4, 0, 2)](X, Y, 5)
    assert kernel.launched == [] and len(kernel.calls) == 1


def test_bind_only(kernel: Recorder) -> None:
    call = kernel.binder.bind(X, Y, 16, num_warps=2)
    assert call.specialization.runtime_types == ("*fp32", "*fp32", "i32")
    assert call.by_name()["BLOCK"] == 64 and call.options == {"num_warps": 2}
    assert call.runtime_values() == [X.data_ptr(), Y.data_ptr(), 16]
    with pytest.raises(ArgumentError, match="multiple values"):
        kernel.binder.bind(X, x=Y)
    assert kernel.calls == [] and kernel.launched == []


@pytest.mark.parametrize("name", ["_tw_extra", "_tw_options", "_tw_grid", "_tw_"])
def test_parameters_cannot_have_the_names_of_the_launcher(name, tmp_path):
    scope: dict = {}
    path = tmp_path / "kernel.py"
    path.write_text(f"def kernel(x, {name}):\n    pass\n")
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(ArgumentError, match=f"no parameter can be called `{name}`"):
        tilewright.jit(scope["kernel"])[(1,)](X, 1)
