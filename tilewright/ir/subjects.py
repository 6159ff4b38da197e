"""Questions about a computation, whatever a back end plans of it; `docs/explain.md` tells users the same.

Every access, reduction and loop of a kernel has an answer (`tests/backends/test_answers.py`); each dot has one
of the planners of dots.
"""

from __future__ import annotations

from tilewright.base.decision import Subject

ACCESS = Subject("access", "how elements get from memory and to it: side by side, in runs, or each by itself")
REDUCTION = Subject("reduction", "how elements are combined: in which order, by whom, in how many steps")
LOOP = Subject("loop", "how many iterations it has, and what goes from one to the next")
CONTRACTION = Subject("contraction", "all iterations of a loop add to one dot, which may take several at once")
GENERAL = (ACCESS, REDUCTION, LOOP, CONTRACTION)
