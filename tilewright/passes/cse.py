"""Common subexpression elimination: one value for equal pure operations.

Scopes follow the nesting of regions: an operation may reuse a value of its own block or of an
enclosing one, which dominates it because tile IR has only structured control flow.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.ir import Block, Operation

from tilewright.ir.effects import is_without_effects
from tilewright.passes.rewriting import replace


def eliminate_common_subexpressions(root: Operation) -> bool:
    """Merge equal pure operations below `root`; says whether anything changed."""
    return _visit_regions(root, {})


def _visit_regions(op: Operation, known: dict[Hashable, Operation]) -> bool:
    changed = False
    for region in op.regions:
        for block in region.blocks:
            changed |= _visit_block(block, known)
    return changed


def _visit_block(block: Block, known: dict[Hashable, Operation]) -> bool:
    """Merge operations of a block with earlier ones and with those `known` of blocks around it."""
    changed, own = False, list[Hashable]()
    for op in list(block.ops):
        if op.regions:
            changed |= _visit_regions(op, known)
            continue
        if not op.results or not is_without_effects(op):
            continue
        key = _key(op)
        twin = known.get(key)
        if twin is None:
            known[key] = op
            own.append(key)
            continue
        replace(op, twin.results)
        changed = True
    for key in own:
        del known[key]
    return changed


def _key(op: Operation) -> Hashable:
    return (
        op.name,
        tuple(id(operand) for operand in op.operands),
        tuple(result.type for result in op.results),
        tuple(sorted(op.properties.items(), key=_first)),
        tuple(sorted(op.attributes.items(), key=_first)),
    )


def _first(item: tuple[str, object]) -> str:
    return item[0]
