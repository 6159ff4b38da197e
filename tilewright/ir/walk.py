"""All operations of a piece of IR, in order, in time that does not grow with how deeply they are nested.

xDSL's own `walk` hands each operation up through every region around it: a chain of 300 `elif`s took ten seconds in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation, Region


def walk(root: Operation | Region | Block) -> Iterator[Operation]:
    """`root`, if it is an operation, and what stands inside of it, each before what stands inside of that.

    An operation may be removed once the next one has been asked for.
    """
    if isinstance(root, Operation):
        yield root
    stack = [_inside(root)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            continue
        yield op
        if op.regions:
            stack.append(_inside(op))


def _inside(node: Operation | Region | Block) -> Iterator[Operation]:
    """The operations of its blocks."""
    if isinstance(node, Block):
        return iter(node.ops)
    regions = node.regions if isinstance(node, Operation) else (node,)
    return (op for region in regions for block in region.blocks for op in block.ops)
