"""Library functions of the language, written in the language itself: no back end knows that they exist.

Reductions and running combinations with their rules for data types, softmax, and index arithmetic.
Parameters without annotation take tensors or compile-time values; sizes, axes and flags are compile-time.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.base.errors import ShapeError
from tilewright.base.lazy import names_on_first_use
from tilewright.language.annotations import constexpr
from tilewright.language.library import LibraryFunction, constexpr_function, library
from tilewright.ops.creation import arange
from tilewright.ops.creation import zeros as zeros
from tilewright.ops.creation import zeros_like as zeros_like
from tilewright.ops.functions.debug import static_assert
from tilewright.ops.functions.operators import where
from tilewright.ops.functions.shape import broadcast_to, expand_dims
from tilewright.ops.functions.shape import interleave as interleave
from tilewright.ops.functions.shape import ravel as ravel
from tilewright.ops.functions.shape import squeeze as squeeze
from tilewright.ops.functions.shape import unsqueeze as unsqueeze
from tilewright.ops.gather import gather
from tilewright.ops.math import exp, fdiv, maximum, minimum
from tilewright.ops.reduce import reduce
from tilewright.ops.scan import associative_scan
from tilewright.ops.values import Element, Flag, Operand, Size, tensor

# Triton has these three here as well; they stand on what follows.
__getattr__ = names_on_first_use(globals(), {"tilewright.language.sorting": ("bitonic_merge", "sort", "topk")})

# --- compile-time helpers -----------------------------------------------------------------------------------------


@constexpr_function
def sum_dtype(element: Element, asked: Element | None) -> Any:
    """Type in which sums and products are made: small integers widen to 32 bits and keep their sign."""
    if asked is not None:
        return asked
    if element.is_int() and element.primitive_bitwidth < 32:
        return dtypes.int32 if element.is_int_signed() else dtypes.uint32
    return element


@constexpr_function
def extremum_dtype(element: Element) -> Any:
    """Type in which maxima are made: anything narrower than 32 bits widens to float32 or int32."""
    if element.primitive_bitwidth >= 32:
        return element
    return dtypes.float32 if element.is_floating() else dtypes.int32


@constexpr_function
def other_axes(rank: Size, axis: Any) -> Any:
    """All axes of a tile but one."""
    return [i for i in range(rank) if i != axis % rank]


@constexpr_function
def int_log2(n: Size) -> Any:
    """Binary logarithm of a power of two.

    Raises:
        ShapeError: `n` is none; networks compare elements whose indices differ in one bit.
    """
    if n & (n - 1):
        raise ShapeError(
            f"sorting needs a dimension whose size is a power of two, not {n}",
            hint="load a larger tile and fill it, e.g. tl.load(p, mask=mask, other=float('inf'))",
        )
    return n.bit_length() - 1


@constexpr_function
def _log2(i: Size) -> Any:
    """Binary logarithm of an integer, rounded down: under the name by which helpers of Inductor know it."""
    return i.bit_length() - 1


@constexpr_function
def last_axis(rank: Size, dim: Size | None) -> Any:
    """Whether `dim` is the last dimension; `None` stands for it."""
    return dim in (None, -1, rank - 1)


@constexpr_function
def is_axis(rank: Size, axis: Size) -> Any:
    """Whether a tile of `rank` dimensions has the dimension `axis`, which may be counted from behind."""
    return -rank <= axis < rank


@constexpr_function
def given_or(value: Any, default: Any) -> Any:
    """`value`, or `default` where it is `None`."""
    return default if value is None else value


@library
def positions(x: tensor, axis: Size | None) -> Any:
    """The index of each element of `x` along `axis`, int32."""
    index = arange(0, x.shape[axis])
    if len(x.shape) > 1:
        index = broadcast_to(expand_dims(index, other_axes(len(x.shape), axis)), x.shape)
    return index


# --- arithmetic -----------------------------------------------------------------------------------------------------


@library(method=True)
def cdiv(x: Operand, div: Operand) -> Any:
    """Quotient of integers, rounded up.

    Args:
        x: dividend. div: divisor, positive.
    """
    return (x + (div - 1)) // div


@library(method=True)
def sigmoid(x: tensor) -> Any:
    """1 / (1 + exp(-x)), of float32 or float64."""
    return 1 / (1 + exp(-x))


@library(method=True)
def softmax(x: tensor, dim: Size | None = None, *, keep_dims: Flag | None = None, ieee_rounding: Flag = False) -> Any:
    """exp(x) divided by its sum along `dim`, computed without overflow.

    Args:
        x: tile of float32 or float64.
        dim: dimension of the sum; the first when absent.
        keep_dims: accepted for compatibility; the result always has the shape of `x`.
        ieee_rounding: correctly rounded division.
    """
    axis: constexpr = given_or(dim, 0)
    numerator = exp(x - max(x, axis, keep_dims=True))
    return fdiv(numerator, sum(numerator, axis, keep_dims=True), ieee_rounding)


@library
def swizzle2d(i: Operand, j: Operand, size_i: Operand, size_j: Operand, size_g: Operand) -> Any:
    """Order of a `size_i` by `size_j` grid in groups of `size_g` rows, each walked column by column.

    Args:
        i, j: row and column in row-major order, scalars or tiles.
        size_i, size_j: size of the grid. size_g: rows of a group.

    Returns:
        The new row and column.
    """
    linear = i * size_j + j
    in_group = size_g * size_j
    first = linear // in_group * size_g
    rows = minimum(size_i - first, size_g)
    rest = linear % in_group
    return first + rest % rows, rest // rows


# --- reductions -------------------------------------------------------------------------------------------------------


@library
def _add(a: tensor, b: tensor) -> Any:
    return a + b


@library
def _multiply(a: tensor, b: tensor) -> Any:
    return a * b


@library
def _maximum(a: tensor, b: tensor) -> Any:
    return maximum(a, b)


@library
def _minimum(a: tensor, b: tensor) -> Any:
    return minimum(a, b)


@library
def _xor(a: tensor, b: tensor) -> Any:
    return a ^ b


@library
def _or(a: tensor, b: tensor) -> Any:
    return a | b


@library
def _choose(first: tensor, value1: tensor, index1: tensor, value2: tensor, index2: tensor) -> Any:
    """The first pair where `first` holds or the second value is NaN, else the second pair."""
    if value1.dtype.is_floating():
        first = first | (value2 != value2)
    return where(first, value1, value2), where(first, index1, index2)


@library
def _larger_first(value1: tensor, index1: tensor, value2: tensor, index2: tensor) -> Any:
    tie = (value1 == value2) & (index1 < index2)
    return _choose((value1 > value2) | tie, value1, index1, value2, index2)


@library
def _larger(value1: tensor, index1: tensor, value2: tensor, index2: tensor) -> Any:
    return _choose(value1 > value2, value1, index1, value2, index2)


@library
def _smaller_first(value1: tensor, index1: tensor, value2: tensor, index2: tensor) -> Any:
    tie = (value1 == value2) & (index1 < index2)
    return _choose((value1 < value2) | tie, value1, index1, value2, index2)


@library
def _smaller(value1: tensor, index1: tensor, value2: tensor, index2: tensor) -> Any:
    return _choose(value1 < value2, value1, index1, value2, index2)


# The names by which programs of Triton pass these to `tl.reduce` and `tl.associative_scan`.
_sum_combine, _prod_combine, _xor_combine, _or_combine = _add, _multiply, _xor, _or
_elementwise_max, _elementwise_min = _maximum, _minimum
_argmax_combine_tie_break_left, _argmax_combine_tie_break_fast = _larger_first, _larger
_argmin_combine_tie_break_left, _argmin_combine_tie_break_fast = _smaller_first, _smaller


@library
def _reduce_with_indices(input: tensor, axis: Size | None, combine: LibraryFunction, keep_dims: Flag) -> Any:
    static_assert(axis is not None, "axis must be given where indices are wanted")
    return reduce((input, positions(input, axis)), axis, combine, keep_dims=keep_dims)


@library(method=True)
def sum(input: tensor, axis: Size | None = None, keep_dims: Flag = False, dtype: Element | None = None) -> Any:
    """Sum along `axis`.

    Args:
        input: tile of numbers.
        axis: dimension; `None` sums all elements to a scalar.
        keep_dims: keep the dimension with size 1.
        dtype: type in which to sum; integers narrower than 32 bits widen to 32 bits without it.
    """
    return reduce(input.to(sum_dtype(input.dtype, dtype)), axis, _add, keep_dims=keep_dims)


@library(method=True)
def max(
    input: tensor,
    axis: Size | None = None,
    return_indices: Flag = False,
    return_indices_tie_break_left: Flag = True,
    keep_dims: Flag = False,
) -> Any:
    """Maximum along `axis`; NaN is ignored.

    Args:
        input: tile of numbers; types narrower than 32 bits give float32 or int32.
        axis: dimension; `None` takes all elements.
        return_indices: return the pair of value (in its own type) and int32 index.
        return_indices_tie_break_left: of equal values take the lowest index, not any.
        keep_dims: keep the dimension with size 1.
    """
    if return_indices:
        if return_indices_tie_break_left:
            return _reduce_with_indices(input, axis, _larger_first, keep_dims)
        else:
            return _reduce_with_indices(input, axis, _larger, keep_dims)
    else:
        return reduce(input.to(extremum_dtype(input.dtype)), axis, _maximum, keep_dims=keep_dims)


@library(method=True)
def min(
    input: tensor,
    axis: Size | None = None,
    return_indices: Flag = False,
    return_indices_tie_break_left: Flag = True,
    keep_dims: Flag = False,
) -> Any:
    """Minimum along `axis`; arguments and result as in :func:`max`."""
    if return_indices:
        if return_indices_tie_break_left:
            return _reduce_with_indices(input, axis, _smaller_first, keep_dims)
        else:
            return _reduce_with_indices(input, axis, _smaller, keep_dims)
    else:
        return reduce(input.to(extremum_dtype(input.dtype)), axis, _minimum, keep_dims=keep_dims)


@library(method=True)
def argmax(input: tensor, axis: Size | None, tie_break_left: Flag = True, keep_dims: Flag = False) -> Any:
    """Index (int32) of the maximum along `axis`; NaN is skipped, the lowest of equal ones with `tie_break_left`."""
    _, index = max(input, axis, True, tie_break_left, keep_dims)
    return index


@library(method=True)
def argmin(input: tensor, axis: Size | None, tie_break_left: Flag = True, keep_dims: Flag = False) -> Any:
    """Index (int32) of the minimum along `axis`; NaN is skipped, the lowest of equal ones with `tie_break_left`."""
    _, index = min(input, axis, True, tie_break_left, keep_dims)
    return index


@library(method=True)
def xor_sum(input: tensor, axis: Size | None = None, keep_dims: Flag = False) -> Any:
    """Exclusive or of integers along `axis`; `None` takes all elements."""
    static_assert(input.dtype.is_int(), "xor_sum only supported for integers")
    return reduce(input, axis, _xor, keep_dims=keep_dims)


@library(method=True)
def reduce_or(input: tensor, axis: Size | None, keep_dims: Flag = False) -> Any:
    """Bitwise or of integers or bools along `axis`; `None` takes all elements."""
    static_assert(input.dtype.is_int(), "reduce_or only supported for integers")
    return reduce(input, axis, _or, keep_dims=keep_dims)


# --- running combinations ---------------------------------------------------------------------------------------------


@library(method=True)
def cumsum(input: tensor, axis: Size | None = 0, reverse: Flag = False, dtype: Element | None = None) -> Any:
    """Running sum along `axis`; `reverse` runs from the end, `dtype` as in :func:`sum`."""
    return associative_scan(input.to(sum_dtype(input.dtype, dtype)), axis, _add, reverse)


@library(method=True)
def cumprod(input: tensor, axis: Size | None = 0, reverse: Flag = False, dtype: Element | None = None) -> Any:
    """Running product along `axis`; `reverse` runs from the end, `dtype` as in :func:`sum`."""
    return associative_scan(input.to(sum_dtype(input.dtype, dtype)), axis, _multiply, reverse)


@library(method=True)
def flip(x: tensor, dim: Size | None = None) -> Any:
    """`x` with dimension `dim` (the last when absent) in reverse order."""
    axis: constexpr = given_or(dim, len(x.shape) - 1)
    static_assert(is_axis(len(x.shape), axis), "flip needs a dimension that the tile has")
    return gather(x, x.shape[axis] - 1 - positions(x, axis), axis)
