"""Shadows: for an argument of the kernel, where the gradient of its memory is.

    tt.load  %x_ptr + %offsets      ->    tt.atomic_rmw fadd  %d_x_ptr + %offsets
    tt.store %y_ptr + %offsets      ->    tt.load  %d_y_ptr + %offsets

A shadow is an array with the places of the argument's, of any type of float. The address in it is computed as the
kernel computes its own, from another argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.frontend.builder import IRBuilder
from tilewright.gradients.activity import refusal
from tilewright.ir.op import TileOp
from tilewright.ir.traits import is_view
from tilewright.ir.types import element_type, with_element
from tilewright.ir.values import defining_op
from tilewright.ops.atomic import AtomicRMWOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.debug import BarrierOp
from tilewright.ops.elementwise import SelectOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp, StoreOp, pointee_tile
from tilewright.ops.reverse import Tiles

Values = Mapping[SSAValue, SSAValue]
ADDITION = {"atomic_rmw_op": "fadd", "sem": "relaxed", "scope": "gpu"}


class Shadows:
    """Where gradients are in memory.

    Args:
        of: arguments of the kernel, each with the pointer to its gradient.
    """

    def __init__(self, of: Mapping[SSAValue, SSAValue]) -> None:
        self.of = of

    def accumulate(
        self, b: IRBuilder, op: LoadOp, home: SSAValue | None, grad: SSAValue, mask: SSAValue | None, values: Values
    ) -> None:
        """Add the gradient of what was loaded to that of the memory it was loaded from."""
        if home not in self.of:
            return
        self._add(b, self._address(b, op, op.ptr, values), grad, mask)

    def accumulate_number(self, b: IRBuilder, argument: SSAValue, grad: SSAValue) -> None:
        """Add to the gradient of a number that was passed."""
        self._add(b, self.of[argument], grad, None)

    def read(
        self,
        b: IRBuilder,
        op: StoreOp | AtomicRMWOp,
        home: SSAValue,
        mask: SSAValue | None,
        values: Values,
        element: Attribute,
        *,
        take: bool,
    ) -> SSAValue:
        """The gradient of what was stored, as elements of a type.

        Args:
            take: put 0 in its place, so that what was stored there before has none.
        """
        address = self._address(b, op, op.ptr, values)
        type_ = pointee_tile(address.type)
        zero = b.append(ConstantOp.of(0.0, type_)).results[0]
        grad = b.op(LoadOp, address, [] if mask is None else [mask, zero])[0]
        if take:
            b.op(StoreOp, address, zero, [] if mask is None else [mask])
            b.emit_void(BarrierOp, space="all")
        return Tiles(b).cast(grad, element)  # type: ignore[no-any-return]

    def _add(self, b: IRBuilder, address: SSAValue, grad: SSAValue, mask: SSAValue | None) -> None:
        value = Tiles(b).cast(grad, element_type(pointee_tile(address.type)))
        b.op(AtomicRMWOp, address, value, [] if mask is None else [mask], attrs=ADDITION)

    def _address(self, b: IRBuilder, user: Operation, pointer: SSAValue, values: Values) -> SSAValue:
        """The place in the shadow that corresponds to an address of the kernel."""
        if pointer in self.of:
            return self.of[pointer]
        op = defining_op(pointer)
        if isinstance(op, AddPtrOp):
            return b.op(AddPtrOp, self._address(b, user, op.ptr, values), values[op.offset])[0]  # type: ignore[return-value]
        if isinstance(op, SelectOp):
            sides = [self._address(b, user, side, values) for side in op.operands[1:]]
            return b.op(SelectOp, values[op.operands[0]], *sides)[0]  # type: ignore[return-value]
        if isinstance(op, TileOp) and is_view(op) and len(op.results) == 1:
            source = self._address(b, user, op.operands[0], values)
            wanted = with_element(op.results[0].type, element_type(source.type))
            return b.append(type(op).build_op([source], [wanted], op.attr_values())).results[0]
        raise refusal(
            user,
            "it is not known where in its array this address is",
            "make the address of the pointer argument by `+`, in the same branch as the access",
        )
