"""Gradients do not flow through launches: a launch that looks as if they should is reported, or refused."""

from __future__ import annotations

import logging

from tilewright.base.errors import ArgumentError, TilewrightError
from tilewright.base.knobs import knobs
from tilewright.launch.jit import JITFunction

log = logging.getLogger("tilewright.torch")
_advised: set[int] = set()


class GradientError(TilewrightError, RuntimeError):
    """A kernel was launched on tensors that require gradients, which do not flow through it."""


def advise(kernel: JITFunction) -> None:
    """Say that gradients are lost in a launch of `kernel`, as the knob `torch.gradients` wants it: once, or as an error.

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
    hint = (
        "put the launch into a tilewright.torch.triton_op and give it a backward with register_autograd; "
        "or launch inside torch.no_grad(), or on detached tensors"
    )
    if wanted == "error":
        raise GradientError(message, hint=hint)
    _advised.add(kernel.number)
    log.warning("%s\nhint: %s", message, hint)
