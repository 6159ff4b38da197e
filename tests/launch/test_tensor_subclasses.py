"""Subclasses of torch's tensors: those that only add names are launched by machine code, others are asked."""

from __future__ import annotations

import sys

import pytest

import tilewright
import tilewright.language as tl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("untraced")


@tilewright.jit
def double(p, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(p + i, tl.load(p + i, i < n) * 2, i < n)


class Named(torch.Tensor):
    """A tensor with a method more."""

    def first(self):
        return self[0].item()


class Quiet(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Weight(torch.nn.Parameter):
    pass


class Observed(torch.Tensor):
    asked: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Elsewhere(torch.Tensor):
    held: torch.Tensor

    def data_ptr(self):
        return self.held.data_ptr()


def python_calls(call) -> int:
    """How many functions of Python a call enters."""
    entered = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len([name for name in entered if name != "<lambda>"])


def made(cls):
    """Ones of a subclass."""
    if cls is Weight:
        return Weight(torch.ones(8), requires_grad=False)
    return torch.ones(8).as_subclass(cls)


@pytest.mark.parametrize("cls", [torch.Tensor, Named, Quiet, Weight])
def test_a_subclass_that_adds_names_enters_no_python(cls):
    x = made(cls)
    for _ in range(3):
        double[(1,)](x, 8, B=8)
    assert python_calls(lambda: double[(1,)](x, 8, B=8)) == 0
    other = made(cls)
    double[(1,)](other, 4, B=8)
    assert x.tolist() == [16.0] * 8 and other.tolist() == [2.0] * 4 + [1.0] * 4


def test_a_subclass_that_listens_is_told():
    x = made(Observed)
    for _ in range(4):
        Observed.asked.clear()
        double[(1,)](x, 8, B=8)
        assert "data_ptr" in Observed.asked
    assert torch.equal(x.as_subclass(torch.Tensor), torch.full((8,), 16.0))


def test_a_subclass_with_its_own_address_is_asked_for_it():
    x = made(Elsewhere)
    x.held = torch.ones(8)
    for _ in range(4):
        double[(1,)](x, 8, B=8)
    assert x.held.tolist() == [16.0] * 8 and x.as_subclass(torch.Tensor).tolist() == [1.0] * 8
