"""One node: our own operations here, all others by their row."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Dim
from tilewright.hl.emit.access import emit_atomic, emit_load, emit_store, hints, mask_text
from tilewright.hl.emit.blocks import Block, block_of, described, descriptor_text, pointer_text
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.graph.nodes import Node, Value, accessed
from tilewright.hl.rows.dtypes import literal
from tilewright.hl.rows.table import ROWS


def emit_node(kernel: Kernel, node: Node) -> None:
    """Write a node, with the user's line above the first one of each."""
    kernel.lines.origin = node.line
    handler = _atomic if node.op.startswith("atomic_") else _OWN.get(node.op)
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


def _load(kernel: Kernel, node: Node) -> None:
    """Write a load in the form that the configuration gives it, where the access has that form."""
    out, tensor = node.out, node.args[0]
    form, block = _form(kernel, node, out.dims)
    if block is None:
        emit_load(kernel, node)
        return
    if form == "block_ptr":
        checked = f', boundary_check={tuple(block.checked)}, padding_option="zero"' if block.checked else ""
        text = f"tl.load({pointer_text(kernel, tensor, block)}{checked}{hints(kernel, node)})"
    else:
        text = f"{descriptor_text(kernel, tensor, block)}.load([{', '.join(block.offsets)}])"
    if kernel.shape(out.dims) != str(block.lanes):
        text = f"tl.reshape({text}, {kernel.shape(out.dims)})"
    other = node.kwargs.get("other", 0)
    if other and block.checked:
        text = f"tl.where({mask_text(kernel, out.dims, list(range(len(out.dims))), {})}, {text}, {literal(other)})"
    kernel.assign(out, text)


def _store(kernel: Kernel, node: Node) -> None:
    """Write a store in the form that the configuration gives it, where the access has that form."""
    tensor, _, value = node.args
    dims = accessed(node)
    form, block = _form(kernel, node, dims)
    if block is None:
        emit_store(kernel, node)
        return
    text = kernel.operand(value, tensor.dtype)
    if not isinstance(value, Value) or value.dims != dims:
        text = f"tl.full({kernel.shape(dims)}, 0, {kernel.dtype(tensor.dtype)}) + {text}"
    if kernel.shape(dims) != str(block.lanes):
        text = f"tl.reshape({text}, {block.lanes})"
    if form == "block_ptr":
        checked = f", boundary_check={tuple(block.checked)}" if block.checked else ""
        kernel.lines.write(f"tl.store({pointer_text(kernel, tensor, block)}, {text}{checked}{hints(kernel, node)})")
    else:
        kernel.lines.write(f"{descriptor_text(kernel, tensor, block)}.store([{', '.join(block.offsets)}], {text})")


_DESCRIBED = frozenset(("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor"))
_ADDED = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.int32))


def _atomic(kernel: Kernel, node: Node) -> None:
    """Write an atomic update, through a descriptor where the configuration says so and nobody reads what was there."""
    tensor, value, dims = node.args[0], node.args[2], node.out.dims
    form = kernel.decision.choice("atomic_indexing", node.kwargs.get("atomic_indexing"))
    types = _ADDED if node.op == "atomic_add" else (torch.int32,)
    plain = node.op in _DESCRIBED and node.kwargs["sem"] == "relaxed" and not kernel.readers[node.out.id]
    wanted = form == "tensor_descriptor" and not kernel.decision.portable and plain and tensor.dtype in types
    block = block_of(kernel, node, dims) if wanted else None
    if block is None or not described(tensor, block):
        emit_atomic(kernel, node)
        return
    text = kernel.operand(value, tensor.dtype)
    if not isinstance(value, Value) or value.dims != dims:
        text = f"tl.full({kernel.shape(dims)}, 0, {kernel.dtype(tensor.dtype)}) + {text}"
    if kernel.shape(dims) != str(block.lanes):
        text = f"tl.reshape({text}, {block.lanes})"
    blocks = descriptor_text(kernel, tensor, block)
    kernel.lines.write(f"{blocks}.{node.op}([{', '.join(block.offsets)}], {text})")


def _form(kernel: Kernel, node: Node, dims: tuple[Dim, ...]) -> tuple[str, Block | None]:
    """How an access is written, and its rectangle if it has one and is not written with pointers."""
    form = kernel.decision.choice("indexing", node.kwargs.get("indexing")) or "pointer"
    block = None if form == "pointer" or kernel.decision.portable else block_of(kernel, node, dims)
    if block is not None and form == "tensor_descriptor" and not described(node.args[0], block):
        block = None
    return form, block


def _part(kernel: Kernel, node: Node) -> None:
    """One index of a count through several ranges."""
    count, behind, size = node.args
    text = kernel.operand(count)
    step = kernel.symbol(behind)
    text = text if step == "1" else f"{text} // {step}"
    kernel.assign(node.out, text if size is None else f"{text} % {kernel.symbol(size)}")


def _mask_to(kernel: Kernel, node: Node) -> None:
    value, dims, neutral = node.args
    mask = mask_text(kernel, value.dims, list(dims), node.kwargs.get("parts", {}))
    kernel.assign(node.out, f"tl.where({mask}, {kernel.operand(value)}, {literal(neutral)})")


def _keep(kernel: Kernel, node: Node) -> None:
    """Write a tile that has the lanes of another one where a loop's tile is cut."""
    new, old = node.args
    if node.kwargs["same"]:
        kernel.alias(node.out, new)
        return
    cut = [at for at in range(len(new.dims)) if new.dims[at] != old.dims[at]]
    mask = mask_text(kernel, new.dims, cut, {})
    kernel.assign(node.out, f"tl.where({mask}, {kernel.operand(new)}, {kernel.operand(old)})")


_OWN: dict[str, Callable[[Kernel, Node], None]] = {
    "load": _load,
    "store": _store,
    "tile_index": _tile_index,
    "mask_to": _mask_to,
    "part": _part,
    "keep": _keep,
}
