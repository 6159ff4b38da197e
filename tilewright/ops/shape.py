"""Operations that move elements without computing: reshape, trans, join, split, cat, unsplat.

Elements of a tile are numbered in row-major order. Broadcasting (`tt.splat`, `tt.expand_dims`,
`tt.broadcast`) lives in `ops/broadcast.py`; the user functions of both are in `ops/functions/shape.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import UnitAttr, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base.errors import DTypeError, ShapeError
from tilewright.ir.asm import FlatOp, make, parse_operand_list, print_attrs, print_operands, resolve
from tilewright.ir.attrs import I32_ARRAY, UNIT
from tilewright.ir.traits import View
from tilewright.ir.types import element_type, i32, shape_of, tile_type
from tilewright.ops import facts, vjps
from tilewright.ops.dims import Dims, lanewise
from tilewright.ops.folds import Number
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register


class _ArrowOp(FlatOp):
    """`op %a, %b {attrs} : T -> U`; all operands have type T, and all results type U."""

    RESULTS: ClassVar[int] = 1
    KEYWORDS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def parse(cls, parser: Parser) -> _ArrowOp:
        operands = parse_operand_list(parser)
        properties = {k: UnitAttr() for k in cls.KEYWORDS if parser.parse_optional_keyword(k) is not None}
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_punctuation("->")
        results = [parser.parse_type()] * cls.RESULTS
        return make(cls, resolve(parser, operands, [source] * len(operands)), results, attributes, properties)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_operands(printer, self.operands)
        for keyword in self.KEYWORDS:
            if keyword in self.properties:
                printer.print_string(f" {keyword}")
        print_attrs(printer, self, self.KEYWORDS)
        printer.print_string(" : ")
        printer.print_attribute(self.operand_types[0])
        printer.print_string(" -> ")
        printer.print_attribute(self.result_types[0])


@irdl_op_definition
class ReshapeOp(_ArrowOp):
    """The same elements in row-major order under another shape; `allow_reorder` frees the order."""

    name = "tt.reshape"
    KEYWORDS: ClassVar = ("allow_reorder", "efficient_layout")
    ATTRS: ClassVar = {"allow_reorder": UNIT, "efficient_layout": UNIT}
    src = operand_def()
    result = result_def()
    allow_reorder = opt_prop_def(UnitAttr)
    efficient_layout = opt_prop_def(UnitAttr)
    traits = traits_def(Pure(), View())


@irdl_op_definition
class TransOp(_ArrowOp):
    """Dimensions in another order: dim i of the result is dim order[i] of the operand."""

    name = "tt.trans"
    ATTRS: ClassVar = {"order": I32_ARRAY}
    src = operand_def()
    result = result_def()
    order = prop_def()
    traits = traits_def(Pure(), View())


@irdl_op_definition
class JoinOp(_ArrowOp):
    """Two tiles side by side along a new last dimension of size 2."""

    name = "tt.join"
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    traits = traits_def(Pure(), View())


@irdl_op_definition
class SplitOp(_ArrowOp):
    """The two halves of a last dimension of size 2."""

    name = "tt.split"
    RESULTS: ClassVar = 2
    src = operand_def()
    out_lhs = result_def()
    out_rhs = result_def()
    traits = traits_def(Pure(), View())


@irdl_op_definition
class CatOp(_ArrowOp):
    """Two tiles one after the other in any order of their elements (along dimension 0)."""

    name = "tt.cat"
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    traits = traits_def(Pure(), View())


@irdl_op_definition
class UnsplatOp(FlatOp):
    """The only element of a tile of one element, as a scalar."""

    name = "tt.unsplat"
    src = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> UnsplatOp:
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.parse_type()
        return make(cls, resolve(parser, operands, [source]), [element_type(source)], attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_operands(printer, self.operands)
        print_attrs(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.operand_types[0])


# --- type rules -----------------------------------------------------------------------------------------


def _tile(call: Call, index: int = 0) -> tuple[tuple[int, ...], Attribute]:
    """Shape and element type of an operand."""
    type_ = call.operand_types[index]
    assert type_ is not None
    return shape_of(type_), element_type(type_)


def _same_types(call: Call, name: str) -> None:
    lhs, rhs = call.operand_types
    if lhs != rhs:
        raise ShapeError(f"{name}: operands must have the same type, got {lhs} and {rhs}")


def _infer_reshape(call: Call) -> Sequence[Attribute]:
    shape, element = _tile(call)
    (result,) = call.result_types
    if math.prod(shape_of(result)) != math.prod(shape):
        raise ShapeError(
            f"reshape() cannot change total number of elements in tensor: {list(shape)} to {list(shape_of(result))}"
        )
    if element_type(result) != element:
        raise DTypeError(f"tt.reshape cannot change the element type {element} to {element_type(result)}")
    return call.result_types


def _infer_trans(call: Call) -> Sequence[Attribute]:
    shape, element = _tile(call)
    order = call.attrs["order"]
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"permutation {list(order)} does not fit a tile of shape {list(shape)}")
    return (tile_type(tuple(shape[axis] for axis in order), element),)


def _infer_join(call: Call) -> Sequence[Attribute]:
    _same_types(call, "tt.join")
    shape, element = _tile(call)
    return (tile_type((*shape, 2), element),)


def _infer_split(call: Call) -> Sequence[Attribute]:
    shape, element = _tile(call)
    if len(shape) < 2 or shape[-1] != 2:
        raise ShapeError(f"tt.split needs a tile [..., 2] of two or more dimensions, got {list(shape)}")
    return (tile_type(shape[:-1], element),) * 2


def _infer_cat(call: Call) -> Sequence[Attribute]:
    _same_types(call, "tt.cat")
    shape, element = _tile(call)
    if not shape:
        raise ShapeError("cat needs tiles, not scalars")
    return (tile_type((2 * shape[0], *shape[1:]), element),)


def _infer_unsplat(call: Call) -> Sequence[Attribute]:
    shape, element = _tile(call)
    if not shape or math.prod(shape) != 1:
        raise ShapeError(f"unsplat needs a tile of one element, but the shape is {list(shape)}")
    return (element,)


# --- references --------------------------------------------------------------------------------------------


def _reference_reshape(call: Call, src: Array) -> Array:
    return src.reshape(shape_of(call.result_types[0]))


def _reference_trans(call: Call, src: Array) -> Array:
    return np.transpose(src, call.attrs["order"])


def _reference_join(call: Call, lhs: Array, rhs: Array) -> Array:
    return np.stack([lhs, rhs], axis=-1)


def _reference_split(call: Call, src: Array) -> tuple[Array, Array]:
    return src[..., 0], src[..., 1]


def _reference_cat(call: Call, lhs: Array, rhs: Array) -> Array:
    return np.concatenate([lhs, rhs], axis=0)


def _reference_unsplat(call: Call, src: Array) -> Array:
    return src.reshape(())


# --- folds --------------------------------------------------------------------------------------------------


def _fold_reshape(op: Operation, known: Sequence[Number | None]) -> SSAValue | Number | None:
    """A reshape to its own type, and one that undoes the reshape before it."""
    source = op.operands[0]
    while source.type != op.results[0].type and isinstance(source.owner, ReshapeOp):
        source = source.owner.src
    return source if source.type == op.results[0].type else known[0]


def _fold_trans(op: Operation, known: Sequence[Number | None]) -> SSAValue | Number | None:
    """The order as it was, and a permutation that undoes the one before it."""
    assert isinstance(op, TransOp)
    order, source = op.attr_values()["order"], op.src
    if list(order) == sorted(order):
        return source
    if isinstance(source.owner, TransOp):
        inner = source.owner.attr_values()["order"]
        if [inner[axis] for axis in order] == sorted(order):
            return source.owner.src
    return known[0]


def _fold_pair(op: Operation, known: Sequence[Number | None]) -> Number | None:
    """Two tiles of one and the same number."""
    same = known[0] is not None and known[0] == known[1] and math.copysign(1, known[0]) == math.copysign(1, known[1])
    return known[0] if same else None


# --- samples -----------------------------------------------------------------------------------------------


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _t(*shape: int) -> Attribute:
    return tile_type(shape, f32)


def _samples_reshape(rng: np.random.Generator) -> Iterable[Sample]:
    for source, target in (((4, 8), (32,)), ((16,), (2, 2, 4)), ((2, 4, 8), (8, 8)), ((1,), (1, 1))):
        yield Sample((_floats(rng, *source),), (_t(*source),), result_types=(_t(*target),))
    yield Sample((_floats(rng, 4),), (_t(4),), result_types=(_t(8),), error="number of elements")


def _samples_trans(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, order in (((4, 8), (1, 0)), ((2, 4, 8), (2, 0, 1)), ((2, 4, 8), (0, 2, 1)), ((16, 16), (1, 0))):
        yield Sample((_floats(rng, *shape),), (_t(*shape),), {"order": order})
    ints = rng.integers(-9, 9, (8, 2), dtype=np.int32)
    yield Sample((ints,), (tile_type((8, 2), i32),), {"order": (1, 0)})
    yield Sample((_floats(rng, 4, 8),), (_t(4, 8),), {"order": (1, 1)}, error="permutation")


def _samples_pair(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((8,), (4, 8), (2, 2, 4)):
        yield Sample((_floats(rng, *shape), _floats(rng, *shape)), (_t(*shape), _t(*shape)))
    yield Sample((_floats(rng, 4), _floats(rng, 8)), (_t(4), _t(8)), error="same type")


def _samples_split(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((1, 2), (8, 2), (4, 4, 2)):
        yield Sample((_floats(rng, *shape),), (_t(*shape),))
    yield Sample((_floats(rng, 2, 4),), (_t(2, 4),), error="needs a tile [..., 2]")


def _samples_unsplat(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((1,), (1, 1)):
        yield Sample((_floats(rng, *shape),), (_t(*shape),))
    yield Sample((_floats(rng, 2),), (_t(2),), error="one element")


def _spec(op: type[FlatOp], infer: Any, reference: Any, samples: Any, summary: str, **slots: Any) -> None:
    register(OpSpec(op, infer, reference, samples, summary=summary, **slots))


_spec(
    ReshapeOp,
    _infer_reshape,
    _reference_reshape,
    _samples_reshape,
    "the same elements under another shape",
    facts=facts.reshape,
    fold=_fold_reshape,
    vjp=vjps.reshape,
)
_spec(
    TransOp,
    _infer_trans,
    _reference_trans,
    _samples_trans,
    "dimensions in another order",
    dims=lambda op: Dims((tuple(range(len(op.attr_values()["order"]))),), (tuple(op.attr_values()["order"]),)),
    facts=facts.trans,
    fold=_fold_trans,
    vjp=vjps.trans,
)
_spec(
    JoinOp,
    _infer_join,
    _reference_join,
    _samples_pair,
    "two tiles along a new last dimension",
    fold=_fold_pair,
    vjp=vjps.join,
)
_spec(
    SplitOp, _infer_split, _reference_split, _samples_split, "the halves of a last dimension of size 2", vjp=vjps.split
)
_spec(CatOp, _infer_cat, _reference_cat, _samples_pair, "two tiles one after the other", fold=_fold_pair, vjp=vjps.CAT)
_spec(
    UnsplatOp, _infer_unsplat, _reference_unsplat, _samples_unsplat, "the only element of a tile",
    vjp=vjps.unsplat, dims=lanewise,
)  # fmt: skip
