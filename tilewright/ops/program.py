"""Where a program stands in the grid, and promises about values: program_id, num_programs, assume, alignment hints.

Hints do not compute anything: they stand as attributes on the operation that defines the value
(``tt.divisibility``, ``tt.contiguity``, ``tt.constancy``), or on the kernel for its arguments, where the axis
analysis reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, DictionaryAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, BlockArgument, Operation
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base import dtypes
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError
from tilewright.ir.attrs import Codec
from tilewright.ir.op import TileOp
from tilewright.ir.types import i1, i32
from tilewright.ops import facts
from tilewright.ops.builtin import Emitter, builtin, is_number, to_tensor
from tilewright.ops.elementwise_base import (
    define,
    finish_parse,
    parse_attributes,
    parse_operands,
    print_operands,
    print_types,
    tile,
    words,
)
from tilewright.ops.function import FuncOp
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import Operand, Size, constexpr, tensor, unwrap

_AXES: dict[str, Attribute] = {"x": IntegerAttr(0, i32), "y": IntegerAttr(1, i32), "z": IntegerAttr(2, i32)}
_AXIS_CODEC = Codec(lambda v: _AXES["xyz"[v]], lambda a: "xyz".index(words(_AXES).decode(a)))


class GridOp(TileOp):
    """``op x : i32``: a number that depends on the program and an axis of the grid."""

    ATTRS: ClassVar[Mapping[str, Codec]] = {"axis": _AXIS_CODEC}
    axis = prop_def()
    result = result_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {'xyz'[self.attr_values()['axis']]}")
        printer.print_op_attributes(self.attributes)
        print_types(printer, [self.results[0].type], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> GridOp:
        word = parser.parse_identifier()
        if word not in _AXES:
            parser.raise_error(f"the axes of a grid are x, y and z, not {word}")
        attributes = {**parse_attributes(parser), "axis": _AXES[word]}
        parser.parse_punctuation(":")
        return finish_parse(cls, parser, [], [], [parser.parse_type()], attributes)


GetProgramIdOp = define(GridOp, "tt.get_program_id", "Index of this program along an axis of the grid.")
GetNumProgramsOp = define(GridOp, "tt.get_num_programs", "Number of programs along an axis of the grid.")


@irdl_op_definition
class AssumeOp(TileOp):
    """``llvm.intr.assume %c : i1``: a promise that the condition holds."""

    name = "llvm.intr.assume"
    condition = operand_def()

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_op_attributes(self.attributes)
        print_types(printer, [self.operands[0].type], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> AssumeOp:
        names = parse_operands(parser, 1)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        return finish_parse(cls, parser, names, [parser.parse_type()], [], attributes)


# --- meaning -----------------------------------------------------------------------------------------------


def _infer_grid(call: Call) -> tuple[Attribute]:
    if call.attrs["axis"] not in (0, 1, 2):
        raise LanguageValueError(f"axis must be 0, 1, or 2 but got {call.attrs['axis']}")
    return (i32,)


def _infer_assume(call: Call) -> tuple[()]:
    if call.operand_types != (i1,):
        raise DTypeError(f"assume takes a scalar condition, not {call.operand_types[0]}")
    return ()


def _program_id(call: Call) -> Array:
    assert call.machine is not None
    return np.asarray(call.machine.program_id(call.attrs["axis"]), dtype=np.int32)


def _num_programs(call: Call) -> Array:
    assert call.machine is not None
    return np.asarray(call.machine.num_programs(call.attrs["axis"]), dtype=np.int32)


def _grid_samples(rng: np.random.Generator) -> list[Sample]:
    return [*[Sample((), (), {"axis": axis}) for axis in range(3)], Sample((), (), {"axis": 3}, error="0, 1, or 2")]


def _assume_samples(rng: np.random.Generator) -> list[Sample]:
    flags = np.ones(8, dtype=np.bool_)
    return [Sample((np.asarray(True),), (i1,)), Sample((flags,), (tile("i1"),), error="scalar condition")]


register(
    OpSpec(
        GetProgramIdOp,
        _infer_grid,
        _program_id,
        _grid_samples,
        facts.of_index,
        summary="index of this program along an axis",
    )
)
register(
    OpSpec(
        GetNumProgramsOp,
        _infer_grid,
        _num_programs,
        _grid_samples,
        facts.of_index,
        summary="number of programs along an axis",
    )
)
register(
    OpSpec(
        AssumeOp,
        _infer_assume,
        lambda call, condition: None,
        _assume_samples,
        summary="promise that a condition holds",
    )
)


# --- language ----------------------------------------------------------------------------------------------------


def _axis(name: str, axis: Size) -> int:
    value = unwrap(axis)
    if not isinstance(value, int) or value not in (0, 1, 2):
        hint = "fold several dimensions into one of the grid, and take them apart with // and %"
        raise LanguageValueError(f"{name} axis must be 0, 1, or 2 but got {value}", hint=hint)
    return int(value)


@builtin
def program_id(b: Emitter, axis: Size) -> tensor:
    """Index of this program along an axis of the launch grid.

    Args:
        axis: 0, 1 or 2 (compile-time).

    Returns:
        int32 scalar.

    Raises:
        ValueError: another axis.

    Example:
        >>> tl.program_id(0)
        0
    """
    return b.emit(GetProgramIdOp, dtypes.int32, axis=_axis("program_id", axis))


@builtin
def num_programs(b: Emitter, axis: Size) -> tensor:
    """Number of programs along an axis of the launch grid.

    Args:
        axis: 0, 1 or 2 (compile-time).

    Returns:
        int32 scalar.

    Raises:
        ValueError: another axis.

    Example:
        >>> tl.num_programs(0)
        1
    """
    return b.emit(GetNumProgramsOp, dtypes.int32, axis=_axis("num_programs", axis))


@builtin
def assume(b: Emitter, cond: Operand) -> None:
    """Promise that a scalar condition holds; nothing is checked and the optimiser may rely on it.

    Args:
        cond: scalar bool; a compile-time true is dropped.

    Example:
        >>> tl.assume(tl.num_programs(0) > 0)
    """
    if is_number(cond) and unwrap(cond):
        return
    holds = to_tensor(b, cond)
    if not b.promise("assume", holds, ()):
        b.emit_void(AssumeOp, holds)


_ATTRIBUTES = {
    "multiple_of": "tt.divisibility",
    "max_contiguous": "tt.contiguity",
    "max_constancy": "tt.constancy",
}


def _hint_values(input: tensor, values: Size | Sequence[Size]) -> list[int]:
    """One plain integer per dimension; a single one stands for all."""
    many = isinstance(values, (list, tuple)) or isinstance(unwrap(values), (list, tuple))
    given = (values if isinstance(values, (list, tuple)) else unwrap(values)) if many else [values]
    for index, value in enumerate(given):
        inner = unwrap(value)
        if not isinstance(value, (constexpr, int)):
            raise LanguageTypeError(f"values element {index} must have type `constexpr`")
        if not isinstance(inner, int) or isinstance(inner, bool):
            raise LanguageTypeError(
                f"values element {index} must have type `constexpr[int]`, got `constexpr[{type(inner)}]`"
            )
    numbers = [int(unwrap(v)) for v in given]
    rank = max(1, len(input.block_shape))
    numbers = numbers * rank if not many and len(numbers) == 1 else numbers
    if len(numbers) != rank:
        raise LanguageValueError(
            f"Shape of input to a hint does not match the length of values: {len(numbers)} values for {rank} dimensions"
        )
    return numbers


def _hint(b: Emitter, input: Operand, values: Size | Sequence[Size], name: str) -> tensor:
    if not isinstance(input, tensor):
        raise LanguageTypeError(f"a hint describes a run-time value, not {input!r}")
    numbers = _hint_values(input, values)
    if b.promise(name, input, numbers):
        return input
    attribute = _ATTRIBUTES[name]
    owner = getattr(input.handle, "owner", None)
    if isinstance(owner, Operation):
        owner.attributes[attribute] = DenseIntOrFPElementsAttr.from_list(TensorType(i32, [len(numbers)]), numbers)
    elif isinstance(input.handle, BlockArgument) and attribute == "tt.divisibility" and len(numbers) == 1:
        _hint_argument(input.handle, numbers[0])
    return input


def _hint_argument(argument: BlockArgument, divisor: int) -> None:
    """A promise about an argument stands on the function; the arguments of loops and bodies have no place for one."""
    function = argument.owner.parent_op()
    if not isinstance(function, FuncOp) or function.body.blocks.first is not argument.owner:
        return
    entries = [function.arg_attributes(index) for index in range(len(argument.owner.args))]
    known = entries[argument.index].get("tt.divisibility")
    if isinstance(known, IntegerAttr) and int(known.value.data) % divisor == 0:
        return
    entries[argument.index]["tt.divisibility"] = IntegerAttr(divisor, i32)
    function.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(entry) for entry in entries])


@builtin
def multiple_of(b: Emitter, input: tensor, values: Size | Sequence[Size]) -> tensor:
    """Promise that the first element of each contiguous run of `input` is a multiple of `values`.

    Args:
        input: integer or pointer tensor.
        values: compile-time integer, or one per dimension.

    Returns:
        `input`, with the promise attached.

    Raises:
        TypeError: a value is not a compile-time integer.
    """
    return _hint(b, input, values, "multiple_of")


@builtin
def max_contiguous(b: Emitter, input: tensor, values: Size | Sequence[Size]) -> tensor:
    """Promise that runs of `values` elements of `input` are consecutive numbers.

    Args:
        input: integer or pointer tensor.
        values: compile-time integer, or one per dimension.

    Returns:
        `input`, with the promise attached.

    Raises:
        TypeError: a value is not a compile-time integer.
    """
    return _hint(b, input, values, "max_contiguous")


@builtin
def max_constancy(b: Emitter, input: tensor, values: Size | Sequence[Size]) -> tensor:
    """Promise that runs of `values` elements of `input` are equal.

    Args:
        input: integer or pointer tensor.
        values: compile-time integer, or one per dimension.

    Returns:
        `input`, with the promise attached.

    Raises:
        TypeError: a value is not a compile-time integer.
    """
    return _hint(b, input, values, "max_constancy")
