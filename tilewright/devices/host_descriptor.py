"""`TensorDescriptor`: a tensor given to a kernel as one argument that is read and written in blocks.

The kernel receives a `tl.tensor_descriptor`: a pointer, sizes and strides, with the shape of the blocks as a constant
of the compilation. What lies outside of the tensor reads as padding and is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.ops.tensor_descriptor import ALIGNMENT, MAX_RANK


@dataclass
class TensorDescriptor:
    """A strided tensor and the shape of the blocks in which a kernel reads and writes it.

    Args:
        base: the array that holds the first element; its address is a multiple of 16.
        shape: sizes, one to five, all positive.
        strides: distances between neighbours in elements: multiples of 16 bytes, the last one 1.
        block_shape: sizes of a block, powers of two.
        padding: "zero" or "nan": what a load gives outside of the tensor.
        round_f32_to_tf32: round float32 elements to tf32 when they are loaded.

    Raises:
        ArgumentError: one of these does not hold.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        rank = len(self.shape)
        _require(1 <= rank <= MAX_RANK, f"a descriptor has 1 to {MAX_RANK} dimensions, got {rank}")
        _require(len(self.strides) == rank, f"rank mismatch: {rank} sizes and {len(self.strides)} strides")
        _require(len(self.block_shape) == rank, f"rank mismatch: {rank} sizes, block shape {list(self.block_shape)}")
        _require(all(n > 0 for n in self.shape), f"shape must be positive, got {list(self.shape)}")
        powers = all(n > 0 and n & (n - 1) == 0 for n in self.block_shape)
        _require(powers, f"block_shape must be powers of two, got {list(self.block_shape)}")
        size = _itemsize(self.base)
        for stride in self.strides[:-1]:
            _require(stride * size % ALIGNMENT == 0, f"strides must be {ALIGNMENT}-byte aligned, got {stride} elements")
        _require(self.strides[-1] == 1, f"Last dimension must be contiguous, got stride {self.strides[-1]}")
        _require(_address(self.base) % ALIGNMENT == 0, f"base must be {ALIGNMENT}-byte aligned")
        _require(self.padding in ("zero", "nan"), f'padding is "zero" or "nan", got {self.padding!r}')
        name = str(self.base.dtype)
        _require(self.padding == "zero" or "float" in name, f"nan padding is for float elements, not {name}")
        _require(not self.round_f32_to_tf32 or "float32" in name, f"round_f32_to_tf32 is for float32, not {name}")

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """The descriptor of a whole tensor.

        Args:
            tensor: torch tensor or numpy array whose last dimension is contiguous.
            block_shape, padding, round_f32_to_tf32: as for the class.

        Raises:
            ArgumentError: the tensor cannot be described.
        """
        strides = tensor.stride() if hasattr(tensor, "stride") else [s // tensor.itemsize for s in tensor.strides]
        return TensorDescriptor(tensor, list(tensor.shape), list(strides), block_shape, padding, round_f32_to_tf32)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ArgumentError(f"TensorDescriptor: {message}")


def _itemsize(base: Any) -> int:
    return int(base.element_size() if hasattr(base, "element_size") else base.itemsize)


is_traced: Callable[[], bool] = bool
"""Whether somebody follows the Python code, so that tensors have no address: for a library of tracers to set."""


def _address(base: Any) -> int:
    """Address of the first element; 0 for tensors without memory: fake ones, and those of other tracers."""
    if is_traced():
        return 0
    if hasattr(base, "data_ptr"):
        try:
            return 0 if hasattr(base, "fake_mode") else int(base.data_ptr())
        except RuntimeError:
            return 0
    interface = base.__cuda_array_interface__ if hasattr(base, "__cuda_array_interface__") else base.__array_interface__
    return int(interface["data"][0])
