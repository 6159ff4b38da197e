"""Both sides of a join in one chunk of lanes: each is computed by itself, for half of the lanes.

    lanes 0 1 2 3 of a chunk are a0 b0 a1 b1:      a0 a1 by two lanes, b0 b1 by two lanes, then one shuffle

Else each side is computed for all lanes, every element of it twice, and one of the two is chosen for each lane. The
same is done where elements are loaded beside their partners, `x[i]` and `x[i ^ 1]`: what is made of an even element and
what is made of an odd one is computed once; and where neighbours are made of one element, `x[i // 2]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.analysis.affine import ZERO, AffineAnalysis, PointerForm, Poly
from tilewright.analysis.elements import At, operand_indices, side_bit, tiles_behind
from tilewright.analysis.index import CONST, LANE, Coord, Field, Index, normal
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import Buffer, MaterializeSink, Step, StoreSink
from tilewright.ir.types import element_type, is_pointer
from tilewright.ir.values import defining_op
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import CatOp, JoinOp

_FEWEST_LANES = 4  # of a side


@dataclass(slots=True)
class Sides:
    """How the lanes of a chunk are shared out.

    Args:
        bits: of the lane number, in ascending order, that tell the sides apart.
        indices: of each side; bit i of the side's number is bit `bits[i]` of the lane number.
        lanes: of a side.
    """

    bits: tuple[int, ...]
    indices: list[Index]
    lanes: int


def plan_sides(step: Step, chunking: Chunking, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> Sides:
    """The sides of the chunks of a group; all in one if that is as well."""
    whole = Sides((), [chunking.index], chunking.lanes)
    if chunking.lanes < 2 * _FEWEST_LANES or not step.is_only(StoreSink, MaterializeSink):
        return whole
    cone = _Cone(step, chunking.index, placed, analysis)
    if cone.bits is None or not _affine(step, chunking.index, analysis):
        return whole
    bits = cone.bits or _shared(cone.read) or _partners(cone.loads, analysis)
    if not bits or chunking.lanes >> len(bits) < _FEWEST_LANES:
        return whole
    if cone.bits and any(read & bits for read in cone.read):
        return whole  # what is read for all lanes at once is read as it lies
    order = tuple(sorted(bits))
    numbers = ({bit: side >> i & 1 for i, bit in enumerate(order)} for side in range(1 << len(order)))
    return Sides(order, [at_lane_bits(chunking.index, known) for known in numbers], chunking.lanes >> len(order))


class _Cone:
    """What the roots of a group are made of.

    Attributes:
        bits: of the lane number, that choose between the sides of joins; None if something else does.
        loads: pointers at indices.
        read: bits of the lane number on which it depends where memory or scratch is read.
    """

    def __init__(self, step: Step, index: Index, placed: dict[SSAValue, Buffer], analysis: AffineAnalysis) -> None:
        self.bits: set[int] | None = set()
        self.loads: list[tuple[SSAValue, Index]] = []
        self.read: list[set[int]] = []

        def parts(value: SSAValue, at: Index) -> list[At]:
            if value in placed or defining_op(value) is None:
                return []
            return [part for part in operand_indices(value, at) if not _is_address(part[0])]

        for value, at in tiles_behind([(root, index) for root, _ in step.roots() if not _is_address(root)], parts):
            op = defining_op(value)
            if value in placed or op is None:
                self.read.append(_lane_bits(at))
            elif isinstance(op, LoadOp):
                self.loads.append(operand_indices(value, at)[0])
                self.read.append(_read_by(analysis.pointer(*self.loads[-1]), at))
            elif isinstance(op, JoinOp | CatOp):
                side = _lane_bit(side_bit(op, value, at)[0])
                self.bits = None if side is None or self.bits is None else self.bits | side


def _read_by(form: PointerForm, at: Index) -> set[int]:
    """The bits of the lane number on which an address depends."""
    if form.base is None:
        return _lane_bits(at)
    return _lane_bits((*form.offset.coords, *(coord for _, index, _ in form.offset.residual for coord in index)))


def _shared(read: list[set[int]]) -> set[int]:
    """The lowest bit of the lane number, if what is read is the same for neighbours, but not for all lanes."""
    return {0} if any(read) and not any(0 in bits for bits in read) else set()


def _partners(loads: list[tuple[SSAValue, Index]], analysis: AffineAnalysis) -> set[int]:
    """The lowest bit of the lane number, if some load reads at each lane what another reads at its partner."""
    found: dict[object, set[object]] = {}
    for pointer, index in loads:
        if 0 not in _lane_bits(index):
            continue
        even, odd = (_place(analysis.pointer(pointer, at_lane_bits(index, {0: side}))) for side in (0, 1))
        if even is None or odd is None:
            return set()
        if even != odd:
            found.setdefault(even, set()).add(odd)
    return {0} if any(even in found.get(odd, ()) for even, odds in found.items() for odd in odds) else set()


def _place(form: PointerForm) -> object:
    """What is equal for addresses that are; None where part of them is looked up."""
    if form.base is None or form.offset.residual:
        return None
    number, coords = form.offset.constant, dict[Coord, Poly]()
    for coord, stride in form.offset.coords.items():
        known = sum(part.lo << part.pos for part in coord if part.src == CONST)
        number = number + stride * Poly.of(known)
        for part in coord:
            if part.src != CONST:
                lowered = (Field(part.src, part.lo, part.width, 0),)
                coords[lowered] = coords.get(lowered, ZERO) + stride * Poly.of(1 << part.pos)
    return form.base, number, frozenset((coord, stride) for coord, stride in coords.items() if stride.terms)


def _is_address(value: SSAValue) -> bool:
    return is_pointer(element_type(value.type))


def _lane_bit(coord: Coord) -> set[int] | None:
    """The bit of the lane number that a side depends on, if it depends on no more than that or on no lane."""
    lanes = [field for field in coord if field.src == LANE]
    if len(coord) > 1 and lanes:
        return None
    return {field.lo for field in lanes}


def _lane_bits(index: Index) -> set[int]:
    return {bit for coord in index for f in coord if f.src == LANE for bit in range(f.lo, f.lo + f.width)}


def _affine(step: Step, index: Index, analysis: AffineAnalysis) -> bool:
    """Whether where lanes are stored is known before the program runs."""
    forms = [analysis.pointer(sink.roots[0], index) for sink in step.sinks if isinstance(sink, StoreSink)]
    return all(form.base is not None and not any(_lane_bits(at) for _, at, _ in form.offset.residual) for form in forms)


def at_lane_bits(index: Index, known: dict[int, int]) -> Index:
    """An index where some bits of the lane number are known; the others are those of a smaller number of lanes."""
    return tuple([normal(tuple([part for field in coord for part in _parts(field, known)])) for coord in index])


def _parts(field: Field, known: dict[int, int]) -> list[Field]:
    if field.src != LANE:
        return [field]
    parts = []
    for bit in range(field.lo, field.lo + field.width):
        at = field.pos + bit - field.lo
        if bit not in known:
            parts.append(Field(LANE, bit - sum(other < bit for other in known), 1, at))
        elif known[bit]:
            parts.append(Field(CONST, 1, 1, at))
    return parts
