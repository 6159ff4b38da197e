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
    waiting: list[Operation | Block] = [root] if isinstance(root, Block) else _blocks(root)
    while waiting:
        node = waiting.pop()
        op = node.first_op if isinstance(node, Block) else node
        while op is not None:
            following = op.next_op
            yield op
            if op.regions:
                if following is not None:
                    waiting.append(following)
                waiting += _blocks(op)
                break
            op = following


def _blocks(node: Operation | Region) -> list[Operation | Block]:
    """Its blocks, the last one first."""
    regions = node.regions if isinstance(node, Operation) else (node,)
    return [block for region in reversed(regions) for block in reversed(region.blocks)]
