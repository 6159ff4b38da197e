"""One node: our own operations here, all others by their row."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.hl import exc
from tilewright.hl.emit.access import emit_atomic, emit_load, emit_store, mask_text
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.graph.nodes import Node
from tilewright.hl.rows.dtypes import literal
from tilewright.hl.rows.table import ROWS


def emit_node(kernel: Kernel, node: Node) -> None:
    """Write a node, with the user's line above the first one of each."""
    kernel.lines.origin = node.line
    handler = emit_atomic if node.op.startswith("atomic_") else _OWN.get(node.op)
    try:
        if handler is not None:
            handler(kernel, node)
        else:
            ROWS[node.op].emit(kernel, node)
    except exc.Error as error:
        error.line = error.line or node.line
        raise


def _tile_index(kernel: Kernel, node: Node) -> None:
    kernel.values[node.out.id] = kernel.index(node.args[0])


def _mask_to(kernel: Kernel, node: Node) -> None:
    value, dims, neutral = node.args
    mask = mask_text(kernel, value.dims, list(dims))
    kernel.assign(node.out, f"tl.where({mask}, {kernel.operand(value)}, {literal(neutral)})")


_OWN: dict[str, Callable[[Kernel, Node], None]] = {
    "load": emit_load,
    "store": emit_store,
    "tile_index": _tile_index,
    "mask_to": _mask_to,
}
