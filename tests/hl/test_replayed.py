"""Calls that machine code makes: what it may know, and what has to come back to Python."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tilewright import errors, hl
from tilewright.compiler.replays import Replayed

if Replayed(lambda: None).call is None:
    pytest.skip("an interpreter or a torch that machine code does not know", allow_module_level=True)


def in_python(call: Callable[[], Any]) -> list[str]:
    """Names of the functions of Python that a call runs."""
    seen: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [name for name in seen if name != "<lambda>"]


def warm(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Call until machine code knows the call."""
    for _ in range(3):
        result = kernel(*args, **kwargs)
    assert not in_python(lambda: kernel(*args, **kwargs))
    return result


def scaled() -> Any:
    @hl.kernel(config={"block_sizes": [16, 16]})
    def kernel(x, factor: float = 2.0, shift: int = 0):
        out = torch.empty_like(x)
        for m, n in hl.tile(x.size()):
            out[m, n] = x[m, n] * factor + shift
        return out

    return kernel


def test_calls_of_one_form_run_no_python() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    y = torch.randn(20, 30)
    torch.testing.assert_close(kernel(y), y * 2)
    assert not in_python(lambda: kernel(y))


def test_numbers_that_are_passed_on_may_vary() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x, 3.0, 5)
    assert not in_python(lambda: kernel(x, 4.5, 7))
    torch.testing.assert_close(kernel(x, 4.5, 7), x * 4.5 + 7)
    torch.testing.assert_close(kernel(x, 4.5, 1 << 20), x * 4.5 + (1 << 20))
    torch.testing.assert_close(kernel(x, 4, 7), x * 4 + 7)  # another type
    torch.testing.assert_close(kernel(x, True, 7), x + 7)


def test_numbers_that_decide_do_not() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x, count: int):
        out = torch.zeros([count, x.size(0)])
        for row in hl.grid(count):
            for t in hl.tile(x.size(0)):
                out[row, t] = x[t] + row
        return out

    x = torch.randn(33)
    for count in (3, 5, 3, 4, 3, 5):
        expected = x + torch.arange(count)[:, None]
        for _ in range(3):
            torch.testing.assert_close(kernel(x, count), expected)


def test_keywords_and_defaults_are_other_forms() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    warm(kernel, x, factor=3.0)
    warm(kernel, shift=2, x=x)
    torch.testing.assert_close(kernel(x, shift=3), x * 2 + 3)
    torch.testing.assert_close(kernel(factor=5.0, x=x), x * 5)
    torch.testing.assert_close(kernel(shift=7, x=x), x * 2 + 7)
    with pytest.raises(errors.ArgumentError):
        kernel(x, nothing=1)


@pytest.mark.parametrize("static", [True, False])
def test_sizes_strides_and_types_are_told_apart(static: bool) -> None:
    @hl.kernel(static_shapes=static)
    def kernel(x, y):
        out = torch.empty_like(x)
        for m, n in hl.tile(x.size()):
            out[m, n] = x[m, n] * 2 + y[m, n]
        return out

    pool = [torch.randn(20, 30), torch.randn(30, 20).t(), torch.randn(20, 60)[:, ::2], torch.randn(20, 30).double()]
    pool += [torch.randn(5, 7), torch.randn(1, 30).expand(20, 30), torch.zeros(20, 30, dtype=torch.int32), pool[0][1:]]
    for _ in range(4):
        for x in pool:
            for y in pool:
                if x.shape == y.shape:
                    expected, made = x * 2 + y, kernel(x, y)
                    torch.testing.assert_close(made, expected.to(x.dtype))
                    assert made.stride() == torch.empty_like(x).stride()


def added() -> Any:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x, y, out):
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + 2 * y[t]
        return out

    return kernel


def test_arguments_that_share_memory() -> None:
    """Which of them a launch was given is not what it is given the next time."""
    kernel = added()
    for order in ("same first", "apart first"):
        kernel.reset()
        whole = torch.randn(200)
        x, y, apart = whole[:100], torch.randn(100), torch.empty(100)
        calls: list[Callable[[], None]] = [
            lambda: same(x, y, y.clone(), 2),
            lambda: same(x, y, apart),
            lambda: same(x, x, apart),
            lambda: same(whole[:100], y, whole[50:150]),
            lambda: same(whole[:100], y, whole[100:]),
        ]

        def same(x: Any, y: Any, out: Any, which: int = -1) -> None:
            expected = x + 2 * y
            given = (x, out, out) if which == 2 else (x, y, out)
            assert kernel(*given) is out
            if x.untyped_storage().data_ptr() != out.untyped_storage().data_ptr():
                torch.testing.assert_close(out, expected)
            if which == -1:
                assert out is not y

        for _ in range(4):
            for call in calls if order == "same first" else calls[::-1]:
                call()


def test_one_tensor_twice() -> None:
    """What a launch is given by name is known though the same tensor stands there twice."""
    kernel = added()
    x, y, out = torch.randn(100), torch.randn(100), torch.empty(100)

    @hl.kernel(config={"block_sizes": [16]})
    def summed(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + 2 * y[t]
        return out

    for one, other in ((x, x), (x, y), (y, x), (y, y)) * 2:
        torch.testing.assert_close(summed(one, other), one + 2 * other)
    warm(summed, x, x)
    for one, other in ((x, y), (y, x), (y, y)) * 2:
        torch.testing.assert_close(summed(one, other), one + 2 * other)
        torch.testing.assert_close(kernel(one, other, out), one + 2 * other)
    before = x.clone()
    assert kernel(x, y, x) is x
    torch.testing.assert_close(x, before + 2 * y)


def test_results_are_new_each_time() -> None:
    kernel, x = scaled(), torch.randn(20, 30)
    warm(kernel, x)
    first, second = kernel(x), kernel(x)
    assert first.data_ptr() != second.data_ptr()
    assert sys.getrefcount(first) <= 2
    assert type(second) is torch.Tensor
    assert second.is_leaf
    assert not second.requires_grad
    assert second._version == kernel(x)._version


def test_nothing_of_a_call_is_kept() -> None:
    kernel = scaled()
    x = torch.randn(20, 30)
    out = warm(kernel, x)
    gone = weakref.ref(x), weakref.ref(out)
    del x, out
    gc.collect()
    assert [one() for one in gone] == [None, None]
    y = torch.randn(20, 30)
    assert not in_python(lambda: kernel(y))
    torch.testing.assert_close(kernel(y), y * 2)


def test_several_results_zeros_and_loops() -> None:
    @hl.kernel(config={"block_sizes": [8, 8]})
    def kernel(x):
        total, doubled = torch.zeros([1], dtype=torch.float64, device=x.device), x.new_empty(x.size(0))
        for t in hl.tile(x.size(0)):
            doubled[t] = x[t] * 2
        for t in hl.tile(x.size(0)):
            hl.atomic_add(total, [0], doubled[t].sum().to(torch.float64))
        return doubled, total, x

    x = torch.arange(50.0)
    for _ in range(6):
        doubled, total, same = kernel(x)
        assert same is x
        torch.testing.assert_close(doubled, x * 2)
        torch.testing.assert_close(total, torch.tensor([2450.0], dtype=torch.float64))
    warm(kernel, x)


def test_views_of_arguments() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        flat = x.view(-1)
        out = torch.empty_like(flat)
        for t in hl.tile(flat.size(0)):
            out[t] = flat[t] + 1
        return out

    x = torch.randn(4, 25)
    torch.testing.assert_close(warm(kernel, x), x.view(-1) + 1)
    torch.testing.assert_close(kernel(x), x.view(-1) + 1)


def test_views_that_begin_elsewhere_stay_in_python() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        second = x.select(0, 1)
        out = torch.empty_like(second)
        for t in hl.tile(second.size(0)):
            out[t] = second[t] + 1
        return out

    for x in (torch.randn(3, 20), torch.randn(3, 20)):
        for _ in range(4):
            torch.testing.assert_close(kernel(x), x[1] + 1)


def test_what_tensors_hold_is_read_each_time() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x, count):
        out = torch.empty_like(x)
        factor = int(count) + 1
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * factor
        return out

    x = torch.randn(40)
    for count in (1, 2, 3, 1, 5, 6):
        torch.testing.assert_close(kernel(x, torch.tensor(count)), x * (count + 1))


def test_host_code_with_effects_stays_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        print("host")
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t]
        return out

    x = torch.randn(40)
    kernel(x)
    capsys.readouterr()
    for _ in range(5):
        kernel(x)
    assert capsys.readouterr().out == "host\n" * 5


SHIFT = 1.0


def test_globals_and_closures_that_change() -> None:
    global SHIFT
    factor = 2.0

    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * factor + SHIFT
        return out

    x = torch.randn(40)
    try:
        for factor, SHIFT in ((2.0, 1.0), (3.0, 1.0), (3.0, 2.0), (2.0, 1.0), (3.0, 2.0)):
            for _ in range(4):
                torch.testing.assert_close(kernel(x), x * factor + SHIFT)
    finally:
        SHIFT = 1.0


TABLE = torch.randn(40)


def test_tensors_of_the_module() -> None:
    global TABLE

    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + TABLE[t]
        return out

    x = torch.randn(40)
    for _ in range(3):
        for _ in range(4):
            torch.testing.assert_close(kernel(x), x + TABLE)
        TABLE.add_(1)
        torch.testing.assert_close(kernel(x), x + TABLE)
        TABLE = torch.randn(40)
        torch.testing.assert_close(kernel(x), x + TABLE)


def test_threads_of_python() -> None:
    kernel = scaled()
    pool = [torch.randn(rows, columns) for rows, columns in ((20, 30), (5, 9), (33, 2), (64, 64))]
    wrong: list[str] = []

    def work(at: int) -> None:
        try:
            for count in range(300):
                x = pool[(at + count) % len(pool)]
                if not torch.allclose(kernel(x, float(at)), x * at):
                    wrong.append(f"thread {at}")
                if at == 0 and count % 50 == 49:
                    kernel.reset()
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_differs_each_time_is_given_up() -> None:
    kernel = scaled()
    for rows in range(1, 90):
        for _ in range(2):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(kernel(x), x * 2)
    assert torch.equal(kernel(x), x * 2)


def test_methods_and_copies() -> None:
    class Holder:
        def __init__(self) -> None:
            self.factor = 3.0

        @hl.kernel(config={"block_sizes": [16]})
        def kernel(self, x):  # type: ignore[no-untyped-def]
            out = torch.empty_like(x)
            for t in hl.tile(x.size(0)):
                out[t] = x[t] * self.factor
            return out

    holder, x = Holder(), torch.randn(40)
    for factor in (3.0, 4.0, 3.0):
        holder.factor = factor
        for _ in range(4):
            torch.testing.assert_close(holder.kernel(x), x * factor)


def test_a_kernel_of_a_layer_norm() -> None:
    @hl.kernel
    def kernel(x, weight, bias, eps: float):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = F.layer_norm(x[rows, :], [x.size(1)], weight[:], bias[:], eps)
        return out

    x, weight, bias = torch.randn(20, 64), torch.randn(64), torch.randn(64)
    warm(kernel, x, weight, bias, 1e-5)
    for eps in (1e-5, 1e-2):
        expected = F.layer_norm(x, [64], weight, bias, eps)
        torch.testing.assert_close(kernel(x, weight, bias, eps), expected)


def test_results_that_are_views() -> None:
    @hl.kernel(config={"block_sizes": [16]})
    def kernel(x):
        flat = x.view(-1)
        out = torch.empty([2, flat.size(0)], dtype=x.dtype, device=x.device)
        for t in hl.tile(flat.size(0)):
            out[0, t] = flat[t] + 1
            out[1, t] = flat[t] * 2
        return out.view(2, x.size(0), x.size(1)), out.select(0, 1)

    x = torch.randn(4, 25)
    warm(kernel, x)
    for _ in range(3):
        both, last = kernel(x)
        torch.testing.assert_close(both, torch.stack([x + 1, x * 2]))
        torch.testing.assert_close(last, (x * 2).view(-1))
        assert both.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
