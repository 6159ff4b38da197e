"""A loop that sums up a product sums up the transposed one instead.

    for ..: iter_args(%s = %first) {                for ..: iter_args(%t = tt.trans %first) {
      %s' = tt.dot %x, %y, %s                  ->     %t' = tt.dot %a, %b, %t
    }                                               }
    %r                                              tt.trans %r

Back ends decide where that pays: which operands they can read as they lie, and which they cannot.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace, retype


def sum_transposed(dot: DotOp, number: int, a: SSAValue, b: SSAValue) -> None:
    """Have a loop sum up the transposed product, and transpose what it leaves.

    Args:
        dot: adds to what its loop carries, of which nobody else in the loop reads anything.
        number: of that among what the loop carries.
        a, b: operands of the transposed product.
    """
    loop, sum_ = dot.parent_op(), dot.c
    assert isinstance(loop, ForOp) and loop.next_op is not None
    kind = tile_type(shape_of(sum_.type)[::-1], element_type(sum_.type))
    loop.operands[3 + number] = Builder(loop).transposed(loop.operands[3 + number])
    result = loop.results[number]
    uses = list(result.uses)
    retype(result, kind)
    retype(sum_, kind)
    if uses:
        view = Builder(loop.next_op).transposed(result)
        for use in uses:
            use.operation.operands[use.index] = view
    replace(dot, [Builder(dot).again(dot, kind, a, b, sum_)])
