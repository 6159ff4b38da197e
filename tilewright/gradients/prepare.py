"""Tile IR as gradients are made of it: structured, called functions inlined, loops that count from 0 by 1.

Loops that carry pointers carry offsets instead, as an address of a shadow is computed from the same offsets:

    for .. iter_args(%p = %p0)                  for .. iter_args(%o = 0)
      .. tt.load %p ..                   ->       %p = tt.addptr %p0, %o
      yield tt.addptr %p, %step                   yield %o + %step
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tilewright.gradients.activity import refusal
from tilewright.ir.types import bit_width, element_type, i64, is_pointer, with_element
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.passes import pipeline
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase, loop_carrying

PASSES = (
    pipeline.UNREACHABLE,
    pipeline.STRUCTURE,
    pipeline.INLINE,
    pipeline.STEPS,
    pipeline.DECOMPOSE_ALL,
    pipeline.LOOP_EXITS,
    pipeline.CANONICALIZE,
    pipeline.CSE,
    pipeline.WHILE_TO_FOR,
    pipeline.UNIT_LOOPS,
    pipeline.CANONICALIZE,
    pipeline.LICM,
    pipeline.DCE,
)


def prepare(module: ModuleOp) -> ModuleOp:
    """Bring a module into the form that gradients are made of, in place.

    Raises:
        NotDifferentiableError: a loop carries pointers in another way than by moving them.
    """
    pipeline.run_passes(module, PASSES)
    for loop in reversed(every(module, ForOp)):
        _carry_offsets(loop)
    pipeline.run_passes(module, (pipeline.CANONICALIZE, pipeline.CSE, pipeline.LICM, pipeline.DCE))
    return module


def _carry_offsets(loop: ForOp) -> None:
    """Rewrite what a loop carries that is an address."""
    pointers = [n for n, argument in enumerate(loop.carried) if is_pointer(element_type(argument.type))]
    if not pointers:
        return
    body, firsts = loop.body.block, list(loop.iter_args)
    last = body.last_op
    assert last is not None
    for n in pointers:
        argument, first = body.args[n + 1], firsts[n]
        steps = _steps(loop, last.operands[n], argument)
        type_ = with_element(argument.type, i64)
        offset = body.insert_arg(type_, n + 1)
        anchor = body.first_op
        assert anchor is not None
        moved = AddPtrOp.create(operands=[first, offset], result_types=[first.type])
        body.insert_op_before(moved, anchor)
        moved.location = loop.location
        argument.replace_all_uses_with(moved.results[0])
        body.erase_arg(argument)
        total: SSAValue = offset
        for step in steps:
            if bit_width(element_type(step.type)) < 64:
                step = Builder(last).cast(ExtSIOp, step, i64)
            total = Builder(last).add(total, step)
        last.operands[n] = total
        firsts[n] = Builder(loop).number(0, type_)
    starts = list(loop.iter_args)
    made = loop_carrying(loop, firsts)
    for n, result in enumerate(made.results):
        if n in pointers and loop.results[n].first_use is not None:
            loop.results[n].replace_all_uses_with(Builder(loop).op(AddPtrOp, starts[n], result))
        elif n not in pointers:
            loop.results[n].replace_all_uses_with(result)
    erase(loop)


def _steps(loop: ForOp, value: SSAValue, argument: SSAValue) -> list[SSAValue]:
    """By what an iteration moves an address, in elements.

    Raises:
        NotDifferentiableError: it does something else with it.
    """
    steps: list[SSAValue] = []
    while value is not argument:
        op = defining_op(value)
        if not isinstance(op, AddPtrOp):
            raise refusal(
                op or loop,
                "this pointer is carried from iteration to iteration, and does more than move",
                "carry an offset, and add it to the pointer where memory is accessed",
            )
        steps.append(op.offset)
        value = op.ptr
    return steps
