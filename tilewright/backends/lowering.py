"""How a back end says for each operation whether and how it makes code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.ops.spec import REGISTRY
from tilewright.passes.rewriting import REWRITTEN


@dataclass(frozen=True, slots=True)
class Lowering:
    """How a back end makes code for an operation.

    Args:
        how: "lane by lane", by the table of elementwise instructions; "own code"; "rewritten", by a pass before
            any back end sees it; "refused".
        reason: of a refusal, for the user.
    """

    how: str
    reason: str = ""


def lowering_of(name: str, own: bool, refused: Mapping[type[Operation], str]) -> Lowering | None:
    """How a back end makes operation `name`; None if it says nothing, which is a bug of the back end.

    Args:
        name: of the operation.
        own: whether it has code of its own for it.
        refused: reasons, by operation.
    """
    kind = REGISTRY[name].op
    if kind in refused:
        return Lowering("refused", refused[kind])
    if REGISTRY[name].elementwise:
        return Lowering("lane by lane")
    if kind in REWRITTEN:
        return Lowering("rewritten")
    return Lowering("own code") if own else None
