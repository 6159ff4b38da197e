"""Tile IR to LLVM IR for the CPU: plans of all functions, then one LLVM function over a range of programs.

    void kernel(lo, hi, args, arena):
      parameters, grid, everything that does not depend on the program
      x, y, z = place of program lo in the grid
      for p = lo .. hi:
        the steps of the plan
        x += 1, carried into y and z

`plan_module` and `emit_module` are the stages; `lower_module` runs both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.backends.cpu.emit import atomic, control, debug, histogram, memory, scan
from tilewright.backends.cpu.emit.dot import lowering as dot_lowering
from tilewright.backends.cpu.emit.evaluator import Evaluator, Nest
from tilewright.backends.cpu.emit.groups import emit_group
from tilewright.backends.cpu.emit.nontemporal import fence
from tilewright.backends.cpu.plan.carried_offsets import make_offsets_scalar
from tilewright.backends.cpu.plan.planner import plan_function
from tilewright.backends.cpu.plan.ragged import rewrite_ragged_cats
from tilewright.backends.cpu.plan.reciprocal import divide_rows_once
from tilewright.backends.cpu.plan.recompute import constant_of, is_tile
from tilewright.backends.cpu.plan.steps import FunctionPlan, Step, render
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I32, I64, PTR, VOID, T, V, const
from tilewright.base.errors import InternalError
from tilewright.base.options import Options
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, ir_name, pointee_bytes
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.debug import AssertOp, PrintOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import CallOp, FuncOp, PoisonOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.shape import UnsplatOp


@dataclass(slots=True)
class LoopModule:
    """A module with the loop plans of its functions; the `loops` stage.

    Args:
        module: tile IR, with carried offsets made scalar.
        plans: plan of each function by its symbol; the kernel's first.
    """

    module: ModuleOp
    plans: dict[str, FunctionPlan]

    @property
    def kernel(self) -> FunctionPlan:
        return next(iter(self.plans.values()))

    def render(self) -> str:
        """The plans as text for people."""
        return "\n".join(render(plan) for plan in self.plans.values())


@dataclass(slots=True)
class CpuProgram:
    """A kernel as LLVM IR, and what launching it needs to know.

    Args:
        llvm: text of the module.
        symbol: of `void kernel(i64 lo, i64 hi, ptr args, ptr arena)`.
        scratch_bytes: arena of each thread.
        chunk: programs that one thread should take together, 0 for no wish.
        asserts: messages of `tl.device_assert`; the exported i32 `<symbol>.failed` holds 1 + the number of the first
            that failed, or 0.
        needs_amx: whether the process must ask for tile registers before the first launch.
        decisions: records of what was done to the kernel, and why.
    """

    llvm: str
    symbol: str
    scratch_bytes: int
    chunk: int = 0
    asserts: list[str] = field(default_factory=list)
    needs_amx: bool = False
    decisions: list[dict[str, Any]] = field(default_factory=list)


def lower_module(module: ModuleOp, isa: CpuFeatures, options: Options | None = None) -> CpuProgram:
    """Compile tile IR to LLVM IR.

    Args:
        module: verified and simplified; one public function. It is changed (carried offsets become scalars).
        isa: the target.
        options: compile options.

    Raises:
        UnsupportedError: an operation that the CPU back end does not have.
    """
    return emit_module(plan_module(module, isa), isa, options)


def plan_module(module: ModuleOp, isa: CpuFeatures) -> LoopModule:
    """Plan all functions of a module (first stage)."""
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    functions.sort(key=lambda function: not function.is_kernel)
    plans = {}
    for function in functions:
        decisions = Decisions()
        make_offsets_scalar(function, decisions)
        divide_rows_once(function, decisions)
        rewrite_ragged_cats(function)
        plans[function.symbol] = plan_function(function, isa, decisions)
    return LoopModule(module, plans)


def emit_module(loops: LoopModule, isa: CpuFeatures, options: Options | None = None) -> CpuProgram:
    """Emit a planned module (second stage)."""
    options = options or Options()
    module = Module(isa)
    state = _ModuleState(module, loops, options)
    kernel = loops.kernel
    symbol = _safe(kernel.function.symbol)
    needs_amx = _emit_kernel(state, kernel, symbol)
    while state.wanted:
        _emit_callee(state, state.wanted.pop())
    frame = state.frame(kernel.function.symbol)
    decisions = [record for plan in loops.plans.values() for record in plan.decisions.records()]
    return CpuProgram(
        module.render(), symbol, frame, asserts=state.asserts, needs_amx=needs_amx, decisions=decisions
    )  # fmt: skip


def _safe(symbol: str) -> str:
    """A symbol that needs no quotes in LLVM text."""
    return re.sub(r"[^A-Za-z0-9_.$]", "_", symbol)


class _ModuleState:
    """What the functions of a module share while they are emitted."""

    def __init__(self, module: Module, loops: LoopModule, options: Options) -> None:
        self.module, self.loops, self.options = module, loops, options
        self.failed_symbol = f"{_safe(loops.kernel.function.symbol)}.failed"
        self.wanted: list[str] = []
        self.asserts: list[str] = []
        self._requested: set[str] = set()

    def request(self, symbol: str) -> str:
        """The LLVM name of a private function, which will be emitted."""
        if symbol not in self._requested:
            self._requested.add(symbol)
            self.wanted.append(symbol)
        return f"fn.{_safe(symbol)}"

    def frame(self, symbol: str) -> int:
        """Scratch of a function and of everything that it calls."""
        plan = self.loops.plans[symbol]
        calls = [op.callee_name for op in plan.function.walk() if isinstance(op, CallOp)]
        return plan.scratch_bytes + max([self.frame(callee) for callee in calls], default=0)


class FunctionLowering:
    """Emits the steps of one function.

    Args:
        state: of the module.
        plan: of the function.
        f: where to emit.
        arena: the function's scratch.
        pids, grid: place of the program and size of the grid along x, y, z, i32.

    Attributes:
        ev: values of the function.
        trips: number of the current trip of loops that keep packed operands.
        joined: number of trips that the current one stands for, of loops whose trips are joined.
    """

    def __init__(
        self, state: _ModuleState, plan: FunctionPlan, f: Function, arena: V, pids: list[V], grid: list[V]
    ) -> None:
        self.state, self.plan, self.f = state, plan, f
        self.pids, self.grid = pids, grid
        self.trips: dict[Operation, V] = {}
        self.joined: dict[Operation, V] = {}
        self.ev = Evaluator(f, arena, fuse=state.options.enable_fp_fusion, decisions=plan.decisions)

    @property
    def place_in_grid(self) -> list[V]:
        """What a callee must be told of the program."""
        return [*self.pids, *self.grid]

    def symbol_of(self, callee: str) -> str:
        """LLVM name of a function of the module."""
        return self.state.request(callee)

    # -- steps ---------------------------------------------------------------------------------------

    def emit_step(self, step: Step) -> None:
        """Emit one step of a plan."""
        if step.kind == "group":
            special = _SINKS.get(step.sinks[0].kind)
            if special is not None:
                special(self, step)
            else:
                emit_group(self.ev, step)
        else:
            _STEPS[step.kind](self, step)

    def emit_scalar(self, step: Step) -> None:
        """A step that computes or stores scalars."""
        op = step.op
        assert op is not None
        if op.results and op.results[0] in self.ev.scalars:
            return
        handler = _SCALARS.get(type(op))
        if handler is not None:
            value = handler(self, step)
        elif isinstance(op, (ConstantOp, PoisonOp)):
            return
        else:
            value = self._elementwise(op)
        if value is not None and op.results:
            self.ev.scalars[op.results[0]] = value

    def _elementwise(self, op: Operation) -> V:
        fused = self.ev.contract(op, ())
        if fused is not None:
            return fused
        if isinstance(op, ExternElementwiseOp):
            return self.ev._extern(op, op.results[0], ())
        return self.ev.apply(op, [self.ev.scalar(operand) for operand in op.operands])

    def _addptr(self, step: Step) -> V:
        op = step.op
        assert op is not None
        pointer, offset = (self.ev.scalar(operand) for operand in op.operands)
        wide = self.f.cast("sext", offset, I64)
        return self.f.gep(pointer, self.f.mul(wide, pointee_bytes(op.results[0].type)))

    def _unsplat(self, step: Step) -> V:
        op = step.op
        assert op is not None
        self.ev.enter(Nest())
        source = op.operands[0]
        return self.ev.eval(source, ((),) * len(source.type.get_shape()))  # type: ignore[attr-defined]

    def _program_id(self, step: Step) -> V:
        assert step.op is not None
        return self.pids[step.op.attr_values()["axis"]]  # type: ignore[attr-defined]

    def _num_programs(self, step: Step) -> V:
        assert step.op is not None
        return self.grid[step.op.attr_values()["axis"]]  # type: ignore[attr-defined]

    # -- program-invariant code ------------------------------------------------------------------------

    def hoist_invariants(self) -> None:
        """Emit the scalar steps of the first block that no program can tell apart."""
        known: set[SSAValue] = set(self.plan.blocks[0].block.args)
        for step in self.plan.blocks[0].steps:
            op = step.op
            if step.kind != "scalar" or op is None or step.writes or step.reads or not op.results:
                continue
            if isinstance(op, (GetProgramIdOp, UnsplatOp)) or is_tile(op.results[0]):
                continue
            if all(operand in known or constant_of(operand) is not None for operand in op.operands):
                self.emit_scalar(step)
                known.add(op.results[0])


_STEPS: dict[str, Callable[[FunctionLowering, Step], None]] = {
    "scalar": FunctionLowering.emit_scalar,
    "for": control.emit_for,
    "if": control.emit_if,
    "while": control.emit_while,
    "call": control.emit_call,
    "dot": dot_lowering.emit_dot_step,
}
_SINKS: dict[str, Callable[[FunctionLowering, Step], None]] = {
    "scan": scan.emit_scan,
    "atomic": atomic.emit_atomic,
    "histogram": histogram.emit_histogram,
    "print": debug.emit_print,
    "assert": debug.emit_assert,
}
_SCALARS: dict[type[Operation], Callable[[FunctionLowering, Step], V | None]] = {
    LoadOp: lambda low, step: memory.scalar_load(low.ev, _op(step)),
    StoreOp: lambda low, step: memory.scalar_store(low.ev, _op(step)),
    AddPtrOp: FunctionLowering._addptr,
    UnsplatOp: FunctionLowering._unsplat,
    GetProgramIdOp: FunctionLowering._program_id,
    GetNumProgramsOp: FunctionLowering._num_programs,
    AtomicRMWOp: atomic.emit_scalar_atomic,
    AtomicCASOp: atomic.emit_scalar_atomic,
    AtomicLoadOp: atomic.emit_scalar_atomic,
    AtomicStoreOp: atomic.emit_scalar_atomic,
    PrintOp: debug.emit_scalar_print,
    AssertOp: debug.emit_scalar_assert,
}


def _op(step: Step) -> Operation:
    if step.op is None:
        raise InternalError("a scalar step without an operation")
    return step.op


# --- functions --------------------------------------------------------------------------------------


def _slot_type(name: str) -> T:
    """How a parameter is read from its slot: integers have been extended to 64 bits."""
    t = storage(name)
    return I64 if t.is_int else t


def _emit_kernel(state: _ModuleState, plan: FunctionPlan, symbol: str) -> bool:
    """The range function; gives whether it uses tile registers."""
    f = state.module.function(symbol, VOID, (I64, I64, PTR, PTR), linkage="", attrs="nounwind")
    lo, hi, slots, arena = f.args
    parameters = plan.function.body.blocks[0].args
    grid64 = [f.load(I64, f.gep(slots, 8 * (len(parameters) + axis))) for axis in range(3)]
    low = FunctionLowering(state, plan, f, arena, [], [f.cast("trunc", n, I32) for n in grid64])
    for number, parameter in enumerate(parameters):
        name = ir_name(element_type(parameter.type))
        value = f.load(_slot_type(name), f.gep(slots, 8 * number))
        low.ev.scalars[parameter] = f.cast("trunc", value, storage(name)) if value.type is I64 else value
    low.ev.programs = f.mul(f.mul(grid64[0], grid64[1]), grid64[2])
    low.hoist_invariants()
    amx = dot_lowering.begin_range(low)
    x = f.op("urem", lo, grid64[0])
    rest = f.op("udiv", lo, grid64[0])
    first = [x, f.op("urem", rest, grid64[1]), f.op("udiv", rest, grid64[1])]
    init = [f.cast("trunc", v, I32) for v in first]
    with f.loop(lo, hi, 1, init=init, unroll=False) as programs:
        low.pids[:] = programs.values
        _emit_body(low, plan)
        programs.next(*_next_program(f, programs.values, low.grid))
    dot_lowering.end_range(low, amx)
    if low.ev.streamed:
        fence(f)
    f.ret()
    return amx


def _next_program(f: Function, pids: Sequence[V], grid: Sequence[V]) -> list[V]:
    """Coordinates of the following program: x counts up and carries into y, y into z."""
    x, y, z = pids
    step_x = f.add(x, 1)
    wrap_x = f.icmp("sge", step_x, grid[0])
    step_y = f.add(y, f.cast("zext", wrap_x, I32))
    wrap_y = f.icmp("sge", step_y, grid[1])
    zero = const(I32, 0)
    return [f.select(wrap_x, zero, step_x), f.select(wrap_y, zero, step_y), f.add(z, f.cast("zext", wrap_y, I32))]


def _emit_body(low: FunctionLowering, plan: FunctionPlan) -> None:
    """The body of the kernel for one program."""
    if len(plan.blocks) == 1:
        control.emit_block(low, plan.blocks[0])
        return
    done = low.f.label("done")
    control.emit_branches(low, plan, lambda end: low.f.br(done))
    low.f.start(done)


def _emit_callee(state: _ModuleState, symbol: str) -> None:
    """A private function: scratch, place in the grid, arguments, then addresses of the results."""
    plan = state.loops.plans[symbol]
    arguments = plan.function.body.blocks[0].args
    outputs = list(plan.function.function_type.outputs)
    kinds = [PTR if is_tile(a) else storage(ir_name(element_type(a.type))) for a in arguments]
    params = [PTR, *[I32] * 6, *kinds, *[PTR] * len(outputs)]
    f = state.module.function(state.request(symbol), VOID, params, attrs="nounwind noinline")
    low = FunctionLowering(state, plan, f, f.args[0], list(f.args[1:4]), list(f.args[4:7]))
    values = f.args[7 : 7 + len(arguments)]
    results = f.args[7 + len(arguments) :]
    low.ev.place(plan.arguments)
    for argument, value in zip(arguments, values, strict=True):
        if is_tile(argument):
            buffer = plan.arguments[argument]
            f.memcpy(f.gep(low.ev.arena, buffer.offset), value, buffer.size)
        else:
            low.ev.scalars[argument] = value

    def leave(end: Operation) -> None:
        for number, (value, slot) in enumerate(zip(end.operands, results, strict=True)):
            if is_tile(value):
                buffer = plan.returns[number]
                f.memcpy(slot, f.gep(low.ev.arena, buffer.offset), buffer.size)
            else:
                f.store(low.ev.scalar(value), slot)
        f.ret()

    control.emit_branches(low, plan, leave)
