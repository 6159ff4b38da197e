"""Gradients of whole kernels, compiled and evaluated, against torch's of the same computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilewright
from tests.gradients import kernels


@pytest.fixture(params=["compiled", "evaluated"], autouse=True)
def mode(request: pytest.FixtureRequest) -> Any:
    """Both ways of a gradient kernel: through the CPU back end, and by the references of its operations."""
    with tilewright.knobs.runtime.scope():
        tilewright.knobs.runtime.interpret = request.param == "evaluated"
        yield request.param


def check(
    kernel: Any,
    grid: tuple[int, ...],
    args: tuple[Any, ...],
    wrt: list[str],
    out: str,
    want: Callable[..., torch.Tensor],
    tolerance: float = 1e-4,
    **constants: Any,
) -> None:
    """Compare the gradients of a kernel with one output.

    Args:
        want: the same in torch, of the arguments without `out`.
    """
    named = dict(zip(kernel.arg_names, args, strict=False))
    leaves = {n: v for n, v in named.items() if n != out}
    kernel[grid](*args, **constants)
    if isinstance(named[out], torch.Tensor):
        inputs = {
            n: (v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v) for n, v in leaves.items()
        }
        for name in wrt:
            inputs[name] = torch.as_tensor(inputs[name], dtype=torch.float64).requires_grad_()
        result = want(*inputs.values())
        torch.testing.assert_close(named[out].double(), result.detach(), rtol=tolerance, atol=tolerance)
        seed = torch.randn(
            result.shape, generator=torch.Generator("cpu").manual_seed(1), dtype=torch.float64, device="cpu"
        ).to(result.device)
        expected = torch.autograd.grad(result, [inputs[n] for n in wrt], seed)
    shadows = {
        f"d_{n}": torch.zeros_like(named[n], dtype=torch.float32)
        if isinstance(named[n], torch.Tensor)
        else torch.zeros(1)
        for n in wrt
    }
    d_out = seed.to(named[out].dtype)
    before = d_out.clone()
    tilewright.grad(kernel, wrt)[grid](*args, **constants, **shadows, **{f"d_{out}": d_out})
    assert torch.equal(d_out, before)
    for name, reference in zip(wrt, expected, strict=True):
        found = shadows[f"d_{name}"].double().reshape(reference.shape)
        torch.testing.assert_close(found, reference, rtol=tolerance, atol=tolerance * reference.abs().max().item())


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers on the default device."""
    made = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return made.to(torch.get_default_device(), dtype)


def test_add() -> None:
    x, y = draw(100), draw(100, seed=1)
    check(
        kernels.add, (4,), (x, y, torch.empty(100), 100), ["x_ptr", "y_ptr"], "out_ptr", lambda x, y, n: x + y, BLOCK=32
    )


def test_softmax() -> None:
    x = draw(5, 37)
    check(
        kernels.softmax,
        (5,),
        (x, torch.empty(5, 37), 37, 37),
        ["x_ptr"],
        "out_ptr",
        lambda x, s, n: x.softmax(1),
        BLOCK=64,
    )


def test_layer_norm() -> None:
    x, w, b = draw(3, 50), draw(50, seed=1), draw(50, seed=2)
    args = (x, w, b, torch.empty(3, 50), 50, 1e-5)

    def want(x: Any, w: Any, b: Any, n: int, eps: float) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (n,), w, b, eps)

    check(kernels.layer_norm, (3,), args, ["x_ptr", "w_ptr", "b_ptr"], "out_ptr", want, BLOCK=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matmul(dtype: torch.dtype) -> None:
    a, b = draw(20, 24, dtype=dtype), draw(24, 18, seed=1, dtype=dtype)
    args = (a, b, torch.empty(20, 18), 20, 18, 24)

    def want(a: Any, b: Any, *sizes: int) -> torch.Tensor:
        return torch.nn.functional.leaky_relu(a @ b, 0.1)

    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    check(kernels.matmul, (2, 2), args, ["a_ptr", "b_ptr"], "c_ptr", want, tolerance, BM=16, BN=16, BK=16)


def test_attention() -> None:
    q, k, v = (draw(40, 16, seed=s) for s in range(3))

    def want(q: Any, k: Any, v: Any, scale: Any, n: int) -> torch.Tensor:
        scores = (q @ k.T * scale).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        return scores.softmax(1) @ v

    args = (q, k, v, torch.empty(40, 16), 0.25, 40)
    wrt = ["q_ptr", "k_ptr", "v_ptr", "scale"]
    check(kernels.attention, (3,), args, wrt, "out_ptr", want, D=16, BM=16, BN=16)


def test_gather_of_repeated_rows() -> None:
    index = torch.tensor([3, 0, 3, 3, 1], dtype=torch.int32)
    args = (draw(4, 8), index, torch.empty(5, 8), 5)
    check(kernels.gather, (2,), args, ["table_ptr"], "out_ptr", lambda t, i, n: t[i.long()] ** 2, D=8, BLOCK=4)


def test_scatter_by_atomic_additions() -> None:
    index = torch.tensor([3, 0, 3, 3, 1], dtype=torch.int32)

    def want(x: Any, i: Any, n: int) -> torch.Tensor:
        return torch.zeros(4, dtype=x.dtype).index_add(0, i.long(), x.exp())

    check(kernels.scatter, (2,), (draw(5), index, torch.zeros(4), 5), ["x_ptr"], "out_ptr", want, BLOCK=4)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_loop_whose_history_is_wanted(steps: int) -> None:
    def want(x: Any, w: Any, steps: int) -> torch.Tensor:
        total = 0
        for outer in range(2):
            s = torch.zeros_like(w)
            for step in range(steps + outer):
                s = torch.sin(w * s + x[step])
            total = total + s * s
        return total

    args = (draw(6, 8), draw(8, seed=1), torch.empty(8), steps)
    check(kernels.recurrence, (1,), args, ["x_ptr", "w_ptr"], "out_ptr", want, BLOCK=8)


def test_branches() -> None:
    flags = torch.tensor([1, 0, 1, 1], dtype=torch.int32)

    def want(x: Any, flag: Any) -> torch.Tensor:
        rows = []
        for row, taken in zip(x, flag, strict=True):
            if taken > 0:
                y = row.exp() * row.sum()
                rows.append(y * 2 if row.sum() > 0 else y)
            else:
                rows.append(row**4)
        return torch.stack(rows)

    check(kernels.branches, (4,), (draw(4, 8), flags, torch.empty(4, 8)), ["x_ptr"], "out_ptr", want, BLOCK=8)


def test_number() -> None:
    args = (draw(50), torch.empty(50), 3.0, 50)
    check(kernels.scaled, (4,), args, ["x_ptr", "scale"], "out_ptr", lambda x, s, n: x / s, BLOCK=16)


def test_what_is_overwritten_has_no_gradient() -> None:
    def want(x: Any) -> torch.Tensor:
        return torch.cat([x[:4] ** 2, x[4:] * 5])

    check(kernels.stored_twice, (1,), (draw(8), torch.empty(8)), ["x_ptr"], "out_ptr", want, BLOCK=8)


def test_shapes() -> None:
    def want(x: Any, y: Any) -> torch.Tensor:
        z = (x.T**2 + y[None, :]).reshape(32)
        return z.cumsum(0) + z[31 - torch.arange(32) // 2]

    check(kernels.shapes, (1,), (draw(8, 4), draw(8, seed=1), torch.empty(32)), ["x_ptr", "y_ptr"], "out_ptr", want)
