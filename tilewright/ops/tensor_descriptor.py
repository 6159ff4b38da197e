"""The value that a tensor descriptor is in a kernel; `functions/tensor_descriptor.py` has what is done with it."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

from tilewright.base.dtypes import BlockType
from tilewright.ops.value_types import base_value, tensor_descriptor_type, tuple_type, type_of
from tilewright.ops.values import unwrap

MAX_RANK = 5
ALIGNMENT = 16  # bytes: of the first element, of a row of a block, of every stride but the last


class tensor_descriptor(builtins.tuple[Any, ...]):
    """A tensor in memory that is read and written in blocks: base, shape, strides, block shape, padding, rounding."""

    __slots__ = ()

    @classmethod
    def _make(cls, parts: Iterable[Any]) -> tensor_descriptor:
        return super().__new__(cls, parts)

    @property
    def base(self) -> Any:
        """Pointer to the first element."""
        return self[0]

    @property
    def shape(self) -> Any:
        """Sizes of the tensor, int32."""
        return self[1]

    @property
    def strides(self) -> Any:
        """Distances between neighbours in elements, int64; the last is 1."""
        return self[2]

    @property
    def block_shape(self) -> Any:
        """Sizes of the block that a load reads."""
        return self[3]

    @property
    def padding(self) -> str:
        """ "zero" or "nan": what lies outside of the tensor."""
        return str(unwrap(self[4]))

    @property
    def rounds_to_tf32(self) -> bool:
        """Whether loads round float32 to the 10 bits of a tf32 mantissa."""
        return bool(unwrap(self[5]))

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.base.dtype.element_ty

    @property
    def block_type(self) -> BlockType:
        """Type of the tile that a load gives."""
        return BlockType(self.dtype, builtins.tuple(unwrap(n) for n in self.block_shape))

    @property
    def type(self) -> tensor_descriptor_type:
        """Type of the descriptor."""
        sizes = [tuple_type([type_of(n) for n in part]) for part in (self.shape, self.strides)]
        return tensor_descriptor_type(self.block_type, *sizes)

    def __repr__(self) -> str:
        return str(self.type)

    # load, store, gather, scatter and the atomics are attached by `functions/tensor_descriptor.py`.


base_value.register(tensor_descriptor)
