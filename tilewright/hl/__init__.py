"""Kernels written as PyTorch: functions with loops over tiles, compiled for where their tensors are.

    import torch
    from tilewright import hl

    @hl.kernel
    def softmax(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = torch.softmax(x[rows, :], dim=-1)
        return out

Code outside the loops runs as it stands; the bodies of the loops become `tl` kernels. A statement in a loop computes
what PyTorch computes on the valid part of its tiles.
"""

from __future__ import annotations

from tilewright import torch_needed

with torch_needed(__name__):
    from tilewright.hl import autotuner, exc, language
    from tilewright.hl.config import Config
    from tilewright.hl.grad import Gradient, grad
    from tilewright.hl.grad import install as _install_gradients
    from tilewright.hl.language import *  # noqa: F403  (its __all__ is the list of names)
    from tilewright.hl.runtime.bound import BoundKernel
    from tilewright.hl.runtime.kernel import Kernel, aot_kernel, kernel
    from tilewright.hl.settings import RefMode, Settings
    from tilewright.hl.symbols import cdiv, next_power_of_2

jit = kernel
_install_gradients()

__all__ = [
    "BoundKernel",
    "Config",
    "Gradient",
    "Kernel",
    "RefMode",
    "Settings",
    "aot_kernel",
    "autotuner",
    "cdiv",
    "exc",
    "grad",
    "jit",
    "kernel",
    "language",
    "next_power_of_2",
]
__all__ += language.__all__
__getattr__ = language.__getattr__  # of names that Helion had once
