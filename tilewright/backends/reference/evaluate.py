"""Run a kernel given as tile IR through the references of its operations.

One program after the other, one operation after the other. Bodies of reduce and scan become
functions from arrays to arrays, applied to whole arrays as if they were scalars.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.backends.reference.address_space import Memory
from tilewright.base.errors import InternalError, InterpreterError, TilewrightError
from tilewright.ir.op import TileOp, location_of
from tilewright.ir.types import bit_width, dtype_of, element_type, is_pointer
from tilewright.ops.control import ANY_STEP, CallOp, ConditionOp, ForOp, FuncOp, IfOp, WhileOp
from tilewright.ops.function import TerminatorOp
from tilewright.ops.spec import Array, Combine, call_of, spec_of

Values = dict[SSAValue, Array]


class Program:
    """One program of the grid: the surroundings that references ask for (`ops.spec.Machine`)."""

    def __init__(self, memory: Memory, index: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
        self.memory, self._index, self._grid = memory, index, grid
        self.load = memory.load
        self.store = memory.store
        memory.program = index

    def move(self, index: tuple[int, int, int]) -> None:
        """Become another program of the same grid."""
        self._index = self.memory.program = index

    def program_id(self, axis: int) -> int:
        return self._index[axis]

    def num_programs(self, axis: int) -> int:
        return self._grid[axis]

    def print(self, text: str) -> None:
        sys.stdout.write(text)


class Evaluator:
    """Evaluates the functions of a module.

    Args:
        module: verified tile IR.
        memory: what pointers point into.
    """

    def __init__(self, module: ModuleOp, memory: Memory) -> None:
        self.functions = {f.symbol: f for f in FuncOp.all_of(module)}
        self.memory = memory

    def launch(self, name: str, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Run every program of `grid`, in order, on scalar arguments (pointers as addresses)."""
        sizes = (*grid, 1, 1)[:3]
        function = self.functions[name]
        values = [_scalar(v, a.type) for v, a in zip(arguments, function.body.block.args, strict=True)]
        for z, y, x in itertools.product(range(sizes[2]), range(sizes[1]), range(sizes[0])):
            self.call(function, values, Program(self.memory, (x, y, z), (sizes[0], sizes[1], sizes[2])))

    def call(self, function: FuncOp, arguments: Sequence[Array], program: Program) -> Sequence[Array]:
        """Run one function; returns its results."""
        block = function.body.block
        return self._block(block, dict(zip(block.args, arguments, strict=True)), program)

    def _block(self, block: Block, values: Values, program: Program) -> Sequence[Array]:
        """Run a block to its terminator; returns the operands of the terminator."""
        for op in block.ops:
            if isinstance(op, (TerminatorOp, ConditionOp)):
                return [values[o] for o in op.operands]
            results = self._op(op, values, program)
            values.update(zip(op.results, results, strict=True))
        return []

    def _op(self, op: Operation, values: Values, program: Program) -> Sequence[Array]:
        return _CONTROL.get(type(op), Evaluator._reference)(self, op, values, program)

    def _if(self, op: IfOp, values: Values, program: Program) -> Sequence[Array]:
        region = op.regions[0 if bool(values[op.cond]) else 1]
        return self._block(region.block, values, program) if region.blocks else []

    def _call(self, op: CallOp, values: Values, program: Program) -> Sequence[Array]:
        return self.call(self.functions[op.callee_name], [values[o] for o in op.operands], program)

    def _reference(self, op: Operation, values: Values, program: Program) -> Sequence[Array]:
        if not isinstance(op, TileOp):
            raise InternalError(f"{op.name} has no reference")
        spec = spec_of(op)
        if spec.reference is None:
            raise InternalError(f"{op.name} has no reference")
        regions = tuple(self._combine(region.block, values, program) for region in op.regions)
        try:
            with np.errstate(all="ignore"):
                result = spec.reference(
                    call_of(op, regions=regions, machine=program), *[values[o] for o in op.operands]
                )
        except InterpreterError as error:
            place = location_of(op)
            raise InterpreterError(f"{place.render()}\n{error}" if place else str(error)) from error
        except TilewrightError:
            raise
        if result is None:
            return []
        return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]

    def _combine(self, block: Block, outer: Values, program: Program) -> Any:
        """The body of a reduce or scan as a function of arrays of any shape."""

        def combine(*arrays: Array) -> tuple[Array, ...]:
            return tuple(self._block(block, {**outer, **dict(zip(block.args, arrays, strict=True))}, program))

        if any(op.regions for op in block.ops):  # a branch or loop, which may go another way for each element
            return lambda *arrays: lane_by_lane(combine, arrays)
        return combine

    def _for(self, op: ForOp, values: Values, program: Program) -> Sequence[Array]:
        lower, upper, step = (int(values[o]) for o in op.operands[:3])
        if op.unsignedCmp is not None:
            size = 1 << bit_width(op.lb.type)
            lower, upper, step = lower % size, upper % size, step if ANY_STEP in op.attributes else step % size
        body = op.body.block
        carried = [values[o] for o in op.operands[3:]]
        for i in range(lower, upper, step) if step else ():
            values[body.args[0]] = _scalar(i, body.args[0].type)
            values.update(zip(body.args[1:], carried, strict=True))
            carried = list(self._block(body, values, program))
        return carried

    def _while(self, op: WhileOp, values: Values, program: Program) -> Sequence[Array]:
        before, after = (region.block for region in op.regions)
        carried = [values[o] for o in op.operands]
        while True:
            values.update(zip(before.args, carried, strict=True))
            proceed, *passed = self._block(before, values, program)
            if not bool(proceed):
                return passed
            values.update(zip(after.args, passed, strict=True))
            carried = list(self._block(after, values, program))


_CONTROL: dict[type[Operation], Callable[[Evaluator, Any, Values, Program], Sequence[Array]]] = {
    ForOp: Evaluator._for,
    IfOp: Evaluator._if,
    WhileOp: Evaluator._while,
    CallOp: Evaluator._call,
}


def lane_by_lane(combine: Combine, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """A function of scalars that decides by its data, applied to one element of `arrays` after the other."""
    shape = arrays[0].shape
    lanes = [np.asarray(array).reshape(-1) for array in arrays]
    rows = [combine(*[np.asarray(lane[k]) for lane in lanes]) for k in range(lanes[0].size)]
    columns = zip(*rows, strict=True) if rows else [()] * (len(arrays) // 2)
    return tuple([np.array(c, dtype=a.dtype).reshape(shape) for c, a in zip(columns, arrays, strict=False)])


def _scalar(value: Any, type_: Any) -> Array:
    """A scalar argument in its working form."""
    element = element_type(type_)
    if is_pointer(element):
        return np.asarray(value, np.int64)
    work = dtype_of(element).work_dtype
    if work.kind == "i":
        bits = bit_width(element)
        value = (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return np.asarray(value, work)
