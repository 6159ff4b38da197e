"""`helion.experimental.backward`: the gradients of a call, through PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright import hl
from tilewright.hl import exc
from tilewright.hl.runtime.kernel import Kernel


def backward(
    kernel: Kernel,
    grad_out: torch.Tensor | Sequence[torch.Tensor],
    *inputs: Any,
    return_code: bool = False,
    autotune: bool = False,
    autotune_effort: str | None = None,
) -> Any:
    """The gradients of what a kernel returns by its tensors.

    Args:
        kernel: a kernel.
        grad_out: the gradient of its result; of several results one for each.
        inputs: the arguments of the call; what it writes is written to copies of them.
        return_code: whether to return the text of the derived kernels as well, and that of what they compile to.
        autotune: accepted; derived kernels are tuned as other kernels are, by the settings of `kernel`.
        autotune_effort: the same.

    Returns:
        A gradient for each tensor, zeros for those of integers; not in a tuple where there is one. With `return_code`
        (gradients, text of hl, text of tl).

    Raises:
        NotDifferentiable: the kernel has no gradient that hl can derive.
        InvalidAPIUsage: there are not as many gradients as results.
    """
    leaves = [_leaf(item) for item in inputs]
    with torch.enable_grad():
        made = kernel(*(item.clone() if isinstance(item, torch.Tensor) else item for item in leaves))
    results = list(made) if isinstance(made, tuple | list) else [made]
    given = [grad_out] if isinstance(grad_out, torch.Tensor) else list(grad_out)
    if len(given) != len(results):
        raise exc.InvalidAPIUsage(
            f"{kernel.name} returns {len(results)} results, and there are {len(given)} gradients",
            hint="give one for each result, in the order of the return statement",
        )
    pairs = [pair for pair in zip(results, given, strict=True) if getattr(pair[0], "requires_grad", False)]
    wanted = [item for item in leaves if isinstance(item, torch.Tensor) and item.requires_grad]
    outs, ups = [list(side) for side in zip(*pairs, strict=True)] or ([], [])
    found = torch.autograd.grad(outs, wanted, ups, allow_unused=True) if pairs else [None] * len(wanted)
    by = {id(item): one for item, one in zip(wanted, found, strict=True)}
    tensors = [item for item in leaves if isinstance(item, torch.Tensor)]
    gradients = tuple(torch.zeros_like(one) if by.get(id(one)) is None else by[id(one)] for one in tensors)
    gradients = gradients[0] if len(gradients) == 1 else gradients
    return (gradients, *_texts(kernel, leaves)) if return_code else gradients


def _leaf(item: Any) -> Any:
    is_tensor = isinstance(item, torch.Tensor)
    return item.detach().clone().requires_grad_(item.is_floating_point()) if is_tensor else item


def _texts(kernel: Kernel, args: Sequence[Any]) -> tuple[str, str]:
    """The text of the derived kernels, and of what they compile to."""
    gradient = hl.grad(kernel)
    bound = [one for derived in gradient.kernels(args) for several in derived._bound.values() for one in several]
    return gradient.to_hl(args), "\n\n".join(one.to_code() for one in bound)
