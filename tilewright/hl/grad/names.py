"""Names of the user's that a derived kernel gives to tensors of its own: those of the user become others in it.

`grad_out` is the gradient of `out` in a derived kernel, and may be an argument of the kernel that is differentiated:
a backward pass by hand, or a derived one.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.hl.graph.nodes import HostTensor, walk
from tilewright.hl.trace.host import Traced

_TAKEN = ("grad_", "parts_", "last_", "each_", "at_", "own_")
_INSIDE = ("_at_", "_before")


def settle(traced: Traced) -> None:
    """Rename the tensors of a trace; no two of them have one name afterwards."""
    for graph in traced.graphs:
        for node in walk(graph.region):
            if node.args and isinstance(node.args[0], HostTensor):
                node.args = (replace(node.args[0], name=_free(node.args[0].name)), *node.args[1:])


def _free(name: str) -> str:
    taken = name.startswith(_TAKEN) or any(part in name for part in _INSIDE)
    return f"own_{name}" if taken else name
