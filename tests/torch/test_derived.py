"""`triton_op(..., autograd=True)`: gradients that nobody wrote, in eager mode, under tracers, against PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tilewright
import tilewright.language as tl
import tilewright.torch as tt
from tests.torch import kernels
from tilewright.base.errors import ArgumentError, GradientError, NotDifferentiableError, UnsupportedError


@tilewright.jit
def silu_kernel(x_ptr, gate_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask).to(tl.float32)
    tl.store(y_ptr + offsets, x * tl.sigmoid(gate), mask)


@tilewright.jit
def row_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + columns, columns < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(total))


@tt.triton_op("twderived::gated", mutates_args=(), autograd=True)
def gated(x: torch.Tensor, gate: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    y = torch.empty_like(x)
    silu_kernel[(tilewright.cdiv(x.numel(), 64),)](x, gate, y, x.numel(), BLOCK=64)
    return y * scale


@tt.triton_op("twderived::gated_sums", mutates_args=(), autograd=True)
def gated_sums(x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two launches, one after the other, with host code around them."""
    y, z = torch.empty_like(x), x.new_empty(x.shape[0])
    silu_kernel[(tilewright.cdiv(x.numel(), 64),)](x, gate.expand_as(x).contiguous(), y, x.numel(), BLOCK=64)
    row_sum_kernel[(x.shape[0],)](y, z, x.shape[1], BLOCK=32)
    return y, z.exp()


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward(dtype: torch.dtype) -> None:
    x, gate = draw(5, 40, dtype=dtype), draw(5, 40, dtype=dtype, seed=1)
    found = torch.autograd.grad(gated(x, gate, 3.0).float().square().sum(), (x, gate))
    want = torch.autograd.grad(((x.float() * gate.float().sigmoid()).to(dtype) * 3.0).float().square().sum(), (x, gate))
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=3e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)


def test_two_launches_and_host_code() -> None:
    x, gate = draw(5, 40), draw(1, 40, seed=1)
    y, z = gated_sums(x, gate)
    found = torch.autograd.grad(y.sum() + z.square().sum(), (x, gate))
    product = x * gate.sigmoid()
    want = torch.autograd.grad(product.sum() + product.sum(1).exp().square().sum(), (x, gate))
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_only_what_is_wanted() -> None:
    x, gate = draw(5, 40), draw(5, 40, seed=1).detach()
    gated(x, gate).sum().backward()
    torch.testing.assert_close(x.grad, gate.sigmoid())


def test_opcheck() -> None:
    torch.library.opcheck(torch.ops.twderived.gated.default, (draw(4, 20), draw(4, 20, seed=1), 2.0))
    torch.library.opcheck(torch.ops.twderived.gated_sums.default, (draw(4, 20), draw(1, 20, seed=1)))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled(dynamic: bool) -> None:
    def loss(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        y, z = gated_sums(x, gate)
        return (gated(y, x, 2.0).sum() + z.sum()) * 2

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (3, 4):
        x, gate = draw(rows, 40), draw(1, 40, seed=1)
        found = torch.autograd.grad(compiled(x, gate), (x, gate))
        for one, other in zip(found, torch.autograd.grad(loss(x, gate), (x, gate)), strict=True):
            torch.testing.assert_close(one, other)


def test_gradcheck() -> None:
    @tilewright.jit
    def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, offsets < n)
        tl.store(y_ptr + offsets, tl.exp(tl.sin(x)) / (x * x + 1), offsets < n)

    @tt.triton_op("twderived::smooth", mutates_args=(), autograd=True)
    def smooth(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[(2,)](x, y, x.numel(), BLOCK=8)
        return y

    assert torch.autograd.gradcheck(smooth, draw(11, dtype=torch.float64))


def test_a_gradient_is_not_recorded() -> None:
    g = tilewright.grad(silu_kernel, ["x_ptr"])

    def f(x: torch.Tensor) -> torch.Tensor:
        dx = torch.zeros_like(x)
        g[(1,)](x, x, torch.empty_like(x), 8, BLOCK=8, d_y_ptr=torch.ones_like(x), d_x_ptr=dx)
        return dx

    x = draw(8).detach()
    torch.testing.assert_close(f(x), x.sigmoid())
    with FakeTensorMode() as mode, pytest.raises(UnsupportedError, match="cannot record it"):
        f(mode.from_tensor(x))


def _apply(name: str, launch: Any) -> Any:
    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(x, y)
        return y

    return tt.triton_op(f"twderived::{name}", body, mutates_args=(), autograd=True)


def test_refusals() -> None:
    tuned = _apply("tuned", lambda x, y: kernels.doubled[lambda meta: (1,)](x, y, x.numel()))
    with pytest.raises(GradientError, match="through Autotuner cannot be derived"):
        tuned(draw(64)).sum().backward()

    def twice(x: torch.Tensor, y: torch.Tensor) -> None:
        row_sum_kernel[(1,)](x, y, x.numel(), BLOCK=32)
        row_sum_kernel[(1,)](x, y, x.numel(), BLOCK=32)

    with pytest.raises(GradientError, match="has a gradient already"):
        _apply("twice", twice)(draw(64)).sum().backward()
    raised = _apply("raised", lambda x, y: kernels.increase[(1,)](y.copy_(x), x.numel(), 1.0))
    with pytest.raises((NotDifferentiableError, GradientError)):
        raised(draw(64)).sum().backward()
    with pytest.raises(ArgumentError, match="changes arguments"):

        @tt.triton_op("twderived::changing", mutates_args={"x"}, autograd=True)
        def changing(x: torch.Tensor) -> None:
            kernels.increase[(1,)](x, x.numel(), 1.0)
