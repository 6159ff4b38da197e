"""`tt.reduce`: combine the elements along one dimension with a function given as a body.

The body of a reduction of n tiles takes 2n scalars, the n left values and then the n right ones, and
returns n. It is applied in any order of grouping; operands of one application stay in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Block, Operation
from xdsl.irdl import irdl_op_definition, prop_def, region_def, traits_def, var_operand_def, var_result_def
from xdsl.traits import IsTerminator, Pure, RecursivelySpeculatable, RecursiveMemoryEffect

from tilewright.base.dtypes import BlockType
from tilewright.base.errors import LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ir.asm import FlatOp
from tilewright.ir.attrs import I32
from tilewright.ir.traits import Collective
from tilewright.ir.types import element_type, i32, shape_of, tile_type
from tilewright.ops import vjps
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.dims import along
from tilewright.ops.function import TerminatorOp, infer_nothing, register_control
from tilewright.ops.functions.shape import expand_dims, flatten
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import tensor, unwrap
from tilewright.ops.values import tuple as tl_tuple


@irdl_op_definition
class ReduceReturnOp(TerminatorOp):
    """End of the body of a reduction."""

    name = "tt.reduce.return"
    result = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())


@irdl_op_definition
class ReduceOp(FlatOp):
    """Reduction of one or several tiles along `axis` by the function in its body."""

    name = "tt.reduce"
    ATTRS: ClassVar = {"axis": I32}
    srcs = var_operand_def()
    result = var_result_def()
    axis = prop_def()
    combine = region_def("single_block")
    traits = traits_def(RecursiveMemoryEffect(), RecursivelySpeculatable(), Collective())


def common_shape(call: Call, what: str) -> tuple[int, ...]:
    """Shape of the operands of a reduction or scan, which must agree and have the dimension `axis`."""
    shapes = {shape_of(t) for t in call.operand_types if t is not None}
    if len(shapes) != 1:
        raise ShapeError(f"all tiles of a {what} must have one shape, got {sorted(map(list, shapes))}")
    (shape,) = shapes
    if not shape:
        raise ShapeError(f"a {what} needs tiles, not scalars")
    if not 0 <= call.attrs["axis"] < len(shape):
        raise ShapeError(f"{what} axis {call.attrs['axis']} is out of range for a tile of shape {list(shape)}")
    return shape


def single_operation(body: Block) -> Operation | None:
    """The operation of a combine body that applies just one to its two arguments and returns the result."""
    ops = list(body.ops)
    if len(ops) != 2 or len(body.args) != 2 or list(ops[1].operands) != list(ops[0].results):
        return None
    return ops[0] if set(ops[0].operands) == set(body.args) else None


def _infer_reduce(call: Call) -> Sequence[Attribute]:
    shape = common_shape(call, "reduction")
    axis = call.attrs["axis"]
    rest = shape[:axis] + shape[axis + 1 :]
    return [tile_type(rest, element_type(t)) for t in call.operand_types if t is not None]


def _reference_reduce(call: Call, *srcs: Array) -> tuple[Array, ...]:
    """Neighbours are combined pairwise, so that order is kept and rounding error grows with the logarithm."""
    (combine,) = call.regions
    values = [np.moveaxis(np.asarray(s), call.attrs["axis"], 0) for s in srcs]
    while values[0].shape[0] > 1:
        count = values[0].shape[0]
        even = count // 2 * 2
        paired = combine(*[v[0:even:2] for v in values], *[v[1:even:2] for v in values])
        values = [p if even == count else np.concatenate([p, v[even:]]) for p, v in zip(paired, values, strict=True)]
    return tuple(v[0] for v in values)


def _samples_reduce(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in (((16,), 0), ((4, 8), 0), ((4, 8), 1), ((2, 4, 8), 1), ((1, 4), 0)):
        ints = rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)
        for region in ("arith.addi", "arith.maxsi", "arith.xori"):
            yield Sample((ints,), (tile_type(shape, i32),), {"axis": axis}, region=region)
        floats = rng.uniform(0.5, 2.0, shape).astype(np.float32)
        yield Sample((floats,), (tile_type(shape, f32),), {"axis": axis}, region="arith.addf", max_ulp=8)
        yield Sample((floats,), (tile_type(shape, f32),), {"axis": axis}, region="arith.maxnumf")
    bad = np.zeros((4,), np.float32)
    yield Sample((bad,), (tile_type((4,), f32),), {"axis": 1}, region="arith.addf", error="out of range")


register(
    OpSpec(
        ReduceOp,
        _infer_reduce,
        _reference_reduce,
        _samples_reduce,
        summary="combine the elements along a dimension",
        vjp=vjps.reduce,
        dims=lambda op: along(op, reduces=True),
    )
)
register_control(ReduceReturnOp, infer_nothing, "end of the body of a reduction")


# --- user functions -------------------------------------------------------------------------------------


def tiles_of(b: Emitter, input: Any, what: str) -> tuple[list[tensor], bool]:
    """The tiles that a reduction or scan is given, and whether they came as a tuple."""
    several = isinstance(input, tuple)
    tiles = [to_tensor(b, item) for item in (input if several else (input,))]
    if not tiles:
        raise LanguageValueError(f"{what} needs at least one tensor")
    for tile in tiles:
        if not isinstance(tile.type, BlockType):
            raise LanguageTypeError(f"{what} needs tiles, but got a scalar of type {tile.type}")
    return tiles, several


def combine_region(b: Emitter, tiles: Sequence[tensor], combine_fn: Any, terminator: type[TerminatorOp]) -> Any:
    """The body that applies `combine_fn` to scalars of the tiles' element types."""
    elements = [tile.dtype for tile in tiles]
    function = unwrap(combine_fn)
    if function is None or isinstance(function, (str, int, float, tensor)):
        raise LanguageTypeError(
            f"a reduction or scan combines elements with a function, got {function!r}",
            hint="write tl.reduce(x, axis, combine_fn), where combine_fn(a, b) is decorated with @tilewright.jit",
        )

    def body(*args: tensor) -> list[tensor]:
        result = b.call(combine_fn, args)
        if unwrap(result) is None:
            raise LanguageTypeError(
                f"combine function {getattr(function, '__name__', function)} returns nothing",
                hint="a combine function of n tiles takes 2n scalars and returns n",
            )
        results = list(result) if isinstance(result, tuple) else [result]
        if len(results) != len(elements):
            raise LanguageTypeError(
                f"combine function returned {len(results)} values for {len(elements)} tiles",
                hint="a combine function of n tiles takes 2n scalars and returns n",
            )
        made = [to_tensor(b, r) for r in results]
        for value, element in zip(made, elements, strict=True):
            if value.type != element:
                raise LanguageTypeError(
                    f"combine function returned {value.type} where the tile has elements of type {element}",
                    hint="cast the result to the element type, or cast the tile first",
                )
        return made

    return b.region(elements * 2, body, terminator)


def checked_axis(axis: Any, rank: int, what: str) -> int:
    """`axis` as a number from 0; negative ones count from the end."""
    number = unwrap(axis)
    if not isinstance(number, int):
        raise LanguageValueError(
            f"{what} axis must be in [{-rank}, {rank}), got {number}",
            hint="the axis is an integer, and a function comes behind it; tl.maximum(x, y) compares two tiles",
        )
    if not -rank <= number < rank:
        raise LanguageValueError(
            f"{what} axis must be in [{-rank}, {rank}), got {number}",
            hint=f"the tile has {rank} dimension{'s' * (rank > 1)}, counted from 0; None stands for all of them",
        )
    return number % rank


@builtin(method=True)
def reduce(b: Emitter, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """Combine the elements of `input` along `axis` with `combine_fn`.

    Args:
        input: a tile, or a tuple of n tiles of one shape.
        axis: dimension to reduce; `None` reduces all of them to a scalar.
        combine_fn: a jit function of 2n scalars that returns n; it must be associative and commutative: the
            order in which elements meet is free.
        keep_dims: keep the reduced dimension with size 1.

    Returns:
        A tile (or scalar) without `axis`; a tuple of them where `input` is a tuple.
    """
    tiles, several = tiles_of(b, input, "tl.reduce")
    rank = len(tiles[0].block_shape)
    if unwrap(axis) is None:
        tiles, number = [flatten(b, tile) for tile in tiles], 0
    else:
        number = checked_axis(axis, rank, "tl.reduce")
    region = combine_region(b, tiles, combine_fn, ReduceReturnOp)
    handles = b.op(ReduceOp, [tile.handle for tile in tiles], attrs={"axis": number}, regions=[region])
    rest = tiles[0].block_shape[:number] + tiles[0].block_shape[number + 1 :]
    results = [tensor(h, BlockType(t.dtype, rest) if rest else t.dtype) for h, t in zip(handles, tiles, strict=True)]
    if unwrap(keep_dims):
        axes = range(rank) if unwrap(axis) is None else [number]
        for dim in axes:
            results = [expand_dims.fn(b, value, dim) for value in results]
    return tl_tuple(results) if several else results[0]
