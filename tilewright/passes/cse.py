"""Common subexpression elimination: one value for equal pure operations.

Scopes follow the nesting of regions: an operation may reuse a value of its own block or of an
enclosing one, which dominates it because tile IR has only structured control flow.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.values import operands_of
from tilewright.ir.walk import operations
from tilewright.passes.rewriting import replace


def eliminate_common_subexpressions(root: Operation) -> bool:
    """Merge equal pure operations below `root`; says whether anything changed."""
    return _visit_regions(root, _ScopedTable())


class _ScopedTable(dict[Hashable, Operation]):
    """Operations by what they compute.

    Attributes:
        types: each type that was met, by its address, and the first equal one. They are hashed by everything in them.
    """

    def __init__(self) -> None:
        self.types: dict[int, tuple[Attribute, Attribute]] = {}
        self._firsts: dict[Attribute, Attribute] = {}

    def type_key(self, value: SSAValue) -> int:
        """A number that the types of two values share if they are equal."""
        type_ = value.type
        found = self.types.get(id(type_))
        if found is None:
            found = self.types[id(type_)] = type_, self._firsts.setdefault(type_, type_)
        return id(found[1])


def _visit_regions(op: Operation, known: _ScopedTable) -> bool:
    changed = False
    for region in op.regions:
        for block in region.blocks:
            changed |= _visit_block(block, known)
    return changed


def _visit_block(block: Block, known: _ScopedTable) -> bool:
    """Merge operations of a block with earlier ones and with those `known` of blocks around it."""
    changed, own = False, list[Hashable]()
    for op in operations(block):
        if op.regions:
            changed |= _visit_regions(op, known)
            continue
        if not op.results or not is_without_effects(op):
            continue
        key = _key(op, known)
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


def _key(op: Operation, known: _ScopedTable) -> Hashable:
    return (
        op.name,
        operands_of(op),
        tuple([known.type_key(result) for result in op.results]),
        tuple(sorted(op.properties.items(), key=_first)) if op.properties else (),
        tuple(sorted(op.attributes.items(), key=_first)) if op.attributes else (),
    )


def _first(item: tuple[str, object]) -> str:
    return item[0]
