"""Which state of the memory a load sees: told by the stores before it that may be of the same array.

Two loads of one place are one value only where no such store stands between them.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue
from xdsl.traits import MemoryEffectKind

from tilewright.analysis.origins import Origins
from tilewright.ir.effect_traits import effects
from tilewright.ir.values import is_inside
from tilewright.ir.walk import ancestors, walk
from tilewright.ops.control import LoopOp
from tilewright.ops.function import FuncOp
from tilewright.ops.program import AssumeOp


class Epochs:
    """The states of the memory in a function.

    Args:
        function: in tile IR.
    """

    def __init__(self, function: FuncOp) -> None:
        self._order: dict[Operation, int] = {}
        self._writes: list[tuple[Operation, SSAValue | None]] = []
        for number, op in enumerate(walk(function)):
            self._order[op] = number
            if not op.regions and not isinstance(op, AssumeOp):
                done = effects(op)
                for effect in done if done is not None else ():
                    if effect.kind is MemoryEffectKind.WRITE:
                        self._writes.append((op, effect.value if isinstance(effect.value, SSAValue) else None))
                if done is None:
                    self._writes.append((op, None))
        self._known: dict[Operation, str] = {}
        self._origins = Origins()

    def of(self, load: Operation) -> str:
        """The state that an access sees; empty where nothing was written."""
        found = self._known.get(load)
        if found is None:
            found = self._known[load] = self._of(load)
        return found

    def _of(self, load: Operation) -> str:
        address, here = load.operands[0], self._order[load]
        writes = [op for op, at in self._writes if at is None or self._origins.may_meet(at, address)]
        before = sum(self._order[op] < here for op in writes)
        carried = [loop for loop in _loops_around(load) if any(is_inside(op, loop) for op in writes)]
        return "".join([str(before) if before else "", *(f"@{self._order[loop]}" for loop in carried)])


def _loops_around(op: Operation) -> list[Operation]:
    return [parent for parent in ancestors(op) if isinstance(parent, LoopOp)]
