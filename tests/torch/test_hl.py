"""Kernels of `tilewright.hl` under everything that traces: one operator a call, and what eager gives."""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tests.torch import hl_kernels
from tests.torch.hl_kernels import PROGRAMS, doubled, pair
from tests.torch.observers import Seen
from tilewright import hl
from tilewright.base.errors import ArgumentError
from tilewright.hl.runtime import tracer_slot
from tilewright.torch import hl_operators, triton_op

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def agree(f: Program, g: Program, sizes: tuple[int, ...] = (100,)) -> None:
    """The two programs return the same and change their arguments alike."""
    for n in sizes:
        ours, theirs = pair(n), pair(n)
        torch.testing.assert_close(g(*ours), f(*theirs))
        torch.testing.assert_close(ours, theirs)


def calls(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if "tilewright_kernels" in str(node.target)]


@pytest.mark.parametrize("f", PROGRAMS)
def test_make_fx(f: Program) -> None:
    agree(f, make_fx(f)(*pair()))
    graph = make_fx(f, tracing_mode="symbolic")(*pair())
    agree(f, graph, (100, 77))
    assert len(calls(graph.graph)) == (2 if f is hl_kernels.several else 1)


def together(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """All programs in one graph, which saves time."""
    return sum((f(x.clone(), y.clone()) for f in PROGRAMS), torch.zeros_like(x))


@pytest.mark.parametrize(("backend", "dynamic"), [("eager", True), ("aot_eager", False)], ids=["eager", "aot_eager"])
def test_compile(backend: str, dynamic: bool) -> None:
    """`test_inductor` has dynamic sizes by way of AOTAutograd."""
    agree(together, torch.compile(together, backend=backend, fullgraph=True, dynamic=dynamic), (100, 77))


def test_arguments_of_compiled_functions() -> None:
    f = hl_kernels.argument_written
    agree(f, torch.compile(f, backend="aot_eager", fullgraph=True))


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on the CPU")
def test_inductor() -> None:
    agree(together, torch.compile(together, fullgraph=True, dynamic=True), (100, 77))


def test_sizes_stay_symbolic() -> None:
    """One graph serves all sizes, whether or not the kernel was compiled for one."""
    graphs = torch._dynamo.testing.CompileCounter()
    for f in (hl_kernels.one, hl_kernels.written):
        compiled = torch.compile(f, backend=graphs, fullgraph=True, dynamic=True)
        agree(f, compiled, (100, 77, 1000))
    assert graphs.frame_count == 2


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("f", [hl_kernels.one, hl_kernels.several, hl_kernels.functions])
def test_export(f: Program, strict: bool) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return f(x, y)

    n = torch.export.Dim("n", min=16)
    program = torch.export.export(Module(), pair(), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    agree(f, program.module(), (100, 77))
    agree(f, program.run_decompositions().module(), (77,))
    assert calls(program.graph)


def test_operators_are_what_pytorch_wants() -> None:
    x, y = pair()
    make_fx(hl_kernels.written)(x, y)
    make_fx(hl_kernels.several)(x, y)
    for operator in [item for item in hl_operators.OPERATORS.values() if item.kernel.name in ("added", "moments")]:
        values = {"Tensor": x, "SymInt": 3, "float": 0.5}
        args = tuple(values[kind].clone() if kind == "Tensor" else values[kind] for _, kind in operator.leaves)
        torch.library.opcheck(operator.overload, args)


def test_schemas() -> None:
    make_fx(hl_kernels.written)(*pair())
    make_fx(hl_kernels.contained)(*pair())
    schemas = {item.kernel.name: item.schema().partition("(")[2] for item in hl_operators.OPERATORS.values()}
    assert schemas["added"] == "Tensor p0, Tensor p1, Tensor(a2!) p2, SymInt p3) -> ()"
    assert schemas["in_place"] == "Tensor(a0!) p0, Tensor(a1!) p1, Tensor p2) -> ()"


def test_modes_see_one_operator() -> None:
    x, _ = pair()
    with Seen() as seen:
        out = doubled(x)
    assert len(seen.names) == 1 and "doubled" in seen.names[0]
    assert torch.equal(out, x * 2)


def test_fake_tensors() -> None:
    with FakeTensorMode():
        out = doubled(torch.empty(1000, dtype=torch.float16))
    assert out.shape == (1000,) and out.dtype == torch.float16


def test_nobody_in_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer_slot, "_tracer", None)
    with FakeTensorMode():
        x = torch.empty(10)
    with pytest.raises(hl.exc.TracerNeeded, match=r"import tilewright\.torch"):
        doubled(x)


def test_nobody_in_the_slot_of_a_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch refuses the graph with what to write; its own errors are about our exception."""
    monkeypatch.setattr(tracer_slot, "_tracer", None)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"import tilewright\.torch first"):
        torch.compile(lambda x: doubled(x + 1), fullgraph=True, backend="eager")(torch.ones(4))
    torch._dynamo.reset()


def test_vmap() -> None:
    x = torch.randn(3, 40)
    assert torch.equal(torch.vmap(doubled)(x), x * 2)


def test_random_kernels_are_not_shared() -> None:
    """Two equal calls stay two."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return hl_kernels.noisy(x) - hl_kernels.noisy(x)

    found = torch.compile(f, backend="aot_eager", fullgraph=True)(torch.zeros(50))
    assert found.abs().max() > 0
    (operator,) = [item for item in hl_operators.OPERATORS.values() if item.kernel.name == "noisy"]
    assert torch.Tag.nondeterministic_seeded in operator.overload.tags


def test_gradients(caplog: pytest.LogCaptureFixture) -> None:
    """None flow where none is meant to, which is said once; an operator around the call has a backward."""
    x = torch.randn(20, requires_grad=True)
    kernel = hl.kernel(doubled.fn, backward=None)
    with caplog.at_level(logging.WARNING, logger="tilewright.torch"):
        out = torch.compile(lambda x: kernel(x) + 1, backend="aot_eager", fullgraph=True)(x)
    assert not out.requires_grad and "`doubled` was launched on tensors that require gradients" in caplog.text

    @triton_op("twhl::doubled", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return kernel(x)

    operator.register_autograd(lambda ctx, grad: operator(grad.contiguous()))
    for f in (operator, torch.compile(operator, backend="aot_eager", fullgraph=True)):
        x.grad = None
        f(x).sum().backward()
        assert torch.equal(x.grad, torch.full((20,), 2.0))
    assert kernel in operator.kernels()
    torch.library.opcheck(operator.overload, (x,))


@hl.kernel
def with_views(x: Any, scale: float) -> Any:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * scale
        x[rows, :] += 1
    return out, out[:, 1:3], {"rows": x.size(0)}, scale * 2, x.view(-1)


def test_views_and_numbers_are_results() -> None:
    def f(x: torch.Tensor) -> Any:
        out, part, rows, twice, flat = with_views(x, 1.5)
        return out + rows["rows"], part * twice, flat.sum()

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    for n in (6, 9):  # the second size would be a symbol, were it not in the results
        ours, theirs = (torch.arange(4.0 * n).view(n, 4) for _ in range(2))
        torch.testing.assert_close(compiled(ours), f(theirs))
        assert torch.equal(ours, theirs)
    exported = make_fx(f)(ours.clone())
    torch.testing.assert_close(exported(ours), f(theirs))
    with pytest.raises(ArgumentError, match="other things for these sizes"):
        exported(torch.ones(7, 4))


def test_what_an_operator_cannot_be() -> None:
    outer = torch.zeros(100)

    @hl.kernel
    def writes_outside(x: Any) -> Any:
        for tile in hl.tile(x.size(0)):
            outer[tile] = x[tile]

    @hl.kernel
    def returns_a_view(x: Any) -> Any:
        for tile in hl.tile(x.size(0)):
            x[tile] += 1
        return x.view(torch.int32)

    @hl.kernel
    def returns_a_slice(x: Any) -> Any:
        for tile in hl.tile(x.size(0)):
            x[tile] += 1
        return slice(3)

    for kernel, message in (
        (writes_outside, "writes outer"),
        (returns_a_view, "returns a view"),
        (returns_a_slice, "returns a slice"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make_fx(functools.partial(_called, kernel))(pair()[0])


def _called(kernel: Any, x: torch.Tensor) -> torch.Tensor:
    kernel(x)
    return x


def test_writes_that_depend_on_sizes() -> None:
    @hl.kernel(static_shapes=False)
    def kernel(x: Any, y: Any) -> Any:
        if x.size(0) > 50:
            for tile in hl.tile(x.size(0)):
                y[tile] = x[tile]
        else:
            for tile in hl.tile(x.size(0)):
                x[tile] = y[tile]

    kernel_of = make_fx(lambda x, y: [kernel(x, y), x + y][1])
    x, y = pair()
    graph = kernel_of(x, y)
    with pytest.raises(ArgumentError, match="writes x for these arguments"):
        graph(*pair(20))
