"""What the regions of a function take from outside, and whether they write memory: one walk for all of them."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.ir.effect_traits import may_write
from tilewright.ir.values import defining_op, is_tile, operands_of
from tilewright.ir.walk import operations
from tilewright.ops.debug import BarrierOp
from tilewright.ops.function import CallOp


class Captured:
    """What operations with regions use of what is defined outside of them.

    Args:
        function: whose operations are asked about.
    """

    def __init__(self, function: Operation) -> None:
        self._tiles: dict[Operation, dict[SSAValue, list[Operation]]] = {}
        self._scalars: dict[Operation, dict[SSAValue, None]] = {}
        self._writing: set[Operation] = set()
        waiting = [function]
        while waiting:  # in the order of the program
            op = waiting.pop()
            if op is not function:
                self._note(op, function)
            blocks = [block for region in op.regions for block in region.blocks]
            waiting += [inner for block in reversed(blocks) for inner in reversed(operations(block))]

    def tiles(self, op: Operation) -> dict[SSAValue, list[Operation]]:
        """Tile values defined outside `op` that its regions use, with the operations that use them."""
        return self._tiles.get(op, {})

    def scalars(self, op: Operation) -> list[SSAValue]:
        """Scalars defined outside `op` that its regions use."""
        return list(self._scalars.get(op, ()))

    def writes_memory(self, op: Operation) -> bool:
        """Whether an operation with regions (or a call) may change memory that others see."""
        return isinstance(op, CallOp) or op in self._writing

    def _note(self, op: Operation, function: Operation) -> None:
        """Tell every operation around `op`, up to those that define its operands, that it uses them."""
        around = op.parent_op()
        for value in operands_of(op):
            owner = defining_op(value)
            block = value.owner if owner is None else owner.parent
            home = block.parent_op() if block is not None else None
            user = around
            while user is not None and user is not home and user is not function:
                if is_tile(value):
                    self._tiles.setdefault(user, {}).setdefault(value, []).append(op)
                else:
                    known = self._scalars.setdefault(user, {})
                    if value in known:
                        break  # those around know it too
                    known[value] = None
                user = user.parent_op()
        if isinstance(op, CallOp) or (may_write(op) and not isinstance(op, BarrierOp)):  # one program is one thread
            while around is not None and around not in self._writing:
                self._writing.add(around)
                around = around.parent_op()
