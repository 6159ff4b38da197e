"""Rules that every tile graph keeps, between all passes; tests switch the check on."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node, Region, Value, operands, symbols, values

# What happens after every pass; nothing outside of tests.
after_pass: list[Callable[[Region], None]] = []


def verify(region: Region) -> None:
    """Check a region and those inside it.

    Raises:
        InternalError: a value is read before it exists or made twice, or the state of a loop or branch has other types
            at its ends.
    """
    _region(region, set(), set())


def checked(region: Region) -> None:
    """Run what tests want to see after a pass."""
    for check in after_pass:
        check(region)


def _region(region: Region, known: set[int], made: set[int]) -> set[int]:
    """Check a region in which `known` values exist; returns those that exist behind it."""
    known = known | {param.id for param in region.params}
    for node in region.nodes:
        for value in _read(node):
            _must(value.id in known, node, f"{value!r} is read before it is made")
        inside = known | {param.id for body in node.regions for param in body.params if node.op == "while"}
        for body in node.regions:
            after = _region(body, inside, made)
            inside = after if node.op == "while" else known
        _state(node)
        for out in node.outs:
            _must(out.id not in made, node, f"{out!r} is made twice")
            made.add(out.id)
        known |= {out.id for out in node.outs}
    for result in region.results:
        _must(result.id in known, None, f"the result {result!r} is not made")
    return known


def _read(node: Node) -> list[Value]:
    atoms = [atom for symbol in symbols((node.args, node.kwargs)) for atom in symbol.atoms()]
    return [*operands(node), *(value for atom in atoms for value in values(list(atom.args)))]


def _state(node: Node) -> None:
    """Parameters, results and what comes out of a loop or branch have one type each."""
    if node.op not in ("loop", "while", "if"):
        return
    for body in node.regions[-1:] if node.op == "while" else node.regions:
        ends = [node.outs, body.results] + ([body.params] if node.op != "if" else [])
        if any(end for end in ends):
            _must(len({len(end) for end in ends}) == 1, node, "the state has different lengths at the ends")
        for several in zip(*ends, strict=False):
            types = {(tuple(dim.cut for dim in value.dims), value.dtype) for value in several}
            _must(len(types) == 1, node, "the state changes its type")


def _must(holds: bool, node: Node | None, what: str) -> None:
    if not holds:
        raise exc.InternalError(f"a tile graph is wrong: {what}" + (f", in {node.op}" if node is not None else ""))
