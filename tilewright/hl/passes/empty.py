"""What has no elements is computed, carried and stored by nobody: there are no tiles of no lanes."""

from __future__ import annotations

from tilewright.hl.graph.nodes import Node, Region, Value, accessed


def drop_empty(region: Region) -> None:
    """Rewrite a region and those inside it without values of no elements; nothing else reads them."""
    kept = []
    for node in region.nodes:
        for body in node.regions:
            drop_empty(body)
        if node.regions:
            _drop_state(node)
        elif (node.op == "store" and _is_empty(Value(-1, accessed(node), None))) or _are_empty(node.outs):
            continue
        kept.append(node)
    region.nodes = kept


def _are_empty(values: list[Value]) -> bool:
    return bool(values) and all(map(_is_empty, values))


def _is_empty(value: Value) -> bool:
    return any(dim.static == 0 for dim in value.dims)


def _drop_state(node: Node) -> None:
    """Remove empty values from what a loop carries or a branch makes."""
    stays = [not _is_empty(out) for out in node.outs]
    if all(stays):
        return
    if node.op != "if":
        node.args = ([value for value, stay in zip(node.args[0], stays, strict=True) if stay], *node.args[1:])
    node.outs = [out for out, stay in zip(node.outs, stays, strict=True) if stay]
    for body in node.regions if node.op == "if" else node.regions[-1:]:
        body.results = [value for value, stay in zip(body.results, stays, strict=True) if stay]
        if body.params:
            body.params = [value for value, stay in zip(body.params, stays, strict=True) if stay]
