"""Decomposition: tensor descriptors in tile IR become pointers, masks, loads and stores.

Modules printed by Triton have descriptor operations, and those of our front end for targets that can use them:

    %d = tt.make_tensor_descriptor %p, [%m, %n], [%s, %one]     ->   (the scalars themselves)
    %v = tt.descriptor_load %d[%i, %j]                          ->   tt.load (base + ...), (0 <= %i + ... < %m), padding

Descriptors that the host passed as one argument stay here, as a launch can describe them to a copy engine; the back end
of such a target then decides which of them it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.origins import is_parameter
from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType, PointerType
from tilewright.base.errors import UnsupportedError
from tilewright.base.options import Options
from tilewright.base.target import NO_TARGET
from tilewright.frontend.builder import IRBuilder, Position
from tilewright.ir.types import TilePointerType, dtype_of, element_type, shape_of
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.casts import is_exact
from tilewright.ops.constant import ConstantOp
from tilewright.ops.descriptor import (
    DESCRIPTOR_STRIDE,
    DescriptorLoadOp,
    DescriptorStoreOp,
    MakeTensorDescOp,
    TensorDescType,
)
from tilewright.ops.function import FuncOp
from tilewright.ops.functions.tensor_descriptor import load_tensor_descriptor, store_tensor_descriptor
from tilewright.ops.tensor_descriptor import tensor_descriptor
from tilewright.ops.values import constexpr, tensor
from tilewright.ops.values import tuple as tile_tuple
from tilewright.passes.rewriting import erase, move_before, replace

Descriptors = dict[SSAValue, tensor_descriptor]


def is_from_host(maker: MakeTensorDescOp) -> bool:
    """Whether a descriptor is one that the host passed: its parts are arguments of the kernel marked as such."""
    parts = [value for value in maker.operands if not isinstance(value.owner, ConstantOp)]
    marks = {_mark(value) for value in parts}
    return maker.base in parts and len(marks) == 1 and None not in marks


def _mark(value: SSAValue) -> Attribute | None:
    """What an argument of a kernel that belongs to a descriptor of the host is marked with, the same for all parts."""
    if not isinstance(value, BlockArgument):
        return None
    function = value.block.parent_op()
    if not isinstance(function, FuncOp) or not function.is_kernel:
        return None
    return function.arg_attributes(value.index).get("tt.host_descriptor")


def decompose(root: Operation, keep: Callable[[MakeTensorDescOp], bool] = is_from_host) -> bool:
    """Rewrite the descriptor operations below `root`; says whether there was one to rewrite.

    Args:
        root: of tile IR, calls inlined.
        keep: tells the descriptors that stay, with the operations on them.

    Raises:
        UnsupportedError: a descriptor is an argument, or is handed on by a loop or branch.
    """
    makers = every(root, MakeTensorDescOp)
    kept = {op.result for op in makers if keep(op)}
    made = [op for op in makers if op.result not in kept]
    accesses = every(root, DescriptorLoadOp, DescriptorStoreOp)
    users = [op for op in accesses if op.desc not in kept]
    if not made and not users:
        return False
    for maker in made:
        _mark_strides(maker)
    known: Descriptors = {op.result: _descriptor(op) for op in made}
    builder = IRBuilder(NO_TARGET, Options())
    for op in users:
        if op.desc not in known:
            raise UnsupportedError(
                f"{op.name} of a tensor descriptor that is an argument, or that a loop or branch hands on",
                hint="make the descriptor in the same function with tt.make_tensor_descriptor",
            )
        _rewrite(builder, op, known[op.desc])
    for maker in reversed(made):
        erase(maker)
    return True


def _mark_strides(maker: MakeTensorDescOp) -> None:
    """Tell which parameters of a kernel are strides of a descriptor that it makes."""
    for stride in maker.strides:
        widened = defining_op(stride)
        parameter = widened.operands[0] if widened is not None and is_exact(widened) else stride
        if isinstance(parameter, BlockArgument) and is_parameter(parameter):
            FuncOp.around(maker).set_arg_attribute(parameter.index, DESCRIPTOR_STRIDE, UnitAttr())


def _value(value: SSAValue) -> tensor:
    """An SSA value as a value of the language; integers count as signed."""
    element = element_type(value.type)
    if isinstance(element, TilePointerType):
        return tensor(value, PointerType(dtype_of(element.pointee)))
    kind, shape = dtype_of(element), shape_of(value.type)
    return tensor(value, BlockType(kind, shape) if shape else kind)


def _descriptor(op: MakeTensorDescOp) -> tensor_descriptor:
    assert isinstance(op.result.type, TensorDescType)
    parts = [
        _value(op.base),
        tile_tuple(map(_value, op.sizes)),
        tile_tuple(map(_stride, op.strides)),
        tile_tuple(map(constexpr, shape_of(op.result.type.block))),
        constexpr("nan" if op.pads_nan else "zero"),
        constexpr(False),
    ]
    return tensor_descriptor._make(parts)


def _stride(value: SSAValue) -> tensor | constexpr:
    """A stride; the constant 1 as a number, so that neighbours are known to be adjacent."""
    return constexpr(1) if constant_of(value) == 1 else _value(value)


def _rewrite(builder: IRBuilder, op: DescriptorLoadOp | DescriptorStoreOp, desc: tensor_descriptor) -> None:
    """Put the operations that `op` stands for before it, and drop it."""
    builder.position = Position(Block())
    builder.location = op.location or builder.location
    if isinstance(op, DescriptorLoadOp):
        loaded = load_tensor_descriptor.fn(builder, desc, _indices(op.operands[1:]))
        results: list[SSAValue] = [loaded.handle]
    else:
        store_tensor_descriptor.fn(builder, desc, _indices(op.operands[2:]), _value(op.src))
        results = []
    for new in list(builder.position.block.ops):
        move_before(new, op)
    replace(op, results)


def _indices(values: Sequence[SSAValue]) -> list[tensor]:
    return [tensor(value, dtypes.int32) for value in values]
