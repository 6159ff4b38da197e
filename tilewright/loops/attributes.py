"""What an operation of tile IR says beside its operands, as data that can be compared."""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.ir import Operation, SSAValue

from tilewright.ir.op import TileOp
from tilewright.loops.nest import Attributes


def attributes_of(op: Operation) -> Attributes:
    """What an operation says beside its operands."""
    known = op.attr_values() if isinstance(op, TileOp) else {}
    return tuple([(name, _hashable(value)) for name, value in sorted(known.items())])


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, (int, float, str, bool, type(None), tuple)) else str(value)


def region_text(op: Operation) -> str | None:
    """What the regions of an operation compute, in names of their own; None if they use what stands outside of them."""
    names: dict[SSAValue, str] = {}
    lines: list[str] = []
    for block in (block for region in op.regions for block in region.blocks):
        names |= {argument: f"x{number}" for number, argument in enumerate(block.args)}
        for inner in block.ops:
            if inner.regions or any(operand not in names for operand in inner.operands):
                return None
            names |= {result: f"y{len(names)}.{number}" for number, result in enumerate(inner.results)}
            said = [names[operand] for operand in inner.operands] + [f"{n}={v}" for n, v in attributes_of(inner)]
            lines.append(f"{inner.name}({' '.join(said)})")
    return "; ".join(lines)
