"""`tt.scan`: inclusive running combination of the elements along one dimension.

The body takes 2n scalars, the n values so far and then the n next ones, and returns n. Operands
stay in order, so the function need not be commutative; `reverse` runs from the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def, region_def, traits_def, var_operand_def, var_result_def
from xdsl.traits import IsTerminator, Pure, RecursivelySpeculatable, RecursiveMemoryEffect

from tilewright.ir.asm import FlatOp
from tilewright.ir.attrs import BOOL, I32
from tilewright.ir.traits import Collective
from tilewright.ir.types import i32, tile_type
from tilewright.ops import vjps
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.dims import along
from tilewright.ops.function import TerminatorOp, infer_nothing, register_control
from tilewright.ops.reduce import checked_axis, combine_region, common_shape, tiles_of
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import tensor, unwrap
from tilewright.ops.values import tuple as tl_tuple


@irdl_op_definition
class ScanReturnOp(TerminatorOp):
    """End of the body of a scan."""

    name = "tt.scan.return"
    result = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())


@irdl_op_definition
class ScanOp(FlatOp):
    """Inclusive scan of one or several tiles along `axis` by the function in its body."""

    name = "tt.scan"
    ATTRS: ClassVar = {"axis": I32, "reverse": BOOL}
    srcs = var_operand_def()
    result = var_result_def()
    axis = prop_def()
    reverse = prop_def()
    combine = region_def("single_block")
    traits = traits_def(RecursiveMemoryEffect(), RecursivelySpeculatable(), Collective())


def _infer_scan(call: Call) -> Sequence[Attribute]:
    common_shape(call, "scan")
    return [t for t in call.operand_types if t is not None]


def _reference_scan(call: Call, *srcs: Array) -> tuple[Array, ...]:
    """One element after the other, as written."""
    (combine,) = call.regions
    axis = call.attrs["axis"]
    values = [np.moveaxis(np.asarray(s), axis, 0) for s in srcs]
    if call.attrs["reverse"]:
        values = [v[::-1] for v in values]
    out = [v.copy() for v in values]
    for i in range(1, values[0].shape[0]):
        step = combine(*[o[i - 1] for o in out], *[v[i] for v in values])
        for o, s in zip(out, step, strict=True):
            o[i] = s
    if call.attrs["reverse"]:
        out = [o[::-1] for o in out]
    return tuple(np.moveaxis(o, 0, axis) for o in out)


def _samples_scan(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in (((16,), 0), ((4, 8), 0), ((4, 8), 1), ((2, 4, 4), 1)):
        for reverse in (False, True):
            attrs = {"axis": axis, "reverse": reverse}
            ints = rng.integers(-99, 99, shape).astype(np.int32)
            yield Sample((ints,), (tile_type(shape, i32),), attrs, region="arith.addi")
            floats = rng.uniform(0.5, 2.0, shape).astype(np.float32)
            yield Sample((floats,), (tile_type(shape, f32),), attrs, region="arith.addf", max_ulp=8)
    bad = np.zeros((4,), np.float32)
    attrs = {"axis": 2, "reverse": False}
    yield Sample((bad,), (tile_type((4,), f32),), attrs, region="arith.addf", error="out of range")


register(
    OpSpec(
        ScanOp,
        _infer_scan,
        _reference_scan,
        _samples_scan,
        summary="running combination along a dimension",
        vjp=vjps.scan,
        dims=lambda op: along(op, reduces=False),
    )
)
register_control(ScanReturnOp, infer_nothing, "end of the body of a scan")


@builtin(method=True)
def associative_scan(b: Emitter, input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Running combination of the elements of `input` along `axis`: element i combines elements 0 to i.

    Args:
        input: a tile, or a tuple of n tiles of one shape.
        axis: dimension to scan.
        combine_fn: a jit function of 2n scalars that returns n; associative, need not be commutative.
        reverse: run from the end.

    Returns:
        A tile of the same type; a tuple of them where `input` is a tuple.
    """
    tiles, several = tiles_of(b, input, "tl.associative_scan")
    number = checked_axis(axis, len(tiles[0].block_shape), "tl.associative_scan")
    region = combine_region(b, tiles, combine_fn, ScanReturnOp)
    attrs = {"axis": number, "reverse": bool(unwrap(reverse))}
    handles = b.op(ScanOp, [tile.handle for tile in tiles], attrs=attrs, regions=[region])
    results = [tensor(h, t.type) for h, t in zip(handles, tiles, strict=True)]
    return tl_tuple(results) if several else results[0]
