"""Gradients of kernels: a call on tensors that want gradients takes part in PyTorch's autograd.

The backward pass of a loop is derived from its graph: its nodes are called again in a trace of their own while PyTorch
watches (`replay`), what PyTorch computes as derivatives is written down (`adjoint`), and becomes the text of a kernel
(`text`) that is compiled like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright import lazy_module
from tilewright.hl.grad.view import Gradient, Plan
from tilewright.hl.runtime import gradient_slot
from tilewright.hl.runtime.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.hl.grad import calls
else:
    calls = lazy_module("tilewright.hl.grad.calls")


def _call(kernel: Any, args: tuple[Any, ...]) -> Any:
    return calls.call(kernel, args)


def grad(kernel: Kernel) -> Gradient:
    """The gradient of a kernel: its kernels as text that can be read, run and changed, and the plan of each loop.

    Args:
        kernel: a function with `@hl.kernel`.
    """
    return Gradient(kernel)


def install() -> None:
    """Stand in the slot of gradients."""
    gradient_slot.install(_call)


__all__ = ["Gradient", "Plan", "grad", "install"]
