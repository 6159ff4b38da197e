"""For which launches a plan is: what it takes only a launch can tell.

    tl.store(p + i * s, tl.load(p + i * s) * 2)       one loop where s > 0, a pass before the other where all meet

A kernel whose plan has conditions has a second plan without. Its code tests them once for a range of programs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.analysis.distinct import PROVED, Condition

_MOST = 16


@dataclass(slots=True)
class Launches:
    """Launches for which a plan is.

    Args:
        some: whether it may be for a part of them.
        conditions: of these.
    """

    some: bool
    conditions: dict[Condition, None] = field(default_factory=dict)

    def have(self, condition: Condition) -> bool:
        """Whether the plan may count on something; what only a launch can tell becomes one of the conditions."""
        if condition != PROVED:
            if not self.some or (len(self.conditions) == _MOST and condition not in self.conditions):
                return False
            self.conditions[condition] = None
        return True
