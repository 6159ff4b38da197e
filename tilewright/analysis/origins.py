"""From which arguments of a kernel an address is computed, and whether two addresses may be of one array.

An address is moved by its offsets, not made of them: it comes from the addresses that an operation takes, through
loops, branches and tiles. One that was read from memory is reached through the argument that leads to that memory.

Arguments of which a launch knows that they overlap say so, and count as one here:

    tt.func @move(%x: !tt.ptr<f32>, %out: !tt.ptr<f32> {tilewright.meets = 0 : i32})      what comes from %out is of %x
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue

from tilewright.analysis.flow import sources_of
from tilewright.base.assumptions import NO_OVERLAP, holds
from tilewright.ir.types import element_type, is_pointer
from tilewright.ir.values import defining_op, operands_of
from tilewright.ops.descriptor import TensorDescType
from tilewright.ops.function import CallOp, FuncOp

MEETS = "tilewright.meets"
"""Attribute of an argument: the number of an earlier one through which the same memory may be reached."""


def origins_of(address: SSAValue) -> frozenset[SSAValue] | None:
    """The arguments of a kernel that an address may be computed from; None if they are not known.

    Of arguments that overlap the first stands for all.

    Args:
        address: a pointer, a tile of pointers, a tensor descriptor, or a number that becomes one.
    """
    found = _parameters_of(address)
    return None if found is None else frozenset(map(_first_that_meets, found))


def _first_that_meets(parameter: SSAValue) -> SSAValue:
    block = parameter.owner
    assert isinstance(parameter, BlockArgument)
    assert isinstance(block, Block)
    function = block.parent_op()
    assert isinstance(function, FuncOp)
    first = function.arg_attributes(parameter.index).get(MEETS)
    return block.args[first.value.data] if isinstance(first, IntegerAttr) else parameter


def _parameters_of(address: SSAValue) -> frozenset[SSAValue] | None:
    """The parameters that an address may be computed from; None if they are not known."""
    found: set[SSAValue] = set()
    waiting, seen = [address], {address}
    while waiting:
        value = waiting.pop()
        if is_parameter(value):
            found.add(value)
            continue
        sources = _sources(value)
        if not sources:
            return None
        waiting += [source for source in sources if source not in seen]
        seen.update(sources)
    return frozenset(found)


class Origins(dict[SSAValue, frozenset[SSAValue] | None]):
    """The origins of addresses while nothing is rewritten: each is found once."""

    def __missing__(self, address: SSAValue) -> frozenset[SSAValue] | None:
        found = self[address] = origins_of(address)
        return found

    def may_meet(self, one: SSAValue, other: SSAValue) -> bool:
        """Whether two addresses may be of one array: of one argument, or it is not known of which."""
        mine, theirs = self[one], self[other]
        return mine is None or theirs is None or bool(mine & theirs) or not holds(NO_OVERLAP)


def may_meet(one: SSAValue, other: SSAValue) -> bool:
    """Whether two addresses may be of one array: they are computed from one argument, or it is not known from which."""
    return Origins().may_meet(one, other)


def parameters_apart(one: SSAValue, other: SSAValue) -> list[tuple[SSAValue, SSAValue]]:
    """Pairs of scalar pointers among the parameters that two addresses come from.

    Addresses that do not meet (`may_meet`) may still be of one array in a kernel that works in place: then two of these
    pointers are equal.
    """
    mine, theirs = _parameters_of(one) or (), _parameters_of(other) or ()
    return [(a, b) for a in mine for b in theirs if is_pointer(a.type) and is_pointer(b.type)]


def is_address(type_: Attribute) -> bool:
    """Whether values of a type are pointers, tiles of them, or descriptors."""
    return type(type_) is TensorDescType or is_pointer(element_type(type_))


def _sources(value: SSAValue) -> Sequence[SSAValue]:
    """The values that one is computed or carried from; none if that is not known."""
    carried = sources_of(value)
    if carried is not None:
        return carried
    op = defining_op(value)
    if op is None or op.regions:
        return ()
    operands = operands_of(op)
    addresses = [operand for operand in operands if is_address(operand.type)]
    return operands if isinstance(op, CallOp) else addresses or operands


def is_parameter(value: SSAValue) -> bool:
    """Whether a value is an argument of a kernel; those of a function that it calls may be anything of the caller's."""
    if type(value) is not BlockArgument:
        return False
    block = value.block
    function = block.parent_op()
    return isinstance(function, FuncOp) and function.is_kernel and block is function.body.blocks[0]
