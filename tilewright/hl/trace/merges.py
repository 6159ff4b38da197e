"""Reshapes that merge a size that is no constant with other extents, or split what holds one.

Such a size has more lanes than elements, a power of two: where it is not the first of the extents that are merged, an
element has another place among the lanes than among the elements::

    [2, n] -> [2 * n]      n = 3, four lanes: the second row is in lanes 4, 5, 6, and 3, 4, 5 of the result are wanted
    [n, 2] -> [2 * n]      the elements are the first lanes of either
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.hl import exc
from tilewright.hl.trace.equal import fix_size
from tilewright.hl.trace.state import Trace


def check_reshape(trace: Trace, before: Sequence[int], after: Sequence[int]) -> None:
    """Make the sizes that a reshape moves to other lanes constants.

    Args:
        trace: the trace.
        before: the shape of a sample.
        after: the shape that it gets.

    Raises:
        Fixed: one of the sizes is no constant yet.
        UnsupportedOperation: one is known when the kernel is launched, and no sooner.
    """
    if math.prod(before) != math.prod(after):  # the same bits as a shorter or longer type
        return
    for left, right in _groups(before, after):
        finer = left if len(left) > len(right) else right
        inner = finer[1:] if min(len(left), len(right)) <= 1 else left + right
        for extent in inner:
            if any(atom.kind == "host" for atom in trace.factors.dim(extent).atoms):
                fix_size(trace, trace.factors.size(extent))
                raise exc.UnsupportedOperation(
                    "a reshape of a dimension whose size is known at the launch moves its elements to other lanes",
                    hint="let the size be an argument's, or put the dimension first among those that are merged",
                )


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The extents of two shapes, those together that hold the same elements; extents of 1 and equal ones left out."""
    left, right = ([extent for extent in shape if extent != 1] for shape in (before, after))
    found = []
    while left and right:
        one, other = [left.pop(0)], [right.pop(0)]
        sizes = [one[0], other[0]]
        while sizes[0] != sizes[1]:
            shorter = int(sizes[0] > sizes[1])
            more = (left, right)[shorter].pop(0)
            (one, other)[shorter].append(more)
            sizes[shorter] *= more
        if one != other:
            found.append((one, other))
    return found
