"""Canonicalisation: constants computed, algebra simplified, decided branches and loops unrolled away.

An op whose operands are all constants is evaluated by its own `reference`; simplifications are the
`fold` slots of the specs. What is left is dead code, which `dce` removes.

    scf.if true { A } else { B }            ->  A
    scf.for over no iteration               ->  the initial values
    scf.for over exactly one iteration      ->  its body
    scf.for that carries %x and yields it   ->  %x as it was before
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.op import TileOp
from tilewright.ir.traits import is_view
from tilewright.ir.types import element_type, is_float, is_integer
from tilewright.ir.values import operands_of
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, IfOp
from tilewright.ops.folds import Number
from tilewright.ops.shape import UnsplatOp
from tilewright.ops.spec import REGISTRY, Call, spec_of
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase, replace, take_out_invariants


def canonicalize(root: Operation) -> bool:
    """Simplify every operation below `root`, in order; says whether anything changed."""
    changed = False
    for region in root.regions:
        for block in region.blocks:
            changed |= _visit_block(block)
    return changed


def _visit_block(block: Block) -> bool:
    changed = False
    op = block.first_op
    while op is not None:
        after = op.next_op
        if op.regions:
            changed |= canonicalize(op)
            changed |= isinstance(op, ForOp) and take_out_invariants(op)
            decided, first = _decided(op)
            if decided:
                after = first or after
                changed = True
        elif op.results:
            changed |= _simplify(op)
        op = after
    return changed


def _simplify(op: Operation) -> bool:
    """Replace `op` by an operand or a constant; says whether it did."""
    spec = REGISTRY.get(op.name)
    if spec is None or isinstance(op, ConstantOp) or len(op.results) != 1:
        return False
    known = [constant_of(operand) for operand in operands_of(op)]
    found: SSAValue | Number | None = None
    if known and None not in known:
        found = evaluated(op, [n for n in known if n is not None])
    if found is None and spec.fold is not None:
        found = spec.fold(op, known)
    if found is None:
        return False
    replace(op, [found if isinstance(found, SSAValue) else _constant_before(op, found)])
    return True


def _constant_before(op: Operation, number: Number) -> SSAValue:
    return Builder(op).number(number, op.results[0].type)


def evaluated(op: Operation, known: Sequence[Number]) -> Number | None:
    """The value of an op on constants, computed on single elements by its reference; None of one that has no value."""
    spec, element = spec_of(op), element_type(op.results[0].type)
    if not (is_integer(element) or is_float(element)) or not isinstance(op, TileOp):
        return None
    if is_view(op) or isinstance(op, UnsplatOp):
        return known[0]
    if not spec.elementwise or spec.reference is None:
        return None
    types: tuple[Attribute, ...] = tuple(element_type(operand.type) for operand in op.operands)
    call = Call(op.attr_values(), types, (element,))
    arrays = [spec_constant(Call({"value": number}, (), (type_,))) for number, type_ in zip(known, types, strict=True)]
    with np.errstate(all="ignore"):
        result = np.asarray(spec.reference(call, *arrays))
    number: Number = result.item()
    return number


def spec_constant(call: Call) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """A constant in its working form, as the reference of `arith.constant` makes it."""
    reference = spec_of(ConstantOp).reference
    assert reference is not None
    return np.asarray(reference(call))


# --- control flow whose course is known -----------------------------------------------------------------


def _decided(op: Operation) -> tuple[bool, Operation | None]:
    """Replace a branch or loop whose course is known; whether it was, and the first operation it left behind."""
    if isinstance(op, IfOp):
        condition = constant_of(op.operands[0])
        if condition is None:
            return False, None
        region = op.regions[0 if condition else 1]
        return _splice(op, region.block, ()) if region.blocks else _replace(op, ())
    if isinstance(op, ForOp):
        iterations = _trip_count(op)
        if iterations == 0:
            return _replace(op, op.operands[3:])
        if iterations == 1:
            return _splice(op, op.body.block, (op.operands[0], *op.operands[3:]))
    return False, None


def _trip_count(loop: ForOp) -> int | None:
    bounds = [constant_of(bound) for bound in loop.operands[:3]]
    if any(bound is None for bound in bounds) or bounds[2] == 0:
        return None
    lower, upper, step = (int(bound) for bound in bounds if bound is not None)
    return len(range(lower, upper, step))


def _replace(op: Operation, values: Sequence[SSAValue]) -> tuple[bool, None]:
    replace(op, values)
    return True, None


def _splice(op: Operation, body: Block, arguments: Sequence[SSAValue]) -> tuple[bool, Operation | None]:
    """Move the operations of `body` in front of `op`, then replace `op` by what the body yields."""
    block = op.parent_block()
    assert block is not None
    for argument, value in zip(body.args, arguments, strict=True):
        argument.replace_all_uses_with(value)
    first = body.first_op
    terminator = body.last_op
    assert terminator is not None
    for inner in list(body.ops):
        if inner is not terminator:
            inner.detach()  # type: ignore[no-untyped-call]
            block.insert_op_before(inner, op)
    yielded = list(terminator.operands)
    erase(terminator)
    replace(op, yielded)
    return True, None if first is terminator else first
