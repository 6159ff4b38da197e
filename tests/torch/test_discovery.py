"""Which kernels a function may launch: every way in which Python code gets hold of one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilewright.torch as tt
from tests.torch import kernels
from tests.torch.kernels import add, add2, doubled, increase, square, tripled


def direct(x):
    add[(1,)](x)
    tt.wrap_triton(doubled)[(1,)](x)


def assigned(x):
    kernel: Any = add
    if (other := increase) is not None:
        other[(1,)](x)
    kernel[(1,)](x)


def helper(x):
    return increase[(1,)](x)


def through_helper(x):
    return helper(x)


def through_module(x):
    kernels.add[(1,)](x)
    kernels.plain(x, x)


def decorate(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args)

    return wrapper


def decorate_barely(fn):
    return lambda *args: fn(*args)


@decorate
def decorated(x):
    add[(1,)](x)


@decorate_barely
def decorated_barely(x):
    add[(1,)](x)


def factory():
    return add


def from_factory(x):
    factory()[(1,)](x)


def inner_function(x):
    def run():
        return (lambda: add)()[(1,)](x)

    run()


def imports(x):
    from tests.torch.kernels import tripled as other

    other[(1,)](x)


def by_operator(x):
    torch.ops.twtest.add2(x, x)


def by_object(x):
    add2(x, x)


def ping(x):
    add[(1,)](x)
    pong(x)


def pong(x):
    increase[(1,)](x)
    ping(x)


KERNELS = {"a": add, "b": [doubled, tripled]}


def from_table(x):
    KERNELS["a"][(1,)](x)


class Layer:
    kernel = add

    def __init__(self) -> None:
        self.other = increase

    def step(self, x):
        self.kernel[(1,)](x)
        self.again(x)

    def again(self, x):
        self.other[(1,)](x)

    @staticmethod
    def static(x):
        doubled[(1,)](x)


class Wrapper:
    def __init__(self, fn):
        self.fn = fn


wrapped = Wrapper(add)


def by_wrapper(x):
    wrapped.fn[(1,)](x)


def level5(x):
    add[(1,)](x)


def level4(x):
    level5(x)


def level3(x):
    level4(x)


def level2(x):
    level3(x)


def level1(x):
    level2(x)


def level0(x):
    level1(x)


def too_deep(x):
    level0(x)


def closed_over(kernel):
    return lambda x: kernel[(1,)](x)


def aliased(x):
    from tilewright.torch import wrap_triton as launchable

    launchable(add)[(1,)](x)


def annotated(x):
    kernel: Any
    kernel, _ = add, 3
    for one in (kernel, increase):
        one[(1,)](x)


class Callable_:
    def __init__(self, layer):
        self.layer = layer

    @classmethod
    def made(cls, x):
        return cls.launch(x)

    @staticmethod
    def launch(x):
        doubled[(1,)](x)

    @property
    def kernel(self):
        return tripled

    def __call__(self, x):
        self.layer.step(x)
        self.kernel[(1,)](x)


def none(x):
    return torch.sin(x) + square.number


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (direct, [add, doubled]),
        (assigned, [add, increase]),
        (through_helper, [increase]),
        (through_module, [add]),
        (decorated, [add]),
        (decorated_barely, [add]),
        (from_factory, [add]),
        (inner_function, [add]),
        (imports, [tripled]),
        (by_operator, [add]),
        (by_object, [add]),
        (ping, [add, increase]),
        (from_table, [add, doubled, tripled]),
        (Layer().step, [add, increase]),
        (Layer.static, [doubled]),
        (functools.partial(through_helper, 1), [increase]),
        (functools.partial(Layer().step), [add, increase]),
        (by_wrapper, [add]),
        (level0, [add]),
        (too_deep, []),
        (closed_over(doubled), [doubled]),
        (aliased, [add]),
        (annotated, [add, increase]),
        (Callable_.made, [doubled]),
        (Callable_(Layer()), [add, increase, tripled]),
        (none, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_found(fn: Callable[..., Any], expected: list[Any]) -> None:
    found = tt.get_inner_triton_kernels(fn)
    assert sorted(map(id, found)) == sorted(map(id, expected))


def test_of_an_operator() -> None:
    assert tt.get_triton_kernels_for_op("twtest::add2") == [add]
    assert tt.get_triton_kernels_for_op(f"twtest::{add2.twin()}") == [add]
    assert tt.get_triton_kernels_for_op("aten::add") == []
