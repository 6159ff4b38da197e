"""`triton_op`: gradients, export, short cuts, declarations that do not hold, names."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.effects import _get_effect
from torch._library.effects import EffectType
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright.torch as tt
from tests.torch import kernels
from tests.torch.kernels import add2, no_gradient, pair, raise_by
from tests.torch.observers import Seen, SeenFunctions, Subclass
from tilewright.base.errors import ArgumentError, LanguageValueError
from tilewright.torch.triton_op import TileOp

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield


def by_object(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add2(x, y) + 1


def by_name(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.twtest.add2(x, y) + 1


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    raise_by(x, 1.0)
    z = y + 1
    raise_by(z, 2.0)
    return x + z


@pytest.mark.parametrize("f", [by_object, by_name, in_place])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_as_in_eager(f: Function, dynamic: bool) -> None:
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for g in (compiled, make_fx(f, tracing_mode="symbolic")(*pair())):
        for n in (300, 301, 128):
            theirs, ours = pair(n), pair(n)
            assert torch.equal(f(*theirs), g(*ours)) and torch.equal(theirs[0], ours[0])


def test_a_kernel_that_only_prints_runs_under_a_mode_that_looks_on(capfd: pytest.CaptureFixture[str]) -> None:
    with Seen():
        kernels.told[(1,)](torch.ones(16), B=16)
    assert "sum: 16.0" in capfd.readouterr().out
    with pytest.raises(LanguageValueError, match="writes to none"):
        make_fx(lambda x: kernels.told[(1,)](x, B=16))(torch.ones(16))


def graphs(f: Function, *args: Any) -> list[torch.fx.GraphModule]:
    """What AOTAutograd hands to a backend."""
    found: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, example: Any) -> Any:
        found.append(graph)
        return graph.forward

    torch.compile(f, backend=torch._dynamo.backends.common.aot_autograd(fw_compiler=keep), fullgraph=True)(*args)
    return found


def test_compilers_see_inside() -> None:
    (graph,) = graphs(by_object, *pair())
    assert "twtest" not in graph.code and "tilewright_kernels" in graph.code and "aten.mul" in graph.code


def test_inductor_copies_nothing() -> None:
    """The output that the operator allocates is written in place, and neighbours are there to be fused."""
    from torch._inductor.utils import run_and_get_code

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        o, n = torch.empty_like(x), x.numel()
        kernels.add[(5,)](x, y, o, n, B=64)
        return o

    x, y = pair()
    found, code = run_and_get_code(torch.compile(f, fullgraph=True), x, y)
    text = "\n".join(code)
    assert torch.equal(found, x + y)
    assert text.count("torch.ops.tilewright_kernels") == 1 and "clone" not in text and "cpp_fused" not in text


def test_gradients() -> None:
    for f in (by_object, torch.compile(by_object, backend="aot_eager", fullgraph=True)):
        x, y = (t.requires_grad_() for t in pair())
        f(x, y).sum().backward()
        assert (x.grad == 2).all() and (y.grad == 2).all()


def test_checkpointing() -> None:
    x, y = (t.requires_grad_() for t in pair())
    torch.utils.checkpoint.checkpoint(by_object, x, y, use_reentrant=False).sum().backward()
    assert (x.grad == 2).all()


def test_without_a_formula_a_backward_pass_raises() -> None:
    x = pair()[0].requires_grad_()
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        no_gradient(x).sum().backward()
    with pytest.raises(ArgumentError, match="changes arguments, so it has no backward"):
        raise_by.register_autograd(lambda ctx: None)


@pytest.mark.parametrize(
    ("op", "args"),
    [(add2, (torch.randn(5, requires_grad=True), torch.randn(5))), (raise_by, (torch.randn(5), 1.0))],
)
def test_opcheck(op: TileOp, args: Any) -> None:
    assert set(torch.library.opcheck(op.overload, args).values()) == {"SUCCESS"}


def test_vmap_loops() -> None:
    x, y = torch.randn(2, 3, 40)
    assert torch.equal(torch.vmap(add2)(x, y), add2(x, y))


# --- export -------------------------------------------------------------------------------------------------


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = add2(x, y)
        return kernels.plain(x, z)


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    x, y = pair()
    size = torch.export.Dim("n", min=3, max=4096)
    program = torch.export.export(Module(), (x, y), dynamic_shapes=({0: size}, {0: size}), strict=strict)
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("twtest.add2.default") == 1 and sum("tilewright_kernels" in t for t in targets) == 1
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for loaded in (program, torch.export.load(file), program.run_decompositions({})):
        assert "twtest.add2.default" in [str(node.target) for node in loaded.graph.nodes]
        a, b = pair(77)
        assert torch.equal(loaded.module()(a, b), Module()(a, b))
    opened = program.run_decompositions({}, decompose_custom_triton_ops=True)
    assert "twtest" not in opened.graph_module.code
    assert torch.equal(opened.module()(x, y), Module()(x, y))


# --- the short cut ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["object", "name", "overload"])
def test_the_dispatcher_is_left_out_only_where_nobody_looks(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object, `torch.ops.lib.name` and its overload, under everything that may look on."""
    add2(*pair())  # the first run is another
    packet = torch.ops.twtest.add2
    called = {"object": add2, "name": packet, "overload": packet.default}[way]
    below: Any = packet if way == "name" else packet.default
    dispatched: list[str] = []
    real = below._op
    monkeypatch.setattr(below, "_op", lambda *args: dispatched.append("op") or real(*args))
    x, y = pair()
    want = real(x, y)

    def sees(*args: torch.Tensor) -> bool:
        count = len(dispatched)
        called(*args)
        return len(dispatched) > count

    assert torch.equal(called(x, y), want) and torch.equal(called(x, y=y), want) and not dispatched
    with torch.no_grad():
        assert torch.equal(called(x.requires_grad_(), y), want) and not dispatched
    assert sees(x, y) and called(x, y).requires_grad
    x.requires_grad_(False)
    with Seen() as mode:
        assert sees(x, y) and "twtest.add2.default" in mode.names
    with SeenFunctions() as functions:
        assert sees(x, y) and any("twtest" in name for name in functions.names)
    with torch.autocast("cpu"):
        assert sees(x, y)
    with torch._subclasses.FakeTensorMode():
        assert sees(torch.empty(3), torch.empty(3))
    count = len(dispatched)
    torch.func.vmap(called)(x.reshape(2, 150), y.reshape(2, 150))
    assert len(dispatched) > count
    Subclass.seen = 0
    assert sees(x.as_subclass(Subclass), y) and Subclass.seen == 1
    with torch.profiler.profile() as profile:
        called(x, y)
    assert way == "object" or any(event.key == "twtest::add2" for event in profile.key_averages())


def test_numbers_are_those_of_the_schema() -> None:
    seen: list[float] = []

    @tt.triton_op("twtest::times", mutates_args=())
    def times(x: torch.Tensor, a: float, n: int = 3) -> torch.Tensor:
        seen.extend((a, n))
        return kernels.plain(x, x) * a * n

    for f in (times, torch.ops.twtest.times):
        seen.clear()
        for _ in range(2):  # the first run is another
            assert torch.equal(f(torch.ones(3), 2), f(torch.ones(3), a=2))
        assert seen == [2.0, 3] * 4 and {type(number) for number in seen[::2]} == {float}
    with pytest.raises(ArgumentError, match="default a=2.0, which the function has not"):
        tt.triton_op("twtest::unlike", times.fn, mutates_args=(), schema="(Tensor x, float a=2.0, int n=3) -> Tensor")


def test_another_implementation_for_a_device() -> None:
    @tt.triton_op("twtest::replaced", mutates_args=())
    def replaced(x: torch.Tensor) -> torch.Tensor:
        return kernels.plain(x, x)

    assert torch.equal(replaced(torch.ones(3)), torch.full((3,), 4.0))
    replaced.register_kernel("cpu", lambda x: x - 1)
    for f in (replaced, torch.ops.twtest.replaced, torch.compile(replaced, backend="eager", fullgraph=True)):
        assert torch.equal(f(torch.ones(3)), torch.zeros(3))


# --- PyTorch's own functions take an operator where they take a `CustomOpDef` ------


def an_operator(name: str) -> TileOp:
    @tt.triton_op(f"twtest::{name}", mutates_args=())
    def times_four(x: torch.Tensor) -> torch.Tensor:
        return kernels.plain(x, x)

    return times_four


def test_opcheck_takes_the_operator_itself() -> None:
    for op, args in ((add2, (torch.randn(5), torch.randn(5))), (raise_by, (torch.randn(5), 2.0))):
        assert set(torch.library.opcheck(op, args).values()) == {"SUCCESS"}


WAYS: dict[str, Callable[[TileOp], Any]] = {"object": lambda op: op, "name": lambda op: op.name}
WAYS["overload"] = lambda op: op.overload


@pytest.mark.parametrize("way", WAYS)
def test_everything_is_registered_by_every_way(way: str) -> None:
    op = an_operator(f"registered_by_{way}")
    it, x = WAYS[way](op), torch.arange(3.0)
    reached = (op, op.overload, torch.compile(op, backend="aot_eager", fullgraph=True))

    torch.library.register_autograd(it, lambda ctx, grad: grad * 7)
    for f in reached:
        y = x.clone().requires_grad_()
        f(y).sum().backward()
        assert torch.equal(y.grad, torch.full((3,), 7.0))

    @torch.library.register_vmap(it)
    def rule(info: Any, dims: Any, x: torch.Tensor) -> Any:
        return x * 5, dims[0]

    assert torch.equal(torch.vmap(op)(x.reshape(3, 1)), 5 * x.reshape(3, 1))

    torch.library.register_autocast(it, "cpu", torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert op(x).dtype is torch.bfloat16
    assert op(x).dtype is torch.float32

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return f(*args, **(kwargs or {}))

    @torch.library.register_torch_dispatch(it, Counting)
    def counted(mode: Any, f: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return torch.full((3,), -1.0)

    with Counting():
        assert torch.equal(op(x), torch.full((3,), -1.0))

    @torch.library.register_kernel(it, "cpu")
    def other(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    torch._dynamo.reset()
    for f in reached:
        assert torch.equal(f(x), x - 1)
    with op.set_kernel_enabled("cpu", enabled=False):
        assert torch.equal(op(x), 4 * x)
    assert torch.equal(op(x), x - 1)

    @torch.library.register_fake(it)
    def smaller(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(1)

    assert op(torch.empty(3, device="meta")).shape == (1,)
    assert torch.library.get_kernel(op.overload, "CPU") is not None


def test_an_effect_and_a_kernel_for_all_devices() -> None:
    op = an_operator("with_effect")
    assert _get_effect(op) is None
    op.register_effect(EffectType.ORDERED)
    assert _get_effect(op) is EffectType.ORDERED
    op.register_kernel(None, lambda x: x * 9)
    assert torch.equal(op(torch.ones(3)), torch.full((3,), 9.0))
    assert torch.equal(op.overload(torch.ones(3)), torch.full((3,), 9.0))
