"""Rows that wrap behind the last one, so that all places of a tile are in the tensor, and of which nothing is stored.

    a + (m % M)[:, None] * stride + k[None, :]  ->  dot  ->  ...  ->  store where m < M

Such rows may as well be zeros: along the dim of the rows each element of the product depends on one row only.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import Index
from tilewright.analysis.iterations import in_counters
from tilewright.analysis.slices import slices_of
from tilewright.analysis.unread import asked_for
from tilewright.ir.values import defining_op
from tilewright.ops.elementwise import RemSIOp
from tilewright.ops.memory import LoadOp


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
    slices, below = slices_of(load.result, dim), rows.plus(count, Poly.of(-1))
    if slices.loads or asked_for(slices, [below], analysis) is not None:
        return None
    return Wrapped(op.operands[0], dim, in_counters(below.constant))


__all__ = ["Wrapped", "wrapped_rows"]
