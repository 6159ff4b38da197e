"""Sums in addresses that do not change with a loop, or with a dim of the tile, made once: reassociation.

    for ..:                                                %at = addi (extsi %row), (extsi %column)
      %p = addptr (addptr %base, %row), %column     ->     for ..:
      tt.load %p                                             tt.load (addptr %base, %at)

Places that are no affine forms of the element's place are added for each load, in 64 bits, as each of them is extended
by itself. Where the base alone is new, the sum is a tile that a back end may keep.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.index import identity
from tilewright.ir.types import bit_width, element_type, i64, shape_of, with_element
from tilewright.ir.values import is_tile
from tilewright.ir.walk import among, every, holder_in
from tilewright.ops.broadcast import BroadcastOp
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code


def add_places_once(root: Operation) -> bool:
    """Rewrite the addresses of all loads below `root`, in place; says whether anything changed."""
    made: dict[tuple[SSAValue, ...], SSAValue] = {}
    analysis, changed = AffineAnalysis(), False
    for load in every(root, LoadOp):
        base, offsets = _parts(load.ptr)
        groups: dict[tuple[Block, tuple[int, ...]], list[SSAValue]] = {}
        for offset in offsets:
            source = _source(offset)
            where = (source.owner if isinstance(source.owner, Block) else source.owner.parent, shape_of(source.type))
            if where != (load.parent, shape_of(load.ptr.type)) and _is_computed(source, analysis):
                groups.setdefault(where, []).append(offset)  # type: ignore[arg-type]
        for (block, _), together in groups.items():
            if len(together) > 1:
                key = tuple(map(_source, together))
                made[key] = made.get(key) or _sum(key, holder_in(block, load))
                offsets = [*(offset for offset in offsets if offset not in together), made[key]]
                load.operands[0] = _pointer(base, offsets, load)
                changed = True
    if changed:
        eliminate_dead_code(root)
    return changed


def _is_computed(source: SSAValue, analysis: AffineAnalysis) -> bool:
    """Whether a place is something else than an affine form."""
    return bool(analysis.integer(source, identity(shape_of(source.type))).residual)


def _parts(pointer: SSAValue) -> tuple[SSAValue, list[SSAValue]]:
    """A pointer and the tiles that are added to it, the last one first."""
    offsets = []
    while (added := among([pointer.owner], AddPtrOp)) and is_tile(added[0].offset):
        offsets.append(added[0].offset)
        pointer = added[0].ptr
    return pointer, offsets


def _source(offset: SSAValue) -> SSAValue:
    """A tile before it is repeated."""
    return next((op.operands[0] for op in among([offset.owner], BroadcastOp)), offset)


def _sum(parts: Sequence[SSAValue], before: Operation) -> SSAValue:
    b = Builder(before)
    return functools.reduce(b.add, [part if _is_wide(part) else b.cast(ExtSIOp, part, i64) for part in parts])


def _is_wide(part: SSAValue) -> bool:
    return bit_width(element_type(part.type)) == 64


def _pointer(base: SSAValue, offsets: Sequence[SSAValue], before: Operation) -> SSAValue:
    b = Builder(before)
    for offset in offsets:
        whole = b.viewed(offset, with_element(base.type, element_type(offset.type)))
        base = b.make(AddPtrOp, base.type, base, whole)
    return base
