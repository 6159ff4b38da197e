"""Loads and stores of rectangles: block pointers and tensor descriptors, where an access is one.

A block pointer takes any strides, and its checks keep the block inside the tensor. A descriptor wants the last
dimension contiguous, the others apart by multiples of 16 bytes, and rows of 16 bytes. What is no rectangle, or begins
where nothing says that it is inside the tensor, is accessed by pointers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.hl.dims import Dim
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.graph.nodes import HostTensor, Node, Subscript, Value
from tilewright.hl.symbols import Sym, same


@dataclass(frozen=True)
class Block:
    """A rectangle of a tensor.

    Args:
        offsets: first index along each dimension of the tensor, as text.
        lanes: extents of the rectangle.
        checked: dimensions along which it may leave the tensor.
    """

    offsets: list[str]
    lanes: list[int]
    checked: list[int]


def block_of(kernel: Kernel, node: Node, dims: tuple[Dim, ...]) -> Block | None:
    """The rectangle that a load or store touches, if it is one."""
    entries = node.args[1]
    if "mask" in node.kwargs or "base" in node.kwargs or not entries:
        return None
    varied = [entry for entry in entries if entry.at is not None and not (node.op == "load" and entry.reads_one)]
    places = [entry.at for entry in varied]
    if not varied or places != [at for at in range(len(dims)) if at in places]:
        return None
    if any(not dims[at].is_one for at in range(len(dims)) if at not in places):
        return None
    block = Block([], [], [])
    for at, entry in enumerate(entries):
        if not _add(kernel, block, at, entry, dims, node):
            return None
    return block


def _add(kernel: Kernel, block: Block, at: int, entry: Subscript, dims: tuple[Dim, ...], node: Node) -> bool:
    """Add a dimension to a rectangle; False where the access is none."""
    tensor = node.args[0]
    one = node.op == "load" and entry.reads_one
    if entry.at is None or one:
        index = 0 if one else entry.what
        if isinstance(index, Value):
            return False
        block.offsets.append(kernel.symbol(index))
        block.lanes.append(1)
        if not one and not all(entry.inside):
            block.checked.append(at)
        return True
    lanes, decision = kernel.extent(dims[entry.at]), kernel.decision
    if not isinstance(lanes, int):
        return False
    if entry.kind == "slice":
        block.offsets.append("0")
        block.lanes.append(lanes)
        atom, size = dims[entry.at].atom, dims[entry.at].size()
        if atom is not None and atom.kind == "whole":
            size = atom.key
            block.checked.append(at)
        first = type(entry.what) is int and entry.what == 0
        return first and entry.step == 1 and same(size, tensor.shape[at])
    if entry.kind != "tile" or type(entry.offset) is not int or entry.offset:
        return False
    axis = decision.axes[entry.what]
    if axis.kind == "jagged" or isinstance(axis.end, Value) or type(axis.begin) is not int or axis.begin < 0:
        return False
    if decision.masked(axis.size):
        if not same(axis.end, tensor.shape[at]):
            return False
        block.checked.append(at)
    block.offsets.append(kernel.offsets[axis.id])
    block.lanes.append(lanes)
    return True


def described(tensor: HostTensor, block: Block) -> bool:
    """Whether a descriptor can be made for a rectangle."""
    size = tensor.dtype.itemsize
    strides = tensor.stride
    if any(isinstance(stride, Sym) for stride in strides) or len(strides) > 5 or strides[-1] != 1:
        return False
    return all(stride * size % 16 == 0 for stride in strides[:-1]) and block.lanes[-1] * size >= 16


def pointer_text(kernel: Kernel, tensor: HostTensor, block: Block) -> str:
    """A block pointer."""
    shape, strides = (", ".join(map(kernel.symbol, part)) for part in (tensor.shape, tensor.stride))
    order = sorted(range(len(block.lanes)), key=lambda at: (_known(tensor.stride[at]), -at))
    offsets = ", ".join(block.offsets)
    return f"tl.make_block_ptr({kernel.tensor(tensor)}, [{shape}], [{strides}], [{offsets}], {block.lanes}, {order})"


def _known(stride: Any) -> int:
    return stride.sample if isinstance(stride, Sym) else stride


def descriptor_text(kernel: Kernel, tensor: HostTensor, block: Block) -> str:
    """The name of a descriptor, made at the head of the kernel."""
    shape, strides = (", ".join(map(kernel.symbol, part)) for part in (tensor.shape, tensor.stride))
    text = f"tl.make_tensor_descriptor({kernel.tensor(tensor)}, [{shape}], [{strides}], {block.lanes})"
    made = kernel.descriptors.get(text)
    if made is None:
        made = kernel.descriptors[text] = kernel.names.new(f"{tensor.name}_blocks")
        kernel.head.append(f"{made} = {text}")
    return made
