"""Names of one tensor: a change in place is seen under all of them, so it has to be known which they are.

Where two names are one tensor in some passes of a loop, or in one arm of a branch, and two in others, neither may be
changed in place (`Trace.change`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from tilewright.hl.trace import carried
from tilewright.hl.trace.state import Trace

Partners = Mapping[carried.Path, frozenset[carried.Path]]
"""For each leaf that is a tile, the leaves that are the same tensor."""


def partners(leaves: Iterable[tuple[carried.Path, Any]]) -> Partners:
    """Which of the leaves of variables are one tensor."""
    groups: dict[int, list[carried.Path]] = {}
    for path, leaf in leaves:
        if isinstance(leaf, torch.Tensor) and not leaf.is_meta:
            groups.setdefault(id(leaf), []).append(path)
    return {path: frozenset(paths) for paths in groups.values() for path in paths}


def parted(one: Partners, other: Partners) -> set[carried.Path]:
    """The leaves that are the same tensor as another in one of two places, and not in the other."""
    common = one.keys() & other.keys()
    return {path for path in common if one[path] & common != other[path] & common}


def keep_apart(trace: Trace, leaves: Iterable[tuple[carried.Path, Any]], paths: set[carried.Path]) -> None:
    """Refuse changes in place of the leaves at `paths`: under which of these names they are seen is not known."""
    names = " and ".join(sorted(map(carried.path_text, paths)))
    for path, leaf in leaves:
        if path in paths and isinstance(leaf, torch.Tensor):
            trace.kept_as_is[id(leaf)] = names


def keep_like(trace: Trace, sample: torch.Tensor, *others: Any) -> None:
    """Refuse for `sample` what is refused for one of the others."""
    for other in others:
        if id(other) in trace.kept_as_is:
            trace.kept_as_is[id(sample)] = trace.kept_as_is[id(other)]
