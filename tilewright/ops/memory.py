"""`tt.load` and `tt.store`: masked access to memory through tiles of pointers or scalar pointers.

Lanes whose mask is false touch no memory; without `other` their value is undefined. In memory an int1
takes a whole byte: the user functions access it as int8, as Triton does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, f32
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue
from xdsl.irdl import (
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from tilewright.base.errors import DTypeError, LanguageTypeError, ShapeError
from tilewright.base.minifloat import from_memory, to_memory
from tilewright.ir.asm import FLAG, FlatOp, make, parse_operand_list, print_attrs, print_operands, resolve
from tilewright.ir.attrs import Codec
from tilewright.ir.effect_traits import Accesses
from tilewright.ir.types import (
    TilePointerType,
    dtype_of,
    element_type,
    i1,
    i32,
    i64,
    pointer_type,
    shape_of,
    tile_type,
    with_element,
)
from tilewright.ops import dims
from tilewright.ops.facts import AxisFacts, lanewise, unknown
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register

# --- cache policy --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Hints to the caches of a GPU; they never change a result.

    Args:
        modifier: "none", "ca", "cg", "cs", "cv", "wb" or "wt".
        eviction: "evict_normal", "evict_first" or "evict_last".
    """

    modifier: str = "none"
    eviction: str = "evict_normal"


@irdl_attr_definition
class CachePolicyAttr(ParametrizedAttribute):
    """`#tt.cache_policy<cache_modifier = cg, eviction_policy = evict_last>`."""

    name = "tt.cache_policy"
    modifier: StringAttr = param_def()  # type: ignore[assignment]
    eviction: StringAttr = param_def()  # type: ignore[assignment]

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            words = []
            for number, key in enumerate(("cache_modifier", "eviction_policy")):
                if number:
                    parser.parse_punctuation(",")
                parser.parse_keyword(key)
                parser.parse_punctuation("=")
                words.append(StringAttr(parser.parse_identifier()))
        return list(words)

    def print_parameters(self, printer: Printer) -> None:
        modifier, eviction = self.modifier.data, self.eviction.data
        with printer.in_angle_brackets():
            printer.print_string(f"cache_modifier = {modifier}, eviction_policy = {eviction}")


CACHE_POLICY = Codec(
    lambda v: (
        None if v is None or v == CachePolicy() else CachePolicyAttr(StringAttr(v.modifier), StringAttr(v.eviction))
    ),
    lambda a: CachePolicy() if a is None else CachePolicy(a.modifier.data, a.eviction.data),
)


# --- operations -----------------------------------------------------------------------------------------------


def _is_volatile(op: Operation) -> bool:
    return bool(FLAG.decode(op.properties.get("isVolatile")))


@irdl_op_definition
class LoadOp(FlatOp):
    """Read memory at a pointer or at each pointer of a tile; operands: ptr, then mask, then other."""

    name = "tt.load"
    ATTRS: ClassVar = {"cachePolicy": CACHE_POLICY, "isVolatile": FLAG}
    ptr = operand_def()
    masked = var_operand_def()
    result = result_def()
    cachePolicy = opt_prop_def()
    isVolatile = opt_prop_def()
    traits = traits_def(Accesses(reads=True, ordered=_is_volatile))

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[1] if len(self.operands) > 1 else None

    @property
    def other(self) -> SSAValue | None:
        return self.operands[2] if len(self.operands) > 2 else None

    @classmethod
    def parse(cls, parser: Parser) -> LoadOp:
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        pointer = parser.parse_type()
        value = pointee_tile(pointer)
        types = [pointer, with_element(pointer, i1), value][: len(operands)]
        return make(cls, resolve(parser, operands, types), [value], attributes)

    def print(self, printer: Printer) -> None:
        _print_access(printer, self)


@irdl_op_definition
class StoreOp(FlatOp):
    """Write memory at a pointer or at each pointer of a tile; operands: ptr, value, then mask."""

    name = "tt.store"
    ATTRS: ClassVar = {"cachePolicy": CACHE_POLICY}
    ptr = operand_def()
    value = operand_def()
    masked = var_operand_def()
    cachePolicy = opt_prop_def()
    traits = traits_def(Accesses(writes=True))

    @property
    def mask(self) -> SSAValue | None:
        return self.operands[2] if len(self.operands) > 2 else None

    @classmethod
    def parse(cls, parser: Parser) -> StoreOp:
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        pointer = parser.parse_type()
        types = [pointer, pointee_tile(pointer), with_element(pointer, i1)][: len(operands)]
        return make(cls, resolve(parser, operands, types), (), attributes)

    def print(self, printer: Printer) -> None:
        _print_access(printer, self)


def _print_access(printer: Printer, op: FlatOp) -> None:
    """` %ptr, %a, %b {attrs} : type of ptr`."""
    printer.print_string(" ")
    print_operands(printer, op.operands)
    print_attrs(printer, op)
    printer.print_string(" : ")
    printer.print_attribute(op.operand_types[0])


# --- type rules -----------------------------------------------------------------------------------------------


def pointee_tile(pointer: Attribute | None) -> Attribute:
    """Type of the values at `pointer`, a pointer or a tile of pointers."""
    element = None if pointer is None else element_type(pointer)
    if not isinstance(element, TilePointerType):
        raise DTypeError(f"a pointer or a tile of pointers is needed, not {pointer}")
    assert pointer is not None
    return with_element(pointer, element.pointee)


def expect(what: str, found: Attribute | None, wanted: Attribute) -> None:
    """Raise unless an optional operand is absent or has the type `wanted`."""
    if found is None or found == wanted:
        return
    if shape_of(found) != shape_of(wanted):
        raise ShapeError(f"{what} has shape {list(shape_of(found))} where {list(shape_of(wanted))} is needed")
    raise DTypeError(f"{what} has type {found} where {wanted} is needed")


def padded(types: Sequence[Attribute | None], count: int) -> list[Attribute | None]:
    """Operand types with `None` for trailing optional operands that are left out."""
    return [*types, *[None] * (count - len(types))]


def _infer_load(call: Call) -> Sequence[Attribute]:
    pointer, mask, other = padded(call.operand_types, 3)
    value = pointee_tile(pointer)
    assert pointer is not None
    expect("mask of tt.load", mask, with_element(pointer, i1))
    expect("other of tt.load", other, value)
    if other is not None and mask is None:
        raise LanguageTypeError("`other` cannot be provided without `mask`")
    return (value,)


def _infer_store(call: Call) -> Sequence[Attribute]:
    pointer, value, mask = padded(call.operand_types, 3)
    assert pointer is not None
    expect("value of tt.store", value, pointee_tile(pointer))
    expect("mask of tt.store", mask, with_element(pointer, i1))
    return ()


# --- references -----------------------------------------------------------------------------------------------


def load_elements(call: Call, pointers: Array, mask: Array | None) -> Array:
    """Working forms of the elements at `pointers`; masked-off lanes are zero."""
    assert call.machine is not None and call.operand_types[0] is not None
    element = element_type(pointee_tile(call.operand_types[0]))
    if isinstance(element, TilePointerType):
        return call.machine.load(pointers, np.dtype("int64"), mask)
    dtype = dtype_of(element)
    return from_memory(call.machine.load(pointers, dtype.memory_dtype, mask), dtype)


def store_elements(call: Call, pointers: Array, values: Array, mask: Array | None) -> None:
    """Write working forms `values` at `pointers` where `mask` holds."""
    assert call.machine is not None and call.operand_types[0] is not None
    element = element_type(pointee_tile(call.operand_types[0]))
    if not isinstance(element, TilePointerType):
        values = to_memory(values, dtype_of(element))
    call.machine.store(pointers, values, mask)


def _reference_load(call: Call, ptr: Array, mask: Array | None = None, other: Array | None = None) -> Array:
    loaded = load_elements(call, ptr, mask)
    if mask is None or other is None:
        return loaded
    return np.where(mask, loaded, other).astype(loaded.dtype)


def _reference_store(call: Call, ptr: Array, value: Array, mask: Array | None = None) -> None:
    store_elements(call, ptr, value, mask)


def _facts_load(op: Operation, args: Sequence[AxisFacts]) -> AxisFacts:
    """One element of memory where the address, the mask and what stands in for masked elements are the same."""
    return unknown(op.results[0].type) if _is_volatile(op) else lanewise(op, args)


# --- samples ---------------------------------------------------------------------------------------------------


def _samples_load(rng: np.random.Generator) -> Iterable[Sample]:
    """Only mistakes: what a good load gives depends on memory, which tests of the back ends provide."""
    pointers, zeros = tile_type((8,), pointer_type(f32)), np.zeros(8)
    ints = tile_type((8,), i32)
    yield Sample((zeros, zeros), (pointers, ints), error="mask of tt.load has type")
    yield Sample((zeros, zeros), (pointers, tile_type((4,), i1)), error="has shape [4] where [8]")
    yield Sample((zeros, zeros, zeros), (pointers, tile_type((8,), i1), ints), error="other of tt.load has type")
    yield Sample((zeros,), (tile_type((8,), i64),), error="a pointer or a tile of pointers")


def _samples_store(rng: np.random.Generator) -> Iterable[Sample]:
    pointers, zeros = tile_type((8,), pointer_type(f32)), np.zeros(8)
    values = tile_type((8,), f32)
    yield Sample((zeros, zeros), (pointers, tile_type((8,), i32)), error="value of tt.store has type")
    yield Sample((zeros, zeros), (pointers, tile_type((16,), f32)), error="has shape [16] where [8]")
    yield Sample((zeros, zeros, zeros), (pointers, values, tile_type((8,), i32)), error="mask of tt.store has type")


def is_volatile(op: Operation) -> bool:
    """Whether an operation is a load that has to be done as often as it is written, in its place."""
    return "isVolatile" in op.properties


register(
    OpSpec(
        LoadOp,
        _infer_load,
        _reference_load,
        _samples_load,
        _facts_load,
        summary="read memory, masked",
        dims=dims.lanewise,
    )
)
register(
    OpSpec(StoreOp, _infer_store, _reference_store, _samples_store, summary="write memory, masked", dims=dims.lanewise)
)
