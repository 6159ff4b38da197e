"""Nests that nobody holds any more are freed: their nodes are shared by tables that do not own them."""

from __future__ import annotations

import gc

from tests.decisions.families import kernels_of
from tests.loops.families import kernel_of, module_of
from tilewright.loops import nest
from tilewright.loops.text import nest_of


def test_nodes_are_freed() -> None:
    spellings = kernels_of("matvec")[:4]
    counts = []
    for _ in range(3):
        for spelling in spellings:
            nest_of(kernel_of(module_of(spelling)))
        gc.collect()
        counts.append(len(nest._TABLE))
    assert counts[2] <= counts[1]
