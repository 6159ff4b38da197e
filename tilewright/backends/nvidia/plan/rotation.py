"""Rotation: the products that open the next iteration are started before those that close this one have ended.

In a loop with products of two ranks (`channels.product_ranks`), those of rank 1 close an iteration: they go on with
sums that the loop carries, and nothing but the next iteration's closing products needs these. Those of rank 0 open one,
and are started an iteration ahead, as soon as everything has been read that the last ones resulted in:

    receive k[0];  s = k[0] q       started and waited for, if there is an iteration;  release k[0]
    for j = 0 ...:
        receive k[j+1]              if there is such an iteration
        first(j)                    what reads s, and what that needs: maxima
        copies(j)                   what reads s last: differences from the maximum
        wait for o;  release v[j-1]
        s = k[j+1] q                started, if there is such an iteration
        receive v[j]
        second(j)                   what needs s no more: exponentials
        late(j)                     what needs o, and fragments of p
        o = o + p v[j]              started
        wait for s;  release k[j+1]
    wait for o;  release v[last]

So s[j+1] is computed under the exponentials of j, and o under the maxima of j+1. What s is copied to takes as many
registers as s.

Loops that follow each other, of which one begins with what the other ends with, are rotated as one: products go on from
loop to loop (causal attention, blocks of keys without and with a mask).

Iterations in which a mask is true everywhere come first in a loop of their own, without it (`index_sets`).

Every operation is done as often as before, on the same values; closing products and what is late have no effects, so
the others keep their order. No operation is there twice but the opening products, and what masks ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced

from xdsl.ir import Block, Operation, SSAValue

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.plan.channels import Channel, product_ranks
from tilewright.backends.nvidia.plan.index_sets import Unmasked, unmasked
from tilewright.backends.nvidia.plan.overlap import needed, ordered, unfit, unheld
from tilewright.backends.nvidia.plan.pace import cycles_apart
from tilewright.backends.nvidia.tgir.ops import MemDescIndexOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import MemDescType, tile_words
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.traits import is_view
from tilewright.ir.types import shape_of
from tilewright.ir.walk import every, read_by
from tilewright.ops.control import ForOp


@dataclass(frozen=True, slots=True)
class Rotation:
    """How a loop is rotated; operations in the order of the body.

    Args:
        front: what the opening products need, and these themselves.
        opening, closing: the products.
        first: what reads results of the opening products and needs no sum of the closing ones, and what that needs.
        copies: of the same what reads them last.
        second: what else needs no sum of the closing products.
        late: the rest, without the closing products.
        sums: number of the carried value that each closing product goes on with.
        unmasked: selections that need no mask in the first iterations, which have a loop of their own then.
        apart: cycles by which groups of warps start after each other.
    """

    front: Sequence[Operation]
    opening: Sequence[WarpGroupDotOp]
    closing: Sequence[WarpGroupDotOp]
    first: Sequence[Operation]
    copies: Sequence[Operation]
    second: Sequence[Operation]
    late: Sequence[Operation]
    sums: Sequence[int]
    unmasked: Unmasked | None
    apart: int = 0

    @property
    def opened(self) -> list[SSAValue]:
        """Results of the opening products that others than these read."""
        return [dot.d for dot in self.opening if {use.operation for use in dot.d.uses} - {*self.opening}]


# --- choice -------------------------------------------------------------------------------------------------------


def plan_rotation(
    loop: ForOp, channels: Sequence[Channel], registers: int, groups: int, *, alone: bool
) -> Answer[Rotation]:
    """Whether a loop of the role that multiplies is rotated.

    Args:
        loop: which reads the rings of the channels.
        channels: what it receives.
        registers: of a thread.
        groups: of four warps, that run the loop.
        alone: whether it is the only loop with products; else its text says itself what needs no mask.
    """
    body = loop.body.block
    ranks = product_ranks(body)
    dots = every(body, WarpGroupDotOp)
    opening, closing = ([dot for dot in dots if ranks[dot] == rank] for rank in (0, 1))
    if not closing or len(opening) + len(closing) < len(dots):
        return No("its products are not of two kinds, of which one needs results of the other")
    no = next((no for dot in dots if (no := unfit(dot, body)) is not None), None) or ordered(body)
    if no is not None:
        return no
    sums: list[int] = []
    for dot in closing:
        number = _sum_of(dot, body)
        if isinstance(number, No):
            return number
        sums.append(number)
    made = _parts(loop, opening, closing, sums)
    if isinstance(made, No):
        return made
    made = _divided(made if alone else replaced(made, unmasked=None), body)
    what = "the first products of an iteration run beside what the iteration before makes of their results"
    if made.unmasked is not None:
        what += "; iterations whose mask is true everywhere do without it"
    elif alone and (apart := cycles_apart(loop, groups)):
        made = replaced(made, apart=apart)
        what += f"; groups of warps start {apart} cycles after each other"
    asked = registers_of({dot: ranks[dot] for dot in dots})
    no = _unread(made, channels, body) or unheld(asked, registers, "smaller blocks, or num_warps=8")
    return no or Yes(made, what)


def _sum_of(dot: WarpGroupDotOp, body: Block) -> int | No:
    """Number of the carried value that is the sum of a closing product, which only the next iteration uses."""
    uses = list(dot.d.uses)
    if len(uses) != 1 or uses[0].operation is not body.last_op:
        user = next((use.operation for use in uses if use.operation is not body.last_op), dot)
        return No("the sum of the last product is used in the same iteration", user)
    return uses[0].index


def _parts(
    loop: ForOp, opening: Sequence[WarpGroupDotOp], closing: Sequence[WarpGroupDotOp], sums: Sequence[int]
) -> Rotation | No:
    """The parts of an iteration."""
    body = loop.body.block
    ops = list(body.ops)[:-1]
    late = _behind(ops, [body.args[number + 1] for number in sums])
    if any(dot in late for dot in opening):
        return No("the first product needs the sum of the last", opening[0])
    end = body.last_op
    assert end is not None
    for number, value in enumerate(end.operands):
        if number not in sums and (value.owner in late or value in [body.args[n + 1] for n in sums]):
            return No("the loop carries something else that is made of the sum of the last product", closing[0])
    late |= {op for dot in closing if (op := _maker(dot)) is not None}
    bad = next((op for op in ops if op in late and op not in closing and not is_without_effects(op)), None)
    if bad is not None:
        return No("something that needs the sum of the last product has effects", bad)
    front = needed(ops, opening)
    return Rotation(
        [op for op in ops if op in front],
        opening,
        closing,
        [op for op in ops if op not in front and op not in late and op not in closing],
        [],
        [],
        [op for op in ops if op in late and op not in closing],
        sums,
        unmasked(loop),
    )


def _divided(rotation: Rotation, body: Block) -> Rotation:
    """A rotation whose `first` part is divided: what results of the opening products are read by comes first."""
    same = set(rotation.opened)
    for op in rotation.first:
        chosen = rotation.unmasked is not None and op in rotation.unmasked.selections and op.operands[1] in same
        if chosen or (is_view(op) and not same.isdisjoint(op.operands)):
            same |= set(op.results)
    end = body.last_op
    assert end is not None
    ahead = {*body.args[-2:], *(value for op in rotation.front for value in read_by(op))}
    wanted = [value for arg, value in zip(body.args[1:], end.operands, strict=True) if arg in ahead]
    readers = [op for op in rotation.first if not same.isdisjoint((*read_by(op), *op.results))]
    found = needed(rotation.first, readers, wanted)
    read = {*wanted, *same, *(value for op in rotation.first if op in found for value in read_by(op))}
    copies = {op for op in readers if read.isdisjoint(op.results)}
    return replaced(
        rotation,
        first=[op for op in rotation.first if op in found and op not in copies],
        copies=[op for op in rotation.first if op in copies],
        second=[op for op in rotation.first if op not in found],
    )


def _behind(ops: Sequence[Operation], values: Iterable[SSAValue]) -> set[Operation]:
    """The operations that are computed of some values."""
    known, found = set(values), set[Operation]()
    for op in ops:
        if not known.isdisjoint(read_by(op)):
            found.add(op)
            known |= set(op.results)
    return found


def _maker(dot: WarpGroupDotOp) -> Operation | None:
    """What makes the fragments of a closing product in as many registers or fewer than it takes itself."""
    maker = dot.a.owner
    if isinstance(dot.a.type, MemDescType) or not isinstance(maker, Operation):
        return None
    alone = maker.parent_block() is dot.parent_block() and len(list(dot.a.uses)) == 1
    same = all(shape_of(operand.type) == shape_of(dot.a.type) for operand in maker.operands)
    return maker if alone and same and not maker.regions and is_without_effects(maker) else None


def _unread(rotation: Rotation, channels: Sequence[Channel], body: Block) -> No | None:
    """Why buffers cannot be read an iteration later: they would not be what they were, or are read otherwise."""
    rings = {ring for channel in channels for ring in channel.rings}
    products = {*rotation.opening, *rotation.closing}
    for op in every(body, MemDescIndexOp):
        if op.src in rings:
            reader = next((use.operation for use in op.result.uses if use.operation not in products), None)
            if reader is not None:
                return No("what is copied passes through registers", reader)
    for dot in rotation.closing:
        for value in (dot.a, dot.b):
            owner = value.owner
            inside = isinstance(owner, Operation) and owner.parent_block() is body
            received = isinstance(owner, MemDescIndexOp) and owner.src in rings
            if isinstance(value.type, MemDescType) and inside and not received:
                return No("the buffer of an operand is overwritten in the next iteration", dot)
    return None


def registers_of(ranks: Mapping[WarpGroupDotOp, int]) -> int:
    """Registers of a thread for the products of a rotated loop, and what else it has.

    Results of opening products are there twice: as they were, and those of the next iteration. What they were copied to
    becomes the fragments.
    """
    words = {dot: tile_words(dot.d.type) for dot in ranks}
    return sum(words[dot] * (1 if rank else 2) for dot, rank in ranks.items()) + tuning.ROTATION_REGISTERS


__all__ = ["Rotation", "plan_rotation", "registers_of"]
