"""What the forward pass has stored, loaded where the backward pass would compute it again.

    out[rows, :] = softmax(x[rows, :])        y = softmax(x[rows, :])  ->  y = out[rows, :]

A result costs no memory: autograd holds it anyway. It is loaded where that needs no more loads and loops than computing
it again: the result of a product instead of the product, but not the sum of two tensors that are read in any case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.hl.dims import Dim
from tilewright.hl.grad.simplify import simplify
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, clone, operands, replace, walk
from tilewright.hl.trace.host import Traced


@dataclass(frozen=True)
class Stored:
    """A value that the forward pass stores.

    Args:
        value: it, as the backward pass computes it.
        tensor: where it is stored.
        entries: its subscripts, of which none is data.
        dims: of the tile.
        signs: whether it is stored with fewer bits, and the backward pass asks for nothing but which elements are
            positive: in PyTorch, where each result is rounded, the rounded ones say that.
    """

    value: Value
    tensor: HostTensor
    entries: list[Subscript]
    dims: tuple[Dim, ...]
    signs: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether what is loaded is what was stored: nothing was converted, broadcast or placed by data."""
        data = any(isinstance(part, Value) for entry in self.entries for part in (entry.what, entry.offset))
        same = self.value.dtype == self.tensor.dtype or self.signs
        return not data and same and self.value.dims == self.dims


def load_results(region: Region, stored: list[Stored], fresh: Callable[[], int]) -> Region:
    """The region of a backward pass with loads of results in the place of what they save.

    Args:
        region: it.
        stored: what the forward pass stores.
        fresh: gives numbers that no value has.
    """
    cost = None
    for one in [known for given in stored for known in (given, _before_rounding(region, given)) if known is not None]:
        if not one.is_whole:
            continue
        changed = _loaded(clone(region), one, fresh())
        cost = cost or _cost(region)
        after = _cost(changed)
        if after < cost:
            region, cost = changed, after
    return region


def _before_rounding(region: Region, one: Stored) -> Stored | None:
    """What a stored value was rounded of, where the backward pass reads nothing but its signs."""
    source, made = one.value, None
    if one.value.dtype == one.tensor.dtype:
        made = next((node for node in walk(region) if one.value in node.outs), None)
        if made is None or made.op != "_to_copy":
            return None
        (source,) = made.args
    if not source.dtype.is_floating_point or source.dtype.itemsize <= one.tensor.dtype.itemsize:
        return None
    readers = [node for node in walk(region) if source in operands(node) and node is not made]
    results = {value.id for node in walk(region) for body in node.regions for value in body.results}
    if source.id in results or not readers or not all(_reads_signs(node, source) for node in readers):
        return None
    return dataclasses.replace(one, value=source, signs=True)


def _reads_signs(node: Node, value: Value) -> bool:
    """Whether a node asks which elements of a value are positive, and nothing else."""
    return node.op == "threshold_backward" and node.args[0] is not value and tuple(node.args[1:]) == (value, 0)


def lasting(traced: Traced) -> frozenset[str]:
    """Names of the tensors that nothing but the only loop of a kernel writes: no other loop, and no other call."""
    effects = traced.effects
    if len(traced.graphs) > 1 or effects.written or effects.anywhere or effects.outside:
        return frozenset()
    nodes = walk(traced.graphs[0].region)
    return frozenset(node.args[0].name for node in nodes if node.op == "store" and isinstance(node.args[0], HostTensor))


def _loaded(region: Region, one: Stored, number: int) -> Region:
    """Load a result behind the node that computes it."""

    def change(leaf: Any) -> Any:
        return made if isinstance(leaf, Value) and leaf.id == one.value.id else leaf

    made = Value(number, one.value.dims, one.tensor.dtype, one.value.name)
    for inner in [region, *(part for node in walk(region) for part in node.regions)]:
        for node in inner.nodes:
            node.args, node.kwargs = replace(node.args, change), replace(node.kwargs, change)
        inner.results = [change(result) for result in inner.results]
        at = next((at for at, node in enumerate(inner.nodes) if any(o.id == one.value.id for o in node.outs)), None)
        if at is not None:
            load = Node("load", (one.tensor, one.entries), {}, inner.nodes[at].line, [made])
            inner.nodes.insert(at + 1, load)
    return region


def _cost(region: Region) -> tuple[int, int, int]:
    """How much a region takes when what it does in vain is gone: loops, loads, operations."""
    region = clone(region)
    simplify(region)
    nodes = list(walk(region))
    ops = [node.op for node in nodes]
    return ops.count("loop"), ops.count("load"), len([node for node in nodes if operands(node)])
