"""Products of an iteration that need results of others run beside what is computed, and beside those of the next one.

In a loop whose products have ranks (`channels.product_ranks`), each would be waited for where it is started, as
somebody reads its result in the same iteration. Where few warps share a multiprocessor nobody multiplies meanwhile. So
products start as soon as their operands are there, are waited for where their results are read, and sums that only the
next iteration goes on with are under way until its first results are there:

    s = q k        started       dp = do v      started
    wait for s;    p = exp(s)    under dp and what the iteration before has started last
    dv += p do     started
    wait for dp;   ds = p dp     under dv
    dk += ds q     started;      wait for dv, whose fragments are free then

Unlike rotated loops (`rotation`) it takes registers for no second set of fragments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.channels import product_ranks
from tilewright.backends.nvidia.plan.operands import fragments_read
from tilewright.backends.nvidia.plan.prefetch import may_write
from tilewright.backends.nvidia.tgir.ops import (
    LocalAllocOp,
    LocalLoadOp,
    WarpGroupDotOp,
    WarpGroupDotWaitOp,
)
from tilewright.backends.nvidia.tgir.types import MemDescType, layout_of, tile_words
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import bit_width, element_type
from tilewright.ir.values import users_of
from tilewright.ir.walk import among, every, holder_in, read_by, walk
from tilewright.ops.elementwise import AddFOp
from tilewright.passes.rewriting import move_before

OVERLAPPED = "it runs beside others, and what is computed meanwhile"


@dataclass(frozen=True, slots=True)
class Overlap:
    """How the products of a loop run beside each other.

    Args:
        opening: the products that need no other.
        sums: products that go on with what the loop carries, which stay under way into the next iteration.
    """

    opening: Sequence[WarpGroupDotOp]
    sums: Sequence[WarpGroupDotOp]


def plan_overlap(
    body: Block, rings: Collection[Operation], arch: Arch, shared_bytes: int, registers: int
) -> Answer[Overlap]:
    """Whether the products of a loop run beside each other.

    Args:
        body: of the loop.
        rings: buffers in the body that rings will stand for.
        arch: of the target.
        shared_bytes: of a block.
        registers: that a thread can have.
    """
    dots = every(body, WarpGroupDotOp)
    no = next((no for dot in dots if (no := unfit(dot, body)) is not None), None) or ordered(body)
    if no is not None:
        return no
    ranks = product_ranks(body)
    opening = [dot for dot in dots if not ranks[dot]]
    sums = [dot for dot in dots if _goes_on(dot, body, rings)]
    if not sums or any(dot in sums for dot in opening):
        return No("no product that needs results of others is only summed up")
    no = _crowded(dots, arch, shared_bytes) or unheld(_words(dots) + tuning.OVERLAP_REGISTERS, registers)
    if no is not None:
        return no
    return Yes(Overlap(opening, sums), OVERLAPPED)


def unfit(dot: WarpGroupDotOp, body: Block) -> No | None:
    """Why a product cannot be left under way."""
    if dot.parent_block() is not body:
        return No("a product stands under a condition", dot)
    if bit_width(element_type(dot.d.type)) != 32:
        return No("a sum has elements of 16 bits", dot, "an f32 accumulator")
    if dot.maxNumImpreciseAcc is not None:
        return No("max_num_imprecise_acc cuts a product into parts", dot)
    return None if fragments_read(dot) is None else No("threads read fragments of an operand", dot)


def ordered(body: Block) -> No | None:
    """Why operations of the body must keep their order."""
    for op in walk(body):
        if may_write(op) and not isinstance(op, LocalAllocOp):
            return No("something else of the loop has effects", op, "stores behind the loop")
    return None


def needed(ops: Sequence[Operation], some: Sequence[Operation], values: Sequence[SSAValue] = ()) -> set[Operation]:
    """Some operations, and those that they, and some values, are computed of."""
    found, wanted = set[Operation](), {*values, *(operand for op in some for operand in read_by(op))}
    for op in reversed(ops):
        if op in some or any(result in wanted for result in op.results):
            found.add(op)
            wanted.update(read_by(op))
    return found


def _goes_on(dot: WarpGroupDotOp, body: Block, rings: Collection[Operation]) -> bool:
    """Whether only the next iteration's product uses a result, and what it reads from memory stays there till then."""
    uses = list(dot.d.uses)
    if len(uses) != 1 or uses[0].operation is not body.last_op:
        return False
    argument = body.args[uses[0].index + 1]
    if dot.c is not argument or len(list(argument.uses)) != 1:
        return False
    buffers = [value.owner for value in (dot.a, dot.b) if isinstance(value.type, MemDescType)]
    return all(
        owner in rings or (isinstance(owner, Operation) and owner.parent_block() is not body) for owner in buffers
    )


def _crowded(dots: Sequence[WarpGroupDotOp], arch: Arch, shared_bytes: int) -> No | None:
    """Why others multiply while a product is waited for: so many warps share a multiprocessor."""
    warps = layout_of(dots[0].d).in_sizes["warp"]
    running = warps * arch.blocks_per_multiprocessor(warps, _words(dots), shared_bytes)
    if running <= tuning.OVERLAPPED_WARPS:
        return None
    return No(f"{running} warps of a multiprocessor multiply while others wait for their products")


def unheld(words: int, registers: int, instead: str = "") -> No | None:
    """Why registers do not suffice for the products that are under way at once."""
    return No(f"it would take {words} registers a thread, of {registers}", None, instead) if words > registers else None


def _words(dots: Sequence[WarpGroupDotOp]) -> int:
    """Registers of a thread for all results, and for fragments of one product."""
    fragments = [tile_words(dot.a.type) for dot in dots if not isinstance(dot.a.type, MemDescType)]
    return sum(tile_words(dot.d.type) for dot in dots) + max(fragments, default=0)


# --- rewriting ----------------------------------------------------------------------------------------------------


def start_early(body: Block, overlap: Overlap) -> None:
    """Have products start as soon as their operands are there: those that need no other at the head."""
    for dot in overlap.opening:
        _begin_with_nothing(dot, body)
    found = needed(list(body.ops), overlap.opening)
    front = [op for op in body.ops if op in found]
    first = next(op for op in body.ops if op not in found)
    for op in front:
        move_before(op, first)
    for dot in [dot for dot in every(body, WarpGroupDotOp) if dot not in overlap.opening]:
        ops, makers = list(body.ops), {value.owner for value in dot.operands}
        last = max([len(front) - 1, *(at for at, op in enumerate(ops) if op in makers)])
        if last + 1 < ops.index(dot):
            move_before(dot, ops[last + 1])


def _begin_with_nothing(dot: WarpGroupDotOp, body: Block) -> None:
    """Add what a product begins with where its result is read.

    The assembler writes no accumulator while products are under way: it would wait for them all (C7517).
    """
    if constant_of(dot.c) != 0:
        c, users, reader = dot.c, list(dot.d.uses), _first_reader(dot.d, body)
        dot.operands[2] = Builder(dot).number(0.0, c.type)
        added = Builder(reader).op(AddFOp, dot.d, c)
        for use in users:
            use.operation.operands[use.index] = added


def wait_late(body: Block, overlap: Overlap) -> Operation:
    """Wait for products where their results are read.

    Gives the first wait, behind which all products of the iteration before have ended.
    """
    for load in among(list(body.ops), LocalLoadOp):  # its registers are another's till then
        move_before(load, _first_reader(load.result, body))
    dots = every(body, WarpGroupDotOp)
    for dot in dots:
        dot.properties["isAsync"] = BoolAttr.from_bool(True)
    waits = [_wait_for_result(dot, dots, body) for dot in dots if dot not in overlap.sums]
    *others, last = [dot for dot in dots if dot in overlap.sums]
    if others:
        assert last.next_op is not None
        wait_for(Builder(last.next_op), [dot.d for dot in others], 1)
    return min(waits, key=list(body.ops).index)


def _wait_for_result(dot: WarpGroupDotOp, dots: Sequence[WarpGroupDotOp], body: Block) -> Operation:
    reader, ops = _first_reader(dot.d, body), list(body.ops)
    behind = sum(ops.index(dot) < ops.index(other) < ops.index(reader) for other in dots)
    return wait_for(Builder(reader), [dot.d], behind)


def _first_reader(value: SSAValue, body: Block) -> Operation:
    return min((holder_in(body, user) for user in users_of(value)), key=list(body.ops).index)


def wait_for(b: Builder, values: Sequence[SSAValue], pendings: int) -> Operation:
    """A wait for products through which their results go."""
    users = [(value, list(value.uses)) for value in values]
    wait = b.effect(WarpGroupDotWaitOp, values, [value.type for value in values], pendings=pendings)
    for (_, uses), result in zip(users, wait.results, strict=True):
        for use in uses:
            use.operation.operands[use.index] = result
    return wait


__all__ = [
    "OVERLAPPED", "Overlap", "needed", "ordered", "plan_overlap", "start_early", "unfit", "wait_for", "wait_late",
]  # fmt: skip
