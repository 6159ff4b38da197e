"""The slot of gradients: who makes a call of a kernel on tensors that want gradients.

`tilewright.hl.grad` stands here; what it needs is above this room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from tilewright import errors
from tilewright.hl import exc
from tilewright.hl.trace.carried import leaves
from tilewright.hl.trace.outside import Read

Call = Callable[[Any, tuple[Any, ...]], Any]


class Watched(Protocol):
    """A kernel for one kind of arguments, as a call that PyTorch can go back through.

    Attributes:
        bound: what calls without gradients run.
    """

    bound: Any

    def holds(self, args: tuple[Any, ...]) -> bool:
        """Whether what was assumed of the arguments, all by position, is true of these."""

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Run it."""


_call: Call | None = None


def install(found: Call) -> None:
    """Put `found` into the slot. It is called with the kernel and the arguments of a call, all by position."""
    global _call
    _call = found


def is_wanted(args: Sequence[Any], outside: Sequence[Read]) -> bool:
    """Whether a call with these arguments, of a kernel that reads `outside`, is to be differentiated."""
    if _call is None or not torch.is_grad_enabled():
        return False
    return any(wants(leaf) for _, leaf in leaves(tuple(args))) or any(wants(read.value) for read in outside)


def wants(value: Any) -> bool:
    """Whether a tensor, or a part of a module, requires a gradient."""
    if isinstance(value, torch.nn.Module):
        return any(parameter.requires_grad for parameter in value.parameters())
    return isinstance(value, torch.Tensor) and value.requires_grad


def refuse_tangents(kernel: Any, args: Sequence[Any], outside: Sequence[Read]) -> None:
    """Refuse a call that takes part in forward-mode differentiation: its results would have no tangent.

    Raises:
        NotDifferentiable: an argument, or a tensor from outside, has one.
    """
    if forward_ad._current_level < 0:
        return
    tensors = [leaf for _, leaf in leaves(tuple(args)) if isinstance(leaf, torch.Tensor)]
    tensors += [read.value for read in outside if isinstance(read.value, torch.Tensor)]
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise no_tangents(f"kernel `{kernel.name}`", kernel.source.location(kernel.source.tree))


def no_tangents(name: str, place: errors.Location | None = None) -> exc.NotDifferentiable:
    """The error for forward-mode differentiation."""
    return exc.NotDifferentiable(
        f"{name} has no derivative in forward mode (torch.autograd.forward_ad, torch.func.jvp, jacfwd)",
        place,
        hint="differentiate backward: torch.autograd.grad, torch.func.vjp, jacrev",
    )


def differentiated(kernel: Any, args: tuple[Any, ...]) -> Any:
    """Make a call that PyTorch can go back through."""
    assert _call is not None
    return _call(kernel, args)
