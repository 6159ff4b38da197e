"""Gradients of kernels of `tilewright.hl` under what traces and transforms: two operators, and what eager gives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.testing
import torch.distributed as dist
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from tests.meta.sources import ROOT
from tilewright import hl
from tilewright.torch import hl_gradients, hl_operators

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


@hl.kernel(config=hl.Config(block_sizes=[16]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], -1)
    return out


@hl.kernel(config=hl.Config(block_sizes=[16, 16]))
def centred(x: torch.Tensor, weight: torch.Tensor) -> Any:
    """Two loops, host code around them, and a result that is no float."""
    means, places = torch.empty([x.size(0)], dtype=x.dtype), torch.empty([x.size(0)], dtype=torch.int64)
    for rows in hl.tile(x.size(0)):
        means[rows] = x[rows, :].mean(-1)
        places[rows] = x[rows, :].argmax(-1)
    shifts, out = torch.sin(means), torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.exp(x[rows, :] - shifts[rows][:, None]) * weight[:]
    return {"out": out, "places": places, "mean": (out * out).mean()}


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    found = centred(softmax(x * 2), weight)
    return (found["out"] * 3).sum() * found["mean"] + found["places"].sum()


def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x * 2, -1)
    out = torch.exp(y - torch.sin(y.mean(-1, keepdim=True))) * weight
    return (out * 3).sum() * (out * out).mean() + y.argmax(-1).sum()


def data(n: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 9, generator=generator), torch.rand(9, generator=generator)


def gradients(f: Program, *args: torch.Tensor) -> Any:
    leaves = [arg.detach().requires_grad_() for arg in args]
    return torch.autograd.grad(f(*leaves), leaves)


def agree(f: Program, g: Program, sizes: tuple[int, ...]) -> None:
    """The same gradients, in two calls: the second one knows what is saved."""
    for n in sizes:
        for _ in range(2):
            torch.testing.assert_close(gradients(f, *data(n)), gradients(g, *data(n)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile(backend: str) -> None:
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("Inductor needs a C++ compiler on the CPU")
    graphs = torch._dynamo.testing.CompileCounterWithBackend(backend)
    agree(torch.compile(program, backend=graphs, fullgraph=True, dynamic=True), reference, (20, 33))
    assert graphs.frame_count == 1  # one graph for both sizes


def test_results_are_loaded_and_loops_run_again_where_nothing_has_what_they_computed() -> None:
    for kernel, runs in ((softmax, False), (centred, True)):
        args = data(7)[: len(kernel.signature.parameters)]
        gradients(make_fx(_sum(kernel))(*args), *args)
        assert {places is None for places in _places(kernel)} == {runs}


def _sum(kernel: hl.Kernel) -> Program:
    def f(*args: torch.Tensor) -> torch.Tensor:
        made = kernel(*args)
        return (made["out"] if isinstance(made, dict) else made).sum()

    return f


def _places(kernel: hl.Kernel) -> list[Any]:
    return [places for several in kernel.derived.values() for one in several for places in one.places.values()]


@hl.kernel(config=hl.Config(block_sizes=[16]))
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] * x[rows] * factor
    return out


def test_operators_are_what_pytorch_wants() -> None:
    x = torch.rand(20, requires_grad=True)
    make_fx(lambda x: scaled(x, 3.0))(x)
    (operator,) = [item for item in hl_operators.OPERATORS.values() if item.kernel is scaled]
    torch.library.opcheck(operator.overload, (x, 3.0))
    out = scaled(x.detach(), 3.0)
    torch.library.opcheck(hl_gradients._backward(operator.name, (0,)), (x.detach(), 3.0, out, torch.ones(20)))


def test_inference_has_the_forward_operator_alone() -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(9))

        def forward(self, x: torch.Tensor) -> Any:
            return centred(softmax(x), self.weight)["out"]

    for strict in (False, True):
        exported = torch.export.export(Module(), (data()[0],), strict=strict)
        names = [str(node.target) for node in exported.graph.nodes if "tilewright" in str(node.target)]
        assert len(names) == 2 and not any("backward" in name for name in names)
        module = exported.module()
        x, weight = data()[0], module.weight
        found = torch.autograd.grad(module(x).sum(), weight)
        torch.testing.assert_close(found, torch.autograd.grad(centred(softmax(x), weight)["out"].sum(), weight))


def test_transforms() -> None:
    x = torch.stack([data()[0], data()[0].flip(0)])
    f, g = (lambda x: softmax(x).pow(3).sum()), (lambda x: torch.softmax(x, -1).pow(3).sum())
    torch.testing.assert_close(torch.func.grad(f)(x[0]), torch.func.grad(g)(x[0]))
    torch.testing.assert_close(torch.vmap(torch.func.grad(f))(x), torch.func.grad(g)(x))
    torch.testing.assert_close(torch.func.grad(lambda x: torch.vmap(softmax)(x).pow(3).sum())(x), torch.func.grad(g)(x))
    (found,) = torch.func.vjp(softmax, x[0])[1](x[1])
    torch.testing.assert_close(found, torch.func.vjp(lambda x: torch.softmax(x, -1), x[0])[1](x[1])[0])
    with pytest.raises(hl.exc.DoubleBackward, match="softmax"):
        torch.func.grad(lambda x: torch.func.grad(f)(x).sum())(x[0])


@pytest.mark.parametrize("hooks", ["checkpoint", "clone", "save_on_cpu"])
def test_a_gradient_that_is_derived_under_hooks(hooks: str) -> None:
    """What deriving saves is no business of hooks that a program has set for its tensors."""
    kernel = hl.kernel(config=hl.Config(block_sizes=[16]))(softmax.fn)
    under = torch.autograd.graph

    def f(x: torch.Tensor, weight: torch.Tensor) -> Any:
        run = lambda x: (kernel(x) * weight).pow(3).sum()
        if hooks == "checkpoint":
            return torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
        with under.save_on_cpu() if hooks == "save_on_cpu" else under.saved_tensors_hooks(torch.clone, torch.clone):
            return run(x)

    agree(f, lambda x, weight: (torch.softmax(x, -1) * weight).pow(3).sum(), (20,))


def test_checkpoints_and_hooks() -> None:
    def f(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(program, x, weight, use_reentrant=False)

    agree(f, reference, (20,))
    agree(torch.compile(f, backend="aot_eager", fullgraph=True), reference, (20,))
    moved: list[Any] = []

    def hooked(x: torch.Tensor, weight: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: moved.append(t) or t.clone(), lambda t: t):
            return program(x, weight)

    agree(hooked, reference, (20,))
    assert moved


def test_autocast() -> None:
    """Kernels compute in the types that they are given."""

    def f(linear: Program, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (linear(x @ x.t()) * weight[0]).float().sum() * 3

    def ours(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return f(lambda y: scaled(y.view(-1), 2.0), x, weight)

    def theirs(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return f(lambda y: y.view(-1) * y.view(-1) * 2.0, x, weight)

    for g in (ours, torch.compile(ours, backend="aot_eager", fullgraph=True)):
        for one, other in zip(gradients(g, *data()), gradients(theirs, *data()), strict=True):
            torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2 * float(other.abs().max()))


def train_in_parallel(rendezvous: str) -> None:
    """Gradients of modules whose parameters a process group reduces."""

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(data()[1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return program(x, self.weight)

    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=0, world_size=1)
    for module in (Module(), torch.compile(Module(), backend="aot_eager")):
        parallel = torch.nn.parallel.DistributedDataParallel(module)
        parallel(data()[0]).backward()
        want = gradients(lambda weight: reference(data()[0], weight), data()[1])
        torch.testing.assert_close([next(parallel.parameters()).grad], list(want), rtol=1e-4, atol=1e-5)
        print("as it should be", flush=True)
        kept.append(parallel)


kept: list[Any] = []  # a process group that is freed may wait for its thread, and that for the interpreter, for ever


def test_distributed_data_parallel(tmp_path: Any) -> None:
    """In a process that ends without freeing anything."""
    text = f"import os, {__name__} as m; m.train_in_parallel({str(tmp_path / 'rendezvous')!r}); os._exit(0)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.count("as it should be") == 2, done.stderr


OUTER = torch.rand(20, requires_grad=True)


@hl.kernel
def into(x: torch.Tensor, out: torch.Tensor) -> None:
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] * 2


@hl.kernel
def with_outer(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows] * OUTER[rows]
    return out


@hl.kernel
def inline(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = hl.inline_triton("{0} + 1.0", args=(x[rows],), output_like=x[rows])
    return out


def _written(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    into(x, out)
    return out


@pytest.mark.parametrize(
    ("f", "message"),
    [(_written, "writes out"), (with_outer, "from outside"), (inline, "has no gradient")],
    ids=["written", "outside", "without"],
)
def test_refusals_are_errors_of_the_call(f: Program, message: str) -> None:
    x = torch.rand(20, requires_grad=True)
    with pytest.raises(hl.exc.NotDifferentiable, match=message) as caught:
        torch.func.grad(lambda x: f(x).sum())(x.detach())
    assert caught.value.location is not None and caught.value.location.file == __file__
    with pytest.raises(Exception, match=message):
        torch.compile(f, backend="aot_eager", fullgraph=True)(x)
    with torch.no_grad():
        torch.compile(f, backend="aot_eager", fullgraph=True)(x)


def test_the_operator_of_a_backward_pass_is_found_by_its_name() -> None:
    x, _ = data()
    make_fx(softmax)(x)
    (operator,) = [item for item in hl_operators.OPERATORS.values() if item.kernel is softmax]
    found = getattr(torch.ops.tilewright_kernels, f"{operator.name}_backward_1")
    y, up = torch.softmax(x, -1), torch.ones_like(x)
    torch.testing.assert_close(found(x, y, up), F.softmax(x, -1) * 0, rtol=0, atol=1e-6)


def test_forward_mode_and_second_gradients_of_operators_are_refused_by_name() -> None:
    x = torch.rand(4, 5)
    with pytest.raises(hl.exc.NotDifferentiable, match="forward mode"):
        torch.func.jvp(softmax, (x,), (x,))
    total = _sum(softmax)
    with pytest.raises(hl.exc.NotDifferentiable, match="forward mode"):
        torch.func.hessian(total)(x)  # forward over backward
    with pytest.raises(hl.exc.DoubleBackward, match="itself a gradient"):
        torch.func.jacrev(torch.func.grad(total))(x)
