"""Wrapped and clamped indices at the end of a tensor, where nobody asks for what they read there.

    %r = arith.remsi %m, %M                     %keep = arith.cmpi slt, %m, %M
    %x = tt.load (.. %r ..)              ->     %x = tt.load (.. %m ..), %keep
    ... tt.store ..., mask %m < %M              ... tt.store ..., mask %m < %M

Kernels write `m % M`, `tl.minimum(m, M - 1)` or `tl.where(m < M, m, 0)` to stay inside of a tensor without a mask.
Below `M` these are `m` itself, and the rows from `M` on are not stored, or something else is chosen for them. So the
loads leave those rows out, and their addresses are affine in `m`. So with `tl.maximum(m, 0)` and what lies below 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue, Use

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, expanded
from tilewright.analysis.index import ZERO, Index, whole
from tilewright.analysis.slices import Slices, slices_of
from tilewright.analysis.unread import asked_for, implies
from tilewright.backends.cpu.plan.subjects import WRAPPED
from tilewright.base.assumptions import POSITIVE_DIVISORS, holds
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, i1, shape_of, tile_type
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import among, walk
from tilewright.ops.broadcast import BroadcastOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.elementwise import CmpIOp, MaxSIOp, MinSIOp, RemSIOp, SelectOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import ReshapeOp
from tilewright.ops.signs import never_negative
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace
from tilewright.passes.trip_count import Preheader

NOTHING = Poly.of(0)
_COMPARED: dict[type[Operation], str] = {RemSIOp: "slt", MinSIOp: "sle", MaxSIOp: "sge"}
"""How an index compares with its bound where that does not hold it."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An index that is `plain` where a comparison holds.

    Args:
        op: that makes it.
        plain: the index before.
        predicate, left, right: the comparison.
        dim: its only dim of several elements.
        multiple: of the bound, that a remainder takes from the index.
    """

    op: Operation
    plain: SSAValue
    predicate: str
    left: SSAValue
    right: SSAValue
    dim: int
    multiple: Poly = NOTHING


def leave_out_unread_rows(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such indices of a function; says whether anything changed."""
    changed = False
    analysis = AffineAnalysis()
    for op in list(walk(function)):
        held = _recognise(op, analysis)
        if held is None:
            continue
        slices = _slices(held, analysis)
        if not slices.loads:  # no address is made of it
            continue
        if decisions.note(WRAPPED, op, _unread(held, slices, analysis)) is not None:
            _rewrite(held, slices)
            analysis.forget()
            changed = True
    return changed


def _slices(held: _Held, analysis: AffineAnalysis) -> Slices:
    """What is made of an index where it is not held: a choice may leave out the rest."""
    wanted = _form(held, analysis)

    def left_out(use: Use, dim: int) -> bool:
        choices = among([use.operation], SelectOp) if use.index == 1 else []
        return wanted is not None and any(implies(op.operands[0], dim, wanted, analysis) for op in choices)

    return slices_of(held.op.results[0], held.dim, left_out)


def _recognise(op: Operation, analysis: AffineAnalysis) -> _Held | None:
    if not among([op], SelectOp, *_COMPARED) or element_type(op.results[0].type) == i1:
        return None
    shape = shape_of(op.results[0].type)
    dims = [dim for dim, extent in enumerate(shape) if extent > 1]
    if len(dims) != 1:
        return None
    if isinstance(op, SelectOp):
        condition, plain, _ = op.operands
        test = defining_op(condition)
        if not isinstance(test, CmpIOp) or not is_tile(condition) or plain not in test.operands:
            return None
        return _Held(op, plain, test.attr_values()["predicate"], test.lhs, test.rhs, dims[0])
    (plain, bound), begins_anew = op.operands, isinstance(op, RemSIOp)
    if not begins_anew and isinstance(defining_op(plain), (SplatOp, ConstantOp)):
        plain, bound = bound, plain
    multiple = _multiple(plain, bound, dims[0], analysis) if begins_anew else NOTHING
    return _Held(op, plain, _COMPARED[type(op)], plain, bound, dims[0], multiple)


def _multiple(plain: SSAValue, bound: SSAValue, dim: int, analysis: AffineAnalysis) -> Poly:
    """What is a multiple of its bound in an index that is never negative, nor without that."""
    place, by = (analysis.integer(value, _along(shape_of(value.type), dim)) for value in (plain, bound))
    begin, divisor = expanded(place.constant), expanded(by.constant)
    if place.residual or not by.uniform or [*divisor.terms.values()] != [1]:
        return NOTHING
    (factors,) = map(Counter, divisor.terms)
    found = Poly({monomial: n for monomial, n in begin.terms.items() if factors and factors <= Counter(monomial)})
    rest = [begin - found, *place.coords.values()]
    return found if all(part.never_negative for part in (found, *rest)) else NOTHING


def _unread(held: _Held, slices: Slices, analysis: AffineAnalysis) -> Answer[_Held]:
    """Whether the comparison of `held` is part of the mask of every store that its rows come to."""
    if isinstance(held.op, RemSIOp) and not (never_negative(held.plain) and holds(POSITIVE_DIVISORS)):
        return No("the index may be negative", held.op)
    wanted = _form(held, analysis)
    if wanted is None:
        return No("the index is not affine, or its bound is not one number", held.op)
    no = asked_for(slices, [wanted], analysis)
    return no or Yes(held, "rows past the end are not read, as they are not stored")


def _along(shape: tuple[int, ...], dim: int) -> Index:
    return tuple([whole(0, extent) if d == dim else ZERO for d, extent in enumerate(shape)])


def _form(held: _Held, analysis: AffineAnalysis) -> Form | None:
    """The form in the rows' coordinate that is negative where the comparison holds."""
    index = _along(shape_of(held.plain.type), held.dim)
    small, large = (analysis.integer(value, index) for value in (held.left, held.right))
    small = small.plus(Form(held.multiple), Poly.of(-1))
    if held.predicate in ("sgt", "sge"):
        small, large = large, small
    elif held.predicate not in ("slt", "sle"):
        return None
    form = small.plus(large, Poly.of(-1))
    if held.predicate in ("sle", "sge"):
        form = form.plus(Form(Poly.of(-1)))
    return None if form.residual or not form.coords else form


# --- rewriting ----------------------------------------------------------------------------------------------


def _rewrite(held: _Held, slices: Slices) -> None:
    b, plain, left = Builder(held.op), held.plain, held.left
    if held.multiple != NOTHING:
        plain = left = b.sub(plain, Preheader(held.op, element_type(plain.type)).sum(held.multiple))
    keep = b.compare(held.predicate, left, held.right)
    for load, dim in slices.loads.items():
        _mask(load, keep, dim)
    replace(held.op, [plain])


def _mask(load: LoadOp, keep: SSAValue, dim: int) -> None:
    """Have a load leave out the rows, along its `dim`, of which `keep` is not true."""
    b, shape = Builder(load), shape_of(load.results[0].type)
    thin = tuple(extent if d == dim else 1 for d, extent in enumerate(shape))
    kept = b.make(BroadcastOp, tile_type(shape, i1), b.make(ReshapeOp, tile_type(thin, i1), keep))
    kept = kept if load.mask is None else b.both(load.mask, kept)
    load.operands = [load.ptr, kept, *([load.other] if load.other is not None else [])]
