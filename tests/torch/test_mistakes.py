"""Mistakes in definitions and calls of operators, and what changes under a graph: each is found and explained."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
import tilewright.torch as tt
from tests.meta.sources import ROOT
from tests.torch import kernels
from tests.torch.kernels import pair
from tilewright import hl
from tilewright.base.errors import ArgumentError, DeviceError, GradientError, UnsupportedError
from tilewright.torch.triton_op import TileOp

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def test_what_launches_in_a_way_of_its_own_is_not_recorded() -> None:
    class Caching(tilewright.KernelInterface[Any]):
        def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            return kernels.increase[grid](*args, **kwargs)

    with FakeTensorMode(), pytest.raises(UnsupportedError, match="`Caching` launches kernels in a way of its own"):
        Caching()[(1,)](torch.empty(3), 3, 1.0)


PLAIN = """
import sys
import torch
import tilewright
import tilewright.language as tl

@tilewright.jit
def double(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, 2 * tl.load(x + i, i < n), i < n)

def f(x):
    out = x.clone()
    double[(1,)](out, out.numel(), B=16)
    return out + 1

x = torch.arange(10.0)
try:
    torch.vmap(f)(x[None])
except tilewright.TilewrightError as error:
    assert "`import tilewright.torch` ahead of it" in str(error), error
assert torch.equal(f(x), 2 * x + 1) and "tilewright.torch" not in sys.modules
assert torch.equal(torch.compile(f, backend="eager", fullgraph=True)(x), 2 * x + 1)
"""


def test_dynamo_brings_the_tracer(tmp_path: Path) -> None:
    program = tmp_path / "plain.py"
    program.write_text(PLAIN)
    subprocess.run([sys.executable, str(program)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


# --- what is changed ------------------------------------------------------------------------------------------------


def hides(x: torch.Tensor) -> torch.Tensor:
    kernels.increase[(1,)](x[2:], 3, 1.0)
    return x + 1


def hides_aten(x: torch.Tensor) -> torch.Tensor:
    return kernels.plain(x.add_(1), x)


def test_a_definition_that_hides_a_change_is_refused() -> None:
    with pytest.raises(tt.MutationError) as caught:
        tt.triton_op("twtest::hides", hides, mutates_args=())
    text = str(caught.value)
    assert "operator twtest::hides changes its argument `x`: kernel `increase` writes it through `x`" in text
    assert "tl.store(x + i" in text and "kernels.py" in text and 'mutates_args={"x"}' in text
    assert not hasattr(torch.ops.twtest, "hides")
    with pytest.raises(tt.MutationError, match=r"aten.add_.Tensor writes it"):
        tt.triton_op("twtest::hides_aten", hides_aten, mutates_args=())
    tt.triton_op("twtest::hides", hides, mutates_args={"x"})


def test_a_change_that_no_trial_shows_is_found_at_the_first_run() -> None:
    def deep(x: torch.Tensor) -> torch.Tensor:
        assert x.shape[0] == 9  # which tensors that are made up have not
        return hides(x)

    op = tt.triton_op("twtest::deep", deep, mutates_args=())
    x = torch.zeros(9)
    for call in (op, torch.ops.twtest.deep, make_fx(op)):
        with pytest.raises(tt.MutationError, match="`increase` writes it through `x`"):
            call(x)
    assert not x.any()


def test_kinds_of_elements_are_tried(caplog: pytest.LogCaptureFixture) -> None:
    """The kernel compiles for integer positions only."""

    def picked(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        kernels.pick[(1,)](x, at, x)
        return x + 1

    with pytest.raises(tt.MutationError, match="`pick` writes it through `o`"):
        tt.triton_op("twtest::picked", picked, mutates_args=())


def test_an_argument_that_is_not_written_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def boasts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return kernels.plain(x, y)

    with caplog.at_level(logging.WARNING, "tilewright.torch"):
        op = tt.triton_op("twtest::boasts", boasts, mutates_args={"y"})
        op(*pair())
        tt.triton_op("twtest::unknown", lambda x: x + 1, mutates_args="unknown", schema="(Tensor(a!) x) -> Tensor")
    assert [record.getMessage() for record in caplog.records] == [
        "operator twtest::boasts declares to change `y`, but did not write it"
    ]


# --- schemas and names ----------------------------------------------------------------------------------------------


def test_a_schema_of_ones_own() -> None:
    def body(x, scale=2.0):  # type: ignore[no-untyped-def]
        return kernels.plain(x, x) * scale

    op = tt.triton_op("twtest::schema", body, mutates_args=(), schema="(Tensor x, float scale=2.0) -> Tensor")
    assert torch.equal(torch.ops.twtest.schema(torch.ones(3)), torch.full((3,), 8.0))
    assert torch.equal(op(x=torch.ones(3)), torch.full((3,), 8.0))
    assert str(op.overload._schema).startswith("twtest::schema(Tensor x, float scale=2.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": "(Tensor y) -> Tensor"}, r"has the arguments \(y\), but the function has \(x\)"),
        ({"schema": "(Tensor x, int n) -> Tensor"}, r"has the arguments \(x, n\)"),
        ({"schema": "(Tensor(a!) x) -> Tensor"}, r"changes \['x'\], but mutates_args is \[\]"),
        ({"schema": "Tensor x"}, "is no schema"),
        ({}, "has no schema"),
    ],
)
def test_schemas_that_contradict_the_function(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tt.triton_op("twtest::contradiction", lambda x: x + 1, mutates_args=(), **options)


def test_results_that_contradict_the_schema() -> None:
    op = tt.triton_op(
        "twtest::two", lambda x: (x + 1, x), mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor, Tensor)"
    )
    with pytest.raises(ArgumentError, match="returns 2 values, but its schema says 3"):
        op(torch.ones(3))


def test_names_that_are_taken() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    with pytest.raises(ArgumentError, match=r"twtest::add2 already, made of tests.torch.kernels.add2"):
        tt.triton_op("twtest::add2", other, mutates_args=())
    with pytest.raises(ArgumentError, match="already"):
        tt.triton_op("aten::add", other, mutates_args=())
    with pytest.raises(ArgumentError, match="names no operator"):
        tt.triton_op("add", other, mutates_args=())


@pytest.mark.xfail(
    torch.__version__ < "2.12", strict=True, reason="Dynamo of torch 2.11 does not see that (docs/torch.md)"
)
def test_a_definition_that_runs_again_replaces_the_operator() -> None:
    def make(kernel: Any) -> TileOp:
        @tt.triton_op("twtest::again", mutates_args=())
        def again(x: torch.Tensor) -> torch.Tensor:
            o = torch.zeros_like(x)
            kernel[(1,)](x, x, o, x.numel(), B=64)
            return o

        return again

    space = {"op": make(kernels.add)}
    compiled = torch.compile(lambda x: space["op"](x), backend="aot_eager", fullgraph=True)
    x = torch.ones(40)
    assert torch.equal(compiled(x), x * 2)
    space["op"] = make(less)
    for f in (compiled, space["op"], torch.ops.twtest.again):
        assert torch.equal(f(x), torch.zeros(40))


@tilewright.jit
def less(x, y, o, n, B: tilewright.language.constexpr):
    i = tilewright.language.arange(0, B)
    value = tilewright.language.load(x + i, i < n) - tilewright.language.load(y + i, i < n)
    tilewright.language.store(o + i, value, i < n)


MODULE = """
import torch, tilewright, tilewright.language as tl, tilewright.torch as tt
FACTOR: tl.constexpr = 2
@tilewright.jit
def scale(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * FACTOR, i < n)
def launch(x):
    o = torch.empty_like(x)
    scale[(1,)](x, o, x.numel(), 64)
    return o
scaled = tt.triton_op("twtest::reloaded", launch, mutates_args=(), schema="(Tensor x) -> Tensor")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a user, `edit(old, new)` changes its source and loads it again."""
    file = tmp_path / "twtest_module.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loaded: Any = importlib.import_module("twtest_module")

    def edit(old: str, new: str) -> None:
        file.write_text(file.read_text().replace(old, new))
        importlib.invalidate_caches()
        importlib.reload(loaded)

    loaded.edit = edit
    yield loaded
    del sys.modules["twtest_module"]


@pytest.mark.xfail(
    torch.__version__ < "2.12", strict=True, reason="Dynamo of torch 2.11 does not see that (docs/torch.md)"
)
def test_a_module_that_is_loaded_again(module: Any) -> None:
    x = torch.ones(40)
    calls = {
        "bare": torch.compile(lambda x: module.launch(x), backend="aot_eager", fullgraph=True),
        "object": torch.compile(lambda x: module.scaled(x), backend="aot_eager", fullgraph=True),
        "name": torch.ops.twtest.reloaded,
        "old object": module.scaled,
    }
    for _ in range(3):  # machine code in the end
        assert [f(x)[0].item() for f in calls.values()] == [2, 2, 2, 2]
    module.edit("", "")
    assert [f(x)[0].item() for f in calls.values()] == [2, 2, 2, 2]
    module.edit("* FACTOR", "+ FACTOR + FACTOR")
    assert [f(x)[0].item() for f in (*calls.values(), module.scaled)][:3] == [5, 5, 5]


def test_a_global_that_changes_after_compilation(module: Any) -> None:
    x = torch.ones(40)
    compiled = torch.compile(module.launch, backend="aot_eager", fullgraph=True)
    for _ in range(3):  # machine code in the end
        assert compiled(x)[0] == 2
    module.FACTOR = tilewright.language.constexpr(7)
    for call in (compiled, module.launch, module.scaled):
        with pytest.raises(RuntimeError, match="FACTOR"):
            call(x)


def test_a_kernel_that_was_not_found_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    @tt.triton_op("twtest::hidden", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        o = torch.zeros_like(x)
        getattr(sys.modules["tests.torch.kernels"], "increase")[(1,)](o, 3, 1.0)
        return o

    before = op.content()
    assert op.kernels() == []
    with caplog.at_level(logging.WARNING, "tilewright.torch"):
        for _ in range(2):
            assert op(torch.zeros(3)).sum() == 3
    assert sum("was not found in its source" in record.getMessage() for record in caplog.records) == 1
    assert op.kernels() == [kernels.increase] and op.content() != before


def test_wrap_triton() -> None:
    for kernel in (kernels.add, kernels.doubled, kernels.tripled):
        assert tt.wrap_triton(kernel) is kernel is tt.capture_triton(tt.wrap_triton(kernel))
    for other in (kernels.add.fn, 3, kernels.plain, None):
        with pytest.raises(RuntimeError, match="wrap_triton takes a kernel"):
            tt.wrap_triton(other)


# --- tensors ----------------------------------------------------------------------------------------------------------


def test_tensors_of_two_devices() -> None:
    x, y = pair()
    for call in (kernels.block_of_size, kernels.add2):
        with pytest.raises(DeviceError, match=r"argument `y` is on meta"):
            call(x, y.to("meta"))


def test_strides_are_what_the_kernel_was_given() -> None:
    """The kernel goes by addresses: nothing makes a copy of another layout behind its back."""

    def f(x: torch.Tensor) -> torch.Tensor:
        kernels.increase[(2,)](x.t(), 100, 1.0)
        return x.t() * 2

    for backend in ("aot_eager", "inductor"):
        ours, theirs = torch.zeros(12, 20), torch.zeros(12, 20)
        assert torch.equal(torch.compile(f, backend=backend, fullgraph=True)(ours), f(theirs))
        assert torch.equal(ours, theirs) and ours.flatten()[:100].sum() == 100


# --- transforms of torch.func -----------------------------------------------------------------------------------------


def test_operators_are_refused_where_torch_func_differentiates() -> None:
    """A tangent was 0, and PyTorch's own error of `grad` speaks of what nobody has written."""
    x, y = pair()
    for transform in (
        lambda: torch.func.grad(lambda v: kernels.add2(v, y).sum())(x),
        lambda: torch.func.vjp(kernels.add2, x, y),
        lambda: torch.func.jvp(kernels.add2, (x, y), (x, y)),
    ):
        with pytest.raises(GradientError, match="where a transform of torch.func differentiates"):
            transform()
    assert torch.equal(torch.func.functionalize(kernels.add2)(x, y), kernels.add2(x, y))


def test_a_nested_tensor_is_refused() -> None:
    @hl.kernel
    def squared(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size()):
            out[tile] = x[tile] * x[tile]
        return out

    nested = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(4, 3)], layout=torch.jagged)
    with pytest.raises(hl.exc.UnsupportedPythonType, match="nested tensor"):
        squared(nested)
    x = torch.rand(4, 5)
    assert torch.equal(torch.func.functionalize(squared)(x), x * x)
