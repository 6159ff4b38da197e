"""When is a mask true everywhere: the scalar test that chooses a copy of a group without masks.

Only comparisons `affine < uniform` count. With AVX-512 masked accesses are nearly free, so the copy is made for groups
that compute; without it, masked vectors are slow or become branches, so it is always made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tilewright.backends.cpu.affine import Form, Poly
from tilewright.backends.cpu.index import Index, identity, whole
from tilewright.backends.cpu.lazy import constant_of, cost_of, is_tile, operand_indices, owner_of
from tilewright.backends.cpu.plan import Step
from tilewright.backends.llvm.types import I1, V, const

if TYPE_CHECKING:
    from tilewright.backends.cpu.evaluator import Evaluator

# Cost of a chunk's evaluation above which the copy without masks pays on AVX-512.
_WORTH = 12.0


def full_condition(ev: Evaluator, step: Step) -> tuple[V, frozenset[SSAValue]] | None:
    """The test that all masks of a group hold, and the comparisons that are then true; None for no second copy."""
    comparisons, cost = _survey(ev, step)
    if not comparisons or (ev.f.isa.has_zmm and cost < _WORTH):
        return None
    ev.enter(type(ev.nest)())
    test: V = const(I1, 1)
    for value, index in comparisons:
        held = _holds(ev, value, index, step.shape)
        if held is None:
            return None
        test = ev.f.and_(test, held)
    return (test, frozenset(value for value, _ in comparisons)) if test.const is None else None


def _survey(ev: Evaluator, step: Step) -> tuple[list[tuple[SSAValue, Index]], float]:
    """Comparisons that make up the masks of a group's loads and stores, and what a chunk costs."""
    comparisons: dict[tuple[SSAValue, Index], None] = {}
    cost = 0.0
    seen: set[tuple[SSAValue, Index]] = set()
    stack = [(root, identity(step.shape)) for root, _ in step.roots()]
    masks = [
        (sink.roots[2], identity(step.shape)) for sink in step.sinks if sink.kind == "store" and len(sink.roots) > 2
    ]
    while stack:
        key = stack.pop()
        value, index = key
        if key in seen or not is_tile(value) or value in ev.placed:
            continue
        seen.add(key)
        op = owner_of(value)
        assert op is not None
        cost += cost_of(op)
        operands = operand_indices(value, index)
        if op.name == "tt.load" and len(operands) > 1:
            masks.append(operands[1])
        if op.name == "tt.load":
            stack += operands[2:]
        else:
            stack += operands
    for mask in masks:
        _conjuncts(ev, mask, comparisons)
    return list(comparisons), cost


def _conjuncts(ev: Evaluator, key: tuple[SSAValue, Index], out: dict[tuple[SSAValue, Index], None]) -> None:
    """The comparisons of which a mask is the conjunction."""
    value, index = key
    op = owner_of(value)
    if not is_tile(value) or value in ev.placed or op is None or constant_of(value) is not None:
        return
    if op.name == "arith.cmpi":
        out[key] = None
    elif op.name in ("arith.andi", "tt.broadcast", "tt.expand_dims", "tt.trans"):
        for operand in operand_indices(value, index):
            _conjuncts(ev, operand, out)


def _holds(ev: Evaluator, value: SSAValue, index: Index, shape: tuple[int, ...]) -> V | None:
    """Scalar test that a comparison is true for the whole iteration space; None if it is not of the known kind."""
    op = owner_of(value)
    assert op is not None
    predicate = op.attr_values()["predicate"]  # type: ignore[attr-defined]
    a, b = (ev.analysis.integer(v, i) for v, i in operand_indices(value, index))
    small, large = (a, b) if predicate in ("slt", "sle") else (b, a)
    if predicate not in ("slt", "sle", "sgt", "sge"):
        return None
    largest = _largest(small.plus(large, Poly.of(-1)), shape)
    if largest is None:
        return None
    return ev.f.icmp("slt" if predicate in ("slt", "sgt") else "sle", ev.poly(largest), 0)


def _largest(form: Form, shape: tuple[int, ...]) -> Poly | None:
    """The largest value of a form over an iteration space, for constant strides."""
    if form.residual:
        return None
    total = form.constant
    extents = {whole(d, n): n for d, n in enumerate(shape)}
    for coord, stride in form.coords.items():
        step = stride.constant
        if step is None or coord not in extents:
            return None
        total = total + Poly.of(max(0, step) * (extents[coord] - 1))
    return total
