"""Writing rotated loops (`rotation`): what is in front of them, their iterations, and what is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from xdsl.dialects.builtin import BoolAttr, UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.channels import Channel, Position
from tilewright.backends.nvidia.plan.index_sets import end_of_unmasked
from tilewright.backends.nvidia.plan.overlap import needed, wait_for
from tilewright.backends.nvidia.plan.pipeliner import SPLIT
from tilewright.backends.nvidia.plan.prefetch import may_write
from tilewright.backends.nvidia.plan.rotation import Rotation
from tilewright.backends.nvidia.tgir.ops import WarpGroupDotOp
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.ir.values import is_made_inside
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.passes.rewriting import erase, replace


@dataclass(frozen=True, slots=True)
class Around:
    """What is known of the loops that a loop is rotated with.

    Args:
        earlier, later: whether one before it, or behind it, has an iteration; None where there is none.
    """

    earlier: SSAValue | None
    later: SSAValue | None

    def was_one(self, b: Builder, here: SSAValue) -> SSAValue:
        """Whether there was an iteration before: in this loop, or in an earlier one."""
        return here if self.earlier is None else b.either(here, self.earlier)

    def comes_one(self, b: Builder, here: SSAValue) -> SSAValue:
        """Whether another iteration follows, in this loop or in a later one."""
        return here if self.later is None else b.either(here, self.later)


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
        self.sums = list(plan.sums)
        others = [*plan.first, *plan.copies, *plan.second, *plan.late, *plan.closing]
        wanted = needed([op for op in plan.front if op not in plan.opening], others, list(self._end.operands))
        self.shared = [op for op in plan.front if op in wanted]
        wanted = needed(plan.first, [], self._end.operands[-2:])
        self.following = [op for op in plan.first if op in wanted]

    @property
    def _end(self) -> Operation:
        end = self.body.last_op
        assert end is not None
        return end

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
        sums = [numbers[number] for number in other.sums]
        if set(sums) != set(self.sums) or not self._opens_like(other):
            return False
        self.kept, self.sums = [numbers[number] for number in other.kept], sums
        return True

    def _opens_like(self, other: Rotated) -> bool:
        """Whether the opening products are those of another loop, of what the channels bring and of values outside."""
        same: dict[SSAValue, SSAValue] = dict(zip(other.at, self.at, strict=True))
        if len(self.plan.front) != len(other.plan.front) or len(self.plan.closing) != len(other.plan.closing):
            return False
        for one, two in zip(self.plan.front, other.plan.front, strict=True):
            known = [same.get(value, value) for value in two.operands]
            if (one.name, one.properties, list(one.operands)) != (two.name, two.properties, known):
                return False
            if any(value in self.body.args and value not in self.at for value in one.operands):
                return False
            same |= dict(zip(two.results, one.results, strict=True))
        return [same[value] for value in other.plan.opened] == self.plan.opened

    def runs(self, b: Builder) -> SSAValue:
        """Whether there is an iteration."""
        return self._is_before(b, self.loop.lb)

    def _is_before(self, b: Builder, counter: SSAValue) -> SSAValue:
        return b.compare("ult" if self.loop.unsignedCmp is not None else "slt", counter, self.loop.ub)

    def first(self, b: Builder, firsts: Sequence[SSAValue]) -> list[SSAValue]:
        """Make the opening products of the first iteration; gives what the loop carries there.

        Args:
            b: where.
            firsts: the values that the loop carries first.
        """
        known: dict[SSAValue, SSAValue] = dict(zip(self.body.args, [self.loop.lb, *firsts], strict=True))
        self._receive(b, known, self._read(0, 0))
        opened = wait_for(b, self._open(b, known), 0).results
        self._release(b, 0, known[self.at[0]])
        carried = [firsts[number] for number in (*self.kept, *self.sums)]
        return [*carried, *opened, known[self.at[0]]]

    def others(self, b: Builder, carried: Sequence[SSAValue], around: Around) -> list[SSAValue]:
        """Write the loop; iterations without masks before those with, if there are such.

        Args:
            b: where.
            carried: what `first` gives, or `others` of the loop before.
            around: what is known of the other loops.
        """
        first = self.loop.lb
        if self.plan.unmasked is not None:
            middle = end_of_unmasked(b, self.plan.unmasked, first, self.loop.ub)
            choices: dict[SSAValue, SSAValue] = {op.result: op.true_value for op in self.plan.unmasked.selections}
            carried, first = list(self._steady(b, (first, middle), carried, choices, around).results), middle
        return list(self._steady(b, (first, self.loop.ub), carried, {}, around).results)

    def last(self, b: Builder, carried: Sequence[SSAValue]) -> list[SSAValue]:
        """Wait for the closing products of the last iteration; gives the results of the loop."""
        kept, sums = carried[: len(self.kept)], carried[len(self.kept) :][: len(self.sums)]
        sums = wait_for(b, sums, 0).results
        self._release(b, 1, carried[-1])
        results = dict(zip((*self.kept, *self.sums), (*kept, *sums), strict=True))
        return [results[number] for number in range(len(self.loop.results))]

    def _steady(
        self,
        b: Builder,
        ends: tuple[SSAValue, SSAValue],
        firsts: Sequence[SSAValue],
        choices: Mapping[SSAValue, SSAValue],
        around: Around,
    ) -> ForOp:
        """Iterations.

        Args:
            b: where.
            ends: counters of the first one and of the one behind the last.
            firsts: what the iteration before them hands on.
            choices: results of selections, and what these are here.
            around: what is known of the other loops.
        """
        loop = self.loop
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
        end = region.block.last_op
        assert end is not None
        end.operands = self._iteration(Builder(end), region.block.args, choices, around)
        return made

    def _iteration(
        self, b: Builder, args: Sequence[SSAValue], choices: Mapping[SSAValue, SSAValue], around: Around
    ) -> list[SSAValue]:
        """Write an iteration; gives what it hands on.

        Args:
            b: where.
            args: counter, values that are kept, sums, results of the opening products, and the stage before.
            choices, around: of `_steady`.
        """
        plan, (counter, *carried, before) = self.plan, args
        known: dict[SSAValue, SSAValue] = dict(zip(self._carried(), carried, strict=True))
        known[self.body.args[0]] = counter
        b.clone([*self.shared, *self.following], known)
        then = {self.body.args[0]: b.add(counter, self.loop.step), **self._then(known)}
        goes_on = around.comes_one(b, self._is_before(b, then[self.body.args[0]]))
        self._receive(_under(b, goes_on), then, self._read(0, 0))
        _clone(b, [op for op in plan.first if op not in self.following], known, choices)
        _clone(b, plan.copies, known, choices)
        self._close(b, known)
        self._release(b, 1, before, around.was_one(b, b.compare("ne", counter, self.loop.lb)))
        then |= self._then(known)
        opened = self._open_if(b, goes_on, then, [known[value] for value in plan.opened])
        self._receive(b, known, self._read(1, 1))
        _clone(b, plan.second, known, choices)
        b.clone([*plan.late, *plan.closing], known)
        for dot in plan.closing:
            _let_go(known[dot.d])
        ready = wait_for(b, opened, len(plan.closing)).results
        self._release(b, 0, then[self.at[0]], goes_on)
        handed = [self._end.operands[number] for number in (*self.kept, *self.sums)]
        return [*(known.get(value, value) for value in handed), *ready, known[self.at[0]]]

    # -- parts of an iteration ---------------------------------------------------------------------------

    def _carried(self) -> list[SSAValue]:
        """What an iteration of the rotated loop is given, but for its counter and the stage before."""
        return [*(self.body.args[number + 1] for number in (*self.kept, *self.sums)), *self.plan.opened]

    def _then(self, known: Mapping[SSAValue, SSAValue]) -> dict[SSAValue, SSAValue]:
        """The carried values of the next iteration, as far as they are known."""
        handed = {self.body.args[number + 1]: self._end.operands[number] for number in self.kept}
        ready = {arg: v for arg, v in handed.items() if v in known or not is_made_inside(v, self.loop)}
        return {arg: known.get(value, value) for arg, value in ready.items()}

    def _open(self, b: Builder, known: dict[SSAValue, SSAValue]) -> list[SSAValue]:
        """Start the opening products; gives their results.

        What closing products read as well is received here and not ahead: there may be no stage for it but that of the
        iteration before, which has just been released.
        """
        self._receive(b, known, self._read(0, 1))
        b.clone(self.plan.front, known)
        for dot in self.plan.opening:
            _let_go(known[dot.d])
        return [known[value] for value in self.plan.opened]

    def _open_if(
        self, b: Builder, holds: SSAValue, known: dict[SSAValue, SSAValue], others: Sequence[SSAValue]
    ) -> list[SSAValue]:
        """Start them if a condition holds.

        Else their results are `others`, which nobody reads: those of this iteration, whose registers they take.
        """
        regions = _region(self.loop, []), _region(self.loop, others)
        end = regions[0].block.last_op
        assert end is not None
        end.operands = self._open(Builder(end), known)
        branch = IfOp.create(operands=[holds], result_types=[value.type for value in others], regions=regions)
        branch.location = self.loop.location
        return list(b.insert(branch).results)

    def _close(self, b: Builder, known: dict[SSAValue, SSAValue]) -> None:
        """Wait for the closing products of the iteration before.

        What was made of the results of the opening products goes through the wait, or LLVM would make it where it is
        used: behind the start of the next ones, whose results then could not take the registers.
        """
        sums = [self.body.args[number + 1] for number in self.sums]
        copies = [result for op in self.plan.copies for result in op.results if shape_of(result.type)]
        values = [*sums, *(value for value in copies if bit_width(element_type(value.type)) == 32)]
        known |= dict(zip(values, wait_for(b, [known[value] for value in values], 0).results, strict=True))

    def _read(self, first: int, last: int) -> list[Channel]:
        """The channels whose first and last readers are products of these ranks."""
        return [channel for channel in self.channels if (channel.plan.first, channel.plan.last) == (first, last)]

    def _receive(self, b: Builder, known: Mapping[SSAValue, SSAValue], channels: Sequence[Channel]) -> None:
        for channel in channels:
            channel.receive(b, (known[self.at[0]], known[self.at[1]]))

    def _release(self, b: Builder, rank: int, stage: SSAValue, holds: SSAValue | None = None) -> None:
        for channel in self.channels:
            if channel.plan.last == rank:
                channel.release(b, stage, holds)


def _under(b: Builder, condition: SSAValue) -> Builder:
    """A place where something is done if a condition holds."""
    region = _region(b.anchor, [])
    branch = b.insert(IfOp.create(operands=[condition], result_types=[], regions=[region, Region()]))
    branch.location = b.anchor.location
    end = region.block.last_op
    assert end is not None
    return Builder(end)


def _clone(
    b: Builder, ops: Sequence[Operation], known: dict[SSAValue, SSAValue], choices: Mapping[SSAValue, SSAValue]
) -> None:
    """Write operations again, but for selections whose results are known."""
    for op in ops:
        if op.results and op.results[0] in choices:
            known[op.results[0]] = known.get(choices[op.results[0]], choices[op.results[0]])
        else:
            b.clone([op], known)


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
    last, outside = linked[-1].loop, Builder(linked[-1].loop)
    runs = [rotated.runs(outside) for rotated in linked]
    until, since = ([*accumulate(side, outside.either)] for side in (runs, reversed(runs)))
    earlier, later, any_runs = [None, *until], [None, *since], until[-1]
    firsts = list(linked[0].loop.iter_args)
    missed = _firsts(linked)[-1]
    regions = [_region(last, []), _region(last, missed)]
    branch = outside.insert(
        IfOp.create(operands=[any_runs], result_types=[r.type for r in last.results], regions=regions)
    )
    branch.location = last.location
    end = regions[0].block.last_op
    assert end is not None
    b = Builder(end)
    carried = linked[0].first(b, firsts)
    for number, rotated in enumerate(linked):
        carried = rotated.others(b, carried, Around(earlier[number], later[len(linked) - 1 - number]))
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


def _region(loop: Operation, values: Sequence[SSAValue], arguments: Sequence[Attribute] = ()) -> Region:
    """A region that ends with some values, in place of a loop or of what is in it."""
    block, end = Block(arg_types=arguments), YieldOp.create(operands=values)
    end.location = loop.location
    block.add_op(end)
    return Region(block)


def _let_go(result: SSAValue) -> None:
    """Do not wait for a product where it starts."""
    assert not isinstance(result, BlockArgument) and isinstance(result.owner, WarpGroupDotOp)
    result.owner.properties["isAsync"] = BoolAttr.from_bool(True)


__all__ = ["Rotated", "rotate"]
