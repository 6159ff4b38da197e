"""What passes that back ends share decide on; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject

CARRIED = Subject("carried pointers", "a loop carries one offset instead of a tile of pointers or of indices")
IF_CONVERTED = Subject("if-conversion", "tiles that both sides of a branch make alike are made without the branch")
DELINEARIZED = Subject(
    "delinearized loop",
    "a loop that counts through the iterations of many tiles is a loop of tiles and one of iterations",
)
