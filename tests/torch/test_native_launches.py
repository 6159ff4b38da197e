"""Launches that machine code makes with `tilewright.torch` imported: the tracer is asked where somebody looks on, and
only there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
import tilewright.torch as tt
from tests.torch import kernels
from tests.torch.observers import Seen, SeenFunctions, Subclass
from tilewright.launch.native.machine import machine
from tilewright.torch import tracing
from tilewright.torch.state import doing

N = 128
pytestmark = pytest.mark.skipif(machine() is None, reason="launches are made by Python on this interpreter")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The launches that came to the tracer."""
    found: list[Any] = []
    real = tracing._outside_dynamo

    def outside(kernel: Any, *rest: Any) -> Any:
        found.append(kernel)
        return real(kernel, *rest)

    monkeypatch.setattr(tracing, "_outside_dynamo", outside)
    yield found


def launch(x: torch.Tensor, o: torch.Tensor) -> None:
    kernels.add[(2,)](x, x, o, N, B=64)


@pytest.fixture
def known(asked: list[Any]) -> list[Any]:
    for _ in range(3):
        launch(torch.ones(N), torch.empty(N))
    asked.clear()
    return asked


def test_nobody_is_asked_where_nobody_looks(known: list[Any]) -> None:
    x, o = torch.ones(N), torch.zeros(N)
    for _ in range(4):
        launch(x, o)
    assert o.tolist() == [2.0] * N and not known
    assert (x._version, o._version) == (0, 4)
    view = o[:]
    launch(x, view)
    assert o._version == 5 and not known
    with pytest.raises(tilewright.errors.ArgumentError):
        kernels.add[(2,)](x, o, N, B=64)
    assert len(known) == 1


def _under_a_mode(x: torch.Tensor, o: torch.Tensor) -> None:
    with Seen() as mode:
        launch(x, o)
    assert any("tilewright_kernels" in name for name in mode.names)


def _fake(x: torch.Tensor, o: torch.Tensor) -> None:
    with FakeTensorMode() as mode:
        launch(mode.from_tensor(x), mode.from_tensor(o))


def _make_fx(x: torch.Tensor, o: torch.Tensor) -> None:
    graph = make_fx(lambda x, o: (launch(x, o), o + 1)[1])(x, o)
    assert "tilewright_kernels" in str(graph.graph)


def _vmap(x: torch.Tensor, o: torch.Tensor) -> None:
    torch.vmap(lambda x, o: (launch(x, o), o)[1])(x.reshape(1, N), o.reshape(1, N))


def _grad(x: torch.Tensor, o: torch.Tensor) -> None:
    torch.func.grad(lambda x: (launch(x.detach(), o), x.sum())[1])(x)


def _subclass(x: torch.Tensor, o: torch.Tensor) -> None:
    for _ in range(3):
        launch(x.as_subclass(Subclass), o)


def _op_on_trial(x: torch.Tensor, o: torch.Tensor) -> None:
    told: list[Any] = []
    with doing(True, None, lambda *launch: told.append(launch)):
        launch(x, o)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("look", "times"),
    [(_under_a_mode, 1), (_fake, 1), (_make_fx, 1), (_vmap, 1), (_grad, 1), (_subclass, 3), (_op_on_trial, 1)],
    ids=["dispatch mode", "fake tensors", "make_fx", "vmap", "grad", "subclass", "trial"],
)
def test_whoever_looks_is_asked(known: list[Any], look: Callable[..., None], times: int) -> None:
    x, o = torch.ones(N), torch.zeros(N)
    look(x, o)
    assert known == [kernels.add] * times
    known.clear()
    launch(x, o)
    assert not known and o.tolist() == [2.0] * N


def test_a_mode_of_another_thread_sees_nothing(known: list[Any]) -> None:
    x, o = torch.ones(N), torch.zeros(N)
    with Seen() as mode:
        thread = threading.Thread(target=launch, args=(x, o))
        thread.start()
        thread.join()
    assert not known and not mode.names and o[0] == 2


def test_gradients(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, o = torch.ones(N, requires_grad=True), torch.zeros(N)
    for _ in range(3):
        launch(x, o)
    known.clear()
    launch(x, o)
    assert not known
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "error")
    for _ in range(3):
        with pytest.raises(tt.GradientError):
            launch(x, o)
    with torch.no_grad():
        launch(x, o)


def test_kept_launches_are_followed_by_dynamo(known: list[Any]) -> None:
    kernel = tilewright.jit(kernels.add.fn)
    early = kernel[(2,)]
    x, o = torch.ones(N), torch.zeros(N)
    for _ in range(3):
        early(x, x, o, N, B=64)
    late = kernel[(2,)]
    known.clear()
    early(x, x, o, N, B=64)
    late(x, x, o, N, B=64)
    assert not known and o._version == 5

    @torch.compile(backend="aot_eager", fullgraph=True)
    def both(x: torch.Tensor) -> torch.Tensor:
        o, p = torch.empty_like(x), torch.empty_like(x)
        early(x, x, o, N, B=64)
        late(o, x, p, N, B=64)
        return p

    assert both(x).tolist() == [3.0] * N


def test_autotuned_launches(known: list[Any]) -> None:
    x, o = torch.ones(N), torch.zeros(N)
    for _ in range(4):
        kernels.doubled[lambda meta: (tilewright.cdiv(N, meta["B"]),)](x, o, N)
    known.clear()
    version = o._version
    kernels.doubled[lambda meta: (tilewright.cdiv(N, meta["B"]),)](x, o, N)
    assert not known and o._version == version + 1


def test_bodies_of_operators(known: list[Any]) -> None:
    @tt.triton_op("twtest::native_body", mutates_args=())
    def body(x: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(x)
        kernels.add[(2,)](x, x, o, N, B=64)
        return o

    x = torch.ones(N)
    for _ in range(3):
        body(x)
    known.clear()
    assert body(x).tolist() == [2.0] * N and not known
    with tt.set_wrap_triton_enabled(False), Seen():
        launch(x, torch.zeros(N))
    assert not known


def test_inference_tensors_have_no_counter(known: list[Any]) -> None:
    with torch.inference_mode():
        x, o = torch.ones(N), torch.zeros(N)
        launch(x, o)
    launch(x, o)
    assert not known and o[0] == 2


# --- operators of kernels ---------------------------------------------------------------------------------------------


def options(x: torch.Tensor, y: torch.Tensor, o: torch.Tensor) -> None:
    kernels.add[(2, 1)](x, y, n=N, o=o, B=64, num_warps=2)


def operator(launch: Callable[..., None]) -> tuple[Any, list[Any]]:
    """The operator of a launch of x, y and o, in machine code, and what it did in Python since."""
    x, o = torch.ones(N), torch.zeros(N)
    graph = make_fx(launch)(x, x, o).graph
    (call,) = (node.target for node in graph.nodes if "tilewright_kernels" in str(node.target))
    grid = (2,) if launch is not options else (2, 1)
    for _ in range(3):
        call(x, x, o, N, *grid)
    in_python: list[Any] = []
    direct = call.direct
    call.direct = lambda *args: (in_python.append(args), direct(*args))[1]
    return lambda x, y, o, n=N: call(x, y, o, n, *grid), in_python


def plain(x: torch.Tensor, y: torch.Tensor, o: torch.Tensor) -> None:
    kernels.add[(2,)](x, y, o, N, B=64)


@pytest.mark.parametrize("launch", [plain, options])
def test_operators_of_kernels(launch: Callable[..., None]) -> None:
    call, in_python = operator(launch)
    x, y, o = torch.ones(N), torch.full((N,), 2.0), torch.zeros(N)
    for count in range(1, 4):
        assert call(x, y, o) is None and o.tolist() == [3.0] * N and o._version == count
    assert (x._version, y._version) == (0, 0) and not in_python
    call(x, y, torch.zeros(N + 1)[1:])  # other addresses, other numbers: Python once, or twice
    call(x, y, o, 3)
    assert in_python
    in_python.clear()
    for _ in range(2):
        call(x, y, o, 3)
        call(x, y, torch.zeros(N + 1)[1:])
    assert not in_python


def test_operators_whose_calls_somebody_sees() -> None:
    call, in_python = operator(plain)
    x, o = torch.ones(N), torch.zeros(N)
    for look in (Seen, SeenFunctions):
        with look() as mode:
            call(x, x, o)
        assert any("tilewright_kernels" in name for name in mode.names)
    with FakeTensorMode() as fake:
        call(*map(fake.from_tensor, (x, x, o)))
    assert (o == 2).all()
    torch.vmap(lambda x, o: (call(x, x, o, N), o)[1])(x.reshape(1, N), o.reshape(1, N))
    with torch.profiler.profile() as profile:
        call(x, x, o)
    assert any("tilewright_kernels" in event.key for event in profile.key_averages())
    in_python.clear()
    call(x, x, o)
    assert not in_python and o.tolist() == [2.0] * N


def test_hooks_of_launches_by_operators() -> None:
    kernel = tilewright.jit(kernels.add.fn)
    call, in_python = operator(lambda x, y, o: kernel[(2,)](x, y, o, N, B=64))
    x, o = torch.ones(N), torch.zeros(N)
    heard: list[Any] = []
    with tilewright.knobs.runtime.scope():
        tilewright.knobs.runtime.launch_enter_hook.add(heard.append)
        for _ in range(3):
            call(x, x, o)
    assert len(heard) == 3
    hook = lambda *args, **kwargs: heard.append(args)
    kernel.pre_run_hooks.append(hook)
    for _ in range(3):
        call(x, x, o)
    kernel.pre_run_hooks.remove(hook)
    assert len(heard) == 6
    for _ in range(2):
        call(x, x, o)
    in_python.clear()
    call(x, x, o)
    assert not in_python and len(heard) == 6 and o.tolist() == [2.0] * N
