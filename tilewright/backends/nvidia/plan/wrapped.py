"""Rows that wrap behind the last one, so that all places of a tile are in the tensor, and of which nothing is stored.

    a + (m % M)[:, None] * stride + k[None, :]  ->  dot  ->  ...  ->  store where m < M

Such rows may as well be zeros: along the dim of the rows each element of the product depends on one row only.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.bounds import below_zero, conjuncts_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index, whole
from tilewright.analysis.iterations import in_counters
from tilewright.analysis.slices import goes_into
from tilewright.base.decision import No
from tilewright.ir.effect_traits import access_of
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op
from tilewright.ops.elementwise import RemSIOp
from tilewright.ops.memory import LoadOp, StoreOp


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Rows that wrap.

    Args:
        plain: the rows before they do.
        dim: of the tile that is loaded.
        below: negative, with the place in the tile added, up to the last one.
    """

    plain: SSAValue
    dim: int
    below: Poly


def wrapped_rows(load: LoadOp, value: SSAValue, at: Index, index: Index, analysis: AffineAnalysis) -> Wrapped | None:
    """The rows of a load, if they wrap and nobody stores what is made of those behind the last.

    Args:
        load: of a tile.
        value: rows, among what the address is made of.
        at: the index at which it is wanted.
        index: of the load.
        analysis: of the function.
    """
    op, dims = defining_op(value), {field.src for coord in at for field in coord}
    if not isinstance(op, RemSIOp) or len(dims) != 1 or not dims <= set(range(len(index))):
        return None
    (dim,) = dims
    own = tuple(index[dim] if coord else coord for coord in at)  # `at` may leave out runs of neighbours
    rows, count = (analysis.integer(part, i) for part, i in operand_indices(value, own))
    if rows.residual or rows.coords != {index[dim]: Poly.of(1)} or not count.uniform:
        return None
    below = in_counters(rows.constant) + -in_counters(count.constant)
    return Wrapped(op.operands[0], dim, below) if _is_unused(load, dim, below, analysis) else None


def _is_unused(load: LoadOp, dim: int, below: Poly, analysis: AffineAnalysis) -> bool:
    """Whether what is made of rows of a load is stored only where `place in the tile + below < 0`."""
    todo, seen = list[tuple[SSAValue, int]]([(load.result, dim)]), set[tuple[SSAValue, int]]()
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        for use in key[0].uses:
            if isinstance(use.operation, StoreOp):
                if use.index != 1 or not _is_masked(use.operation, key[1], below, analysis):
                    return False
                continue
            # an address made of such a row would be used
            made = None if access_of(use.operation) else goes_into(use.operation, use.index, key[1])
            if made is None:
                return False
            todo += made
    return True


def _is_masked(store: StoreOp, dim: int, below: Poly, analysis: AffineAnalysis) -> bool:
    """Whether a part of the mask of a store is `place along a dim + below < 0`."""
    index: Index = tuple(whole(axis, extent) for axis, extent in enumerate(shape_of(store.value.type)))
    for value, at in () if store.mask is None else conjuncts_of(store.mask, index):
        if defining_op(value) is None:
            continue
        answer = below_zero(value, at, analysis, "")
        if isinstance(answer, No) or answer.plan.coords != {index[dim]: Poly.of(1)}:
            continue
        if in_counters(answer.plan.constant) == below:
            return True
    return False


__all__ = ["Wrapped", "wrapped_rows"]
