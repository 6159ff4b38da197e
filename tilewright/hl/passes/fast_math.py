"""Setting `fast_math`: 16-bit results of a chain of element by element operations stay float32 inside the chain."""

from __future__ import annotations

import torch

from tilewright.hl.graph.nodes import Node, Region, operands, walk
from tilewright.hl.rows.creation import Convert
from tilewright.hl.rows.pointwise import Pointwise
from tilewright.hl.rows.reductions import Reduction
from tilewright.hl.rows.table import ROWS


def keep_wide(region: Region) -> None:
    """Give every 16-bit float that only such readers have that convert it themselves the type float32."""
    rounded: set[int] = set()  # values with another reader: it relies on their type
    for node in walk(region):
        if not _converts(node):
            rounded.update(value.id for value in operands(node))
        for inner in node.regions:
            rounded.update(value.id for value in inner.results)
    for node in walk(region):
        if isinstance(ROWS.get(node.op), Pointwise):
            for out in node.outs:
                if out.id not in rounded and out.dtype in (torch.float16, torch.bfloat16):
                    out.dtype = torch.float32


def _converts(node: Node) -> bool:
    """Whether a node brings its operands to the type in which it computes."""
    return node.op == "store" or isinstance(ROWS.get(node.op), Pointwise | Convert | Reduction)
