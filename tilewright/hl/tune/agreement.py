"""Whether two results agree, and where they differ first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def tensors_in(tree: Any) -> list[Any]:
    """The tensors of nested lists, tuples and dictionaries."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def same(left: Any, right: Any) -> bool:
    """Whether two tensors of one shape hold the same, NaN being NaN."""
    return torch.equal(_wide(left), _wide(right)) or bool(((left == right) | (left != left)).all())


def difference(found: Sequence[Any], expected: Sequence[Any], results: int, atol: float, rtol: float) -> str:
    """Where tensors differ first, in words; "" if they agree.

    What cancels to a small number in a sum has the error of its terms, so the relative part of the tolerance is at
    least that of a usual element, the root of the mean square.

    Args:
        found: results, then arguments after the run.
        expected: the same of the baseline.
        results: how many of them are results.
        atol, rtol: tolerances.
    """
    if len(found) != len(expected):
        return f"it returns {results} tensors, and {len(found) - len(expected):+d} are wanted"
    for at, (one, other) in enumerate(zip(found, expected, strict=True)):
        name = f"result {at}" if at < results else f"the tensor {at - results} among the arguments"
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{name} is {one.dtype} {list(one.shape)}, not {other.dtype} {list(other.shape)}"
        wrong = _wrong(_wide(one), _wide(other.to(one.device)), atol, rtol)
        if wrong is not None and bool(wrong.any()):
            places = wrong.nonzero()
            place = tuple(places[0].tolist())
            return (
                f"{name} differs first at {list(place)}: {one[place].item()!r}, not {other[place].item()!r} "
                f"({len(places)} of {wrong.numel()} elements differ)"
            )
    return ""


def _wrong(found: Any, expected: Any, atol: float, rtol: float) -> Any:
    """Which elements differ; None if that is none of them."""
    if expected.dtype.is_floating_point and (finite := expected[expected.isfinite()]).numel():
        atol += rtol * finite.norm().item() / math.sqrt(finite.numel())
    if torch.allclose(found, expected, rtol, atol, equal_nan=True):
        return None
    return ~torch.isclose(found, expected, rtol, atol, equal_nan=True)


def _wide(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4 else tensor
