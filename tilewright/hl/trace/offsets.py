"""Whether offsets and indices pass 32 bits: for tensors whose last element does, and ranges that end there."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.symbols import Sym, show, substitute
from tilewright.hl.trace.state import Trace

LIMIT = 2**31


def reaches(tensor: torch.Tensor) -> bool:
    """Whether the offset of the last element of a tensor passes 32 bits."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return bool(sum((extent - 1) * step for extent, step in pairs if extent) >= LIMIT)


def is_wide(trace: Trace, name: str, shape: tuple[Any, ...]) -> bool:
    """Whether offsets of a tensor of the host pass 32 bits: it has so many elements, or is a part of one that does.

    Calls for which the answer is another one bind anew.

    Raises:
        InputTensorNumelExceedsIndexType: they do, and the settings say that indices have 32 bits.
    """
    if trace.index_dtype == torch.int64:
        return True
    total: Any = 1
    for extent in shape:
        total = extent * total
    known = substitute(total, trace.actual.get)
    wide = trace.has_wide or isinstance(known, Sym) or known >= LIMIT
    if isinstance(total, Sym) and not isinstance(known, Sym) and not trace.has_wide:
        trace.guards.append((f"({show(total)}) >= {LIMIT}", known >= LIMIT))
    if wide and trace.index_dtype == torch.int32 and not isinstance(known, Sym):
        raise exc.InputTensorNumelExceedsIndexType(
            f"offsets of {name}, or of what it is a part of, pass 32 bits, and index_dtype is torch.int32",
            hint="leave index_dtype out",
        )
    return bool(wide)


def range_is_wide(trace: Trace, end: Any) -> bool:
    """Whether the indices of a range pass 32 bits."""
    known = substitute(end, trace.actual.get)
    return trace.index_dtype == torch.int64 or (type(known) is int and known >= LIMIT)
