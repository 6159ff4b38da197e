"""Accumulators as large as a block size that the program chose, in passes whose tile is cut.

    acc = hl.zeros([rows, block])
    for columns in hl.tile(n, block_size=block):
        acc = torch.maximum(acc, x[rows, columns])      # in the last pass fewer columns than acc has lanes
    out[rows] = acc.amax(-1)

A variable that a loop carries keeps what it held in the lanes that a tile does not have: a node `keep(new, old)` behind
the statement that assigns it.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl.graph.nodes import Value
from tilewright.hl.trace import carried
from tilewright.hl.trace.state import Trace


def is_cut(new: Value, old: Value) -> bool:
    """Whether a tile has cut `new`, of which `old` has all lanes."""
    both = zip(new.dims, old.dims, strict=False)
    same = len(new.dims) == len(old.dims) and all(one.cut == other.cut for one, other in both)
    return same and new.dtype == old.dtype and new.dims != old.dims and any(dim.cut != dim for dim in old.dims)


def keep(trace: Trace, new: Value, old: Value) -> Any:
    """A sample of `new` with the lanes of `old` that the tile does not have."""
    sample = trace.sample(old)
    return trace.record("keep", (new, old), sample)


def state(trace: Trace, variables: dict[str, Any], paths: set[carried.Path]) -> dict[carried.Path, tuple[Any, Value]]:
    """The tensors that open loops carry, with their values."""
    if not trace.chosen or not trace.loops:
        return {}
    found = ((path, leaf, trace.value(leaf)) for path, leaf in carried.tensors(variables) if path in paths)
    return {path: (leaf, value) for path, leaf, value in found if value is not None}


def restore(trace: Trace, variables: dict[str, Any], before: dict[carried.Path, tuple[Any, Value]]) -> None:
    """Put back, behind a statement, what a tile does not have of the variables that loops carry."""
    for path, leaf in list(carried.tensors(variables)) if before else ():
        if path not in before:
            continue
        was, old = before[path]
        new = trace.value(leaf)
        if new is None or new is old or not is_cut(new, old):
            continue
        kept = keep(trace, new, old)
        if leaf is was:  # changed in place
            value = trace.value(kept)
            assert value is not None
            trace.bind(leaf, value)
        else:
            name, *rest = path
            variables[name] = carried.put(variables[name], tuple(rest), kept)
            assert isinstance(kept, torch.Tensor)
