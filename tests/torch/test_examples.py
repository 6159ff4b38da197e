"""The examples of `examples/pytorch`: gradients against PyTorch's own, training in eager and compiled, export."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "pytorch"


@pytest.fixture(scope="module")
def examples() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("transformer"), sys.modules["operators"]
    finally:
        sys.path.remove(str(FOLDER))


def test_gradients_are_those_of_pytorch(examples: Any) -> None:
    _, ops = examples
    x, w = torch.randn(6, 33, requires_grad=True), torch.randn(33, requires_grad=True)
    target = torch.randint(0, 33, (6,))
    ours = torch.autograd.grad(ops.cross_entropy(ops.rms_norm(x, w), target), (x, w))
    theirs = torch.autograd.grad(functional.cross_entropy(functional.rms_norm(x, (33,), w, 1e-6), target), (x, w))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_opcheck(examples: Any) -> None:
    _, ops = examples
    x, w = torch.randn(6, 33, requires_grad=True), torch.randn(33, requires_grad=True)
    calls = [
        (ops.rms_norm_with_scale, (x, w, 1e-6)),
        (ops.rms_norm_grad, (torch.randn(6, 33), x.detach(), w.detach(), torch.rand(6))),
        (ops.cross_entropy_with_grad, (x, torch.randint(0, 33, (6,)))),
    ]
    for op, args in calls:
        assert set(torch.library.opcheck(op.overload, args).values()) == {"SUCCESS"}


def test_training_is_the_same_compiled(examples: Any) -> None:
    transformer, _ = examples
    torch._dynamo.reset()
    eager, compiled = transformer.train(), transformer.train(backend="aot_eager")
    assert eager == pytest.approx(compiled, rel=1e-5) and eager[-1] < eager[0]


def test_the_exported_block(examples: Any) -> None:
    transformer, _ = examples
    program = transformer.exported()
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("examples.rms_norm.default") == 2
    x = torch.randn(2, 40, 32)
    torch.manual_seed(0)
    torch.testing.assert_close(program.module()(x), transformer.Block(32, 4).eval()(x))
