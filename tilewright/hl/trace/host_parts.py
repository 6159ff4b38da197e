"""What the host makes of tensors whose sizes are open: `w[:3]`, `w[1:n - 1]`, `x.split(4)`, `x.diagonal()`.

Samples are larger than any number of the program, so no slice of one is cut short by its end as that of a small tensor
is, and which of two is shorter says nothing. For slices the tensor of the binding call says which it is, and a guard
holds other calls to it. Sizes are constants where nobody knows that the extents of an operation's results are products
of those of its arguments; sums of sizes are seen by comparing traces (`host._checked`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from tilewright.hl.symbols import Sym
from tilewright.hl.trace.carried import tensors
from tilewright.hl.trace.equal import fix_size
from tilewright.hl.trace.state import Trace, raw_shape


def bounds_are_constants(trace: Trace, tree: Any) -> None:
    """Make the sizes constants that say where a part of a tensor begins or ends.

    Raises:
        Fixed: there is one that is none yet.
    """
    if isinstance(tree, slice):
        tree = [tree.start, tree.stop, tree.step]
    if isinstance(tree, dict):
        tree = list(tree.values())
    if type(tree) in (list, tuple):
        for item in tree:
            bounds_are_constants(trace, item)
    elif isinstance(tree, Sym):
        fix_size(trace, tree)


def _slice(
    trace: Trace, tensor: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> None:
    extent = raw_shape(tensor)[dim]
    size = trace.factors.size(extent)
    farthest = max((abs(bound) for bound in (start, end) if bound not in (None, extent, sys.maxsize)), default=0)
    if isinstance(size, Sym) and farthest and not size >= farthest:
        fix_size(trace, size)


def _split(trace: Trace, tensor: Any, length: int, dim: int = 0) -> None:
    size = trace.factors.size(raw_shape(tensor)[dim])
    if isinstance(size, Sym):
        fix_size(trace, size)


def _squeeze(trace: Trace, tensor: Any, dim: Any = None) -> None:
    shape = raw_shape(tensor)
    dims = range(len(shape)) if dim is None else dim if isinstance(dim, list | tuple) else [dim]
    for size in (trace.factors.size(shape[at]) for at in dims if shape):
        if isinstance(size, Sym) and size == 1:
            fix_size(trace, size)


CLAMPED: dict[str, Callable[..., None]] = {
    "slice": _slice,
    "split": _split,
    "unsafe_split": _split,
    "squeeze": _squeeze,
}

_POLYMORPHIC = """
    view _unsafe_view _reshape_alias reshape permute t transpose expand unsqueeze alias detach lift lift_fresh select
    repeat flip roll view_as_real view_as_complex clone _to_copy copy copy_ fill fill_ zero_ set_ cat stack tril triu
    empty zeros ones full arange eye empty_strided empty_permuted scalar_tensor rand randn randint
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like
    new_empty new_zeros new_ones new_full new_empty_strided normal_ uniform_ random_ bernoulli_ exponential_
    index index_select gather take scatter scatter_ scatter_add scatter_add_ index_put index_put_ index_add index_add_
    masked_fill masked_fill_ where embedding sum mean prod amax amin max min argmax argmin any all var std var_mean
    logsumexp cumsum cumprod cummax cummin logcumsumexp sort topk softmax _softmax _log_softmax
    mm bmm addmm baddbmm dot mv
"""
POLYMORPHIC = frozenset(_POLYMORPHIC.split())
"""Operations of aten whose extents are those of their arguments, products of them, or sums that no factor tells."""


def settle(trace: Trace, function: Any, name: str, args: Any, kwargs: Any) -> None:
    """Hold other calls to what an operation of the host makes of the sizes of the binding call.

    Raises:
        Fixed: what the operation makes is not known for all sizes: they have to be constants of the code.
    """
    if trace.static:
        return
    if name in CLAMPED:
        CLAMPED[name](trace, *args, **kwargs)
    elif name not in POLYMORPHIC and torch.Tag.pointwise not in function.tags:
        for _, tensor in tensors([args, kwargs]):
            for extent in raw_shape(tensor):
                size = trace.factors.size(extent)
                fix_size(trace, size)
