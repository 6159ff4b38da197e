"""Laid-out tile IR: types with a layout, and their text.

A tile of laid-out tile IR is a `tensor<64x64xf32, #tw.layout<...>>`: the encoding is the linear map from (register,
lane, warp, block) to coordinates. A `!ttg.memdesc<64x64xf16, #tw.layout<...>>` is a buffer in shared memory, its layout
the map from (offset) to coordinates. Scalars are as in tile IR. Printed modules name their layouts `#L0`, `#L1`, ...
"""

from __future__ import annotations

import functools
import re

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from tilewright.base.errors import InternalError
from tilewright.ir import text
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.layouts import text as layout_text
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """`#tw.layout<"register=(0,1) lane=(1,0) warp= block= : 2x2">`: the bases of each input, and the output sizes."""

    name = "tw.layout"
    spelled: StringAttr = param_def()  # type: ignore[assignment]

    @property
    def layout(self) -> LinearLayout:
        """The linear map."""
        return _parsed(self.spelled.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [StringAttr(parser.parse_str_literal())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.spelled.data)


@functools.lru_cache(maxsize=4096)
def layout_attr(layout: LinearLayout) -> LayoutAttr:
    """The attribute of a layout; equal layouts have equal attributes."""
    return LayoutAttr(StringAttr(layout_text.spelled(layout)))


_parsed = functools.lru_cache(maxsize=4096)(layout_text.parsed)


@irdl_attr_definition
class MemDescType(ParametrizedAttribute, TypeAttribute):
    """`!ttg.memdesc<3x64x64xf16, #layout>`: buffers of one shape in shared memory.

    A leading size beyond the rank of the layout counts buffers (the stages of a pipeline); `memdesc_index` takes one.
    """

    name = "ttg.memdesc"
    tile: Attribute = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [parser.parse_type()]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.tile)


def memdesc_type(shape: tuple[int, ...], element: Attribute, layout: LinearLayout) -> MemDescType:
    """The type of a buffer, or of several with their number in front of the shape.

    Args:
        shape: of the tile; one size more than the layout has dims for several buffers.
        element: element type.
        layout: (offset) -> coordinates of one buffer, offsets in elements.
    """
    return MemDescType(TensorType(element, shape, layout_attr(layout)))


# --- reading types --------------------------------------------------------------------------------------


def layout_of(type_: Attribute | SSAValue) -> LinearLayout:
    """Layout of a tile or of a buffer.

    Raises:
        InternalError: the type has none.
    """
    type_ = type_.type if isinstance(type_, SSAValue) else type_
    tile = type_.tile if isinstance(type_, MemDescType) else type_
    if isinstance(tile, TensorType) and isinstance(tile.encoding, LayoutAttr):
        return tile.encoding.layout
    raise InternalError(f"{type_} has no layout")


def with_layout(type_: Attribute, layout: LinearLayout | None) -> Attribute:
    """A tile type with another layout; a scalar stays itself, None takes the layout away."""
    if not isinstance(type_, TensorType):
        return type_
    return _with_layout(type_, None if layout is None else layout_attr(layout))


@functools.lru_cache(maxsize=4096)
def _with_layout(type_: TensorType[Attribute], layout: LayoutAttr | None) -> Attribute:
    shape, element = type_.get_shape(), type_.element_type
    return TensorType(element, shape) if layout is None else TensorType(element, shape, layout)


def memdesc_shape(type_: Attribute) -> tuple[int, ...]:
    """Shape of one buffer, without the count of buffers."""
    assert isinstance(type_, MemDescType)
    return shape_of(type_.tile)[-len(layout_of(type_).outs) :]


def memdesc_count(type_: Attribute) -> int:
    """Number of buffers."""
    assert isinstance(type_, MemDescType)
    shape = shape_of(type_.tile)
    return shape[0] if len(shape) > len(layout_of(type_).outs) else 1


def memdesc_bytes(type_: Attribute) -> int:
    """Bytes of one buffer (of the padded shape)."""
    assert isinstance(type_, MemDescType)
    total = 1
    for size in padded_shape(memdesc_shape(type_)):
        total *= size
    return total * memory_bits(element_type(type_.tile)) // 8


def memory_bits(element: Attribute) -> int:
    """Bits of an element in shared memory: those of its type, 8 at least."""
    return max(8, bit_width(element))


def tile_words(type_: Attribute) -> int:
    """Registers of a thread that a tile takes."""
    return layout_of(type_).in_sizes["register"] * bit_width(element_type(type_)) // 32


# --- text -----------------------------------------------------------------------------------------------

_SPELLED = re.compile(r'#tw\.layout<"[^"]*">')
ATTRIBUTES: tuple[type[Attribute], ...] = (LayoutAttr, MemDescType)


def print_module(module: ModuleOp) -> str:
    """The module as text, its layouts named in front of it."""
    body = text.print_module(module)
    names: dict[str, str] = {}
    body = _SPELLED.sub(lambda found: names.setdefault(found[0], f"#L{len(names)}"), body)
    return "".join(f"{name} = {spelled}\n" for spelled, name in names.items()) + body


def parse_module(context: Context, source: str, name: str = "<tgir>") -> ModuleOp:
    """The module that `source` spells; `context` knows the operations (see `tgir_ops.context`).

    Raises:
        ParseError: with line, column and caret.
    """
    return text.parse_module(context, source, name)


__all__ = [
    "ATTRIBUTES", "LayoutAttr", "MemDescType", "layout_attr", "layout_of", "memdesc_bytes",
    "memdesc_count", "memdesc_shape", "memdesc_type", "memory_bits", "parse_module", "print_module", "tile_words",
    "with_layout",
]  # fmt: skip
