"""`triton.tools.ragged_tma`: descriptors of tensors whose rows belong to groups of different lengths.

A block that hangs over the end of its group is cut off there: what lies behind reads as zeros and is not written. A
descriptor tests only against sizes that it was made with, and the end of a group is known in the kernel. So the ragged
dimension is said to have 2**30 rows, a block of a group of `n` rows is taken at row `2**30 - n + row`, where the test
cuts at the right place, and dimensions of size one in front move the address back: by the number of the group's last
row, and by -2**30 rows. The latter is 2**30 steps of 2**34 elements less a row: 2**64, which addresses do not have,
and as far back as wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.language import constexpr, reshape, static_assert
from tilewright.launch.jit import jit

_ROWS = 2**30
_MANY = 2**31 - 2**16  # steps that a dimension in front may take
MANY_ROWS = constexpr(_ROWS)


@dataclass(frozen=True)
class _Moved:
    """An array whose first element is said to be elsewhere.

    Args:
        owner: the array, of torch.
        distance: in elements.
    """

    owner: Any
    distance: int

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.owner.dtype

    @property
    def device(self) -> Any:
        """Where it is."""
        return self.owner.device

    def data_ptr(self) -> int:
        """The address that is said."""
        return int((self.owner.data_ptr() + self.distance * self.element_size()) % 2**64)

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.owner.element_size())

    def untyped_storage(self) -> Any:
        """The memory that it really has."""
        return self.owner.untyped_storage()


def create_ragged_descriptor(
    T: Any, block_shape: Sequence[int], ragged_dim: int = 0, write_only: bool = False
) -> TensorDescriptor:
    """A descriptor for `load_ragged` and `store_ragged`.

    Args:
        T: torch tensor whose last dimension is contiguous.
        block_shape: sizes of a block, powers of two, one for each dimension of `T`.
        ragged_dim: the dimension along which groups lie behind each other; not the last.
        write_only: leave out one of the two dimensions in front, by saying that the tensor starts elsewhere: `T` may
            have four dimensions instead of three, and nothing can be loaded.

    Raises:
        ArgumentError: too many dimensions or rows, no such dimension, or what `TensorDescriptor` refuses.
    """
    plain = TensorDescriptor.from_tensor(T, block_shape)
    rank = len(plain.shape)
    dim = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    most = 4 if write_only else 3
    if rank > most:
        raise ArgumentError(f"a ragged descriptor is of at most {most} dimensions, got {rank}")
    if not 0 <= dim < rank - 1:
        raise ArgumentError(
            f"ragged_dim={ragged_dim} of a tensor of {rank} dimensions", hint="the last dimension cannot be ragged"
        )
    if plain.shape[dim] > _ROWS:
        raise ArgumentError(f"a ragged dimension has at most 2**30 rows, got {plain.shape[dim]}")
    row = plain.strides[dim]
    sizes = [*plain.shape[:dim], _ROWS, *plain.shape[dim + 1 :]]
    front = [(_MANY, 2**34 - row, 1), (_MANY, row, 1)][write_only:]
    shape, strides, block = (
        [*(part[axis] for part in front), *rest] for axis, rest in enumerate((sizes, plain.strides, plain.block_shape))
    )
    return TensorDescriptor(_Moved(T, -_ROWS * row) if write_only else T, shape, strides, block)


@jit
def to_ragged_indices(batch_offset: Any, batch_size: Any, row: Any) -> Any:
    """Offsets in the two dimensions in front and in the ragged one, for `row` of a group.

    Args:
        batch_offset: first row of the group in the tensor.
        batch_size: rows of the group.
        row: in the group.
    """
    return MANY_ROWS, batch_offset + batch_size, MANY_ROWS - batch_size + row


@jit
def load_ragged(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, ragged_dim: Any = 0) -> Any:
    """A block of a group; zeros behind the end of the group and of the other dimensions.

    Args:
        TMA: of `create_ragged_descriptor`, not made to be written only.
        batch_offset, batch_size: first row of the group, and how many it has.
        coords: where the block begins, one number a dimension, in the ragged one counted from the group's first row.
        ragged_dim: the dimension that the descriptor was made for, known at compile time.
    """
    static_assert(len(TMA.shape) == len(coords) + 2, "load_ragged takes a ragged descriptor that can be read")
    front, end, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    block = TMA.load([front, end, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]])
    return reshape(block, TMA.block_shape[2:])


@jit
def store_ragged(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, data: Any, ragged_dim: Any = 0) -> None:
    """Write a block of a group; nothing behind the end of the group is written.

    Args:
        TMA: of `create_ragged_descriptor`.
        batch_offset, batch_size, coords, ragged_dim: as for `load_ragged`.
        data: the block.
    """
    at = _written_at(TMA, batch_offset, batch_size, coords, ragged_dim)
    TMA.store(at, reshape(data, TMA.block_shape))


@jit
def atomic_add_ragged(
    TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, data: Any, ragged_dim: Any = 0
) -> None:
    """Add to a block of a group atomically; nothing behind the end of the group is changed. Else as `store_ragged`."""
    at = _written_at(TMA, batch_offset, batch_size, coords, ragged_dim)
    TMA.atomic_add(at, reshape(data, TMA.block_shape))


@jit
def _written_at(TMA: Any, batch_offset: Any, batch_size: Any, coords: Any, ragged_dim: Any) -> Any:
    """Where a block of a group begins in the descriptor."""
    front, end, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    at = [end, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]]
    static_assert(len(TMA.shape) - len(coords) in (1, 2), "store_ragged takes a ragged descriptor")
    return at if len(TMA.shape) == len(coords) + 1 else [front, *at]


__all__ = ["atomic_add_ragged", "create_ragged_descriptor", "load_ragged", "store_ragged", "to_ragged_indices"]
