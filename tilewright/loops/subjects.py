"""What the loop nest decides; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject

SUNK_LOADS = Subject("sunk prefetch", "a tile that a loop loads for its next iteration is loaded where it is used")
DOT_LOOPS = Subject("loop of dots", "dots that add to one another, in any loops, are one loop upwards through K")
REDUCTION_LOOPS = Subject(
    "loop of reductions", "what loops and reductions combine is one reduction in each iteration of one loop"
)
