"""The knob `torch.gradients` at launches of kernels that are warm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tests.launch.warming import warm
from tilewright.base.errors import GradientError
from tilewright.devices import arrays
from tilewright.launch import tracer_slot

torch = pytest.importorskip("torch")


@tilewright.jit
def fill(out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 1.0, i < n)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if `tilewright.torch` had not been imported, and nothing had been said yet."""
    monkeypatch.setattr(arrays, "_left", [])
    monkeypatch.setattr(arrays, "_mentioned", [])
    with tracer_slot.held_by(None):
        fill.clear()
        yield
    fill.clear()


class Mine(torch.Tensor):
    """A subclass, which is read by its attributes."""


def tensors(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """One that requires no gradient and one that does."""
    plain, wanting = torch.zeros(16), torch.zeros(16, requires_grad=True)
    return (plain.as_subclass(Mine), wanting.as_subclass(Mine)) if kind == "subclass" else (plain, wanting)


def launch(kernel: Any, out: torch.Tensor) -> None:
    kernel[(1,)](out, 16, BLOCK=16)


@pytest.mark.parametrize("kind", ["tensor", "subclass"])
def test_a_tensor_that_requires_a_gradient_is_seen_by_a_warm_kernel(kind: str) -> None:
    plain, wanting = tensors(kind)
    for _ in range(3):
        launch(fill, plain)
    with pytest.warns(UserWarning, match="requires a gradient"):
        launch(fill, wanting)


@pytest.mark.parametrize("kind", ["tensor", "subclass"])
def test_error_refuses_it_however_warm_the_kernel_is(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    plain, wanting = tensors(kind)
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "silent")
    for _ in range(3):
        launch(fill, plain)
        launch(fill, wanting)
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "error")
    kept = fill[(1,)]
    for _ in range(3):
        launch(fill, plain)
        with pytest.raises(GradientError, match="`out` requires a gradient"):
            launch(fill, wanting)
        with pytest.raises(GradientError, match="`out` requires a gradient"):
            kept(wanting, 16, BLOCK=16)
        with torch.no_grad():
            launch(fill, wanting)
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "silent")
    launch(fill, wanting)


def test_error_counts_in_generated_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wanting = tensors("tensor")
    launch(fill, plain)
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "error")
    for _ in range(3):
        fill._binder._in_python((1,), plain, 16, BLOCK=16)  # type: ignore[union-attr]
        with pytest.raises(GradientError):
            fill._binder._in_python((1,), wanting, 16, BLOCK=16)  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:argument")
def test_no_grad_and_silent_stay_in_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wanting = tensors("tensor")
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "error")
    python = None
    with torch.no_grad():
        launch(fill, plain)
        python = fill._binder._in_python  # type: ignore[union-attr]
        warm(fill, wanting, 16, BLOCK=16)
        launch(fill, wanting)
    launch(fill, plain)
    fill._binder._in_python = python  # type: ignore[union-attr]
    monkeypatch.setattr(tilewright.knobs.torch, "gradients", "silent")
    warm(fill, wanting, 16, BLOCK=16)
    launch(fill, wanting)
    fill._binder._in_python = python  # type: ignore[union-attr]
