"""Names of one tensor: a change in place is seen under all of them, so it has to be known which they are.

Where two names are one tensor in some passes of a loop, or in one arm of a branch, and two in others, neither may be
changed in place (`Trace.keep_as_it_is`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from tilewright.hl.trace import carried

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


def names_of(paths: Iterable[carried.Path]) -> str:
    """The leaves as an error names them."""
    return " and ".join(sorted(map(carried.path_text, paths)))
