"""Loads and stores: pointers, and the masks that keep them inside their tensors."""

from __future__ import annotations

from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Dim
from tilewright.hl.emit.kernel import Kernel, placed
from tilewright.hl.graph.nodes import HostTensor, Node, Subscript, Value, accessed
from tilewright.hl.passes.merged import Parts
from tilewright.hl.rows.dtypes import literal
from tilewright.hl.symbols import Atom


def emit_load(kernel: Kernel, node: Node) -> None:
    """Write a load."""
    tensor, entries = node.args
    out = node.out
    pointer, covered = _pointer(kernel, tensor, entries, out.dims, node.kwargs.get("base"))
    narrow = len(covered) < sum(not dim.is_one for dim in out.dims) or (not covered and bool(out.dims))
    masks = _masks(kernel, node, out.dims, covered)
    if narrow and "mask" in node.kwargs:  # which may vary along any dimension
        pointer, narrow = f"tl.broadcast_to({pointer}, {kernel.shape(out.dims)})", False
    text = pointer
    if masks:
        text += f", mask={' & '.join(masks)}, other={literal(node.kwargs.get('other', 0))}"
    text = f"tl.load({text}{hints(kernel, node)})"
    if narrow:
        text = f"tl.broadcast_to({text}, {kernel.shape(out.dims)})"
    kernel.assign(out, text)


def emit_store(kernel: Kernel, node: Node) -> None:
    """Write a store."""
    tensor, entries, value = node.args
    dims = accessed(node)
    pointer, covered = _pointer(kernel, tensor, entries, dims, node.kwargs.get("base"), reading=False)
    masks = _masks(kernel, node, dims, covered)
    mask = f", mask={' & '.join(masks)}" if masks else ""
    kernel.lines.write(f"tl.store({pointer}, {kernel.operand(value, tensor.dtype)}{mask}{hints(kernel, node)})")


def hints(kernel: Kernel, node: Node) -> str:
    """What an access says to caches, each with a comma before it."""
    chosen = kernel.decision.choice("load_eviction_policies", node.kwargs.get("load_eviction_policies"))
    policy = node.kwargs.get("policy") or (f"evict_{chosen}" if chosen else "")
    modifiers = f"{node.op}_cache_modifiers"
    modifier = kernel.decision.choice(modifiers, node.kwargs.get(modifiers))
    text = f', eviction_policy="{policy}"' if policy else ""
    return text + (f', cache_modifier="{modifier}"' if modifier else "")


def emit_atomic(kernel: Kernel, node: Node) -> None:
    """Write an atomic update."""
    tensor, entries, *given = node.args
    dims = node.out.dims
    pointer, covered = _pointer(kernel, tensor, entries, dims, reading=False)
    masks = _masks(kernel, node, dims, covered)
    texts = [pointer, *(_given(kernel, value, tensor, dims) for value in given)]
    if masks and node.op == "atomic_cas":  # has no mask: other lanes put what is there in the place of itself
        mask = f"tl.broadcast_to({' & '.join(masks)}, {kernel.shape(dims)})" if dims else " & ".join(masks)
        first, expected, value = kernel.tensor(tensor), *texts[1:]
        texts = [f"tl.where({mask}, {pointer}, {first})", f"tl.where({mask}, {expected}, {value})", value]
    elif masks:
        texts.append(f"mask={' & '.join(masks)}")
    call = f'tl.{node.op}({", ".join(texts)}, sem="{node.kwargs["sem"]}")'
    if kernel.readers[node.out.id]:
        kernel.assign(node.out, call)
    else:
        kernel.lines.write(call)


def _given(kernel: Kernel, value: Any, tensor: HostTensor, dims: tuple[Dim, ...]) -> str:
    """A value for an atomic update, with the type of the tensor and all dimensions."""
    text = kernel.operand(value, tensor.dtype)
    if not isinstance(value, Value) or not value.dims:
        return f"tl.full({kernel.shape(dims)}, {text}, {kernel.dtype(tensor.dtype)})" if dims else text
    return text if value.dims == dims else f"tl.broadcast_to({text}, {kernel.shape(dims)})"


def _pointer(
    kernel: Kernel,
    tensor: HostTensor,
    entries: list[Subscript],
    dims: tuple[Dim, ...],
    base: Value | None = None,
    reading: bool = True,
) -> tuple[str, set[int]]:
    """(text of the pointers, dimensions of the tile along which they vary); `base` are addresses that are data."""
    covered: set[int] = set()
    if base is None:
        parts = [kernel.tensor(tensor)]
    else:
        address = f"{kernel.operand(base)}.to(tl.pointer_type({kernel.dtype(tensor.dtype)}))"
        parts = [placed(address, 0, len(base.dims), len(dims))]
        covered.update(range(len(base.dims)))
    for entry, stride in zip(entries, tensor.stride, strict=True):
        if reading and entry.reads_one:
            continue
        index = index_text(kernel, entry, dims)
        if index == "0":
            continue
        covered.update(entry.varies)
        if tensor.wide and not index.isdigit():
            index = f"tl.cast({index}, tl.int64)"
        step = kernel.symbol(stride)
        parts.append(index if step == "1" else f"{index} * {step}")
    return " + ".join(parts), {at for at in covered if not dims[at].is_one}


def index_text(kernel: Kernel, entry: Subscript, dims: tuple[Dim, ...]) -> str:
    """The index that one subscript makes, with the dimensions of the tile."""
    rank = len(dims)
    if entry.kind == "scalar":
        text = kernel.symbol(entry.what)
        return text if text.isidentifier() or text.isdigit() or text.startswith("(") else f"({text})"
    assert entry.at is not None
    if entry.kind == "tensor":
        return placed(kernel.operand(entry.what), entry.at, len(entry.what.dims), rank)
    if entry.kind == "tile":
        index = placed(kernel.index(entry.what), entry.at, 1, rank)
        return _moved(index, kernel.symbol(entry.offset))
    index = placed(kernel.index(dims[entry.at]), entry.at, 1, rank)
    if entry.step != 1:
        index = f"{index} * {entry.step}"
    return _moved(index, kernel.symbol(entry.what))


def _moved(index: str, offset: str) -> str:
    return index if offset == "0" else f"({index} + {offset})"


def _masks(kernel: Kernel, node: Node, dims: tuple[Dim, ...], covered: set[int]) -> list[str]:
    """The conditions of an access, joined by the caller."""
    reading, parts = node.op == "load", node.kwargs.get("parts", {})
    masked = [at for at in range(len(dims)) if at in covered and kernel.decision.masks([dims[at]])]
    masks = [mask_text(kernel, dims, [at], parts) for at in masked]
    for entry in node.args[1]:
        masks += _bounds(kernel, entry, dims, reading)
    extra = node.kwargs.get("mask")
    if isinstance(extra, Value):
        masks.append(kernel.operand(extra))
    return masks


def mask_text(kernel: Kernel, dims: tuple[Dim, ...], ats: list[int], parts: dict[int, Parts | None]) -> str:
    """The mask of some dimensions of a tile.

    Args:
        kernel: what is written.
        dims: the dimensions of the tile.
        ats: which of them.
        parts: what those that merge an axis with something else are made of.
    """
    texts: list[str] = []
    for at in ats:
        if at in parts:
            texts.append(placed(_merged_mask(kernel, parts[at]), at, 1, len(dims)))
        else:
            texts += [_mask_of(kernel, dims, at, atom) for atom in dims[at].atoms if kernel.decision.masked(atom)]
    return " & ".join(texts)


def _merged_mask(kernel: Kernel, parts: Parts | None) -> str:
    """The mask of a dimension that merges an axis with something else."""
    if parts is None or any(len(part.atoms) > 1 for part in parts):
        raise exc.UnsupportedOperation(
            "a subscript whose dimension merges a tile with something else, where the block size does not divide the "
            "range",
            hint="subscript before the dimensions are merged, or choose a block size that divides the range",
        )
    texts = []
    for at, part in enumerate(parts):
        for atom in part.atoms:
            if not kernel.decision.masked(atom):
                continue
            if part.atom is not None:
                texts.append(_mask_of(kernel, parts, at, atom))
            else:
                valid = f"{kernel.count(atom)} * {part.static}"
                texts.append(placed(f"({kernel.index(part)} < {valid})", at, 1, len(parts)))
    if len(parts) == 1:
        return texts[0]
    whole = f"tl.broadcast_to({' & '.join(texts)}, {kernel.shape(parts)})"
    return f"tl.reshape({whole}, [{' * '.join(str(kernel.extent(part)) for part in parts)}])"


def _mask_of(kernel: Kernel, dims: tuple[Dim, ...], at: int, atom: Atom) -> str:
    """The mask of one axis; of a jagged one, lane by lane of its parent where the tile has the parent's dimensions."""
    parent = kernel.axis(atom).parent if atom.kind not in ("host", "whole") else None
    if parent is not None:
        first = next((place for place in range(len(dims)) if dims[place:][: len(parent.dims)] == parent.dims), None)
        if first is not None:
            index = placed(kernel.index(kernel.axis(atom).id), at, 1, len(dims))
            return f"({index} < {placed(kernel.operand(parent), first, len(parent.dims), len(dims))})"
    return placed(kernel.mask(atom), at, 1, len(dims))


def _bounds(kernel: Kernel, entry: Subscript, dims: tuple[Dim, ...], reading: bool) -> list[str]:
    """Conditions for indices that are not proved to be inside the tensor."""
    low, high = entry.inside
    if (low and high) or (reading and entry.reads_one):
        return []
    index = index_text(kernel, entry, dims)
    conditions = [] if low else [f"({index} >= 0)"]
    return conditions if high else [*conditions, f"({index} < {kernel.symbol(entry.extent)})"]
