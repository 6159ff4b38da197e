"""What operations of the host give, against torch's own meta functions: shapes, types and strides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tilewright.hl.trace.host_results import result_of

ROOT = Path(__file__).parents[2]


class Beside(TorchDispatchMode):  # type: ignore[misc]
    """Compares every operation that has an answer of its own with what torch says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = function._schema.name.removeprefix("aten::"), kwargs or {}
        answer = result_of(function, name, args, kwargs)
        expected = function(*args, **kwargs)
        if answer is not NotImplemented:
            self.answered.append(name)
            ours, theirs = (pytree.tree_leaves(made) for made in (answer, expected))
            assert [_said(t) for t in ours] == [_said(t) for t in theirs], function
            assert type(answer) is type(expected) or isinstance(expected, tuple)
        return expected


def _said(made: torch.Tensor) -> tuple[Any, ...]:
    return made.shape, made.dtype, made.stride(), made.device


ELEMENTS = [
    "x / 2",
    "x * 2 + 1",
    "-x",
    "x.sqrt()",
    "x.exp()",
    "x.clamp(min=0)",
    "x.relu()",
    "x > 0",
    "x == y",
    "~(x > 0)",
]
ELEMENTS += [
    "x.half() + x",
    "x // 2",
    "x.int() + 0.5",
    "x.int() // 2",
    "x.pow(2)",
    "x ** 0.5",
    "2 - x",
    "x + y",
]
ELEMENTS += [
    "torch.maximum(x, y)",
    "torch.where(x > 0, x, 0.0)",
    "torch.where(x > 0, x, y.double())",
    "x.masked_fill(x > 0, 1)",
]
ELEMENTS += [
    "x + row",
    "x * column",
    "row + column",
    "row * 2",
    "x + number",
    "number / 2",
    "x.add(y, alpha=2)",
    "x.sigmoid()",
]
ELEMENTS += [
    "torch.lerp(x, y, 0.5)",
    "x.addcmul(x, y)",
    "F.gelu(x)",
    "F.silu(x)",
    "x.isnan()",
    "torch.atan2(x, y)",
    "x.round()",
]
REDUCTIONS = [
    "x.mean()",
    "x.mean(0)",
    "x.mean(1, keepdim=True)",
    "x.sum()",
    "x.sum(-1)",
    "x.int().sum()",
    "x.sum((0, 1))",
]
REDUCTIONS += [
    "x.amax(1)",
    "x.max()",
    "x.max(1)",
    "x.min(0, keepdim=True)",
    "x.argmax()",
    "x.argmin(1)",
    "x.std()",
    "x.var(0)",
]
REDUCTIONS += [
    "x.any()",
    "x.all(1)",
    "x.prod()",
    "x.prod(0)",
    "x.norm()",
    "x.norm(dim=1)",
    "x.logsumexp(-1)",
    "x.cumsum(0)",
]
REDUCTIONS += [
    "x.softmax(-1)",
    "x.log_softmax(0)",
    "x.cumprod(1)",
    "x.mean(dtype=torch.float64)",
    "number.sum()",
    "x.square().mean()",
]
ORDERS = [
    "x.flip(0)",
    "x.roll(1)",
    "x.roll((1, 2), (0, 1))",
    "x.sort()",
    "x.sort(0, descending=True)",
    "x.argsort(1)",
    "x.tril()",
    "x.triu(1)",
]
MADE = [
    "torch.arange(7, device=device)",
    "torch.arange(1, 8, 2, device=device, dtype=torch.int32)",
    "torch.arange(0.5, 3, device=device)",
    "torch.linspace(0, 1, 5, device=device)",
    "torch.eye(3, device=device)",
    "torch.eye(3, 4, device=device)",
    "torch.rand(3, 4, device=device)",
    "torch.randn(5, device=device, dtype=torch.float64)",
    "torch.randint(9, (2, 3), device=device)",
    "torch.randint(1, 9, (2,), device=device, dtype=torch.int32)",
]
PRODUCTS = [
    "x @ x.t().contiguous()",
    "x @ w",
    "x @ row",
    "torch.addmm(z, x, w)",
    "torch.bmm(b, c)",
    "torch.baddbmm(d, b, c)",
]
PRODUCTS += ["b @ c", "row @ row", "F.linear(x, v)"]
JOINS = [
    "torch.cat((x, y))",
    "torch.cat((x, y, x), 1)",
    "torch.cat((x, z), -1)",
    "torch.stack((x, y))",
    "torch.stack((x, y), -1)",
]
JOINS += ["torch.stack((row, row), 1)", "torch.cat((x, y.half()))", "torch.cat([row, row])"]
ODD = [
    "x.t() / 2",
    "x[:, ::2] * 2",
    "x.t() + y.t()",
    "x.expand(3, 4, 6) + 1",
    "x[:0] * 2",
    "x[:0].sum(0)",
    "torch.rand_like(x) * 2",
]
ODD += [
    "F.dropout(x, 0.5)",
    "x.t().mean(0)",
    "x.clone(memory_format=torch.contiguous_format)",
    "torch.cat((x.t(), y.t()))",
]


def _names() -> dict[str, Any]:
    def made(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device="meta")

    names = {"x": made(4, 6), "y": made(4, 6), "row": made(6), "column": made(4, 1), "number": made(), "w": made(6, 4)}
    names |= {"z": made(4, 4), "v": made(5, 6), "b": made(2, 3, 6), "c": made(2, 6, 5), "d": made(2, 3, 5)}
    return {**names, "torch": torch, "F": F, "device": "meta"}


@pytest.mark.parametrize("expression", ELEMENTS + REDUCTIONS + ORDERS + MADE + PRODUCTS + JOINS)
def test_results_are_those_of_torch(expression: str) -> None:
    with Beside() as beside:
        eval(expression, _names())
    assert beside.answered


@pytest.mark.parametrize("expression", ODD)
def test_what_lies_otherwise_is_left_to_torch(expression: str) -> None:
    with Beside():
        eval(expression, _names())


@pytest.mark.parametrize("expression", ["x + w", "x @ y", "torch.cat((x, w))", "torch.cat((x, y), 2)", "x.sum(3)"])
def test_errors_are_those_of_torch(expression: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as alone:
        eval(expression, _names())
    with pytest.raises(type(alone.value)) as here, Beside():
        eval(expression, _names())
    assert str(here.value) == str(alone.value)


def test_random_numbers_stay_where_they_were() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    with Beside():
        F.dropout(torch.empty(3, 4, device="meta"), 0.5)
        torch.bernoulli(torch.empty(3, 4, device="meta"))
        torch.randn(3, device="meta")
    assert torch.equal(torch.rand(1), expected)


SCRIPT = """
import sys
import torch
from tilewright import hl

@hl.kernel()
def loss(x, y):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = (x[t, :] - y[t, :]) ** 2
    scaled = torch.cat((out / 2, out * 2), 1) * torch.arange(1, 2, device=x.device)
    noise = torch.rand_like(scaled).flip(0).tril() + torch.eye(4, 12) * torch.randn(12)
    return scaled.sum(-1).sqrt().mean() + noise.mean() * 0

x, y = torch.ones(4, 6), torch.zeros(4, 6)
assert abs(loss(x, y).item() - 15 ** 0.5) < 1e-6
print(sorted(name for name in ("sympy", "torch._dynamo") if name in sys.modules))
"""


def test_arithmetic_of_the_host_does_not_load_dynamo(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "[]\n", done.stderr
