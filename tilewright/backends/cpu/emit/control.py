"""Control flow around groups: blocks, `scf.for/if/while`, branches of function bodies, calls of noinline functions.

    for:    i = lo .. hi (in i64): scalars are phis, tiles stay in their buffers
    while:  head: first region; done? --yes--> results
                  | no
                  second region --> head        (one that may wait for another program yields now and then)

Branches between blocks of a function pass scalars through stack slots, which LLVM turns into phis. A call hands over
scalars by value and tiles by address; the callee's scratch lies behind the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.waiting import may_wait
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit.context import FunctionLowering, JoinedIterations, emits
from tilewright.backends.cpu.emit.counting import Counting, bind, bounds_of, scalars_of
from tilewright.backends.cpu.emit.dot import kept
from tilewright.backends.cpu.emit.dot.iterations import begin_iteration
from tilewright.backends.cpu.emit.dot.place import choose_place
from tilewright.backends.cpu.emit.strips import emit_strips
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.dot_step import DotDetail, joined_dot
from tilewright.backends.cpu.plan.pack_cache import PackCache
from tilewright.backends.cpu.plan.steps import BlockPlan, Buffer, EndStep, FunctionPlan, Step
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I32, I64, VOID, V, const
from tilewright.base.errors import InternalError
from tilewright.ir.types import element_type, ir_name
from tilewright.ir.values import is_tile
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.function import BranchOp, CallOp, CondBranchOp, ReturnOp, UnreachableOp


def emit_block(low: FunctionLowering, plan: BlockPlan) -> Operation | None:
    """Emit the steps of a block; gives the terminator."""
    ev = low.ev
    ev.place(plan.placed)
    end = None
    for step in plan.steps:
        if isinstance(step, EndStep):
            end = step.op
        else:
            low.emit_step(step)
    return end


def _emit_body(low: FunctionLowering, plan: BlockPlan, tiles: dict[SSAValue, Buffer]) -> Operation:
    """Emit the block of a region whose tile arguments live in `tiles`; placements end with it."""
    before = dict(low.ev.placed)
    low.ev.place(tiles)
    end = emit_block(low, plan)
    assert end is not None
    low.ev.restore(before)
    return end


@emits(ForOp)
def emit_for(low: FunctionLowering, step: Step) -> None:
    """`scf.for`; the counter that the program has goes to its own end, in 64 bits."""
    op, ev, f = cast("ForOp", step.op), low.ev, low.f
    body = op.body.block
    tiles: dict[SSAValue, Buffer] = {body.args[number + 1]: buffer for number, buffer in step.detail.items()}
    caches = [cache for cache in low.plan.caches if cache.place is op]
    dot = joined_dot(step)
    if dot is not None:
        _emit_joined(low, step, dot, caches)
        return
    if step.bodies[0].strips is not None:
        emit_strips(low, op, step.bodies[0], tiles)
        return
    if caches:
        iterations = _iterations(low, *bounds_of(ev, op))
        for cache in caches:
            kept.enter(low, cache, iterations)
    counting = Counting(ev, op, numbered=bool(caches))
    firsts = scalars_of(ev, op.operands[3:])
    with f.loop(*counting.ends, init=[*firsts, *counting.init], unroll=False) as loop:
        if caches:
            low.iterations[op] = loop.values[-1]
        following = counting.begin(loop.index, loop.values[len(firsts) :])
        bind(ev, body.args[1:], loop.values[: len(firsts)])
        end = _emit_body(low, step.bodies[0], tiles)
        loop.next(*scalars_of(ev, end.operands), *following)
    bind(ev, op.results, loop.results[: len(firsts)])


def _emit_joined(low: FunctionLowering, step: Step, dot: DotDetail, caches: Sequence[PackCache]) -> None:
    """A loop that runs up to `joined.factor` iterations as one.

    for t = 0 .. iterations by factor:  count = min(factor, iterations - t);  body for count iterations;  scalars +=
    count * step

    A loop that writes its first sum runs once even if it has no iteration, with none.
    """
    joined, ev, f = dot.joined, low.ev, low.f
    assert joined is not None
    op = joined.loop
    choose_place(low, dot)
    body = op.body.block
    lo, hi, by = bounds_of(ev, op)
    iterations = _iterations(low, lo, hi, by)
    for cache in caches:
        kept.enter(low, cache, f.op("sdiv", f.add(iterations, joined.factor - 1), const(I64, joined.factor)))
    tiles: dict[SSAValue, Buffer] = {body.args[number + 1]: buffer for number, buffer in step.detail.items()}
    firsts = scalars_of(ev, op.operands[3:])
    ev.enter(Nest())
    gains = [ev.poly(gain) for gain in joined.steps]
    init = [*firsts, *([const(I64, 0)] if caches else [])]
    end = f.intrinsic("smax", iterations, const(I64, 1)) if dot.afresh else iterations
    with f.loop(0, end, joined.factor, init=init, unroll=False) as loop:
        if caches:
            low.iterations[op] = loop.values[-1]
        count = f.intrinsic("smin", f.sub(iterations, loop.index), const(I64, joined.factor))
        count = f.intrinsic("smax", count, const(I64, 0)) if dot.afresh else count
        first = f.icmp("eq", loop.index, 0)
        counter, carried = f.add(lo, f.mul(loop.index, by)), loop.values[: len(firsts)]
        low.joined[op] = together = JoinedIterations(op, count, counter, by, carried, gains, step.bodies[0], first)
        begin_iteration(low, together, const(I64, 0))
        _emit_body(low, step.bodies[0], tiles)
        begin_iteration(low, together, count)
        following = scalars_of(ev, body.args[1:])
        loop.next(*following, *[f.add(number, 1) for number in loop.values[len(firsts) :]])
    bind(ev, op.results, loop.results[: len(firsts)])


def _iterations(low: FunctionLowering, lo: V, hi: V, by: V) -> V:
    """How often a loop from `lo` to `hi` by `by` runs, i64; less than one if it does not."""
    f = low.f
    return f.op("sdiv", f.add(f.sub(hi, lo), f.sub(by, 1)), by)


@emits(IfOp)
def emit_if(low: FunctionLowering, step: Step) -> None:
    """`scf.if`."""
    op, ev = step.op, low.ev
    assert op is not None

    def side(number: int) -> Callable[[], list[V]]:
        def emit() -> list[V]:
            if number >= len(step.bodies):
                return []
            return scalars_of(ev, _emit_body(low, step.bodies[number], {}).operands)

        return emit

    bind(ev, op.results, low.f.if_else(ev.scalar(op.operands[0]), side(0), side(1)))


@emits(WhileOp)
def emit_while(low: FunctionLowering, step: Step) -> None:
    """`scf.while`."""
    op, ev = step.op, low.ev
    assert isinstance(op, WhileOp)
    before, after = (region.block for region in op.regions)
    tiles: dict[SSAValue, Buffer] = {before.args[number]: buffer for number, buffer in step.detail.items()}
    handed: dict[SSAValue, Buffer] = {
        after.args[n]: ev.placed[result] for n, result in enumerate(op.results) if is_tile(result)
    }
    passed: list[V] = []

    def condition(values: list[V]) -> V:
        bind(ev, before.args, values[: len(values) - len(looks)])
        end = _emit_body(low, step.bodies[0], tiles)
        passed[:] = scalars_of(ev, end.operands[1:])
        return ev.scalar(end.operands[0])

    def iteration(values: list[V]) -> list[V]:
        bind(ev, after.args, passed)
        following = scalars_of(ev, _emit_body(low, step.bodies[1], handed).operands)
        return [*following, *[_counted_look(low.f, count) for count in values[len(following) :]]]

    looks = [const(I32, 0)] if may_wait(op) else []
    low.state.waits |= bool(looks)
    low.f.while_([*scalars_of(ev, op.operands), *looks], condition, iteration)
    bind(ev, op.results, passed)


def _counted_look(f: Function, count: V) -> V:
    """One more iteration of a loop that may wait: after some, the thread that it waits for may want this processor."""
    count = f.add(count, 1)
    with f.if_(f.icmp("eq", f.and_(count, tuning.LOOKS_BEFORE_YIELD - 1), 0)):
        f.call("SwitchToThread" if "windows" in f.isa.triple else "sched_yield", I32, ())
    return count


# --- branches ---------------------------------------------------------------------------------------


def emit_branches(low: FunctionLowering, plan: FunctionPlan, leave: Callable[[Operation], None]) -> None:
    """The blocks of a function body joined by branches; `leave` emits what `tt.return` does."""
    f, ev = low.f, low.ev
    labels: dict[Block, str] = {block.block: f.label("block") for block in plan.blocks}
    slots: dict[SSAValue, V] = {}
    for number, block in enumerate(plan.blocks):
        if number:
            for argument in block.block.args:
                slots[argument] = f.alloca(storage(ir_name(element_type(argument.type))), align=8)
    for number, block in enumerate(plan.blocks):
        if number:
            f.start(labels[block.block])
            for argument in block.block.args:
                t = storage(ir_name(element_type(argument.type)))
                ev.scalars[argument] = f.load(t, slots[argument])
        end = emit_block(low, block)
        assert end is not None
        _emit_branch(low, end, labels, slots, leave)


def _emit_branch(
    low: FunctionLowering,
    end: Operation,
    labels: dict[Block, str],
    slots: dict[SSAValue, V],
    leave: Callable[[Operation], None],
) -> None:
    f, ev = low.f, low.ev

    def pass_on(target: Block, values: Sequence[SSAValue]) -> None:
        for argument, value in zip(target.args, values, strict=True):
            f.store(ev.scalar(value), slots[argument])

    if isinstance(end, ReturnOp):
        leave(end)
    elif isinstance(end, BranchOp):
        pass_on(end.successors[0], end.operands)
        f.br(labels[end.successors[0]])
    elif isinstance(end, CondBranchOp):
        then, other = end.successors
        count = len(then.args)
        pass_on(then, end.operands[1 : 1 + count])
        pass_on(other, end.operands[1 + count :])
        f.cond_br(ev.scalar(end.operands[0]), labels[then], labels[other])
    elif isinstance(end, UnreachableOp):
        f.effect("unreachable")
    else:
        raise InternalError(f"{end.name} ends a block of a function")


# --- calls ------------------------------------------------------------------------------------------


@emits(CallOp)
def emit_call(low: FunctionLowering, step: Step) -> None:
    """`tt.call` of a function that was not inlined."""
    op, ev, f = step.op, low.ev, low.f
    assert op is not None
    args = [f.gep(ev.arena, low.plan.scratch_bytes), *low.place_in_grid]
    for value in op.operands:
        args.append(f.gep(ev.arena, ev.placed[value].offset) if is_tile(value) else ev.scalar(value))
    slots: list[tuple[SSAValue, V, str]] = []
    for result in op.results:
        if is_tile(result):
            args.append(f.gep(ev.arena, ev.placed[result].offset))
            continue
        name = ir_name(element_type(result.type))
        slot = f.alloca(storage(name), align=8)
        slots.append((result, slot, name))
        args.append(slot)
    f.call(low.symbol_of(op.callee_name), VOID, args)  # type: ignore[attr-defined]
    for value, slot, name in slots:
        ev.scalars[value] = f.load(storage(name), slot)
