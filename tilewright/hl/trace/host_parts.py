"""Parts that the host takes of tensors whose sizes are open: `w[:3]`, `w[1:n - 1]`, `x.split(4)`.

Samples are larger than any number of the program, so no slice of one is cut short by its end as that of a small tensor
is. The tensor of the binding call says which it is, and a guard holds other calls to it. Extents that are made of sizes
otherwise than by products are seen by comparing traces (`host._checked`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilewright.hl.symbols import Sym, is_chosen, substitute
from tilewright.hl.trace.state import Fixed, Trace, raw_shape


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
        _fix(trace, tree)


def _slice(
    trace: Trace, tensor: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> None:
    extent = raw_shape(tensor)[dim]
    size = trace.factors.size(extent)
    farthest = max((abs(bound) for bound in (start, end) if bound not in (None, extent, sys.maxsize)), default=0)
    if isinstance(size, Sym) and farthest and not size >= farthest:
        _fix(trace, size)


def _split(trace: Trace, tensor: Any, length: int, dim: int = 0) -> None:
    size = trace.factors.size(raw_shape(tensor)[dim])
    if isinstance(size, Sym):
        _fix(trace, size)


CLAMPED: dict[str, Callable[..., None]] = {"slice": _slice, "split": _split, "unsafe_split": _split}
"""Of operations of aten whose results are shorter where the tensor is: hold other calls to what they make of the sizes
of the binding call; `Fixed` where the sizes have to be constants of the code."""


def _fix(trace: Trace, number: Sym) -> None:
    if is_chosen(number) or isinstance(substitute(number, trace.actual.get), Sym):
        return
    for atom in number.atoms():
        known = trace.actual.get(atom)
        if atom.kind == "host" and known is not None:
            raise Fixed(atom.text, known)
