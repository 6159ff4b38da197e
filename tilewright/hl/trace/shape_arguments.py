"""Which PyTorch functions take sizes, so that a symbol or a tile given to them is an extent and not a value."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SIZES = _names(
    """
    view reshape expand broadcast_to repeat unflatten narrow split chunk tile as_strided view_as resize
    empty zeros ones full new_empty new_zeros new_ones new_full rand randn randint repeat_interleave
    unfold select roll split_with_sizes tensor_split __getitem__ expand_as layer_norm rms_norm group_norm
    select_backward slice_backward
    """
)

# Of those the ones that name extents of their result.
EXTENTS = _names("view reshape expand broadcast_to unflatten repeat select_backward slice_backward")

# Questions about a tensor that are answered without its elements, of host tensors as well.
QUESTIONS = _names(
    "dim ndimension is_contiguous element_size is_floating_point is_complex is_signed storage_offset is_same_size"
)

# What takes a part of a tensor: numbers say where.
CUTS = _names("__getitem__ narrow narrow_copy split split_with_sizes chunk tensor_split unfold as_strided")

FACTORIES = _names("empty zeros ones full arange rand randn randint empty_strided eye linspace tensor")

LIKE = _names("empty_like zeros_like ones_like full_like rand_like randn_like")

# Methods of the factory family: they take `device=`, which the trace answers itself.
DEVICED = FACTORIES | LIKE | _names("new_empty new_zeros new_ones new_full new_tensor")
