"""Rotation: the products that open the next iteration are started before those that close this one have ended.

In a loop with products of two ranks (`channels.product_ranks`), those of rank 1 close an iteration: they go on with
sums that the loop carries, and nothing but the next iteration's closing products needs these. So what comes before them
runs an iteration ahead, under the products:

    receive k[0];  s = k[0] q;  early(0);  receive v[0];  late(0)       the first iteration, if there is one
    for j = 1 ...:
        receive k[j];  s = k[j] q       started
        o = o + p v[j-1]                started
        wait until one is under way;  release k[j]
        early(j)                        all that needs no sum of the closing products: maxima, exponentials
        receive v[j];  wait until none is under way;  release v[j-1]
        late(j)                         what needs the sum, and fragments of p, which take the place of the last ones
    o = o + p v[last];  release v[last]

Loops that follow each other, of which one begins with what the other ends with, are rotated as one: the first iteration
is that of the first loop that has one, and closing products go on from loop to loop (causal attention, blocks of keys
without and with a mask).

Iterations in which a mask is true everywhere come first in a loop of their own, without it (`index_sets`).

Every operation is done as often as before, on the same values; closing products and what is late have no effects, so
the others keep their order. The closing products' operands in registers are carried to the iteration that starts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import reduce
from itertools import pairwise

from xdsl.dialects.builtin import BoolAttr, UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.channels import Channel, Position, product_ranks
from tilewright.backends.nvidia.plan.index_sets import Unmasked, end_of_unmasked, unmasked
from tilewright.backends.nvidia.plan.operands import fragments_read
from tilewright.backends.nvidia.plan.pipeliner import SPLIT, wait_for
from tilewright.backends.nvidia.plan.prefetch import may_write
from tilewright.backends.nvidia.tgir.ops import LocalAllocOp, MemDescIndexOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import MemDescType, tile_words
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.types import bit_width, element_type, i1, shape_of
from tilewright.ir.walk import every, read_by, walk
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.ops.elementwise import AddIOp, AndIOp, OrIOp, SelectOp, XOrIOp
from tilewright.passes.rewriting import erase, replace


@dataclass(frozen=True, slots=True)
class Rotation:
    """How a loop is rotated; operations in the order of the body.

    Args:
        front: what the opening products need, and these themselves.
        opening, closing: the products.
        early: what else needs no sum of the closing products.
        late: the rest, without the closing products.
        sums: number of the carried value that each closing product goes on with.
        unmasked: selections that need no mask in the first iterations, which have a loop of their own then.
    """

    front: Sequence[Operation]
    opening: Sequence[WarpGroupDotOp]
    closing: Sequence[WarpGroupDotOp]
    early: Sequence[Operation]
    late: Sequence[Operation]
    sums: Sequence[int]
    unmasked: Unmasked | None


# --- choice -------------------------------------------------------------------------------------------------------


def plan_rotation(loop: ForOp, channels: Sequence[Channel], registers: int, *, alone: bool) -> Answer[Rotation]:
    """Whether a loop of the role that multiplies is rotated.

    Args:
        loop: which reads the rings of the channels.
        channels: what it receives.
        registers: of a thread.
        alone: whether it is the only loop with products; else its text says itself what needs no mask.
    """
    body = loop.body.block
    ranks = product_ranks(body)
    dots = every(body, WarpGroupDotOp)
    opening, closing = ([dot for dot in dots if ranks[dot] == rank] for rank in (0, 1))
    if not closing or len(opening) + len(closing) < len(dots):
        return No("its products are not of two kinds, of which one needs results of the other")
    no = next((no for dot in dots if (no := _unfit(dot, body)) is not None), None) or _ordered(body)
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
    made = made if alone else replaced(made, unmasked=None)
    what = "the first products of an iteration run beside the last ones of the iteration before"
    if made.unmasked is not None:
        what += "; iterations whose mask is true everywhere do without it"
    return _unread(made, channels, body) or _tight(made, registers) or Yes(made, what)


def _unfit(dot: WarpGroupDotOp, body: Block) -> No | None:
    """Why a product cannot be left under way."""
    if dot.parent_block() is not body:
        return No("a product stands under a condition", dot)
    if bit_width(element_type(dot.d.type)) != 32:
        return No("a sum has elements of 16 bits", dot, "an f32 accumulator")
    if dot.maxNumImpreciseAcc is not None:
        return No("max_num_imprecise_acc cuts a product into parts", dot)
    return None if fragments_read(dot) is None else No("threads read fragments of an operand", dot)


def _ordered(body: Block) -> No | None:
    """Why operations of the body must keep their order."""
    for op in walk(body):
        if may_write(op) and not isinstance(op, LocalAllocOp):
            return No("something else of the loop has effects", op, "stores behind the loop")
    return None


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
    front = _needed(ops, opening)
    return Rotation(
        [op for op in ops if op in front],
        opening,
        closing,
        [op for op in ops if op not in front and op not in late and op not in closing],
        [op for op in ops if op in late and op not in closing],
        sums,
        unmasked(loop),
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


def _needed(ops: Sequence[Operation], dots: Sequence[Operation]) -> set[Operation]:
    """Some operations, and those that they are computed of."""
    found, wanted = set[Operation](), {operand for dot in dots for operand in dot.operands}
    for op in reversed(ops):
        if op in dots or any(result in wanted for result in op.results):
            found.add(op)
            wanted.update(read_by(op))
    return found


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


def registers_of(dots: Sequence[WarpGroupDotOp]) -> int:
    """Registers of a thread for the results and fragments of products of a rotated loop, and what else it has."""
    results = [dot.d for dot in dots]
    fragments = [dot.a for dot in dots if not isinstance(dot.a.type, MemDescType)]
    return sum(tile_words(value.type) for value in (*results, *fragments)) + tuning.ROTATION_REGISTERS


def _tight(rotation: Rotation, registers: int) -> No | None:
    """Why registers do not suffice for the products that are under way at once."""
    needed = registers_of([*rotation.opening, *rotation.closing])
    if needed <= registers:
        return None
    return No(f"it would take {needed} registers a thread, of {registers}", instead="smaller blocks, or num_warps=8")


# --- rewriting ----------------------------------------------------------------------------------------------------


class Rotated:
    """A loop that is to be rotated, and the parts of its iterations.

    Args:
        loop: the loop, which carries its position last.
        plan: how.
        channels: what it receives.
        at: its position, in the body.
    """

    def __init__(self, loop: ForOp, plan: Rotation, channels: Sequence[Channel], at: Position) -> None:
        self.loop, self.plan, self.channels, self.at = loop, plan, channels, at
        self.body = loop.body.block
        self.kept = [number for number in range(len(loop.iter_args)) if number not in plan.sums]
        self.held = list(
            dict.fromkeys(v for dot in plan.closing for v in dot.operands if not isinstance(v.type, MemDescType))
        )

    def goes_on_from(self, other: Rotated) -> bool:
        """Whether this loop begins with what another one ends with, so that products may go on from one to the other.

        Carried values of the two stand in one order afterwards.
        """
        results, op = list(other.loop.results), other.loop.next_op
        while op is not None and op is not self.loop and not any(map(may_write, walk(op))):
            op = op.next_op
        if op is not self.loop or any(len(list(result.uses)) != 1 for result in results):
            return False
        if set(self.loop.iter_args) != set(results):
            return False
        numbers = [list(self.loop.iter_args).index(result) for result in results]
        sums = [numbers[number] for number in other.plan.sums]
        if sums != list(self.plan.sums) or not self._closes_like(other):
            return False
        self.kept = [numbers[number] for number in other.kept]
        return True

    def _closes_like(self, other: Rotated) -> bool:
        """Whether closing products are those of another loop, on other values."""
        if [value.type for value in self.held] != [value.type for value in other.held]:
            return False
        if len(self.plan.closing) != len(other.plan.closing):
            return False
        return all(
            one.properties == two.properties
            and one.d.type == two.d.type
            and len(one.operands) == len(two.operands)
            and all(self._same(x, other, y) for x, y in zip(one.operands, two.operands, strict=True))
            for one, two in zip(self.plan.closing, other.plan.closing, strict=True)
        )

    def _same(self, value: SSAValue, other: Rotated, theirs: SSAValue) -> bool:
        """Whether two operands of closing products are handed on in the same place, or one stage of one ring."""
        if value in self.held or theirs in other.held:
            return value in self.held and theirs in other.held and self.held.index(value) == other.held.index(theirs)
        if self._is_stage(value) and other._is_stage(theirs):
            assert isinstance(value.owner, MemDescIndexOp) and isinstance(theirs.owner, MemDescIndexOp)
            return value.owner.src is theirs.owner.src
        return value is theirs

    def runs(self, b: Builder) -> SSAValue:
        """Whether there is an iteration."""
        return b.compare("ult" if self.loop.unsignedCmp is not None else "slt", self.loop.lb, self.loop.ub)

    def first(self, b: Builder, firsts: Sequence[SSAValue]) -> list[SSAValue]:
        """Write what of the first iteration needs no sum of it; gives what it hands on.

        Args:
            b: where.
            firsts: values that the loop carries there.
        """
        known: dict[SSAValue, SSAValue] = dict(zip(self.body.args, [self.loop.lb, *firsts], strict=True))
        self._open(b, known)
        self._settle(b, known, 0)
        b.clone(self.plan.early, known)
        self._expect(b, known)
        b.clone(self.plan.late, known)
        return self._handed(known)

    def others(self, b: Builder, first: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """Write the loop from a counter on; iterations without masks before those with, if there are such."""
        if self.plan.unmasked is not None:
            middle = end_of_unmasked(b, self.plan.unmasked, first, self.loop.ub)
            choices: dict[SSAValue, SSAValue] = {op.result: op.true_value for op in self.plan.unmasked.selections}
            carried, first = list(self._steady(b, (first, middle), carried, choices).results), middle
        return list(self._steady(b, (first, self.loop.ub), carried, {}).results)

    def last(self, b: Builder, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """Write the closing products of the last iteration; gives the results of the loop."""
        held: dict[SSAValue, SSAValue] = dict(zip(self.held, carried[len(self.kept) : -1], strict=True))
        sums = self._end(b, self._close(b, held, carried[-1]), carried[-1])
        results = dict(zip((*self.kept, *self.plan.sums), (*carried[: len(self.kept)], *sums), strict=True))
        return [results[number] for number in range(len(self.loop.results))]

    def _steady(
        self,
        b: Builder,
        ends: tuple[SSAValue, SSAValue],
        firsts: Sequence[SSAValue],
        choices: Mapping[SSAValue, SSAValue],
    ) -> ForOp:
        """Iterations behind the first one.

        Args:
            b: where.
            ends: counters of the first one and of the one behind the last.
            firsts: what the iteration before them hands on.
            choices: results of selections, and what these are here.
        """
        loop, old = self.loop, self.body
        region = _region(loop, [], [loop.lb.type, *(value.type for value in firsts)])
        made = ForOp.create(
            operands=[*ends, loop.step, *firsts],
            result_types=[value.type for value in firsts],
            properties=dict(loop.properties),
            attributes={**loop.attributes, SPLIT: UnitAttr()},
            regions=[region],
        )
        made.location = loop.location
        b.insert(made)
        body, end = region.block, region.block.last_op
        assert end is not None
        counter, *carried = body.args
        known: dict[SSAValue, SSAValue] = {old.args[0]: counter}
        known |= {old.args[number + 1]: value for number, value in zip(self.kept, carried, strict=False)}
        held: dict[SSAValue, SSAValue] = dict(zip(self.held, carried[len(self.kept) : -1], strict=True))
        within = Builder(end)
        self._open(within, known)
        sums = self._close(within, held, carried[-1])
        self._settle(within, known, len(self.plan.closing))
        for op in self.plan.early:
            if op.results and op.results[0] in choices:
                known[op.results[0]] = known.get(choices[op.results[0]], choices[op.results[0]])
            else:
                within.clone([op], known)
        self._expect(within, known)
        sums = self._end(within, sums, carried[-1])
        known |= {old.args[number + 1]: value for number, value in zip(self.plan.sums, sums, strict=True)}
        within.clone(self.plan.late, known)
        end.operands = self._handed(known)
        return made

    def _handed(self, known: dict[SSAValue, SSAValue]) -> list[SSAValue]:
        """What an iteration hands on: carried values, operands of the closing products, and where these read."""
        end = self.body.last_op
        assert end is not None
        handed = [*(end.operands[number] for number in self.kept), *self.held, self.at[0]]
        return [known.get(value, value) for value in handed]

    # -- parts of an iteration ---------------------------------------------------------------------------

    def _open(self, b: Builder, known: dict[SSAValue, SSAValue]) -> None:
        """Start the opening products."""
        at = (known[self.at[0]], known[self.at[1]])
        for channel in self.channels:
            if channel.plan.first == 0:
                channel.receive(b, at)
        b.clone(self.plan.front, known)
        for dot in self.plan.opening:
            _let_go(known[dot.d])

    def _settle(self, b: Builder, known: dict[SSAValue, SSAValue], under_way: int) -> None:
        """Wait for the opening products while so many others are under way, and release what only these read."""
        ended = [dot.d for dot in self.plan.opening if {use.operation for use in dot.d.uses} - {*self.plan.opening}]
        wait = wait_for(b, [known[value] for value in ended], under_way)
        known |= dict(zip(ended, wait.results, strict=True))
        self._release(b, 0, known[self.at[0]])

    def _expect(self, b: Builder, known: dict[SSAValue, SSAValue]) -> None:
        """Receive what the closing products of an iteration read.

        The loop of that wait ends a block of code: the assembler, for which a wait for products is no reader of
        exponentials, would else do these behind the wait for those of the iteration before.
        """
        for channel in self.channels:
            if channel.plan.first == 1:
                channel.receive(b, (known[self.at[0]], known[self.at[1]]))

    def _close(self, b: Builder, held: dict[SSAValue, SSAValue], stage: SSAValue) -> list[SSAValue]:
        """Start the closing products of an iteration, of operands that it has handed on."""
        known = dict(held)
        indices = {value.owner for dot in self.plan.closing for value in dot.operands if self._is_stage(value)}
        for index in [op for op in self.body.ops if op in indices]:
            assert isinstance(index, MemDescIndexOp)
            known[index.result] = b.make(MemDescIndexOp, [index.src, stage], index.result.type)
        b.clone(self.plan.closing, known)
        for dot in self.plan.closing:
            _let_go(known[dot.d])
        return [known[dot.d] for dot in self.plan.closing]

    def _end(self, b: Builder, sums: Sequence[SSAValue], stage: SSAValue) -> list[SSAValue]:
        """Wait for the closing products, and release what they read."""
        wait = wait_for(b, sums, 0)
        self._release(b, 1, stage)
        return list(wait.results)

    def _release(self, b: Builder, rank: int, stage: SSAValue) -> None:
        for channel in self.channels:
            if channel.plan.last == rank:
                channel.release(b, stage)

    def _is_stage(self, value: SSAValue) -> bool:
        return isinstance(value.owner, MemDescIndexOp) and value.owner.parent_block() is self.body


def rotate(loops: Sequence[Rotated]) -> None:
    """Replace loops that follow each other.

    Where one begins with what the one before it ends with, the closing products of the last iteration of that are
    under way in its first one, as within a loop.
    """
    chains: list[list[Rotated]] = []
    for loop in loops:
        if chains and loop.goes_on_from(chains[-1][-1]):
            chains[-1].append(loop)
        else:
            chains.append([loop])
    for linked in chains:
        _rotate(linked)


def _rotate(linked: Sequence[Rotated]) -> None:
    """Replace loops of which each goes on from the one before."""
    last = linked[-1].loop
    outside = Builder(last)
    firsts = _firsts(linked)
    runs = [rotated.runs(outside) for rotated in linked]
    any_runs = reduce(lambda one, other: outside.binary(OrIOp, one, other), runs)
    regions = [_region(last, []), _region(last, firsts[-1])]
    types = [result.type for result in last.results]
    branch = outside.insert(IfOp.create(operands=[any_runs], result_types=types, regions=regions))
    branch.location = last.location
    end = regions[0].block.last_op
    assert end is not None
    b = Builder(end)
    carried = _begun(b, linked, firsts, runs)
    missed: SSAValue | None = None
    for rotated, there in zip(linked, runs, strict=True):
        counter = b.binary(AddIOp, rotated.loop.lb, rotated.loop.step)
        if len(linked) > 1:  # the first iteration of the first loop that has one is done
            begins = there if missed is None else b.make(AndIOp, [missed, there], i1)
            counter = b.make(SelectOp, [begins, counter, rotated.loop.lb], counter.type)
            no = b.make(XOrIOp, [there, b.number(1, i1)], i1)
            missed = no if missed is None else b.make(AndIOp, [missed, no], i1)
        carried = rotated.others(b, counter, carried)
    end.operands = linked[-1].last(b, carried)
    replace(last, branch.results)
    for rotated in reversed(linked[:-1]):
        erase(rotated.loop)


def _firsts(linked: Sequence[Rotated]) -> list[list[SSAValue]]:
    """What each loop carries first where those before it have no iteration."""
    found = [list(linked[0].loop.iter_args)]
    for before, rotated in pairwise(linked):
        numbers: dict[SSAValue, int] = {result: number for number, result in enumerate(before.loop.results)}
        found.append([found[-1][numbers[value]] for value in rotated.loop.iter_args])
    return found


def _begun(
    b: Builder, linked: Sequence[Rotated], firsts: Sequence[Sequence[SSAValue]], runs: Sequence[SSAValue]
) -> list[SSAValue]:
    """Write the first iteration of the first loop that has one; gives what it hands on."""
    if len(linked) == 1:
        return linked[0].first(b, firsts[0])
    loop = linked[0].loop
    regions, types = [_region(loop, []), _region(loop, [])], list[Attribute]()
    for region, part in zip(regions, (slice(1), slice(1, None)), strict=True):
        end = region.block.last_op
        assert end is not None
        end.operands = _begun(Builder(end), linked[part], firsts[part], runs[part])
        types = [value.type for value in end.operands]
    branch = b.insert(IfOp.create(operands=[runs[0]], result_types=types, regions=regions))
    branch.location = loop.location
    return list(branch.results)


def _region(loop: ForOp, values: Sequence[SSAValue], arguments: Sequence[Attribute] = ()) -> Region:
    """A region that ends with some values, in place of a loop or of what is in it."""
    block, end = Block(arg_types=arguments), YieldOp.create(operands=values)
    end.location = loop.location
    block.add_op(end)
    return Region(block)


def _let_go(result: SSAValue) -> None:
    """Do not wait for a product where it starts."""
    assert not isinstance(result, BlockArgument) and isinstance(result.owner, WarpGroupDotOp)
    result.owner.properties["isAsync"] = BoolAttr.from_bool(True)


__all__ = ["Rotated", "Rotation", "plan_rotation", "registers_of", "rotate"]
