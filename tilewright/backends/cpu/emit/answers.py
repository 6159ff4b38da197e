"""What is told of accesses and reductions as code is made for them: that is when the lanes are known."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.backends.cpu.emit.address import Address
from tilewright.backends.cpu.plan.lanes import Chunking
from tilewright.backends.cpu.plan.steps import ReduceSink, Step
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.subjects import ACCESS, REDUCTION

_ONE = Yes(1, "one element")


def tell_scalar(decisions: Decisions, op: Operation) -> None:
    """An access to one element."""
    decisions.once(ACCESS, op, lambda: _ONE)


def tell_access(decisions: Decisions, op: Operation, address: Address, size: int, lanes: int) -> None:
    """An access of a chunk of `lanes`, to elements of `size` bytes."""
    decisions.once(ACCESS, op, lambda: _reach(address, size, lanes))


def tell_atomic(decisions: Decisions, op: Operation, lanes: int, what: str = "") -> None:
    """Atomic accesses of a chunk of `lanes`."""
    text = what or ("one element" if lanes <= 1 else f"{lanes} elements one after the other, as each is atomic")
    decisions.once(ACCESS, op, lambda: Yes(lanes, text))


def _reach(address: Address, size: int, lanes: int) -> Answer[int]:
    """How many elements go at once, and why not more; the runner-up is an instruction for each of them."""
    if address.uniform:
        return Yes(1, "one element for all lanes")
    if (run := address.run(size)) is not None:
        return Yes(run, f"{run} neighbours at a time: {lanes // run} for {lanes} elements, {lanes} one by one")
    if address.known is not None:
        return No(f"its {lanes} elements are no neighbours: {lanes} places, or vectors and shuffles")
    if address.step is not None:
        return No(f"the distance of its elements is a number of the launch: {lanes} places for {lanes} elements")
    return No(f"its places are made of what tiles hold: {lanes} places for {lanes} elements")


def tell_reductions(decisions: Decisions, step: Step, chunking: Chunking) -> None:
    """The reductions of a group, which is cut into chunks."""
    for sink in step.sinks:
        if isinstance(sink, ReduceSink):
            decisions.once(REDUCTION, sink.op, lambda: _combined(step, chunking))


def tell_total(decisions: Decisions, sink: ReduceSink) -> None:
    """A reduction of what a scan combines."""
    decisions.once(REDUCTION, sink.op, lambda: Yes(1, "the last element of a scan of the same elements"))


def _combined(step: Step, chunking: Chunking) -> Answer[int]:
    """How a group combines the elements along its axis; the runner-up is one by one."""
    extent, lanes = step.shape[step.axis], chunking.lanes
    along = 1 << chunking.lane_bits[step.axis][1] if step.axis in chunking.lane_bits else 1
    steps = -(-extent // along)
    if along > 1:
        folds = along.bit_length() - 1
        return Yes(
            lanes, f"{extent} elements in {steps} steps of {along} lanes, folded in {folds}; one by one {extent}"
        )
    across = f", beside {lanes - 1} others in as many lanes" if lanes > 1 else ""
    return Yes(lanes, f"{extent} elements in {extent} steps{across}")
