"""What passes that back ends share decide on; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject

CARRIED = Subject("carried pointers", "a loop carries one offset instead of a tile of pointers or of indices")
HANDED_ON = Subject("loads ahead", "a tile that a loop loads for its next trip is loaded where it is used")
EITHER_WAY = Subject("branch left out", "tiles that both sides of a branch make alike are made without the branch")
ROLLED = Subject("one loop of products", "products one after the other, and loops of products in a loop, are one loop")
NESTED = Subject(
    "loop of loops", "a loop that counts through the trips of many tiles is a loop of tiles and one of trips"
)
