"""What has no gradient says so, with the line and what to write; nothing is silently wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tilewright
import tilewright.language as tl
from tests.gradients import kernels
from tilewright.base.errors import ArgumentError, NotDifferentiableError, UnsupportedError
from tilewright.devices.host_descriptor import TensorDescriptor


@tilewright.jit
def in_place(x_ptr, BLOCK: tl.constexpr):
    places = x_ptr + tl.arange(0, BLOCK)
    tl.store(places, tl.exp(tl.load(places)))


@tilewright.jit
def bits(x_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    number = tl.load(x_ptr + lanes).to(tl.int32, bitcast=True)
    tl.store(out_ptr + lanes, (number + 1).to(tl.float32, bitcast=True))


@tilewright.jit
def _times(a, b):
    return a * b


@tilewright.jit
def product(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.reduce(x, 0, _times))


@tilewright.jit
def until(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    while tl.sum(x) < 100:
        x = x * 2
    tl.store(out_ptr + tl.arange(0, BLOCK), x)


@tilewright.jit
def largest(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.atomic_max(out_ptr + tl.arange(0, BLOCK), x)


@tilewright.jit
def old_value(x_ptr, out_ptr, y_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    old = tl.atomic_add(out_ptr + lanes, tl.load(x_ptr + lanes))
    tl.store(y_ptr + lanes, old)


@tilewright.jit
def one_of_two(x_ptr, y_ptr, out_ptr, flag, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    if flag > 0:
        source = x_ptr
    else:
        source = y_ptr
    tl.store(out_ptr + lanes, tl.load(source + lanes))


@tilewright.jit
def concatenated(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, 2 * BLOCK), tl.cat(x, x, can_reorder=True))


X, OUT = torch.ones(8), torch.zeros(16)
D = {"d_x_ptr": torch.zeros(8), "d_out_ptr": torch.zeros(16), "BLOCK": 8}


def _check(error: pytest.ExceptionInfo[NotDifferentiableError], kernel: Any, line: str) -> None:
    """The error names the file, shows the line with a caret, and has a hint."""
    text = str(error.value)
    assert "test_refusals.py" in text and "^" in text and error.value.hint
    assert line in text, text


@pytest.mark.parametrize(
    ("kernel", "args", "more", "line", "says"),
    [
        (in_place, (X,), {"d_out_ptr": None}, "tl.load(places)", "reads here what it also writes"),
        (bits, (X, OUT), {}, "bitcast=True)", "reads the bits"),
        (product, (X, OUT), {}, "tl.reduce(x, 0, _times)", "a function other than"),
        (until, (X, OUT), {}, "while tl.sum(x) < 100", "`while`"),
        (largest, (X, OUT), {}, "tl.atomic_max", "no gradient flows through"),
        (old_value, (X, OUT, torch.zeros(8)), {"d_y_ptr": torch.zeros(8)}, "tl.atomic_add", "order of programs"),
        (one_of_two, (X, X.clone(), OUT, 3), {}, "tl.load(source + lanes)", "which one argument"),
        (concatenated, (X, OUT), {}, "tl.cat", "order of the elements"),
    ],
    ids=lambda value: value.fn.__name__ if hasattr(value, "fn") else None,
)
def test_refused_with_its_place(kernel: Any, args: Any, more: dict[str, Any], line: str, says: str) -> None:
    given = {key: value for key, value in {**D, **more}.items() if value is not None}
    with pytest.raises(NotDifferentiableError, match=says) as error:
        tilewright.grad(kernel, "x_ptr")[(1,)](*args, **given)
    _check(error, kernel, line)


def test_what_does_not_depend_on_it_may_be_anything() -> None:
    """Bits of an argument that is not differentiated are a number like any other."""

    @tilewright.jit
    def kernel(x_ptr, seed_ptr, out_ptr, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        noise = tl.load(seed_ptr + lanes).to(tl.int32, bitcast=True) & 1
        tl.store(out_ptr + lanes, tl.load(x_ptr + lanes) * noise)

    seed, dx = torch.rand(8), torch.zeros(8)
    tilewright.grad(kernel, "x_ptr")[(1,)](X, seed, torch.empty(8), BLOCK=8, d_out_ptr=torch.ones(8), d_x_ptr=dx)
    assert torch.equal(dx, (seed.view(torch.int32) & 1).float())


class TestLaunch:
    """What a launch must be given."""

    g = tilewright.grad(kernels.add, wrt=["x_ptr"])

    def launch(self, **gradients: Any) -> None:
        x, y, out = torch.ones(64), torch.ones(64), torch.zeros(64)
        self.g[(2,)](x, y, out, 64, BLOCK=32, **gradients)

    def test_a_missing_output(self) -> None:
        with pytest.raises(ArgumentError, match="stores through `out_ptr` is missing"):
            self.launch(d_x_ptr=torch.zeros(64))

    def test_no_gradient_of_an_output_is_said_by_none(self) -> None:
        dx = torch.ones(64)
        self.launch(d_x_ptr=dx, d_out_ptr=None)
        assert torch.equal(dx, torch.ones(64))

    def test_it_adds(self) -> None:
        dx = torch.ones(64)
        self.launch(d_x_ptr=dx, d_out_ptr=torch.full((64,), 2.0))
        assert torch.equal(dx, torch.full((64,), 3.0))

    def test_nowhere_to_go(self) -> None:
        with pytest.raises(ArgumentError, match="has nowhere to go"):
            self.launch(d_out_ptr=torch.zeros(64))

    def test_one_of_no_use(self) -> None:
        with pytest.raises(ArgumentError, match="`d_y_ptr` is of no use"):
            self.launch(d_x_ptr=torch.zeros(64), d_out_ptr=torch.zeros(64), d_y_ptr=torch.zeros(64))

    def test_other_strides(self) -> None:
        with pytest.raises(ArgumentError, match="sizes and strides"):
            self.launch(d_x_ptr=torch.zeros(64), d_out_ptr=torch.zeros(1).expand(64))

    def test_integers(self) -> None:
        with pytest.raises(ArgumentError, match="an array of i32"):
            self.launch(d_x_ptr=torch.zeros(64, dtype=torch.int32), d_out_ptr=torch.zeros(64))

    def test_shared_memory(self) -> None:
        x = torch.ones(64)
        with pytest.raises(ArgumentError, match="share memory"):
            self.g[(2,)](x, torch.ones(64), x, 64, BLOCK=32, d_x_ptr=torch.zeros(64), d_out_ptr=torch.zeros(64))
        with pytest.raises(ArgumentError, match="share memory"):
            self.launch(**dict.fromkeys(["d_x_ptr", "d_out_ptr"], torch.zeros(64)))

    def test_checks(self) -> None:
        with pytest.raises(UnsupportedError, match="runs without checks"):
            self.launch(d_x_ptr=torch.zeros(64), d_out_ptr=torch.zeros(64), sanitize=True)


def test_outputs_in_a_tuple() -> None:
    @tilewright.jit
    def kernel(x_ptr, outs, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, BLOCK))
        tl.store(outs[0] + tl.arange(0, BLOCK), x)
        tl.store(outs[1] + tl.arange(0, BLOCK), x * x)

    with pytest.raises(ArgumentError, match="`outs` holds several arrays"):
        tilewright.grad(kernel, "x_ptr")[(1,)](X, (OUT, OUT.clone()), BLOCK=8, d_x_ptr=torch.zeros(8), d_outs=OUT)


def test_through_descriptors() -> None:
    @tilewright.jit
    def kernel(x, out, BLOCK: tl.constexpr):
        out.store([tl.program_id(0) * BLOCK], tl.exp(x.load([tl.program_id(0) * BLOCK])))

    x, out, dx = torch.rand(16), torch.empty(16), torch.zeros(16)
    described = [TensorDescriptor.from_tensor(array, [8]) for array in (x, out)]
    tilewright.grad(kernel, "x")[(2,)](*described, BLOCK=8, d_x=dx, d_out=torch.ones(16))
    torch.testing.assert_close(dx, x.exp())


def test_arrays_of_numpy() -> None:
    x, y, out = (np.ones(64, np.float32) for _ in range(3))
    dx, dy = np.zeros(64, np.float32), np.zeros(64, np.float32)
    g = tilewright.grad(kernels.add, wrt=["x_ptr", "y_ptr"])
    g[lambda meta: (tilewright.cdiv(64, meta["BLOCK"]),)](
        x, y, out, 64, BLOCK=32, d_out_ptr=x * 3, d_x_ptr=dx, d_y_ptr=dy
    )
    assert (dx == 3).all() and (dy == 3).all()
    assert g.outputs(x, y, out, 64, BLOCK=32) == ("out_ptr",)


@pytest.mark.parametrize(
    ("kernel", "wrt", "says"),
    [
        (kernels.add, ["z_ptr"], "no parameter `z_ptr`"),
        (kernels.add, ["BLOCK"], "no parameter `BLOCK`"),
        (kernels.add, [], "wrt is empty"),
        (print, ["x"], "made by tilewright.jit"),
    ],
)
def test_what_cannot_be_asked_for(kernel: Any, wrt: list[str], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        tilewright.grad(kernel, wrt)


def test_integers_have_no_gradient() -> None:
    with pytest.raises(ArgumentError, match="no array of floats"):
        tilewright.grad(kernels.gather, ["index_ptr"])[(1,)](
            torch.ones(4, 8), torch.zeros(5, dtype=torch.int32), torch.empty(5, 8), 5, D=8, BLOCK=4,
            d_out_ptr=torch.ones(5, 8), d_index_ptr=torch.zeros(5),
        )  # fmt: skip


def test_compiled_once_for_each_kind_of_call() -> None:
    g = tilewright.grad(kernels.softmax, "x_ptr")
    for rows in (3, 4):
        x = torch.randn(rows, 37)
        g[(rows,)](x, torch.empty_like(x), 37, 37, BLOCK=64, d_out_ptr=torch.ones_like(x), d_x_ptr=torch.zeros_like(x))
    assert len(g._main.variants()) == 1
