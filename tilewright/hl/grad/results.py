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
from tilewright.hl.grad.conversions import conversion
from tilewright.hl.grad.simplify import share, simplify
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
        reads: where it is stored with fewer bits, what the backward pass asks of it: "signs", nothing but which
            elements are positive, as in PyTorch, where each result is rounded, the rounded ones say that; or "weight",
            nothing but its product with the gradient that comes in, which is rounded as much itself.
    """

    value: Value
    tensor: HostTensor
    entries: list[Subscript]
    dims: tuple[Dim, ...]
    reads: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether what is loaded is what was stored: nothing was converted, broadcast or placed by data."""
        data = any(isinstance(part, Value) for entry in self.entries for part in (entry.what, entry.offset))
        same = self.value.dtype == self.tensor.dtype or bool(self.reads)
        return not data and same and self.value.dims == self.dims


def load_results(region: Region, stored: list[Stored], fresh: Callable[[], int]) -> Region:
    """The region of a backward pass with loads of results in the place of what they save.

    Args:
        region: it.
        stored: what the forward pass stores.
        fresh: gives numbers that no value has.
    """
    if not stored:
        return region
    share(region)
    rounded = [_before_rounding(region, one) for one in stored]
    simplify(region)
    cost = _cost(region)
    for one in [known for pair in zip(stored, rounded, strict=True) for known in pair if known is not None]:
        if not one.is_whole or not any(one.value in node.outs for node in walk(region)):
            continue
        changed = _loaded(clone(region), one, fresh)
        simplify(changed)
        after = _cost(changed)
        if after < cost:
            region, cost = changed, after
    return region


def _before_rounding(region: Region, one: Stored) -> Stored | None:
    """What a stored value was rounded of, where the backward pass reads nothing but its signs."""
    source, made = one.value, None
    if one.value.dtype == one.tensor.dtype:
        made = next((node for node in walk(region) if one.value in node.outs), None)
        if made is not None and made.op != "_to_copy":
            return None
        source = one.value if made is None else made.args[0]
    if not source.dtype.is_floating_point or source.dtype.itemsize <= one.tensor.dtype.itemsize:
        return None
    readers = [node for node in walk(region) if source in operands(node) and node is not made]
    results = {value.id for node in walk(region) for body in node.regions for value in body.results}
    if source.id in results or not readers:
        return None
    if all(_reads_signs(node, source) for node in readers):
        return dataclasses.replace(one, value=source, reads="signs")
    if all(_weighs(region, node, source, f"grad_{one.tensor.name}") for node in readers):
        return dataclasses.replace(one, value=source, reads="weight")
    return None


def _reads_signs(node: Node, value: Value) -> bool:
    """Whether a node asks which elements of a value are positive, and nothing else."""
    return node.op == "threshold_backward" and node.args[0] is not value and tuple(node.args[1:]) == (value, 0)


def _weighs(region: Region, node: Node, value: Value, incoming: str) -> bool:
    """Whether a node multiplies a value, or what it is divided by, by the gradient that comes in and does no more."""
    if node.op == "mul":
        other = node.args[1] if node.args[0] is value else node.args[0]
        return other is not value and _is_incoming(region, other, incoming)
    if node.op == "div" and node.args[0] is value and node.args[1] is not value and not node.kwargs:
        readers = [reader for reader in walk(region) if node.out in operands(reader)]
        return bool(readers) and all(_weighs(region, reader, node.out, incoming) for reader in readers)
    return False


def _is_incoming(region: Region, value: Any, name: str) -> bool:
    """Whether a value is the gradient that comes in, but for its sign and type."""
    made = next((node for node in walk(region) if value in node.outs), None)
    if made is None or made.op not in ("_to_copy", "load", "neg"):
        return False
    return made.args[0].name == name if made.op == "load" else _is_incoming(region, made.args[0], name)


def lasting(traced: Traced) -> frozenset[str]:
    """Names of the tensors that nothing but the only loop of a kernel writes: no other loop, and no other call."""
    effects = traced.effects
    if len(traced.graphs) > 1 or effects.written or effects.anywhere or effects.outside:
        return frozenset()
    nodes = walk(traced.graphs[0].region)
    return frozenset(node.args[0].name for node in nodes if node.op == "store" and isinstance(node.args[0], HostTensor))


def _loaded(region: Region, one: Stored, fresh: Callable[[], int]) -> Region:
    """Load a result behind the node that computes it."""

    def change(leaf: Any) -> Any:
        return made if isinstance(leaf, Value) and leaf.id == one.value.id else leaf

    loaded = made = Value(fresh(), one.value.dims, one.tensor.dtype, one.value.name)
    widened: list[Node] = []
    if one.reads == "weight":
        made = Value(fresh(), one.value.dims, one.value.dtype, one.value.name)
        widened.append(conversion(loaded, made, 0))
    for inner in [region, *(part for node in walk(region) for part in node.regions)]:
        for node in inner.nodes:
            node.args, node.kwargs = replace(node.args, change), replace(node.kwargs, change)
        inner.results = [change(result) for result in inner.results]
        at = next((at for at, node in enumerate(inner.nodes) if any(o.id == one.value.id for o in node.outs)), None)
        if at is not None:
            load = Node("load", (one.tensor, one.entries), {}, inner.nodes[at].line, [loaded])
            inner.nodes[at + 1 : at + 1] = [load, *widened]
    return region


def _cost(region: Region) -> tuple[int, int, int, int]:
    """How much a simplified region takes: loops, products, loads, operations."""
    nodes = list(walk(region))
    ops = [node.op for node in nodes]
    counts = [ops.count(op) for op in ("loop", "product", "load")]
    return counts[0], counts[1], counts[2], len([node for node in nodes if operands(node)])
