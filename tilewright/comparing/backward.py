"""`assert_backward`: a backward that was written by hand, beside the gradient that is derived from the kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import ArgumentError
from tilewright.base.grids import Grid
from tilewright.base.lazy import lazy_module
from tilewright.comparing.differences import difference, plain, tolerance_of

if TYPE_CHECKING:
    from tilewright.launch import gradient
else:  # with the language; loaded when somebody wants to hold a backward against one
    gradient = lazy_module("tilewright.launch.gradient")


def assert_backward(
    kernel: Any,
    backward: Callable[..., Mapping[str, Any] | Sequence[Any]],
    args: Sequence[Any],
    *,
    grid: Grid,
    wrt: Sequence[str],
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    **constants: Any,
) -> None:
    """Hold a backward written by hand against the gradient of a kernel.

    Args:
        kernel: the kernel that goes forward, made by `tilewright.jit`.
        backward: `backward(d_OUT=..)` is given a gradient for each output, drawn at random, and returns those of the
            parameters in `wrt`, by name or in their order. It has all else that it needs from where it is defined.
        args: arguments of the kernel by position; it need not have run on them.
        grid: of the kernel.
        wrt: names of the parameters whose gradients are compared.
        rtol, atol: how far gradients may be apart; by default what their types allow.
        seed: of the gradients that are drawn.
        constants: other arguments and options of the kernel.

    Raises:
        AssertionError: a gradient differs; the message names the parameter, the first place and the largest difference.
        ArgumentError: `backward` returned no gradient for a parameter.
        NotDifferentiableError: none can be derived.

    Example:
        >>> assert_backward(silu, lambda d_y_ptr: [silu_backward(x, d_y_ptr)], (x, y, n), grid=(4,), wrt=["x_ptr"])
    """
    derived, named = gradient.grad(kernel, wrt), dict(zip(kernel.arg_names, args, strict=False)) | constants
    drawn = {f"d_{n}": _drawn(named[n], seed + at) for at, n in enumerate(derived.outputs(*args, **constants))}
    shadows = {f"d_{name}": _zeros(named[name]) for name in wrt}
    derived[grid](*args, **constants, **drawn, **shadows)
    found = backward(**drawn)
    by_name = dict(found) if isinstance(found, Mapping) else dict(zip(wrt, found, strict=False))
    differ = []
    for name in wrt:
        if by_name.get(name) is None:
            raise ArgumentError(f"the backward gave no gradient for `{name}`", hint=f"return {', '.join(wrt)} in order")
        got, want = plain(by_name[name]), plain(shadows[f"d_{name}"])
        if got.shape != want.shape:
            differ.append(f"`{name}`: the gradient has shape {got.shape}, the derived one {want.shape}")
            continue
        found_here = difference(got, want, tolerance_of(by_name[name].dtype, rtol, atol))
        if found_here.count:
            differ.append(
                f"`{name}`: {found_here.count} of {want.size} elements differ, first at {found_here.index}: "
                f"{found_here.got} by hand, {found_here.expected} derived; largest difference {found_here.absolute:g}"
            )
    if differ:
        raise AssertionError(f"the backward of `{kernel.fn.__name__}` is another function:\n" + "\n".join(differ))


def _drawn(array: Any, seed: int) -> Any:
    """Normal random numbers in the form of an array."""
    values = np.random.default_rng(seed).standard_normal(tuple(array.shape))
    made = _zeros(array)
    if isinstance(made, np.ndarray):
        made[...] = values
        return made
    return made.copy_(sys.modules["torch"].from_numpy(values))


def _zeros(array: Any) -> Any:
    """Zeros in the form of an array; one float for a number."""
    if isinstance(array, int | float):
        return np.zeros(1, np.float32)
    if isinstance(array, np.ndarray):
        return np.zeros_like(array)
    torch = sys.modules["torch"]
    return torch.empty_strided(array.shape, array.stride(), dtype=array.dtype, device=array.device).zero_()
