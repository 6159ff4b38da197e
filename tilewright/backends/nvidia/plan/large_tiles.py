"""Tiles larger than the registers of a block are computed strip by strip, in loops, where several passes read them.

    %x = tt.load %p : 65536                     %m = scf.for .. { tt.reduce (max) of a strip of %x }
    %m = tt.reduce (max) %x              ->     %s = scf.for .. { tt.reduce (sum) of exp (a strip of %x - %m) }
    %e = math.exp (%x - %m)                     scf.for .. { tt.store .., a strip of %e / %s }
    %s = tt.reduce (sum) %e
    tt.store %q, %e / %s

Such a tile would be spilled: written to memory and read again by every pass. Here each pass loads it again and computes
its elements once more, as a kernel with a loop over the row does. The assembler takes seconds to place what is spilled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import IsTerminator

from tilewright.analysis.origins import may_meet
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import MOST_REGISTERS, REGISTERS, WARP
from tilewright.backends.nvidia.plan.strips import Strip, parts_of, strips_of
from tilewright.backends.nvidia.plan.subjects import STRIPS
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import bit_width, element_type, i32, shape_of
from tilewright.ir.values import defining_op, is_tile, property_int
from tilewright.ir.walk import among, walk
from tilewright.ops.control import FuncOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.spec import spec_of
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.rewriting import erase


@dataclass(slots=True)
class _Pass:
    """What one loop over the strips does.

    Args:
        length: coordinates of the dim that is cut into strips.
        width: of a strip.
        ends: reductions along that dim and stores, in order, each with the number of the dim.
        reads: the loads that a strip of all of them takes.
    """

    length: int
    width: int
    ends: list[tuple[Operation, int]] = field(default_factory=list)
    reads: set[SSAValue] = field(default_factory=set)


def strip_mine_large_tiles(module: ModuleOp, warps: int, decisions: Decisions) -> None:
    """Rewrite the large tiles of a module, in place.

    Args:
        module: tile IR, all calls inlined.
        warps: of a block.
        decisions: of the compilation.
    """
    most = _largest_elements(warps)
    for function in FuncOp.all_of(module):
        first = next((op for op in walk(function) if any(_is_large(r, most) for r in op.results)), None)
        if first is None:
            continue
        found = decisions.note(STRIPS, first, _passes(function, warps, most))
        for one in found or ():
            _write(one)
        if found:
            eliminate_dead_code(module)


def _largest_elements(warps: int) -> int:
    """Elements of 32 bits of the largest tile that a block can hold beside what is computed from it."""
    each = min(MOST_REGISTERS, REGISTERS // (WARP * warps))
    return int(tuning.HELD_REGISTERS * each) * WARP * warps


def _is_large(value: SSAValue, most: int) -> bool:
    return is_tile(value) and math.prod(shape_of(value.type)) > most


def _passes(function: FuncOp, warps: int, most: int) -> Answer[list[_Pass]]:
    """The loops in place of the large tiles of a function."""
    found: list[_Pass] = []
    ends = [op for op in walk(function) if _is_end(op, most)]
    writes = [op for op in walk(function) if not (op.regions or isinstance(op, LoadOp) or _is_harmless(op))]
    strange = next((op for op in writes if not isinstance(op, StoreOp)), None)
    if strange is not None:
        return No(f"{describe_op(strange)} may write what is loaded", strange)
    for op in ends:
        axis = _axis_of(op)
        if axis is None:
            return No(f"{describe_op(op)} takes it whole", op)
        length = shape_of(op.operands[0].type)[axis]
        width = _width(shape_of(op.operands[0].type), axis, warps)
        one = found[-1] if found and _may_join(found[-1], op, length, width) else _Pass(length, width)
        stopped = _gather(one, op, axis, ends)
        if stopped is not None:
            return No(f"{describe_op(stopped)} takes it whole", stopped)
        if not found or one is not found[-1]:
            found.append(one)
        one.ends.append((op, axis))
    return _worth(found, among(writes, StoreOp))


def _worth(found: Sequence[_Pass], stores: Sequence[StoreOp]) -> Answer[list[_Pass]]:
    reads = [load for one in found for load in one.reads]
    if len(reads) == len(set(reads)):
        return No("one pass reads it, which need not keep it")
    for load in set(reads):
        pointer = load.owner.operands[0]  # type: ignore[union-attr]
        met = next((store for store in stores if may_meet(pointer, store.ptr)), None)
        if met is not None:
            return No("it is loaded from where the kernel stores", met, instead="a loop over blocks of the row")
    return Yes(list(found), f"{len(found)} loops over strips of {found[0].width}")


def _is_end(op: Operation, most: int) -> bool:
    """Whether large tiles end at an operation: it takes one, and gives none."""
    taken = any(_is_large(operand, most) for operand in op.operands)
    return taken and not any(_is_large(result, most) for result in op.results)


def _is_harmless(op: Operation) -> bool:
    return op.has_trait(IsTerminator) or is_removable(op)


def _axis_of(op: Operation) -> int | None:
    """The dim of which an end may take strips, or None."""
    if isinstance(op, StoreOp):
        shape = shape_of(op.ptr.type)
        return max(range(len(shape)), key=lambda axis: (shape[axis], axis))
    if not isinstance(op, ReduceOp) or len(op.operands) != 1:
        return None
    joined = single_operation(op.regions[0].block)
    monoid = None if joined is None else spec_of(joined).monoid
    return property_int(op, "axis") if monoid is not None and monoid.commutes else None


def _width(shape: Sequence[int], axis: int, warps: int) -> int:
    """Coordinates of a strip: a power of two, or all where there is none that divides the extent."""
    width, others = shape[axis], math.prod(shape) // shape[axis]
    while width % 2 == 0 and width * others > tuning.STRIP_REGISTERS * WARP * warps:
        width //= 2
    return width


def _gather(one: _Pass, end: Operation, axis: int, ends: Sequence[Operation]) -> Operation | None:
    """Note what an end reads; the operation of which no strip is known, if there is one.

    What a reduction gives is whole when its loop has ended, and of that there are no strips.
    """
    for value, at in reached([(operand, axis) for operand in end.operands if is_tile(operand)], strips_of):
        op = defining_op(value)
        if op is None or op in ends or parts_of(value, at) is None:
            return op or end
        if isinstance(op, LoadOp):
            one.reads.add(value)
    return None


def _may_join(one: _Pass, end: Operation, length: int, width: int) -> bool:
    """Whether an end may run in the loop of those before it, which stands in front of it then."""
    last = one.ends[-1][0]
    if (one.length, one.width, last.parent_block()) != (length, width, end.parent_block()):
        return False
    results = {result for op, _ in one.ends for result in op.results}
    between = list(_between(one.ends[0][0], end))
    own = {op for op, _ in one.ends}
    return not any(
        inner not in own and (not _is_harmless(inner) or results.intersection(inner.operands))
        for op in between
        for inner in op.walk()
    ) and not (
        (isinstance(end, StoreOp) and any(may_meet(op.ptr, end.ptr) for op in among(own, StoreOp)))
        or results.intersection(end.operands)
    )


def _between(first: Operation, last: Operation) -> Iterator[Operation]:
    op: Operation | None = first
    while op is not None and op is not last:
        yield op
        op = op.next_op


def _write(one: _Pass) -> None:
    """Put the loop in front of the last of its ends, and let its results stand for those of the reductions."""
    last = one.ends[-1][0]
    sums = [op for op, _ in one.ends if isinstance(op, ReduceOp)]
    firsts = [Builder(last).number(_neutral(op), op.results[0].type) for op in sums]
    bounds = [Builder(last).number(number, i32) for number in (0, one.length, one.width)]
    loop = Builder(last).loop(bounds, firsts)
    end = loop.body.block.last_op
    assert end is not None
    strip, joined = Strip(loop.induction_var, one.width, end, {}), list[SSAValue]()
    for op, axis in one.ends:
        operands = [strip.of(value, axis) if is_tile(value) else value for value in op.operands]
        if not isinstance(op, ReduceOp):
            strip.effect(op, operands)
            continue
        made = strip.remade(op, operands, [op.results[0].type])
        join = single_operation(op.regions[0].block)
        assert join is not None
        carried = loop.carried[len(joined)]
        both = type(join).create(
            operands=[carried, made],
            result_types=[carried.type],
            properties=dict(join.properties),
            attributes=dict(join.attributes),
        )
        joined.append(Builder(end).put(both))
    end.operands = joined
    for op, result in zip(sums, loop.results, strict=True):
        op.results[0].replace_all_uses_with(result)
    for op, _ in one.ends:
        erase(op)


def _neutral(op: ReduceOp) -> int | float:
    joined = single_operation(op.regions[0].block)
    monoid = None if joined is None else spec_of(joined).monoid
    assert monoid is not None
    return monoid.identity(bit_width(element_type(op.results[0].type)))


__all__ = ["strip_mine_large_tiles"]
