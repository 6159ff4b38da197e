"""Functions, calls, branches and undefined values: `tt.func`, `tt.call`, `tt.return`, `cf.br`, `ub.poison`.

Text forms are Triton's. A module holds one public function, the kernel, and the private ones that it
calls. These operations have no numpy reference: the evaluator of `backends/reference` walks functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DictionaryAttr,
    FlatSymbolRefAttrConstr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.dialects.utils import parse_func_op_like, print_func_op_like
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    successor_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.base.errors import DTypeError
from tilewright.ir.asm import (
    FlatOp,
    make,
    parse_signature,
    parse_type_list,
    print_attrs,
    print_operands,
    print_signature,
    print_types,
    resolve,
)
from tilewright.ir.op import TileOp
from tilewright.ir.types import dtype_of, element_type, i1, is_pointer, shape_of
from tilewright.ops.spec import Array, Call, OpSpec, register


def _print_list_tail(printer: Printer, op: TileOp, operands: Sequence[SSAValue]) -> None:
    """` %a, %b {attrs} : T, U` as terminators print it; nothing for no operands."""
    if operands:
        printer.print_string(" ")
        print_operands(printer, operands)
    print_attrs(printer, op)
    if operands:
        printer.print_string(" : ")
        print_types(printer, [o.type for o in operands])


class TerminatorOp(FlatOp):
    """A terminator that hands its operands to the enclosing operation."""

    @classmethod
    def parse(cls, parser: Parser) -> TerminatorOp:
        first = parser.parse_optional_unresolved_operand()
        if first is None:
            return make(cls, (), (), parser.parse_optional_attr_dict())
        operands = [first]
        while parser.parse_optional_punctuation(",") is not None:
            operands.append(parser.parse_unresolved_operand())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return make(cls, resolve(parser, operands, parse_type_list(parser)), (), attributes)

    def print(self, printer: Printer) -> None:
        _print_list_tail(printer, self, self.operands)


# --- functions ----------------------------------------------------------------------------------------


@irdl_op_definition
class FuncOp(TileOp):
    """A kernel (public) or a function called by one (private); arguments may carry `tt.divisibility` and the like."""

    name = "tt.func"
    body = region_def()
    sym_name = prop_def(StringAttr)
    function_type = prop_def(FunctionType)
    sym_visibility = opt_prop_def(StringAttr)
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    res_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    traits = traits_def(IsolatedFromAbove())

    @classmethod
    def build(  # type: ignore[override]
        cls,
        name: str,
        inputs: Sequence[Attribute],
        outputs: Sequence[Attribute],
        *,
        visibility: str = "public",
        noinline: bool = False,
        arg_attrs: Sequence[dict[str, Attribute]] | None = None,
    ) -> FuncOp:
        """A function with an empty entry block whose arguments have the types `inputs`.

        Args:
            name: symbol.
            inputs: IR types of the arguments.
            outputs: IR types of the results.
            visibility: "public" for kernels, "private" for functions called by them.
            noinline: the call must stay a call.
            arg_attrs: dictionary of each argument, e.g. ``{"tt.divisibility": i32 16}``.
        """
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "function_type": FunctionType.from_lists(inputs, outputs),
            "sym_visibility": StringAttr(visibility),
        }
        if arg_attrs and any(arg_attrs):
            properties["arg_attrs"] = ArrayAttr([DictionaryAttr(entry) for entry in arg_attrs])
        return cls.create(
            properties=properties,
            attributes={"noinline": BoolAttr.from_bool(noinline)},
            regions=[Region(Block(arg_types=inputs))],
        )

    @property
    def symbol(self) -> str:
        return self.sym_name.data

    @property
    def is_kernel(self) -> bool:
        return self.sym_visibility is not None and self.sym_visibility.data == "public"

    @classmethod
    def all_of(cls, module: ModuleOp) -> list[FuncOp]:
        """The functions of a module."""
        return [op for op in module.ops if isinstance(op, FuncOp)]

    @classmethod
    def kernel_of(cls, module: ModuleOp) -> FuncOp:
        """The first kernel of a module."""
        return next(function for function in cls.all_of(module) if function.is_kernel)

    @classmethod
    def around(cls, op: Operation) -> FuncOp:
        """The function that an operation stands in."""
        parent: Operation | None = op
        while not isinstance(parent, FuncOp):
            assert parent is not None
            parent = parent.parent_op()
        return parent

    @property
    def noinline(self) -> bool:
        attribute = self.attributes.get("noinline")
        return isinstance(attribute, IntegerAttr) and bool(attribute.value.data)

    def arg_attributes(self, index: int) -> dict[str, Attribute]:
        """The attribute dictionary of argument `index`."""
        return dict(self.arg_attrs.data[index].data) if self.arg_attrs is not None else {}

    def set_arg_attribute(self, index: int, name: str, value: Attribute) -> None:
        """Add to the attributes of argument `index`."""
        rows = [self.arg_attributes(number) for number in range(len(self.body.blocks[0].args))]
        rows[index][name] = value
        self.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(row) for row in rows])

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        visibility = parser.parse_optional_visibility_keyword()
        name, inputs, outputs, region, extra, arg_attrs, res_attrs = parse_func_op_like(
            parser, reserved_attr_names=("sym_name", "function_type", "sym_visibility", "arg_attrs", "res_attrs")
        )
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "function_type": FunctionType.from_lists(inputs, outputs),
        }
        optional = {"sym_visibility": visibility, "arg_attrs": arg_attrs, "res_attrs": res_attrs}
        properties |= {key: value for key, value in optional.items() if value is not None}
        return cls.create(properties=properties, attributes=extra.data if extra else {}, regions=[region])

    def print(self, printer: Printer) -> None:
        if self.sym_visibility is not None:
            printer.print_string(f" {self.sym_visibility.data}")
        print_func_op_like(
            printer,
            self.sym_name,
            self.function_type,
            self.body,
            dict(sorted(self.attributes.items())),
            arg_attrs=self.arg_attrs,
            res_attrs=self.res_attrs,
            reserved_attr_names=(),
            print_empty_outputs=False,
        )

    def verify_(self) -> None:
        entry = self.body.blocks.first
        if entry is not None and tuple(a.type for a in entry.args) != tuple(self.function_type.inputs):
            raise VerifyException("the entry block's arguments differ from the function type")


@irdl_op_definition
class ReturnOp(TerminatorOp):
    """Return from a function."""

    name = "tt.return"
    srcs = var_operand_def()
    traits = traits_def(IsTerminator())

    def verify_(self) -> None:
        func = self.parent_op()
        if isinstance(func, FuncOp) and tuple(self.operand_types) != tuple(func.function_type.outputs):
            raise VerifyException("returned types differ from the function type")


@irdl_op_definition
class CallOp(FlatOp):
    """Call of a function of the same module."""

    name = "tt.call"
    args_ = var_operand_def()
    outs = var_result_def()
    callee = prop_def(FlatSymbolRefAttrConstr)

    @classmethod
    def make_call(cls, callee: str, operands: Sequence[SSAValue], results: Sequence[Attribute]) -> CallOp:
        """A call of the function named `callee`, which returns `results`."""
        return cls.create(operands=operands, result_types=results, properties={"callee": SymbolRefAttr(callee)})

    @property
    def callee_name(self) -> str:
        return str(self.callee.string_value())  # type: ignore[no-untyped-call]

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        callee = parser.parse_symbol_name()
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        inputs, outputs = parse_signature(parser)
        values = resolve(parser, operands, inputs)
        return make(cls, values, outputs, attributes, {"callee": SymbolRefAttr(callee)})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.callee_name)
        with printer.in_parens():
            print_operands(printer, self.operands)
        print_attrs(printer, self, ("callee",))
        printer.print_string(" : ")
        print_signature(printer, self.operand_types, self.result_types)


# --- unstructured branches and undefined values ---------------------------------------------------------------


@irdl_op_definition
class BranchOp(TileOp):
    """Jump to a block of the same function."""

    name = "cf.br"
    arguments = var_operand_def()
    successor = successor_def()
    traits = traits_def(IsTerminator())
    assembly_format = "$successor (`(` $arguments^ `:` type($arguments) `)`)? attr-dict"


@irdl_op_definition
class CondBranchOp(TileOp):
    """Jump to one of two blocks of the same function."""

    name = "cf.cond_br"
    cond = operand_def(i1)
    then_arguments = var_operand_def()
    else_arguments = var_operand_def()
    then_block = successor_def()
    else_block = successor_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(IsTerminator())
    assembly_format = """
    $cond `,` $then_block (`(` $then_arguments^ `:` type($then_arguments) `)`)? `,`
    $else_block (`(` $else_arguments^ `:` type($else_arguments) `)`)? attr-dict
    """


@irdl_op_definition
class UnreachableOp(TileOp):
    """End of a block that control never reaches."""

    name = "llvm.unreachable"
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict"


@irdl_op_definition
class PoisonOp(TileOp):
    """A value that is never looked at."""

    name = "ub.poison"
    res = result_def()
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($res)"


# --- specs ------------------------------------------------------------------------------------------------------


def infer_nothing(call: Call) -> Sequence[Attribute]:
    """No results."""
    return ()


def infer_asked(call: Call) -> Sequence[Attribute]:
    """The results that the caller asks for; the verifier compares them with the bodies."""
    return call.result_types


def infer_condition_first(call: Call) -> Sequence[Attribute]:
    """As `infer_asked`; the first operand must be a scalar int1."""
    if call.operand_types[0] != i1:
        raise DTypeError(f"a condition must be a scalar int1, but is {call.operand_types[0]}")
    return call.result_types


def register_control(op: type[TileOp], infer: Any, summary: str) -> None:
    """Register an operation that only steers control: the evaluator and the back ends treat it by hand."""
    register(OpSpec(op, infer, None, summary=summary))


register_control(FuncOp, infer_nothing, "a kernel or a function called by one")
register_control(ReturnOp, infer_nothing, "return from a function")
register_control(CallOp, infer_asked, "call of a function of the module")
register_control(BranchOp, infer_nothing, "jump to a block")
register_control(CondBranchOp, infer_condition_first, "jump to one of two blocks")
register_control(UnreachableOp, infer_nothing, "end of a block that is never reached")


def _reference_poison(call: Call) -> Array:
    type_ = call.result_types[0]
    element = element_type(type_)
    return np.zeros(shape_of(type_), np.int64 if is_pointer(element) else dtype_of(element).work_dtype)


register(OpSpec(PoisonOp, infer_asked, _reference_poison, summary="a value that is never looked at"))
