"""The order of programs: those whose loops go on longest start first.

A GPU starts programs in the order of their numbers. Where a loop with products has more iterations the higher the
number along an axis of the grid, as in causal attention, the longest would be the last ones, and most multiprocessors
would wait for them. Such kernels count that axis from its end:

    program_id(0)   becomes   num_programs(0) - 1 - program_id(0)

Any order of programs is right but for those that wait for earlier ones
([0020](../../../docs/decisions/0020-earlier-programs-go-on.md)): kernels with atomics, volatile accesses or loops by a
condition keep theirs.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.persistence import why_in_order
from tilewright.backends.nvidia.plan.subjects import PROGRAM_ORDER
from tilewright.base.decision import Answer, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.op import TileOp
from tilewright.ir.types import i32
from tilewright.ir.walk import contains, every
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddIOp, DivSIOp, DivUIOp, MaxSIOp, MinSIOp, MulIOp, SelectOp, SubIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp

_UNKNOWN = None
Growth = int | None
"""1 for what grows with the number of the program, -1 for what falls, 0 for what stays; None if that is not known."""


def start_longest_first(module: ModuleOp, decisions: Decisions) -> None:
    """Count axes of the grid from their ends where later programs take longer, in place.

    Args:
        module: tile IR, all calls inlined.
        decisions: of the compilation.
    """
    for function in FuncOp.all_of(module):
        if function.is_kernel:
            loops = [op for op in every(function, ForOp) if contains(op, DotOp)]
            for axis in sorted({_axis(op) for op in every(function, GetProgramIdOp)} if loops else ()):
                grown = [(loop, _growth_of(loop, axis)) for loop in loops]
                longer = next((loop for loop, growth in grown if growth == 1), None)
                if longer is None or any(growth == -1 for _, growth in grown):
                    continue
                if decisions.note(PROGRAM_ORDER, longer, _turned(function, axis)) is not None:
                    _turn(function, axis)


def _axis(op: TileOp) -> int:
    return int(op.attr_values()["axis"])


def _turned(function: FuncOp, axis: int) -> Answer[int]:
    """Whether the programs of a kernel may start in another order."""
    no = why_in_order(function)
    if no is not None:
        return no
    return Yes(axis, f"programs are counted from the end of axis {axis}, where they take longest")


def _turn(function: FuncOp, axis: int) -> None:
    for op in [op for op in every(function, GetProgramIdOp) if _axis(op) == axis]:
        users = list(op.results[0].uses)
        following = op.next_op
        assert following is not None
        b = Builder(following)
        last = b.sub(b.make(GetNumProgramsOp, i32, axis=axis), b.number(1))
        turned = b.sub(last, op.results[0])
        for use in users:
            use.operation.operands[use.index] = turned


# --- growth -------------------------------------------------------------------------------------------------------


def _growth_of(loop: ForOp, axis: int) -> Growth:
    """How the number of iterations of a loop changes with the number of the program."""
    known: dict[SSAValue, Growth] = {}
    return _joined(_growth(loop.ub, axis, known), _turned_growth(_growth(loop.lb, axis, known)))


def _turned_growth(growth: Growth) -> Growth:
    return growth if growth is _UNKNOWN else -growth


def _joined(first: Growth, second: Growth) -> Growth:
    if first is _UNKNOWN or second is _UNKNOWN or first * second < 0:
        return _UNKNOWN
    return first or second


def _growth(value: SSAValue, axis: int, known: dict[SSAValue, Growth]) -> Growth:
    """How a scalar changes with the number of the program along an axis."""
    if value not in known:
        op = value.owner
        if isinstance(op, Operation):
            known[value] = _UNKNOWN if op.regions else _made(op, axis, known)
        else:
            known[value] = 0
    return known[value]


def _made(op: Operation, axis: int, known: dict[SSAValue, Growth]) -> Growth:
    """How the result of an operation changes."""
    if isinstance(op, GetProgramIdOp):
        return int(_axis(op) == axis)
    parts = [_growth(operand, axis, known) for operand in op.operands]
    if all(part == 0 for part in parts):
        return 0
    if isinstance(op, SelectOp):
        return _joined(parts[1], parts[2])
    if isinstance(op, AddIOp | MaxSIOp | MinSIOp):
        return _joined(*parts)
    if isinstance(op, SubIOp):
        return _joined(parts[0], _turned_growth(parts[1]))
    factor = constant_of(op.operands[-1])
    scaled = isinstance(op, MulIOp | DivSIOp | DivUIOp) and isinstance(factor, int) and factor > 0
    return parts[0] if scaled else _UNKNOWN


__all__ = ["start_longest_first"]
