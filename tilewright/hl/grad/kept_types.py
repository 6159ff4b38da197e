"""What one loop keeps for another, in the type in which that reads it.

    grad_of_acc[m, n] = grad                     grad_of_acc[m, n] = grad.to(bfloat16)
    ...                                    ->    ...
    hl.dot(grad_of_acc[m, n].to(bfloat16), y)    hl.dot(grad_of_acc[m, n], y)

Operands of products have 16 bits then when they are loaded: half the memory, and no conversion in the loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.hl.grad.conversions import conversion
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Value, operands, rename, walk


def store_as_read(region: Region, number: int) -> int:
    """Rewrite the stores and loads of what a derived region keeps in memory.

    Args:
        region: the loops, gradients not yet stored: all that is stored is kept.
        number: a number that no value has, nor any above it.

    Returns:
        Such a number afterwards.
    """
    bodies = [region, *(inner for node in walk(region) for inner in node.regions)]
    results = {value.id for body in bodies for value in body.results}
    readers: dict[int, list[Node]] = {}
    for node in walk(region):
        for value in operands(node):
            readers.setdefault(value.id, []).append(node)
    stores = [(body, node) for body in bodies for node in body.nodes if node.op == "store"]
    for body, store in stores:
        loads = [node for node in walk(region) if node.op == "load" and node.args[0].name == store.args[0].name]
        copies = [reader for load in loads for reader in readers.get(load.out.id, ())]
        if any(load.out.id in results for load in loads) or not copies:
            continue
        types = {reader.kwargs.get("dtype") if reader.op == "_to_copy" else None for reader in copies}
        dtype = types.pop()
        if types or dtype is None or not dtype.is_floating_point or dtype.itemsize >= store.args[0].dtype.itemsize:
            continue
        _convert(body, store, dtype, number)
        number += 1
        for load in loads:
            load.args = (_as(load.args[0], dtype), *load.args[1:])
            load.out.dtype = dtype
        rename(region, {copy.out.id: copy.args[0] for copy in copies})
    return number


def _as(tensor: HostTensor, dtype: Any) -> HostTensor:
    return replace(tensor, dtype=dtype)


def _convert(body: Region, store: Node, dtype: Any, number: int) -> None:
    """Convert what is stored before that."""
    tensor, entries, value = store.args
    made = Value(number, value.dims, dtype, value.name)
    body.nodes.insert(body.nodes.index(store), conversion(value, made, store.line))
    store.args = _as(tensor, dtype), entries, made
