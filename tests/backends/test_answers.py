"""Every contraction, reduction, loop and access of random kernels has an answer to the question how it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tests.decisions.harness import TARGETS
from tests.fuzz.emitted import random_kernels
from tilewright.backends.cpu.emit.lower import lower_module
from tilewright.backends.llvm.features import describe
from tilewright.backends.nvidia.emit.lower import emit_kernel
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import _inline_everything, lay_out_module
from tilewright.base.decision import Decision, from_records
from tilewright.base.options import Options
from tilewright.devices.registry import parse_target
from tilewright.ir.decisions import Decisions, user_place
from tilewright.ir.effect_traits import Accesses
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, IfOp, WhileOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.dce import is_removable
from tilewright.passes.pipeline import run_passes

# What may answer for an operation, beside the planner that is asked first: whatever puts something in its place.
ANSWERS: Mapping[str, set[str]] = {
    "loop": {"loop", "unrolled loop", "loop of reductions", "loop of dots", "delinearized loop"},
    "contraction": {"dot", "dot as a sum", "tensor cores", "loop of dots"},
    "reduction": {
        "reduction", "unrolled reduction", "loop of reductions", "dot",
        "tensor cores", "loop distribution", "reduction after the loop",
    },
    "access": {
        "access", "operand in memory", "direct store", "interleaved stores", "copy engine", "ring buffer",
        "combined sums", "sunk prefetch", "loop of dots",
    },
}  # fmt: skip
FIRST, COUNT = 7_400, {"avx2": 10, "avx512": 10, "amx": 5, "cuda90": 10}


def asked(module: ModuleOp) -> Iterator[tuple[str, Operation]]:
    """The computations of simplified tile IR, each with the kind of question that it is."""
    for op in walk(module):
        if isinstance(op, ForOp | WhileOp):
            yield "loop", op
        elif isinstance(op, DotOp):
            yield "contraction", op
        elif isinstance(op, ReduceOp):
            yield "reduction", op
        elif op.has_trait(Accesses):
            yield "access", op


def instead(op: Operation) -> Iterator[Operation]:
    """What may take an operation along: branches that it stands in, which may be made as one, and dots that read it."""
    todo = list(op.results)
    while todo:
        for use in todo.pop().uses:
            if isinstance(use.operation, DotOp):
                yield use.operation
            elif not use.operation.regions:
                todo += use.operation.results
    around = op.parent_op()
    while around is not None:
        if isinstance(around, IfOp):
            yield around
        around = around.parent_op()


def needed(module: ModuleOp) -> set[SSAValue]:
    """Values that memory or control flow depends on."""
    found: set[SSAValue] = set()
    todo: list[SSAValue] = []
    for op in walk(module):
        if isinstance(op, ForOp | IfOp):
            todo += [operand for operand in op.operands if operand not in getattr(op, "iter_args", ())]
        elif not isinstance(op, YieldOp) or not isinstance(op.parent_op(), ForOp | IfOp):
            todo += op.operands if not is_removable(op) else ()
    while todo:
        if (value := todo.pop()) not in found:
            found.add(value)
            todo += made_of(value)
    return found


def made_of(value: SSAValue) -> list[SSAValue]:
    owner = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    number = getattr(value, "index", 0) - isinstance(value.owner, Block)
    if not isinstance(owner, ForOp | IfOp):
        return list(owner.operands) if isinstance(owner, Operation) and owner is value.owner else []
    ends = [region.block.last_op for region in owner.regions if region.blocks]
    handed_on = [end.operands[number] for end in ends if end is not None and number >= 0]
    return [*handed_on, *([owner.iter_args[number]] if isinstance(owner, ForOp) and number >= 0 else [])]


def planned(module: ModuleOp, options: Options, name: str) -> Sequence[Decision]:
    """All that is decided on a kernel, which is consumed."""
    target = parse_target(TARGETS[name])
    if target.backend == "cpu":
        isa = describe("x86_64-unknown-linux-gnu", str(target.arch))
        return from_records(lower_module(module, isa, options).decisions)
    decisions = Decisions()
    chosen = CudaOptions()
    laid = lay_out_module(module, chosen, target, decisions)
    return (*decisions, *emit_kernel(laid, chosen, target).decisions)


def unanswered(module: ModuleOp, options: Options, name: str) -> list[str]:
    """What nobody has said a word about."""
    run_passes(module)
    if name == "cuda90":
        _inline_everything(module)  # what nobody needs of the result of a function is left out
    live = needed(module)
    questions = [
        (kind, op.name, [user_place(one) for one in (op, *instead(op))])
        for kind, op in asked(module)
        if not op.results or not live.isdisjoint(op.results) or not is_removable(op)
    ]
    found = {(decision.subject, (decision.file, decision.line)) for decision in planned(module, options, name)}
    return [
        f"{kind} {what} in line {place[1]}"
        for kind, what, (place, *around) in questions
        if not any((subject, place) in found for subject in ANSWERS[kind])
        and not any((subject, other) in found for subject in ("if-conversion", "loop of dots") for other in around)
    ]


@pytest.mark.parametrize("name", COUNT)
def test_whatever_a_kernel_computes_has_an_answer(tmp_path: Path, name: str) -> None:
    missing = {}
    for kernel, options, make in random_kernels(FIRST, COUNT[name], tmp_path):
        if lacks := unanswered(make(), options, name):
            missing[kernel] = lacks
    assert missing == {}
