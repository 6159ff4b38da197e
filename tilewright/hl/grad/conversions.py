"""Conversions of what derived regions compute."""

from __future__ import annotations

import torch

from tilewright.hl.graph.nodes import Node, Value


def conversion(source: Value, out: Value, line: int) -> Node:
    """The node that converts a value to the type of another.

    Args:
        source: what is converted.
        out: what it gives, a value that no node gives yet.
        line: of the user's program; 0 for none.
    """
    return Node("_to_copy", (source,), {"dtype": out.dtype}, line, [out], function=torch.ops.aten._to_copy.default)
