"""Bare launches under everything that traces: the graph gives what eager gives, arguments changed in place included."""

from __future__ import annotations

import logging
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
import tilewright.torch as tt
from tests.torch import kernels
from tests.torch.kernels import FUNCTIONS, pair
from tests.torch.observers import Seen, SeenFunctions
from tests.tuning import descriptor_programs as programs
from tilewright.base.errors import ArgumentError, CompilationError, GridError, LanguageValueError
from tilewright.torch import operators

Function = Callable[..., Any]
OLD = torch.__version__ < "2.12"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def agree(f: Function, g: Function, sizes: tuple[int, ...] = (300,)) -> None:
    """The two functions return the same and change their arguments alike."""
    for n in sizes:
        ours, theirs = pair(n), pair(n)
        assert torch.equal(f(*theirs), g(*ours))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def launches(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if "tilewright_kernels" in str(node.target)]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_make_fx(f: Function) -> None:
    agree(f, make_fx(f)(*pair()))
    graph = make_fx(f, tracing_mode="symbolic")(*pair())
    agree(f, graph)
    assert launches(graph.graph)


@pytest.mark.parametrize(("backend", "dynamic"), [("eager", True), ("aot_eager", False)], ids=["eager", "aot_eager"])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_compile(f: Function, backend: str, dynamic: bool) -> None:
    """`test_inductor` has dynamic sizes by way of AOTAutograd."""
    agree(f, torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic), (300, 512, 301))


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on the CPU")
def test_inductor() -> None:
    """All programs in one graph, which saves calls of the C++ compiler."""

    nested = torch.compiler.nested_compile_region(kernels.plain)

    def together(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        either = torch.cond(x.sum() > 0, lambda a, b: kernels.plain(a, b), lambda a, b: a - b, (x, y))
        return either, nested(x, y), *[f(x, y) for f in FUNCTIONS if f is not kernels.reinterpreted]

    # Inductor of torch 2.11 asks computed integers of an operator for strides (docs/torch.md).
    compiled = torch.compile(together, fullgraph=True, dynamic=not OLD)
    for n in (300, 512):
        ours, theirs = pair(n), pair(n)
        torch.testing.assert_close(compiled(*ours), together(*theirs))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("f", [kernels.plain, kernels.in_place, kernels.autotuned, kernels.of_all_kinds])
def test_a_changed_size_does_not_recompile(f: Function) -> None:
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    agree(f, compiled)
    with torch._dynamo.config.patch(error_on_recompile=True):
        agree(f, compiled, (301, 512, 77))


def test_hooks_that_set_blocks_of_descriptors_under_a_tracer() -> None:
    by_tiles = tilewright.autotune(programs.TILES, key=[], restore_value=["C"], **programs.QUICK)(
        programs.add_up_in_place
    )

    def f(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        by_tiles[lambda meta: (64 // meta["BM"], 96 // meta["BN"])](programs.whole(a), programs.whole(c))
        return c + 1

    a, c = torch.randn(64, 96), torch.randn(64, 96)
    expected = c + 2 * a + 1
    torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(a, c), expected)
    assert not by_tiles.failures


@pytest.mark.filterwarnings("ignore:option")
def test_options_of_other_back_ends_under_a_tracer() -> None:
    configs = [tilewright.Config({"B": 64, "kpack": 2}), tilewright.Config({"B": 256, "num_threads": 2})]
    tuned = tilewright.autotune(configs, key=["n"], warmup=1, rep=1)(kernels.doubled.fn)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        o, n = torch.empty_like(x), x.numel()
        tuned[lambda meta: (tilewright.cdiv(n, meta["B"]),)](x, o, n)
        kernels.increase[(tilewright.cdiv(n, 64),)](o, n, 2.0, waves_per_eu=2)
        return o + y

    agree(f, torch.compile(f, backend="aot_eager", fullgraph=True))


def test_fake_tensors_are_never_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a launch")

    kernels.plain(*pair(299))  # its operator is there: none is made that keeps `refuse`
    monkeypatch.setattr(tilewright.JITFunction, "launcher", refuse)
    monkeypatch.setattr(operators, "make_launch", lambda operator: (refuse, {}))
    with FakeTensorMode() as mode:
        fakes = tuple(mode.from_tensor(t) for t in pair(299))
        assert kernels.plain(*fakes).shape == (299,)
    outside = kernels.plain(*fakes)  # the mode is left: the tensors know
    assert outside.shape == (299,) and isinstance(outside, torch._subclasses.FakeTensor)


def test_meta_tensors() -> None:
    x, y = (t.to("meta") for t in pair())
    assert kernels.plain(x, y).device.type == "meta" and kernels.add2(x, y).shape == (300,)


def test_cond_checkpoint_and_nested_regions() -> None:
    def either(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: kernels.plain(a, b), lambda a, b: a - b, (x, y))

    agree(either, torch.compile(either, backend="aot_eager", fullgraph=True))
    nested = torch.compiler.nested_compile_region(kernels.plain)
    agree(lambda x, y: nested(x, y) + 1, torch.compile(lambda x, y: nested(x, y) + 1, backend="aot_eager"))


def test_inference_mode_and_autocast() -> None:
    with torch.inference_mode():
        agree(kernels.plain, torch.compile(kernels.plain, backend="aot_eager", fullgraph=True))
        agree(kernels.in_place, kernels.in_place)
    with torch.autocast("cpu", torch.bfloat16):
        agree(kernels.plain, torch.compile(kernels.plain, backend="aot_eager", fullgraph=True))


def test_vmap() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        o = torch.zeros_like(x)
        kernels.add[(5,)](x, x, o, 300, B=64)
        return o

    batch = torch.randn(3, 300)
    assert torch.equal(torch.vmap(one)(batch), batch * 2)


def test_a_model_for_a_gpu_is_traced_where_there_is_none() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return kernels.plain(x, kernels.add2(x, y))

    with FakeTensorMode():
        fakes = tuple(torch.empty(300, device="cuda") for _ in range(2))
        program = torch.export.export(Model(), fakes)
    assert len(launches(program.graph)) == 1
    (out,) = (node.meta["val"] for node in program.graph.find_nodes(op="output")[0].args[0])
    assert out.device.type == "cuda" and out.shape == (300,)


def test_what_is_launched_does_not_recompile() -> None:
    """Dynamo guards on the kernel's number, not on what a launch leaves in the kernel."""
    kernel = tilewright.jit(kernels.add.fn)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(x)
        kernel[(5,)](x, y, o, 300, B=64)
        return o

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    x, y = pair()
    compiled(x, y)
    for _ in range(3):
        f(x, y)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert torch.equal(compiled(x, y), x + y)


def test_guards_are_few() -> None:
    """A launch costs its guards at every call of what was compiled; see `unguarded.py`."""
    found: list[Any] = []

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kernels.add[(5,)](x, y, y, 300, B=64)
        return y

    hook = {"guard_filter_fn": lambda guards: found.extend(guards) or [True] * len(guards)}
    torch.compile(f, backend="eager", fullgraph=True, options=hook)(*pair())
    ours = [guard for guard in found if "tilewright" in guard.name or "kernels" in guard.name]
    # The kernel, its number, the tracer slot, and one for each class of a kernel that Dynamo looks through.
    assert 0 < len(ours) <= 7 + 6, [guard.name for guard in ours]


def test_interpreted_kernels_trace_too() -> None:
    kernel = tilewright.jit(kernels.add.fn, interpret=True)

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(x)
        kernel[(5,)](x, y, o, x.numel(), B=64)
        return o

    agree(lambda x, y: x + y, torch.compile(f, backend="aot_eager", fullgraph=True))


def test_a_new_kernel_under_an_old_name() -> None:
    """As in a notebook whose cell is run again: a graph made before uses the new kernel."""
    space: dict[str, Any] = {"kernel": kernels.increase}

    def f(x: torch.Tensor) -> torch.Tensor:
        o = torch.zeros_like(x)
        space["kernel"][(5,)](o, 300, 1.0)
        return o

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(300)).sum() == 300
    space["kernel"] = tilewright.jit(kernels.doubled.fn.fn)
    with pytest.raises(Exception, match="missing argument"):
        compiled(torch.zeros(300))


# --- names and effects --------------------------------------------------------------------------------------------


def names_of(f: Function) -> list[str]:
    return launches(make_fx(f)(*pair()).graph)


def test_names_hold_the_content() -> None:
    first = names_of(kernels.plain)
    copy = tilewright.jit(kernels.add.fn)
    other = tilewright.jit(kernels.increase.fn)

    def again(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(x)
        copy[(5,)](x, y, o, 300, B=64)
        copy[(5,)](x, y, o, 300, B=128)
        copy[(5,)](x.double(), y, o, 300, B=64)
        copy[(5,)](x, y, o, 300, B=64, num_warps=2)
        other[(5,)](o, 300, 1.0)
        return o

    found = names_of(again)
    assert found[0] == first[0] and len(set(found)) == 5


def test_the_schema_says_what_is_written() -> None:
    name = names_of(kernels.plain)[0].split(".")[1]
    schema = str(getattr(torch.ops.tilewright_kernels, name).default._schema)
    assert "Tensor x, Tensor y, Tensor(a2!) o, SymInt n, SymInt grid0_x" in schema
    assert torch.Tag.needs_exact_strides in getattr(torch.ops.tilewright_kernels, name).default.tags


def test_unsure_effects_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        kernels.through_table[(1,)](table, x)
        return x + 1

    x, o = torch.ones(1), torch.zeros(1)
    table = torch.tensor([o.data_ptr()])
    with caplog.at_level(logging.WARNING, "tilewright.torch"):
        compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
        compiled(x, table)
        compiled(x, table)
    assert o.item() == 1
    (record,) = caplog.records
    assert "every tensor counts as written" in record.getMessage() and "kernels.py:" in record.getMessage()


# --- mistakes -------------------------------------------------------------------------------------------------------


def test_mistakes_are_found_while_tracing() -> None:
    x, y = pair()

    def launching(kernel: Any, *args: Any, grid: Any = (1,), **kwargs: Any) -> Function:
        return lambda x: kernel[grid](x, *args, **kwargs)

    with pytest.raises(LanguageValueError, match="`silent` writes to none of its arguments"):
        make_fx(launching(kernels.silent, 3))(x)
    with pytest.raises(CompilationError, match=r"tl.dot\(tl.load\(x\), n\)"):
        make_fx(launching(kernels.wrong, y, 3))(x)
    with pytest.raises(ArgumentError, match="increase: missing argument `a`"):
        make_fx(launching(kernels.increase, 3))(x)
    with pytest.raises(ArgumentError, match="1 positional arguments too many"):
        make_fx(launching(kernels.increase, 3, 1.0, 64, 5))(x)
    with pytest.raises(ArgumentError, match="`increase` cannot be traced"):
        make_fx(launching(kernels.increase, np.zeros(3), 1.0))(x)
    with pytest.raises(GridError, match="1 to 3 dimensions, got 4"):
        make_fx(launching(kernels.increase, 3, 1.0, grid=(1, 1, 1, 1)))(x)
    with pytest.raises(Exception, match=r"tl.dot\(tl.load\(x\), n\)"):
        torch.compile(launching(kernels.wrong, y, 3), backend="eager", fullgraph=True)(x)


def test_overlapping_views_are_refused_where_one_is_written() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kernels.add[(2,)](x[:100], y[:100], x[50:150], 100, B=64)
        return x

    with pytest.raises(ArgumentError, match="`add` writes `o`, which overlaps with `x`"):
        make_fx(f, tracing_mode="fake")(*pair())

    def apart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.clone()
        kernels.add[(2,)](z[:100], y[:100], z[100:200], 100, B=64)
        kernels.add[(2,)](z[:100], y[:100], z[:100], 100, B=64)
        return z

    agree(apart, torch.compile(apart, backend="aot_eager", fullgraph=True))


# --- in eager -------------------------------------------------------------------------------------------------------


def test_version_counters() -> None:
    x, y = pair()
    o = torch.empty_like(x)
    before = [t._version for t in (x, y, o)]
    kernels.add[(5,)](x, y, o, 300, B=64)
    kernels.add[(5,)](x, y, n=300, o=o, B=64)
    assert [t._version - b for t, b in zip((x, y, o), before, strict=True)] == [0, 0, 2]
    kernels.doubled[lambda meta: (tilewright.cdiv(300, meta["B"]),)](x, o, 300)
    assert o._version > before[2] + 2
    name = names_of(kernels.plain)[0].split(".")[1]
    version = o._version
    getattr(torch.ops.tilewright_kernels, name)(x, y, o, 300, 5)
    assert o._version == version + 1


def test_the_dispatcher_is_left_out_only_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    name = names_of(kernels.plain)[0].split(".")[1]
    op = getattr(torch.ops.tilewright_kernels, name).default
    dispatched: list[str] = []
    real = op._op
    monkeypatch.setattr(op, "_op", lambda *args: dispatched.append("op") or real(*args))
    x, y = pair()
    o = torch.empty_like(x)
    for _ in range(3):  # machine code from the second call on
        o.zero_()
        op(x, y, o, 300, 5)
        assert torch.equal(o, x + y) and not dispatched
    with Seen() as mode:
        op(x, y, o, 300, 5)
    assert len(dispatched) == 1 and any(name in seen for seen in mode.names)
    with SeenFunctions():
        op(x, y, o, 300, 5)
    with torch.autograd.profiler.profile() as profile:
        op(x, y, o, 300, 5)
    assert any(name in event.name for event in profile.function_events)
    torch.vmap(lambda a, b, c: op(a, b, c, 150, 3) or a)(*(t.reshape(2, 150) for t in (x, y, o)))
    with FakeTensorMode() as fake_mode:
        fakes = [fake_mode.from_tensor(t) for t in (x, y, o)]
    op(*fakes, 300, 5)
    op(*(t.to("meta") for t in (x, y, o)), 300, 5)
    assert len(dispatched) >= 6


def test_a_saved_tensor_that_a_kernel_changes_is_noticed() -> None:
    x = torch.ones(300, requires_grad=True)
    y = torch.ones(300)
    product = x * y
    kernels.increase[(5,)](y, 300, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_gradients_that_do_not_flow(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pair()
    x.requires_grad_()
    kernel = tilewright.jit(kernels.add.fn)
    with caplog.at_level(logging.WARNING, "tilewright.torch"), warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said in one place
        for _ in range(2):
            kernel[(5,)](x, y, torch.empty_like(y), 300, B=64)
        with torch.no_grad():
            kernel[(5,)](x, y, torch.empty_like(y), 300, B=64)
    assert [record.getMessage().count("none flow through it") for record in caplog.records] == [1]
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "error")
    with pytest.raises(tt.GradientError, match="register_autograd"):
        kernel[(5,)](x, y, torch.empty_like(y), 300, B=64)
    with pytest.raises(Exception, match="register_autograd"):
        torch.compile(kernels.plain, backend="eager", fullgraph=True)(x, y)
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "silent")
    kernel[(5,)](x, y, torch.empty_like(y), 300, B=64)


def test_recording_can_be_switched_off() -> None:
    assert tt.is_wrap_triton_enabled()
    with tt.set_wrap_triton_enabled(False):
        assert not tt.is_wrap_triton_enabled()
        graph = make_fx(kernels.plain)(*pair())
        elsewhere: list[bool] = []
        thread = threading.Thread(target=lambda: elsewhere.append(tt.is_wrap_triton_enabled()))
        thread.start()
        thread.join()
        assert elsewhere == [True]  # it is this thread's alone
    assert tt.is_wrap_triton_enabled() and not launches(graph.graph)
