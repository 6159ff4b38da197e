"""What a derived region does in vain, removed: values that a loop carries unchanged, and what nobody reads."""

from __future__ import annotations

from typing import Any

from tilewright.hl.grad.program import captured
from tilewright.hl.graph.nodes import Node, Region, Value, has_effect, operands, rename, renamed_leaf, replace, walk
from tilewright.hl.passes.deadcode import remove_dead


def simplify(region: Region) -> None:
    """Simplify a region and those in it until nothing changes."""
    while True:
        remove_dead(region)
        renamed: dict[int, Value] = {}
        loops = [node for node in walk(region) if node.op == "loop" and node.outs]
        read = _read(region) if loops else set()
        for node in loops:
            _drop_carried(node, read, renamed)
        if not renamed:
            return
        rename(region, renamed)


def _read(region: Region) -> set[int]:
    """The values that nodes read and regions give."""
    found = set()
    for node in walk(region):
        found.update([value.id for value in operands(node)])
        for inner in node.regions:
            found.update([value.id for value in inner.results])
    return found


def _drop_carried(loop: Node, read: set[int], renamed: dict[int, Value]) -> None:
    """Drop what a loop carries unchanged, or for nobody but itself, when `read` are the values that are read."""
    (body,) = loop.regions
    inits = loop.args[0]
    kept = {at for at, out in enumerate(loop.outs) if out.id in read}
    kept = {at for at in kept if body.results[at] is not body.params[at]}
    while True:
        needed = _needed(body, {body.results[at].id for at in kept})
        more = {at for at, param in enumerate(body.params) if param.id in needed and body.results[at] is not param}
        if more <= kept:
            break
        kept |= more
    for at, (param, out) in enumerate(zip(body.params, loop.outs, strict=True)):
        if at not in kept:
            renamed[param.id] = renamed[out.id] = inits[at]
    if len(kept) < len(loop.outs):
        order = sorted(kept)
        loop.args = ([inits[at] for at in order],)
        body.params, body.results = [body.params[at] for at in order], [body.results[at] for at in order]
        loop.outs = [loop.outs[at] for at in order]


def _needed(body: Region, wanted: set[int]) -> set[int]:
    """The values that a body reads for its effects and for the values in `wanted`."""
    needed = set(wanted)
    for node in reversed(body.nodes):
        if has_effect(node) or any(out.id in needed for out in node.outs):
            needed |= {value.id for value in operands(node)} | {value.id for value in captured(node)}
    return needed


def share(region: Region) -> None:
    """Compute what several nodes of a region compute in one way once: formulas of PyTorch begin with what is known."""
    renamed: dict[int, Value] = {}
    _share(region, {}, renamed)
    if renamed:
        rename(region, renamed)


def _share(region: Region, known: dict[Any, Value], renamed: dict[int, Value]) -> None:
    def same(leaf: Any) -> Any:
        return renamed_leaf(leaf, renamed)

    for node in region.nodes:
        if node.function is not None and len(node.outs) == 1 and not node.regions and not has_effect(node):
            args, kwargs = replace(node.args, same), replace(node.kwargs, same)
            key = node.op, repr(args), repr(kwargs), node.compute, node.out.dtype, node.out.dims
            first = known.setdefault(key, node.out)
            if first is not node.out:
                renamed[node.out.id] = first
        for inner in node.regions:
            _share(inner, dict(known), renamed)


def histories(region: Region) -> list[tuple[Node, Node]]:
    """(what a pass would need to know of the ones before it, who needs it)."""
    asked = {node.out.id: node for node in walk(region) if node.op == "history"}
    return [(asked[value.id], node) for node in walk(region) for value in operands(node) if value.id in asked]
