"""Atomics: native instructions, one element after the other.

    for each element where the mask holds: old = atomicrmw / cmpxchg at its pointer

Half-precision sums have no instruction and run as a compare-and-swap loop on their bits; extrema are those of integers.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.analysis.index import Index
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.emit import memory
from tilewright.backends.cpu.emit.answers import tell_atomic
from tilewright.backends.cpu.emit.chunks import for_each_chunk
from tilewright.backends.cpu.emit.combined import LANES_BYTES, Window, llvm_order
from tilewright.backends.cpu.emit.context import FunctionLowering, emits
from tilewright.backends.cpu.emit.evaluator import Evaluator
from tilewright.backends.cpu.emit.neighbours import add_neighbours, several
from tilewright.backends.cpu.emit.scalarize import for_each_lane
from tilewright.backends.cpu.emit.values import Nest
from tilewright.backends.cpu.plan.combining import Combining
from tilewright.backends.cpu.plan.lanes import Chunking, chunk_group
from tilewright.backends.cpu.plan.steps import Step
from tilewright.backends.cpu.plan.subjects import COMBINED
from tilewright.backends.llvm.casts import storage
from tilewright.backends.llvm.elementwise import emit
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I64, V, const, zero
from tilewright.ir.types import bit_width, element_type, ir_name, pointee_bytes
from tilewright.ops.atomic import AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp, adds

# Operands after the pointer and before the mask.
_VALUES: dict[type[Operation], int] = {AtomicRMWOp: 1, AtomicCASOp: 2, AtomicLoadOp: 0, AtomicStoreOp: 1}


@emits(*_VALUES)
def emit_atomic(low: FunctionLowering, step: Step) -> None:
    """Emit an atomic on a tile."""
    (sink,) = step.sinks
    ev, op = low.ev, sink.op
    assert op is not None
    if isinstance(op, AtomicRMWOp):
        plan = ev.decisions.note(COMBINED, op, step.detail)
        if plan is not None:
            tell_atomic(ev.decisions, op, tuning.COMBINED_LANES, "once for elements of one address")
            chunking = chunk_group(step, ev.f.isa, ev.placed, ev.analysis, tuning.COMBINED_LANES)
            ev.enter(Nest())
            window = low.windows.get(op) or _window(ev, plan, const(I64, plan.size))
            _emit_combined(ev, step, chunking, window, plan)
            if op not in low.windows:
                window.finish()
            return
    chunking = chunk_group(step, ev.f.isa, ev.placed, ev.analysis)
    tell_atomic(ev.decisions, op, chunking.lanes)

    def chunk(values: list[V]) -> None:
        first = _neighbours(ev, op, chunking.index)
        if first is not None:
            kind = str(op.attr_values()["atomic_rmw_op"])  # type: ignore[attr-defined]
            add_neighbours(ev.f, kind, llvm_order(op), first, ev.f.splat(values[1], ev.nest.lanes), _mask(values))
            return
        old = for_each_lane(ev, values, lambda lane, scalars: _one(ev.f, op, scalars))
        target = sink.targets[0] if sink.targets else None
        if old is not None and target is not None:
            memory.write_scratch(ev, target, chunking.index, old, ir_name(element_type(op.results[0].type)))

    for_each_chunk(ev, sink, chunking, chunk)


def _emit_combined(ev: Evaluator, step: Step, chunking: Chunking, window: Window, plan: Combining) -> None:
    """Sum elements by address, then add the sums; chunks without masked elements look at no mask."""
    f = ev.f

    def one(lane: V, operands: list[V]) -> None:
        window.add(operands[0], operands[1], operands[2] if len(operands) > 2 else const(I1, 1))

    def all_of(values: list[V]) -> None:
        for_each_lane(ev, values, one)

    def chunk(values: list[V]) -> None:
        first = _neighbours(ev, step.sinks[0].op, chunking.index)
        if first is not None:
            window.add_neighbours(first, f.splat(values[1], ev.nest.lanes), _mask(values))
        elif values[0].type.lanes:
            numbers = _numbers(ev, plan, chunking.index)
            places = window.places(values[0]) if numbers is None else f.splat(numbers, ev.nest.lanes)
            window.add_vector(places, values[1], _mask(values), lambda: all_of(values))
        elif _mask(values) is None or not values[2].type.lanes:
            all_of(values)
        else:
            f.if_else(f.reduce("and", values[2]), lambda: all_of(values[:2]), lambda: all_of(values))

    for_each_chunk(ev, step.sinks[0], chunking, chunk, masked=step)


def _numbers(ev: Evaluator, plan: Combining, index: Index) -> V | None:
    """Places in the window as the numbers that the kernel adds to its first address; None if there is more to them.

    They are half as wide as addresses, mostly, and nothing has to be computed.
    """
    form = ev.analysis.pointer(plan.op.operands[0], index)
    offset, size = form.offset, pointee_bytes(plan.op.operands[0].type)
    if form.base is not plan.base or offset.constant != plan.offset or offset.coords or len(offset.residual) != 1:
        return None
    ((value, at, scale),) = offset.residual
    wide = bit_width(element_type(value.type))
    return ev.eval(value, at) if scale.constant == size and wide in (32, 64) else None


def _neighbours(ev: Evaluator, op: Operation | None, index: Index) -> V | None:
    """Where a chunk of a sum begins, if its elements lie side by side and are added several at a time."""
    if op is None or not adds(op):
        return None
    t = storage(ir_name(element_type(op.results[0].type)))
    if op.results[0].uses or t.bits < 32 or several(ev.f.isa, t, ev.nest.lanes) == 1:
        return None
    return memory.first_neighbour(ev, op.operands[0], index)


def _mask(values: list[V]) -> V | None:
    """Of the pointers, values and the mask of a sum; None where it is known to hold."""
    return values[2] if len(values) > 2 and values[2].const != 1 else None


def _window(ev: Evaluator, plan: Combining, size: V) -> Window:
    """The empty window of a sum."""
    t = storage(ir_name(element_type(plan.op.results[0].type)))
    base = ev.f.gep(ev.scalar(plan.base), ev.poly(plan.offset))
    sums = ev.f.alloca(t, plan.size) if plan.kept is None else ev.f.gep(ev.arena, plan.kept.offset)
    ways = tuning.SUMMED_WAYS if plan.kept is not None and plan.span is None else 1
    return Window(ev.f, plan.op, base, sums, size, ways)


def begin_range(low: FunctionLowering, programs: V) -> None:
    """Empty windows of the sums that are kept over a range of so many programs."""
    f = low.f
    low.ev.enter(Nest())
    for plan in low.plan.sums:
        t = storage(ir_name(element_type(plan.op.results[0].type)))
        wanted = f.lshr(f.mul(programs, plan.elements), tuning.KEPT_SUMS_SHARE.bit_length() - 1)
        most = tuning.KEPT_SUMS_BYTES // t.bytes
        size = f.intrinsic("smin", wanted, const(I64, most if plan.span is None else min(most, plan.span)))
        low.windows[plan.op] = _window(low.ev, plan, f.and_(size, -LANES_BYTES // t.bytes))


def end_range(low: FunctionLowering) -> None:
    """Bring the sums that were kept to memory."""
    for window in low.windows.values():
        window.finish()


def emit_scalar_atomic(low: FunctionLowering, step: Step) -> V | None:
    """Emit an atomic on one element."""
    assert step.op is not None
    tell_atomic(low.ev.decisions, step.op, 1)
    return _one(low.f, step.op, [low.ev.scalar(operand) for operand in step.op.operands])


def _one(f: Function, op: Operation, operands: list[V]) -> V | None:
    """One element; the old value, zero where the mask is false, None for stores."""
    count = _VALUES[type(op)]
    pointer, values, rest = operands[0], operands[1 : 1 + count], operands[1 + count :]
    mask = rest[0] if rest else const(I1, 1)
    order = llvm_order(op)
    if isinstance(op, AtomicStoreOp):
        with f.if_(mask):
            _store(f, pointer, values[0], order)
        return None
    t = storage(ir_name(element_type(op.results[0].type)))
    return f.if_else(mask, lambda: [_access(f, op, pointer, values, order)], lambda: [zero(t)])[0]


def _store(f: Function, pointer: V, value: V, order: str) -> None:
    order = {"acq_rel": "release", "acquire": "release"}.get(order, order)
    bits = f.cast("bitcast", value, value.type.as_int)
    f.effect(f"store atomic {bits.typed}, ptr {pointer.ref} {order}, align {bits.type.bytes}")


def _access(f: Function, op: Operation, pointer: V, values: list[V], order: str) -> V:
    if isinstance(op, AtomicLoadOp):
        t = storage(ir_name(element_type(op.results[0].type)))
        order = {"acq_rel": "acquire", "release": "acquire"}.get(order, order)
        bits = f.emit(t.as_int, f"load atomic {t.as_int.text}, ptr {pointer.ref} {order}, align {t.bytes}")
        return f.cast("bitcast", bits, t)
    if isinstance(op, AtomicCASOp):
        return _compare_and_swap(f, pointer, values[0], values[1], order)
    kind = op.attr_values()["atomic_rmw_op"]  # type: ignore[attr-defined]
    value = values[0]
    if kind == "fadd" and value.type.bits == 16:
        return _narrow_sum(f, pointer, value, order)
    if kind == "exch":
        bits = f.atomic_rmw("xchg", pointer, f.cast("bitcast", value, value.type.as_int), order)
        return f.cast("bitcast", bits, value.type)
    return f.atomic_rmw(kind, pointer, value, order)


def _compare_and_swap(f: Function, pointer: V, expected: V, value: V, order: str) -> V:
    bits = value.type.as_int if value.type.is_float else value.type
    old = f.atomic_cas(pointer, f.cast("bitcast", expected, bits), f.cast("bitcast", value, bits), order)
    return f.cast("bitcast", old, value.type)


def _narrow_sum(f: Function, pointer: V, value: V, order: str) -> V:
    """old = *p; while the exchange of old for old + value fails: old = what was there."""
    bits = value.type.as_int
    first = f.load(bits, pointer)

    def failed(state: list[V]) -> V:
        old = f.cast("bitcast", state[0], value.type)
        new = f.cast("bitcast", emit(f, "addf", old, value), bits)
        found[:] = [f.atomic_cas(pointer, state[0], new, order)]
        return f.icmp("ne", found[0], state[0])

    found: list[V] = []
    (old,) = f.while_([first], failed, lambda state: found)
    return f.cast("bitcast", old, value.type)
