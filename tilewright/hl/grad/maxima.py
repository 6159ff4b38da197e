"""Running maxima: what a loop carries as `m = maximum(m, ...)`.

In the gradient such a variable has its last value in every pass: `maximum(m, x)` is m, `m - m` is 0, `exp(0)` 1. The
sums that a kernel rescales by `exp(m - new)` become plain sums then. That no gradient flows through m itself is right
only where results do not depend on it: `degree.check` proves that.
"""

from __future__ import annotations

from tilewright.hl.graph.nodes import Node, Value

_MAXIMA = frozenset(("maximum", "fmax"))


def running_maxima(loop: Node) -> dict[int, Value]:
    """By position among what a loop carries: the results that are running maxima, as the body computes them."""
    (region,) = loop.regions
    made = {out.id: node for node in region.nodes for out in node.outs}
    found = {}
    for at, (param, result) in enumerate(zip(region.params, region.results, strict=True)):
        node = made.get(result.id)
        if node is not None and node.op in _MAXIMA and any(arg is param for arg in node.args):
            found[at] = result
    return found
