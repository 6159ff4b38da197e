"""Tile IR to LLVM IR for the CPU: plans of all functions, then one LLVM function over a range of programs.

    void kernel(lo, hi, args, arena):
      parameters, grid, everything that does not depend on the program
      x, y, z = place of program lo in the grid
      for p = lo .. hi:
        the steps of the plan
        x += 1, carried into y and z
        leave if told to

`plan_module` and `emit_module` are the stages; `lower_module` runs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright.backends.cpu.abi import FRAME_MARK, RUNNING, STOP_STATE
from tilewright.backends.cpu.emit import atomic, check, control, debug, histogram, scalar, scan
from tilewright.backends.cpu.emit.context import EMITTERS, FunctionLowering, ModuleLowering, safe_name
from tilewright.backends.cpu.emit.dot import lowering as dot_lowering
from tilewright.backends.cpu.emit.groups import emit_group, emit_rows
from tilewright.backends.cpu.emit.nontemporal import fence
from tilewright.backends.cpu.emit.source_lines import at_line_of, begin
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.module import LoopModule, plan_module
from tilewright.backends.cpu.plan.steps import DotStep, FunctionPlan, GroupStep, OwnSink, RowsStep, ScalarStep, Step
from tilewright.backends.cpu.refused import refusal
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import I1, I32, I64, PTR, VOID, T, V, const
from tilewright.base.errors import CompilationError
from tilewright.base.options import Options
from tilewright.ir.op import location_of
from tilewright.ir.types import element_type, ir_name, is_pointer, pointee_bytes
from tilewright.ir.values import is_tile
from tilewright.ir.walk import contains
from tilewright.ops.control import WhileOp


@dataclass(slots=True)
class CpuProgram:
    """A kernel as LLVM IR, and what launching it needs to know.

    Args:
        llvm: text of the module.
        symbol: of `i64 kernel(i64 lo, i64 hi, ptr args, ptr arena, ptr stop)`.
        scratch_bytes: arena of each thread.
        asserts: messages of `tl.device_assert`; the exported i32 `<symbol>.failed` holds 1 + the number of the first
            that failed, or 0.
        decisions: records of what was done to the kernel, and why.
        file: the source of the kernel, whose lines its accesses to memory have; or "".
        externals: functions of libraries of the user's that it calls.
        pointers: parameters that are pointers: slot, bytes of what it points to, name.
        waits: whether its programs may wait for earlier ones.
    """

    llvm: str
    symbol: str
    scratch_bytes: int
    asserts: list[str] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    file: str = ""
    externals: list[str] = field(default_factory=list)
    pointers: list[tuple[int, int, str]] = field(default_factory=list)
    waits: bool = False


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


def emit_module(loops: LoopModule, isa: CpuFeatures, options: Options | None = None) -> CpuProgram:
    """Emit a planned module (second stage)."""
    options = options or Options()
    module = Module(isa)
    state = ModuleLowering(module, loops, options, _emit_step)
    kernel = loops.kernel
    symbol = safe_name(kernel.function.symbol)
    file = _emit_kernel(state, kernel, symbol) if kernel.otherwise is None else _emit_choice(state, kernel, symbol)
    while state.wanted:
        _emit_callee(state, state.wanted.pop())
    frame = state.frame(kernel.function.symbol)
    decisions = [record for plan in loops.plans.values() for record in plan.decisions.records()]
    externals, pointers = sorted(module.externals), _pointers(kernel)
    return CpuProgram(module.render(), symbol, frame, state.asserts, decisions, file, externals, pointers, state.waits)


def _pointers(kernel: FunctionPlan) -> list[tuple[int, int, str]]:
    """Parameters that are pointers, for the fault handler."""
    parameters = enumerate(kernel.function.body.blocks[0].args)
    return [
        (slot, pointee_bytes(parameter.type), parameter.name_hint or f"argument {slot}")
        for slot, parameter in parameters
        if is_pointer(parameter.type)
    ]


assert control and debug and histogram and scan  # their emitters are in the table


def _emit_step(low: FunctionLowering, step: Step) -> None:
    """Emit one step of a plan."""
    sink = step.sinks[0] if isinstance(step, GroupStep) else None
    op = step.op if sink is None else sink.op
    emit = EMITTERS.get(type(op))
    if isinstance(step, ScalarStep):
        emit = scalar.emit_scalar
    elif isinstance(step, RowsStep):
        emit = emit_rows
    elif isinstance(sink, OwnSink) and emit is None:
        raise CompilationError(refusal(sink.op), location_of(sink.op))
    elif sink is not None and emit is None:
        op, emit = None, emit_group
    assert emit is not None
    with at_line_of(low.f, op if isinstance(step, GroupStep | ScalarStep | DotStep) else None):
        emit(low, step)


# --- functions --------------------------------------------------------------------------------------


def _slot_type(name: str) -> T:
    """How a parameter is read from its slot: integers have been extended to 64 bits."""
    t = storage(name)
    return I64 if t.is_int else t


_RANGE = (I64, I64, PTR, PTR, PTR)
_ATTRIBUTES = "nounwind noredzone"
"""The mark of the frame is looked for above the stack pointer, not in the zone below it that a leaf may use."""


def _emit_choice(state: ModuleLowering, plan: FunctionPlan, symbol: str) -> str:
    """The range function of a kernel with two plans; gives the file of its source."""
    assert plan.otherwise is not None
    names = (f"{symbol}.apart", f"{symbol}.meeting")
    files = [_emit_kernel(state, each, n, "private") for each, n in zip((plan, plan.otherwise), names, strict=True)]
    f = state.module.function(symbol, I64, _RANGE, linkage="", attrs=_ATTRIBUTES)
    low = FunctionLowering(state, plan, f, f.args[3], [], [])
    _read_parameters(low, f.args[2])
    low.ev.enter(Nest())
    holds: V = const(I1, 1)
    for condition in plan.conditions:
        ways = [[f.icmp("sge", low.ev.poly(part), 0) for part in way] for way in condition]
        holds = f.and_(holds, reduce(f.or_, [reduce(f.and_, way) for way in ways]))
    f.ret(f.if_else(holds, *[lambda name=name: [f.call(name, I64, f.args)] for name in names])[0])
    return files[0]


def _read_parameters(low: FunctionLowering, slots: V) -> None:
    """The parameters of a kernel from where the launcher left them."""
    f = low.f
    for number, parameter in enumerate(low.plan.function.body.blocks[0].args):
        name = ir_name(element_type(parameter.type))
        value = f.load(_slot_type(name), f.gep(slots, 8 * number))
        low.ev.scalars[parameter] = f.cast("trunc", value, storage(name)) if value.type is I64 else value


def _emit_kernel(state: ModuleLowering, plan: FunctionPlan, symbol: str, linkage: str = "") -> str:
    """The range function of a plan; gives the file of its source."""
    f = state.module.function(symbol, I64, _RANGE, linkage=linkage, attrs=_ATTRIBUTES)
    file = begin(f, plan.function)
    lo, hi, slots, arena, stop = f.args
    parameters = plan.function.body.blocks[0].args
    grid64 = [f.load(I64, f.gep(slots, 8 * (len(parameters) + axis))) for axis in range(3)]
    low = FunctionLowering(state, plan, f, arena, [], [f.cast("trunc", n, I32) for n in grid64])
    _read_parameters(low, slots)
    low.ev.programs = f.mul(f.mul(grid64[0], grid64[1]), grid64[2])
    scalar.hoist_invariants(low)
    amx = dot_lowering.begin_range(low)
    atomic.begin_range(low, f.sub(hi, lo))
    x = f.op("urem", lo, grid64[0])
    rest = f.op("udiv", lo, grid64[0])
    first = [x, f.op("urem", rest, grid64[1]), f.op("udiv", rest, grid64[1])]
    init = [f.cast("trunc", v, I32) for v in first]
    frame = f.alloca(I64, 3, align=8)
    f.effect(f"store volatile i64 {FRAME_MARK}, ptr {frame.ref}")
    f.effect(f"store volatile ptr {slots.ref}, ptr {f.gep(frame, 16).ref}")
    at_program = f.gep(frame, 8)
    leave, done = f.label("leave"), f.label("done")
    if not contains(plan.function, WhileOp):  # nobody waits for what this program has to say
        low.leave = leave
    low.skip = check.end_of_program(f, plan.function)
    with f.loop(lo, hi, 1, init=init, unroll=False) as programs:
        f.effect(f"store volatile i64 {programs.index.ref}, ptr {at_program.ref}")
        low.pids[:] = programs.values
        _emit_body(low, plan)
        if low.skip is not None:
            f.br(low.skip)
            f.start(low.skip)
        told = f.add(programs.index, 1), f.block
        _leave_when_told(f, stop, done)
        programs.next(*_next_program(f, programs.values, low.grid))
    over = f.block
    f.br(done)
    f.start(leave)
    f.br(done)
    f.start(done)
    following = f.phi(I64, [(hi, over), (hi, leave), told])
    dot_lowering.end_range(low, amx)
    atomic.end_range(low)
    if low.ev.streamed:
        fence(f)
    f.ret(following)
    return file


def _leave_when_told(f: Function, stop: V, done: str) -> None:
    """After a program: go on, unless a signal has come: whether the grid ends here is the launcher's affair.

    A volatile load is neither hoisted nor, unlike an atomic one, a barrier for what LLVM hoists. A call in this place
    would be one that all registers have to survive: LLVM took 5 % of a compile for it.
    """
    go_on = f.label("go_on")
    state = f.emit(I32, f"load volatile i32, ptr {f.gep(stop, STOP_STATE).ref}, align 4")
    rarely = f.module.metadata('!{!"branch_weights", i32 1, i32 1048575}')
    f.cond_br(f.icmp("ne", state, RUNNING), done, go_on, f", !prof {rarely}")
    f.start(go_on)


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


def _emit_callee(state: ModuleLowering, symbol: str) -> None:
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
