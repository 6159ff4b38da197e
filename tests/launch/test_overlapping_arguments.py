"""Arguments that overlap and begin elsewhere: compiled kernels do to shared memory what the interpreter does."""

from __future__ import annotations

import functools
import itertools
import sys

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright import knobs
from tilewright.base.errors import InternalError
from tilewright.launch import inline_cache, meeting, tracer_slot
from tilewright.launch.native import machine
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")

N, EDGE = 512, 8


@tilewright.jit
def moved(x, out, step, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i * step, tl.load(x + i * step, i < n) * 2 + 1, i < n)


@tilewright.jit
def two_stores(x, out, step, n, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i * step)
    tl.store(out + i * step, a + 1)
    tl.store(x + i * step, a * tl.load(out + i * step))


@tilewright.jit
def centred(x, out, step, n, N: tl.constexpr):
    i = tl.arange(0, N)
    mean = tl.sum(tl.load(x + i * step), 0) / N
    tl.store(out + i * step, tl.load(x + i * step) - mean)


@tilewright.jit
def running(x, out, step, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i * step, tl.cumsum(tl.load(x + i * step), 0))


@tilewright.jit
def by_blocks(x, out, step, n, N: tl.constexpr):
    for start in range(0, n, 64):
        i = start + tl.arange(0, 64)
        tl.store(out + i * step, tl.load(x + i * step, i < n) + 1, i < n)


@tilewright.jit
def ahead(x, out, step, n, N: tl.constexpr):
    i = tl.arange(0, 32)
    now = tl.load(x + i * step)
    for start in range(0, n - 32, 32):
        following = tl.load(x + (start + 32 + i) * step)
        tl.store(out + (start + i) * step, now * 3)
        now = following
    tl.store(out + (n - 32 + i) * step, now)


@tilewright.jit
def product(x, out, step, n, N: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    acc = tl.zeros([16, 16], tl.float32)
    for k in range(2):
        a = tl.load(x + (i * 16 + j) * step)
        b = tl.load(x + (256 + j * 16 + i) * step)
        acc = tl.dot(a, b, acc)
        tl.store(out + (i * 16 + j) * step, acc)


@tilewright.jit
def turned(x, out, step, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + (N - 1 - i) * step, tl.load(x + i * step) + tl.load(out + i * step))


KERNELS = [moved, two_stores, centred, running, by_blocks, ahead, product, turned]


def _views():
    """Name: two views of a buffer, and the step of both."""
    for shift in range(-3, 4):
        yield f"shifted {shift}", lambda b, s=shift: (b[EDGE : EDGE + N], b[EDGE + s : EDGE + s + N], 1)
    yield "half", lambda b: (b[:N], b[N // 2 - 3 : N // 2 - 3 + N], 1)
    yield "beside", lambda b: (b[:N], b[N : 2 * N], 1)
    yield "every second", lambda b: (b[: 2 * N : 2], b[1 : 2 * N : 2], 2)
    yield "every second, onto the next", lambda b: (b[: 2 * N : 2], b[2 : 2 * N + 2 : 2], 2)
    yield "whole", lambda b: (b, b[3 : N + 3], 1)


VIEWS = dict(_views())
MAKERS = {"torch": torch.from_numpy, "numpy": lambda array: array}


def _interpreted(kernel, *args, **kwargs):
    tilewright.jit(kernel.fn, interpret=True)[(1,)](*args, **kwargs)


@functools.cache
def _wanted(kernel, name):
    """What a launch on views of a buffer leaves there."""
    buffer = _buffer()
    _interpreted(kernel, *VIEWS[name](buffer), N, N=N)
    return buffer


def _buffer():
    return np.random.default_rng(1).integers(-4, 5, 3 * N).astype(np.float32)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
def test_views_of_one_buffer(kernel, maker):
    for name, view in [*VIEWS.items()] * 3:  # Python's way, the generated one, machine code
        mine = _buffer()
        kernel[(1,)](*view(MAKERS[maker](mine)), N, N=N)
        np.testing.assert_array_equal(mine, _wanted(kernel, name), name)


def test_every_relation_is_right_after_every_other():
    kernel = tilewright.jit(moved.fn)
    for first, second in itertools.product(VIEWS, VIEWS):
        for name in (first, second):
            mine = _buffer()
            kernel[(1,)](*VIEWS[name](torch.from_numpy(mine)), N, N=N)
            np.testing.assert_array_equal(mine, _wanted(moved, name), f"{second} after {first}")


def test_the_same_distance_overlaps_in_a_longer_tensor():
    kernel = tilewright.jit(moved.fn)
    for n in (64, 64, 64, N, 64, N, N):
        mine = np.arange(2 * N, dtype=np.float32)
        buffer = torch.from_numpy(mine)
        kernel[(1,)](buffer[:n], buffer[64 : 64 + n], 1, n, N=N)
        wanted = np.arange(2 * N, dtype=np.float32)
        wanted[64 : 64 + n] = wanted[:n] * 2 + 1
        np.testing.assert_array_equal(mine, wanted)


@tilewright.jit
def columns(x, out, stride, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + i * stride + j, tl.load(x + i * stride + j) + 1)


@tilewright.jit
def cached(new, cache, whole, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(cache + i, tl.load(new + i), i < n)
    tl.store(new + i, tl.load(whole + i), i < 2 * n)


@tilewright.jit
def through_tuple(pair, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(pair[1] + i, tl.load(pair[0] + i) + 1)


@tilewright.jit
def described(box, out, N: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(out + i, box.load([0, 0]) + 1)


@tilewright.jit
def words(x, bits, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(bits + i, tl.load(x + i).to(tl.int32))


class Named(torch.Tensor):
    """A tensor whose class torch tells of what is done with it."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs)


class Foreign:
    """An array by its interface alone."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def _twice(kernel, make, *, kwargs, times=4):
    """Launch on what `make` makes of a buffer, compiled and interpreted; both buffers."""
    for _ in range(times):
        mine, theirs = (np.arange(1, 2 * N + 1, dtype=np.float32) for _ in range(2))
        kernel[(1,)](*make(mine), **kwargs)
        _interpreted(kernel, *make(theirs), **kwargs)
        np.testing.assert_array_equal(mine, theirs)


def test_columns_of_one_matrix():
    for at in (16, 15, 1):
        _twice(columns, lambda b, at=at: (*(torch.from_numpy(b).view(-1, 32)[:, k : k + 16] for k in (0, at)), 32),
               kwargs={"M": 16, "N": 16})  # fmt: skip


def test_a_cache_and_the_whole_of_it():
    def make(buffer):
        cache = torch.from_numpy(buffer)
        return cache[N:], cache[100:], cache, 200

    _twice(cached, make, kwargs={"N": N})


def test_tensors_in_a_tuple():
    _twice(through_tuple, lambda b: ((b[:N], b[3 : N + 3]),), kwargs={"N": N})
    _twice(through_tuple, lambda b: (tuple(torch.from_numpy(b)[k : k + N] for k in (5, 0)),), kwargs={"N": N})


def test_a_descriptor_beside_a_pointer():
    def make(buffer):
        tensor = torch.from_numpy(buffer)
        return TensorDescriptor(tensor[:256].view(16, 16), [16, 16], [16, 1], [16, 16]), tensor[3:300]

    _twice(described, make, kwargs={"N": N})


def test_two_element_types():
    _twice(words, lambda b: (torch.from_numpy(b)[:N], torch.from_numpy(b).view(torch.int32)[2 : N + 2]),
           kwargs={"N": N})  # fmt: skip


@pytest.mark.parametrize("made", [
    lambda b: torch.from_numpy(b).as_subclass(Named), Foreign, lambda b: torch.nn.Parameter(torch.from_numpy(b), False),
])  # fmt: skip
def test_arrays_of_other_classes(made):
    for shift in (3, N - EDGE, 3, -3):
        first, second = (EDGE, EDGE + shift)
        _twice(moved, lambda b, one=first, two=second: (made(b[one : one + N]), made(b[two : two + N]), 1, N),
               kwargs={"N": N})  # fmt: skip


def test_an_array_backwards():
    kernel, buffer = tilewright.jit(moved.fn), np.zeros(3 * N, np.float32)
    for _ in range(3):
        kernel[(1,)](buffer[:N], buffer[N : 2 * N][::-1], 1, 0, N=N)
        kernel[(1,)](buffer[:N], buffer[N - 1 : 2 * N][::-1], 1, 0, N=N)
    assert [key[0].meeting for key in kernel._kernels] == [(), ((1, 0),)]


FORMS = {
    "torch": lambda b: (torch.from_numpy(b)[:N], torch.from_numpy(b)[3 : N + 3]),
    "torch, beside": lambda b: (torch.from_numpy(b)[:N], torch.from_numpy(b)[N : 2 * N]),
    "torch, every second": lambda b: (torch.from_numpy(b)[: 2 * N : 2], torch.from_numpy(b)[1 : 2 * N : 2]),
    "numpy": lambda b: (b[:N], b[3 : N + 3]),
    "numpy, beside": lambda b: (b[N : 2 * N], b[:N]),
    "numpy and torch": lambda b: (b[:N], torch.from_numpy(b)[3 : N + 3]),
    "numpy and torch, beside": lambda b: (b[:N], torch.from_numpy(b)[N : 2 * N]),
    "its own class": lambda b: (torch.from_numpy(b)[:N].as_subclass(Named), torch.from_numpy(b)[3 : N + 3]),
    "its own class, beside": lambda b: (torch.from_numpy(b)[N : 2 * N], torch.from_numpy(b)[:N].as_subclass(Named)),
    "an interface": lambda b: (Foreign(b[:N]), b[3 : N + 3]),
    "an interface, beside": lambda b: (b[N : 2 * N], Foreign(b[:N])),
}


@pytest.mark.usefixtures("untraced")  # which would see subclasses
@pytest.mark.parametrize("form", FORMS)
def test_machine_code_knows_every_form(form):
    kernel, buffer = tilewright.jit(moved.fn), np.zeros(3 * N, np.float32)
    for _ in range(3):
        kernel[(1,)](*FORMS[form](buffer), 1, N, N=N)
    kernel._binder._in_python = None
    kernel[(1,)](*FORMS[form](buffer), 1, N, N=N)


def test_machine_code_knows_tensors_when_a_tracer_came_and_went():
    for watch in (None, tracer_slot.watch):
        with tracer_slot.held_by(None, watch):
            test_machine_code_knows_every_form("torch, every second")
            test_machine_code_knows_every_form("numpy")


@pytest.mark.parametrize("rank", range(1, 9))
def test_tensors_of_any_rank(rank):
    kernel, buffer = tilewright.jit(moved.fn), torch.zeros(4**rank)
    first = buffer.view([4] * rank)[..., :2]
    for other in (buffer[-1:], buffer[-2:], buffer[4**rank - 3 :]) * 2:
        kernel[(1,)](first, other, 1, 0, N=N)
    assert [key[0].meeting for key in kernel._kernels] == [(), ((1, 0),)]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_one_shape():
    nested, out = torch.nested.nested_tensor([torch.ones(3), torch.ones(5)]), torch.zeros(N)
    for _ in range(4):
        moved[(1,)](nested, out, 1, 8, N=N)
        assert out[:9].tolist() == [3.0] * 8 + [0.0]


def test_machine_code_that_does_not_compile_is_an_error(monkeypatch):
    monkeypatch.setattr(machine, "calls_text", lambda triple: "define i64 @tw_call() { ret i32 %nothing }")
    with pytest.raises(InternalError):
        machine._load(None)


@pytest.mark.skipif(sys.platform != "linux", reason="other loaders may give no symbols of the interpreter")
def test_machine_code_is_there():
    assert machine.machine() is not None


def test_a_raw_address_within_a_tensor():
    @tilewright.jit
    def raw(x, out: "*fp32", N: tl.constexpr):  # noqa: F722
        i = tl.arange(0, N)
        tl.store(out + i, tl.load(x + i) + 1)

    _twice(raw, lambda b: (torch.from_numpy(b), b.ctypes.data + 12), kwargs={"N": N})


def test_a_kernel_is_compiled_once_for_each_pattern():
    kernel, buffer, other = tilewright.jit(cached.fn), torch.ones(4 * N), torch.ones(4 * N)
    for _ in range(3):
        for new, cache, whole in [
            (other, buffer[N:], buffer[:N]), (other[3:], buffer[2 * N :], buffer[:N]),  # apart
            (other, buffer[N:], buffer), (other, buffer, buffer[4:]), (other, buffer[:9], buffer[8:]),  # the last two
            (buffer[4:], buffer, other), (buffer[4:], buffer, buffer[8:]), (buffer, buffer, buffer[4:]),
        ]:  # fmt: skip
            kernel[(1,)](new, cache, whole, 1, N=N)
    patterns = {(key[0].same, key[0].meeting) for key in kernel._kernels}
    assert patterns == {
        ((), ()), ((), ((2, 1),)), ((), ((1, 0),)), ((), ((1, 0), (2, 0))), (((1, 0),), ((2, 0),)),
    }  # fmt: skip


def test_who_debugs_is_told(monkeypatch, capsys):
    monkeypatch.setattr(knobs.runtime, "debug", True)
    kernel, x = tilewright.jit(moved.fn), torch.arange(2 * N, dtype=torch.float32)
    for _ in range(3):
        kernel[(1,)](x[:N], x[3:], 1, 5, N=N)
    said = capsys.readouterr().err
    assert said.count("moved stores to one of several arguments that overlap: `out` and `x`") == 1


def test_a_prepared_launch():
    for host_only in (True, False):
        launch = tilewright.jit(moved.fn).prepare(
            {"x": "*fp32", "out": "*fp32", "step": "int", "n": "int"}, {"N": N}, host_only=host_only
        )
        for name, view in [*VIEWS.items()] * 2:
            mine = _buffer()
            launch(1, 1, 1, *view(torch.from_numpy(mine)), N)
            np.testing.assert_array_equal(mine, _wanted(moved, name), name)


@pytest.mark.parametrize("test", [meeting.apart.apart_test, lambda cache: None], ids=["test", "no test"])
def test_launches_in_python(monkeypatch, test):
    monkeypatch.setattr(inline_cache, "use_machine_code", lambda fn, binder: None)
    monkeypatch.setattr(meeting.apart, "apart_test", test)
    kernel = tilewright.jit(moved.fn)
    for name, view in [*VIEWS.items()] * 3:
        for made in MAKERS.values():
            mine = _buffer()
            kernel[(1,)](*view(made(mine)), N, N=N)
            np.testing.assert_array_equal(mine, _wanted(moved, name), name)
