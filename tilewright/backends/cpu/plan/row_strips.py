"""Strips of rows: pieces that lie side by side in memory from one iteration of a loop to the next.

    for %t = 0 .. %n: iter_args(%s[16])               for %b = 0 .. %n by 8: iter_args(%s[16])
      %v = tt.load (%x + 128 * %t + ..)[16, 128]        %v = tt.load (%x + 128 * %b + ..)[16, 1024]
      %s' = addf %s, (tt.reduce (axis = 1) %v)   ->     %s' = addf %s, (tt.reduce (axis = 1) %v)

The loop nest tells: what addresses and bounds gain in an iteration is what they gain along a piece, or minus that,
however loop, masks and counters are written. A piece may be one element, or what is reduced in an iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.collapse_reductions import goes_as_one
from tilewright.backends.cpu.plan.reduction_variables import Gain, Sum
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import pointee_bytes, shape_of
from tilewright.ir.values import defining_op, property_int
from tilewright.loops.nest import (
    ZERO,
    Below,
    Carried,
    Index,
    Load,
    Opaque,
    Poly,
    Range,
    Recurrence,
    ranges_of,
    walk,
)
from tilewright.loops.raising import Raising
from tilewright.ops.control import ForOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, single_operation


@dataclass(slots=True)
class Strips:
    """A loop that takes several iterations as one.

    Args:
        loop: the loop.
        carried: what becomes of each carried value.
        pieces: of each sum by its number, what is reduced, and along which dim; -1 for pieces of one element.
        iterations: that are taken as one.
        extent: of a piece.
        down: whether the pieces come from the last one to the first.
        rows: dim of each load along which the pieces lie.
        masked: whether iterations that there are not are masked, not left to a loop of their own: always worth it for
            rows and products of matrices.
    """

    loop: ForOp
    carried: list[Sum | Gain]
    pieces: dict[int, tuple[SSAValue, int]] = field(default_factory=dict)
    iterations: int = 0
    extent: int = 1
    down: bool = False
    rows: dict[LoadOp, int] = field(default_factory=dict)
    masked: bool = False


def whole_rows(strips: Strips, raising: Raising) -> Answer[Strips]:
    """Whether all that the pieces of a loop are loaded from, and masked by, goes on from one iteration to the next."""
    no = _pieces(strips)
    if no is not None:
        return no
    iteration, ways = raising.loops.of(strips.loop).iteration, set[int]()
    pieces = list(strips.pieces.values())
    for value, axis in pieces + [(c.terms[1], -1) for c in strips.carried if isinstance(c, Sum) and len(c.terms) > 1]:
        dims = raising.dims((value, axis), shape_of(value.type))
        answer = _ways(strips, raising, raising.value(value, dims), _Piece(iteration, dims, axis, strips.extent))
        if isinstance(answer, No):
            return answer
        ways |= answer.plan
    if len(ways) != 1 or not strips.rows:
        return No("its pieces lie in no order")
    strips.down, strips.masked = ways == {-1}, True
    return Yes(strips, f"{tuning.COLLAPSED_ROW} elements of a row at a time")


def _pieces(strips: Strips) -> No | None:
    """Finds what the loop reduces in each iteration; or why that are no pieces of rows."""
    extents = set[int]()
    for number, sum_ in enumerate(strips.carried):
        if not isinstance(sum_, Sum):
            continue
        if number not in strips.pieces:
            strips.pieces[number] = _piece(sum_)
        value, axis = strips.pieces[number]
        extents.add(shape_of(value.type)[axis] if axis >= 0 else 1)
    strips.extent = extents.pop()
    if extents:
        return No("its pieces have several extents")
    if strips.extent > tuning.LONGEST_STRIP:
        return No("its pieces are long")
    strips.iterations = tuning.COLLAPSED_ROW // strips.extent
    shapes = [(shape_of(value.type), axis) for value, axis in strips.pieces.values()]
    if not all(goes_as_one((strips.iterations, *shape), (0, axis + 1)) for shape, axis in shapes if axis >= 0):
        return No("places in its pieces are no bits of places in the row")
    return None


def _piece(sum_: Sum) -> tuple[SSAValue, int]:
    """What an iteration reduces to add it to a sum; or what it adds, a piece of one element."""
    op = defining_op(sum_.terms[0])
    if isinstance(op, ReduceOp) and op.results[0].has_one_use():
        kind = single_operation(op.regions[0].block)
        if type(kind) is sum_.kind:
            return op.operands[0], property_int(op, "axis")
    return sum_.terms[0], -1


@dataclass(slots=True)
class _Piece:
    """Where an element of a piece is: in which iteration, and where in its tile, `extent` elements along dim `axis`."""

    iteration: Range
    dims: Index
    axis: int
    extent: int

    @property
    def along(self) -> Range | None:
        """The range along the piece; None for one of a single element."""
        atoms = self.dims[self.axis].atoms if self.axis >= 0 else ()
        return next((atom for atom in atoms if isinstance(atom, Range)), None)

    def way(self, poly: Poly) -> int | None:
        """Whether what a polynomial gains from piece to piece it also gains along one: 1; less that: -1; neither: 0.
        None if it gains something else."""
        own = {self.iteration, self.along}
        if any(atom not in own and not own.isdisjoint(ranges_of(atom)) for atom in poly.atoms):
            return None
        gain, stride = poly.coefficient(self.iteration), ZERO if self.along is None else poly.coefficient(self.along)
        if gain is None or stride is None:
            return None
        if gain is ZERO and stride is ZERO:
            return 0
        piece = stride * Poly.number(self.extent)
        return 1 if gain is piece else -1 if gain is -piece else None


def _ways(strips: Strips, raising: Raising, element: object, piece: _Piece) -> Answer[set[int]]:
    """The ways in which loads and masks of an element go on."""
    ways = set[int]()
    for node in walk(element):
        if isinstance(node, Load):
            if node not in raising.sources:
                return No("an iteration takes what another one loads")
            op, index = raising.sources[node]
            way = _load_way(node, op, piece)
            if way is None:
                return No("its pieces do not lie side by side", op)
            if way and not {r for dim in piece.dims for r in dim.atoms} - {piece.along} <= ranges_of(node.offset):
                return No("several rows share what it loads", op)
            along = piece.dims[piece.axis] if piece.axis >= 0 else None
            dim = index.index(along) if way and along in index else -1
            if way and strips.rows.setdefault(op, dim) != dim:
                return No("its pieces do not lie side by side", op)
        elif isinstance(node, Below) and piece.axis >= 0:
            own = Poly.of_terms(
                {m: c for m, c in node.poly.key if not any(ranges_of(a) and not isinstance(a, Range) for a in m)}
            )
            way = piece.way(own)
            if way is None:
                return No("its pieces do not lie side by side")
        elif isinstance(node, (Carried, Opaque, Recurrence)) and piece.along in ranges_of(node.index):
            return No("a tile is read in parts")
        else:
            continue
        ways.add(way)
    return Yes(ways - {0})


def _load_way(load: Load, op: LoadOp, piece: _Piece) -> int | None:
    """How a load goes on, whose pieces must lie in memory without a gap."""
    if piece.iteration in ranges_of(load.base):
        return None
    size = Poly.number(pointee_bytes(op.ptr.type))
    if piece.axis >= 0:
        way = piece.way(load.offset)
        return way if not way or load.offset.coefficient(piece.along) is size else None  # type: ignore[arg-type]
    gain = load.offset.coefficient(piece.iteration)
    others = [load.offset.coefficient(atom) for atom in load.offset.atoms if isinstance(atom, Range)]
    if gain is ZERO:
        return 0 if piece.iteration not in ranges_of(load.offset) else None
    if gain is size or gain is -size:
        return (
            (1 if gain is size else -1) if others.count(size) == (gain is size) else None
        )  # lanes go along no other dim
    return None
