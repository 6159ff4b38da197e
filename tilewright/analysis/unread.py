"""Demand, from stores back to what they are made of: which slices of a tile nobody looks at.

    tl.store(c, f(x), (m < M) & ...)        rows of x at which m - M is not negative are asked for by nobody

What flows where is `slices.py`; the masks of the stores say which slices count. Places past the end are told by a form
in the coordinate of the slices that is not negative there.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, expanded
from tilewright.analysis.bounds import below_zero, conjuncts_of
from tilewright.analysis.index import identity, whole
from tilewright.analysis.slices import Slices
from tilewright.base.decision import No, Yes
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_made_inside
from tilewright.ops.elementwise import CmpIOp


def asked_for(slices: Slices, forms: Sequence[Form], analysis: AffineAnalysis, what: str = "rows") -> No | None:
    """Why slices may be stored at which one of some forms is not negative; None if none is.

    Args:
        slices: what is made of the tile; addresses that are made of it are another matter.
        forms: each in one coordinate, which stands for that of the slices.
        analysis: of the function.
        what: text for the slices.
    """
    if slices.mixed is not None:
        return No(f"{what} are summed, or are moved in the tile", slices.mixed)
    bounds = [value for form in forms for value in form.constant.atoms()]
    if any(is_made_inside(value, loop) for value in bounds for loop in slices.carriers):
        return No(f"another iteration, with other bounds, may store {what} past the end")
    for store, dim in slices.stores.items():
        mask = store.operands[2] if len(store.operands) > 2 else None
        if mask is None or not all(implies(mask, dim, form, analysis) for form in forms):
            return No(f"{what} past the end are stored", store, "tl.store(..., mask=m < M)")
    return None


def implies(mask: SSAValue, dim: int, wanted: Form, analysis: AffineAnalysis) -> bool:
    """Whether a mask is false where `wanted` is not negative, `wanted` being a form in the coordinate of `dim`."""
    shape = shape_of(mask.type)
    if not shape:
        return False
    (stride,) = wanted.coords.values()
    moved = Form(wanted.constant, {whole(dim, shape[dim]): stride})
    for value, index in conjuncts_of(mask, identity(shape)):
        if isinstance(defining_op(value), CmpIOp):
            answer = below_zero(value, index, analysis, "")
            if isinstance(answer, Yes):
                more = answer.plan.plus(moved, Poly.of(-1))
                if more.uniform and expanded(more.constant).never_negative:
                    return True
    return False
