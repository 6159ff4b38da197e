"""Interleaved stores: those whose elements fill each other's gaps become one store.

    tt.store %p, %even            %a = join %p, %q
    tt.store %q, %odd      ->     %v = join %even, %odd          q = p + one element, neighbours in p two elements apart
                                  tt.store %a, %v

Stores with a stride are made element by element; joined, they are whole vectors, and both sides share one pass. They
may be joined where no two of their elements can meet: all strides are multiples of what the stores fill together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly, divisor_of
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.index import identity, is_power_of_two
from tilewright.analysis.origins import may_meet
from tilewright.backends.cpu.plan.subjects import INTERLEAVED
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.dtypes import MAX_TILE_NUMEL
from tilewright.ir.decisions import Decisions
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.types import element_type, i1, pointee_bytes, shape_of, tile_type
from tilewright.ir.values import is_tile
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import StoreOp
from tilewright.ops.shape import JoinOp, ReshapeOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase, insert_before

_MOST = 4
"""Stores that are joined."""


@dataclass(slots=True)
class _Place:
    """Where a store goes.

    Args:
        op: the store.
        array: what stores that are so many bytes apart have in common.
        offset: bytes, from which other stores are told.
        step: bytes between neighbours.
        apart: whether all strides are multiples of it.
    """

    op: StoreOp
    array: object
    offset: Poly
    step: int
    apart: bool


def merge_interleaved_stores(function: FuncOp, decisions: Decisions) -> bool:
    """Join the stores of a function in place; says whether there were any to join."""
    runs = [run for block in _blocks(function) for run in _runs(block)]
    if not runs:
        return False
    facts = ElementFacts(function)
    analysis, changed = AffineAnalysis(facts=facts), False
    for run in runs:
        for places in _same_array([place for op in run if (place := _place(op, analysis, facts)) is not None]):
            stores = decisions.note(INTERLEAVED, places[-1].op, _recognise(places, run))
            if stores is not None:
                _join(stores, places[-1].op)
                changed = True
    return changed


def _blocks(function: FuncOp) -> Iterator[Block]:
    yield from function.body.blocks
    for op in walk(function):
        if op is not function:
            for region in op.regions:
                yield from region.blocks


def _runs(block: Block) -> Iterator[list[StoreOp]]:
    """Stores of tiles with nothing between them that has effects, or depends on any."""
    run: list[StoreOp] = []
    for op in block.ops:
        if isinstance(op, StoreOp) and is_tile(op.ptr):
            run.append(op)
        elif op.regions or not is_without_effects(op):
            if len(run) > 1:
                yield run
            run = []
    if len(run) > 1:
        yield run


def _place(op: StoreOp, analysis: AffineAnalysis, facts: ElementFacts) -> _Place | None:
    """Where a store goes, if neighbours in it have room between them."""
    shape, size = shape_of(op.ptr.type), pointee_bytes(op.ptr.type)
    form = analysis.pointer(op.ptr, identity(shape))
    if form.base is None or not form.offset.coords:
        return None
    steps = [stride.constant for stride in form.offset.coords.values() if stride.constant is not None]
    step = min(map(abs, steps), default=0)
    if not size < step <= _MOST * size or step % size:
        return None
    strides = [*form.offset.coords.values(), *(scale for _, _, scale in form.offset.residual)]
    apart = math.gcd(*(divisor_of(stride, facts) for stride in strides)) % step == 0
    array = (form.base, frozenset(form.offset.coords.items()), frozenset(form.offset.residual), op.ptr.type)
    return _Place(op, (array, len(op.operands), str(op.properties)), form.offset.constant, step, apart)


def _same_array(places: list[_Place]) -> Iterator[list[_Place]]:
    """Places of one array a number of bytes apart."""
    found: dict[object, list[_Place]] = {}
    for place in places:
        found.setdefault((place.array, place.offset.without_number()), []).append(place)
    yield from (same for same in found.values() if len(same) > 1)


def _recognise(places: list[_Place], run: list[StoreOp]) -> Answer[list[StoreOp]]:
    """The stores in the order of their elements, if they fill each other's gaps and may be made where the last is."""
    first, size = places[0], pointee_bytes(places[0].op.ptr.type)
    count, lowest = len(places), min(place.offset.terms.get((), 0) for place in places)
    by_offset = {place.offset.terms.get((), 0) - lowest: place.op for place in places}
    if not is_power_of_two(count) or sorted(by_offset) != [size * n for n in range(count)]:
        return No("they are not a power of two of stores, each an element further on")
    if count * size != first.step:
        return No("they leave gaps")
    if not first.apart:
        return No("elements of one may be those of another in another row", instead="strides that are constants")
    if math.prod(shape_of(first.op.ptr.type)) * count > MAX_TILE_NUMEL:
        return No("the tile would have too many elements")
    stores = [by_offset[offset] for offset in sorted(by_offset)]
    crossed = run[run.index(first.op) : run.index(places[-1].op)]
    other = next((op for op in crossed if op not in stores and may_meet(op.ptr, first.op.ptr)), None)
    if other is not None:
        return No("another store between them may be to the same elements", other)
    return Yes(stores, f"{count} stores as one")


def _join(stores: list[StoreOp], last: StoreOp) -> None:
    """Put one store in the place of the last of some."""
    operands = [_side_by_side([store.operands[n] for store in stores], last) for n in range(len(last.operands))]
    insert_before(StoreOp.create(operands=operands, properties=dict(last.properties)), last)
    for store in stores:
        erase(store)


def _side_by_side(tiles: list[SSAValue], anchor: Operation) -> SSAValue:
    """A tile with one more dim, along which the elements of all tiles lie."""
    shape, element = shape_of(tiles[0].type), element_type(tiles[0].type)
    joined, b = tile_type((*shape, len(tiles)), element), Builder(anchor)
    if element == i1 and all(tile is tiles[0] for tile in tiles):  # one mask for all, as planners know masks
        column = b.make(ExpandDimsOp, tile_type((*shape, 1), element), tiles[0], axis=len(shape))
        return b.make(BroadcastOp, joined, column)
    made = _joined(tiles, b)
    return b.make(ReshapeOp, joined, made) if len(tiles) > 2 else made


def _joined(tiles: list[SSAValue], b: Builder) -> SSAValue:
    """A tile with a dim of two for each bit of the number of a tile, the lowest bit last."""
    if len(tiles) == 1:
        return tiles[0]
    sides = [_joined(tiles[side::2], b) for side in (0, 1)]
    return b.make(JoinOp, tile_type((*shape_of(sides[0].type), 2), element_type(sides[0].type)), *sides)
