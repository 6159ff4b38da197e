"""Gradients do not flow through launches: a launch that looks as if they should is reported, or refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._library.autograd import make_autograd_impl
from torch._ops import OpOverload
from torch.autograd import forward_ad

from tilewright.base.errors import ArgumentError, GradientError
from tilewright.base.knobs import knobs
from tilewright.hl import Kernel
from tilewright.hl.runtime.tracer_slot import transform
from tilewright.launch.jit import JITFunction

log = logging.getLogger("tilewright.torch")
_advised: set[str] = set()
below_autograd: Callable[[], Any] = torch._C._AutoDispatchBelowAutograd
"""A context in which operators record no gradients."""


def advise(kernel: JITFunction | Kernel) -> None:
    """Say that gradients are lost in a launch of `kernel`: once, or as an error; see the knob `torch.gradients`.

    Raises:
        GradientError: the knob is "error".
        ArgumentError: the knob has no such value.
    """
    wanted = knobs.torch.gradients
    if wanted not in ("error", "warn", "silent"):
        raise ArgumentError(f"the knob torch.gradients is error, warn or silent, not {wanted!r}")
    if wanted == "silent" or (wanted == "warn" and kernel.number in _advised):
        return
    message = f"kernel `{kernel.fn.__name__}` was launched on tensors that require gradients: none flow through it"
    if wanted == "error":
        raise GradientError(message, hint=_HINT)
    _advised.add(kernel.number)
    log.warning("%s\nhint: %s", message, _HINT)


_HINT = (
    "put the launch into a tilewright.torch.triton_op and give it a backward with register_autograd; "
    "or launch inside torch.no_grad(), or on detached tensors"
)


def refuse_transforms(kernel: Any, args: Iterable[Any]) -> None:
    """Refuse a launch on tensors by which a transform of `torch.func` differentiates: its derivatives would be 0.

    Args:
        kernel: a kernel, or an autotuner or heuristics around one.
        args: of the launch.

    Raises:
        GradientError: one of them has a gradient or a tangent, and the knob is not "silent".
    """
    if knobs.torch.gradients != "silent" and any(map(_is_differentiated, args)):
        name = getattr(getattr(kernel, "fn", kernel), "__name__", type(kernel).__name__)
        raise GradientError(
            f"kernel `{name}` was launched on tensors by which torch.func differentiates: no gradient flows through it",
            hint=_HINT,
        )


def _is_differentiated(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_differentiated, value))
    if not isinstance(value, torch.Tensor):
        return False
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        if value.requires_grad and torch.is_grad_enabled():
            return True
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None:
            return True
        value = torch._C._functorch.get_unwrapped(value)
    return False


def with_gradients(overload: OpOverload, formula: Any) -> Callable[..., Any]:
    """The implementation of an operator for tensors that may require gradients.

    Where none does the operator is called below autograd. Else PyTorch records it with the formula, and a backward pass
    raises if there is none.

    Args:
        overload: the operator.
        formula: has `_backward_fn` and `_setup_context_fn`, which may be set later.

    Raises:
        GradientError: (the implementation) a transform of `torch.func` differentiates, in whose graph it cannot be.
    """
    recorded = make_autograd_impl(overload, formula)
    below: Any = torch._C._after_autograd_keyset

    def implementation(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if transform() is not None and any(map(_is_differentiated, (*args, *kwargs.values()))):
            raise GradientError(
                f"operator {overload.name()} was called where a transform of torch.func differentiates: "
                "like operators of torch.library, those of triton_op have gradients for autograd alone",
                hint="differentiate by torch.autograd.grad or backward(), or write the kernel in tilewright.hl",
            )
        if torch.is_grad_enabled():
            for value in (*args, *kwargs.values()):
                if isinstance(value, (list, tuple)) or (isinstance(value, torch.Tensor) and value.requires_grad):
                    return recorded(keys, *args, **kwargs)
        with below_autograd():
            return overload.redispatch(keys & below, *args, **kwargs)

    return implementation
