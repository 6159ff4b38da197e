"""Blocks of tensors by way of tensor maps that the host wrote (`base/host_map.py`), as Triton 3.1 to 3.4 has them."""

from __future__ import annotations

from typing import Any

from tilewright.language.library import library


@library
def _experimental_descriptor_load(desc_pointer: Any, offsets: Any, shape: Any, dtype: Any) -> Any:
    """A block of the tensor of a map; the map says its shape, and `dtype` what the elements are."""
    return desc_pointer.load(offsets).to(dtype, bitcast=True)


@library
def _experimental_descriptor_store(desc_pointer: Any, value: Any, offsets: Any) -> None:
    """Write a block of the tensor of a map."""
    desc_pointer.store(offsets, value.to(desc_pointer.dtype, bitcast=True))
