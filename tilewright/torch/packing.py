"""Kernels in packages of AOTInductor: the launches themselves, where others have an operator that is looked up by name.

    operator of a launch   axpy_3f0c(x, y, o, n, a, grid)   ->  PyTorch's own node of a Triton kernel
    operator of hl         softmax_9b1d(x)                  ->  its host code, as PyTorch's operators and such nodes

Inductor puts the compiled code of such nodes into the package (`compile/shared_objects.py`), so that a program in C++
runs it without Python. It asks `triton` for the kernels, so this happens where Tilewright poses as it, and only while
a package is made. On GPUs the operators stay.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

from tilewright.base.errors import ArgumentError
from tilewright.base.grids import Grid
from tilewright.launch.jit import JITFunction
from tilewright.torch.signature import base_of
from tilewright.torch.state import doing


def pack(name: str, library: torch.library.Library, run: Callable[..., Any]) -> None:
    """Have packages hold what `run` does in place of an operator.

    Args:
        name: of the operator, with its namespace.
        library: that defines it.
        run: what it does, with launches by `kernel[grid]`; called with its arguments as they are traced. Where it gives
            `NotImplemented` the package has the operator.
    """

    def rule(
        mode: Any, operator: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if _packs(args):
            with mode, doing(True, None, _as_node):
                made = run(*args)
            if made is not NotImplemented:
                return made
        return mode.__torch_dispatch__(operator, types, args, kwargs or {})

    torch.library.register_torch_dispatch(name, FunctionalTensorMode, rule, lib=library)


def _packs(args: tuple[Any, ...]) -> bool:
    """Whether a package is being made, for a CPU, by a PyTorch that takes our kernels for Triton's."""
    inductor, triton = sys.modules.get("torch._inductor.virtualized"), sys.modules.get("triton")
    if inductor is None or getattr(triton, "JITFunction", None) is not JITFunction:
        return False
    return bool(inductor.V.aot_compilation) and all(a.device.type == "cpu" for a in args if isinstance(a, torch.Tensor))


def _as_node(kernel: Any, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A launch as PyTorch's node of a Triton kernel.

    Raises:
        ArgumentError: a number would lose digits that tensors of float64 have: models pass floats in 32 bits.
    """
    values = (*args, *kwargs.values())
    lost = [v for v in values if type(v) is float and math.isfinite(v) and _float32(v) != v]
    if lost and any(isinstance(v, torch.Tensor) and v.dtype == torch.float64 for v in values):
        raise ArgumentError(
            f"kernel `{base_of(kernel).fn.__name__}` takes {lost[0]} beside float64: packages pass 32 bits",
            hint="pass a tensor with that number, or make it a tl.constexpr",
        )
    return torch.library.wrap_triton(kernel)[grid](*args, **kwargs)


def _float32(value: float) -> float:
    return ctypes.c_float(value).value
