"""Gradients of a kernel against those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from tilewright.hl.runtime.gradient_slot import wants
from tilewright.hl.tune import keys


def leaves(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments whose floating-point tensors require gradients, as copies with the same strides."""
    return tuple(_leaf(arg) for arg in args)


def _leaf(arg: Any) -> Any:
    if isinstance(arg, torch.Tensor) and arg.is_floating_point():
        copy = torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.device)
        return copy.copy_(arg).requires_grad_() if 0 not in arg.stride() else arg.detach().requires_grad_()
    return arg


@contextmanager
def tiles_by_default(size: int) -> Iterator[None]:
    """Kernels whose tiles nobody chose have such of `size` inside, as far as theirs may be."""
    with mock.patch.object(keys, "default_blocks", lambda facts: [size] * len(facts.slots)):
        yield


def gradients(function: Callable[..., Any], args: tuple[Any, ...], seed: int = 0) -> list[Any]:
    """The gradients of what a function returns by all arguments, for a random gradient of the result."""
    given = leaves(args)
    out = function(*given)
    outs = [one for one in (out if isinstance(out, tuple | list) else [out]) if one.is_floating_point()]
    generator = torch.Generator("cpu").manual_seed(1000 + seed)  # other numbers than the arguments are
    ups = [torch.randn(one.shape, generator=generator, dtype=torch.float64, device="cpu").to(one) for one in outs]
    wanted = [arg for arg in given if wants(arg)]
    found = torch.autograd.grad(outs, wanted, ups, allow_unused=True)
    return [torch.zeros_like(arg) if one is None else one for arg, one in zip(wanted, found, strict=True)]


def check(kernel: Callable[..., Any], reference: Callable[..., Any], *args: Any, tolerance: float = 0.0) -> None:
    """Compare; the tolerance is relative to the largest element of a gradient, 0 for what the type allows."""
    for mine, theirs in zip(gradients(kernel, args), gradients(reference, args), strict=True):
        bound = tolerance or {torch.float64: 1e-10, torch.float32: 1e-4}.get(theirs.dtype, 3e-2)
        scale = float(theirs.abs().max()) if theirs.numel() else 1.0
        torch.testing.assert_close(mine, theirs, rtol=0, atol=bound * max(scale, 1e-3))


def gradcheck(kernel: Callable[..., Any], args: tuple[Any, ...], fast: bool = True) -> None:
    """Compare gradients with quotients of small differences; `fast`: along random directions."""

    def outs(*given: Any) -> tuple[Any, ...]:
        out = kernel(*given)
        return tuple(one for one in (out if isinstance(out, tuple) else (out,)) if one.is_floating_point())

    assert torch.autograd.gradcheck(outs, leaves(args), fast_mode=fast)
