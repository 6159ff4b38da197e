"""Branches to structure: functions of several blocks without cycles become one block with `scf.if`.

Triton's front end writes an early `return` as branches between blocks:

    cf.cond_br %c, ^a, ^b             %r = scf.if %c { ...a; scf.yield } else { ...b; scf.yield }
    ^a: tt.return    ^b: tt.return    tt.return %r

Both sides end at the nearest block that they must share, or else where the function returns. A block behind several
branches of which some return before it is copied into each.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.base.errors import UnsupportedError
from tilewright.ir.walk import every
from tilewright.ops.control import IfOp, YieldOp
from tilewright.ops.function import BranchOp, CondBranchOp, FuncOp, PoisonOp, ReturnOp, UnreachableOp

_COPIES = 16  # blocks written per block of the function; more means branches that multiply


def structure_branches(root: Operation) -> bool:
    """Rewrite every function of several blocks below `root`; says whether anything changed.

    Raises:
        UnsupportedError: the branches of a function form a loop, or would be copied too often.
    """
    changed = False
    for op in every(root, FuncOp):
        if len(op.body.blocks) > 1:
            _Structurer(op).run()
            changed = True
    return changed


class _Structurer:
    """Writes the body of one function anew.

    Args:
        function: with several blocks, all of them reachable.
    """

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        assert isinstance(function.function_type, FunctionType)
        self.results: Sequence[Attribute] = function.function_type.outputs.data
        self.budget = _COPIES * len(function.body.blocks)
        self.behind: dict[Block, tuple[Block, ...] | None] = {}

    def run(self) -> None:
        """Replace the blocks."""
        old = self.function.body
        entry = old.blocks[0]
        made = Block(arg_types=[a.type for a in entry.args])
        for argument, given in zip(made.args, entry.args, strict=True):
            argument.name_hint = given.name_hint
        returned = self._emit(entry, made.args, {}, made, None)
        made.add_op(ReturnOp.create(operands=returned))
        for block in list(old.blocks):
            old.detach_block(block)
            block.erase(safe_erase=False)
        old.add_block(made)

    def _emit(
        self, block: Block, args: Sequence[SSAValue], known: dict[SSAValue, SSAValue], out: Block, stop: Block | None
    ) -> list[SSAValue]:
        """Write what runs from `block` on to `out`.

        Args:
            block: where to begin, with the values `args`.
            known: what stands for the values of the old function; extended.
            out: is written to.
            stop: where to end; None for the end of the function.

        Returns:
            What is handed to `stop`, or returned.
        """
        while True:
            self._count()
            known.update(zip(block.args, args, strict=True))
            end = block.last_op
            for op in block.ops:
                if op is not end:
                    out.add_op(op.clone(known))
            if isinstance(end, ReturnOp):
                return [known[value] for value in end.operands]
            if isinstance(end, UnreachableOp):
                return self._nothing(out, stop)
            if isinstance(end, BranchOp):
                block, args = end.successors[0], [known[value] for value in end.operands]
            elif isinstance(end, CondBranchOp):
                join = self._join(end)
                args = self._branch(end, known, out, join)
                if join is None:
                    return list(args)
                block = join
            else:
                raise UnsupportedError(f"{end.name if end else 'nothing'} ends a block of {self.function.symbol}")
            if block is stop:
                return list(args)

    def _branch(
        self, end: CondBranchOp, known: dict[SSAValue, SSAValue], out: Block, join: Block | None
    ) -> Sequence[SSAValue]:
        """An `scf.if` for a branch whose sides run up to `join`, or to the end of the function."""
        regions = []
        for target, given in zip(end.successors, (end.then_arguments, end.else_arguments), strict=True):
            side = Block()
            values = [known[value] for value in given]
            if target is not join:
                values = self._emit(target, values, dict(known), side, join)
            side.add_op(YieldOp.create(operands=values))
            regions.append(Region(side))
        types = self.results if join is None else [a.type for a in join.args]
        made = IfOp.create(operands=[known[end.cond]], result_types=types, regions=regions)
        made.location = end.location
        out.add_op(made)
        return made.results

    def _nothing(self, out: Block, stop: Block | None) -> list[SSAValue]:
        """Values for a place that is never reached."""
        types = self.results if stop is None else [a.type for a in stop.args]
        made = [PoisonOp.create(result_types=[t]) for t in types]
        out.add_ops(made)
        return [op.results[0] for op in made]

    def _join(self, end: CondBranchOp) -> Block | None:
        """The first block that both sides of a branch always reach; None if one may return before."""
        first, second = (self._always_behind(target) for target in end.successors)
        return next((block for block in first if block in second), None)

    def _always_behind(self, block: Block) -> tuple[Block, ...]:
        """`block` and the blocks that every way from it to the end passes, in order (its post-dominators)."""
        if block not in self.behind:
            self.behind[block] = None  # being looked at
            rest: tuple[Block, ...] = ()
            end = block.last_op
            targets = list(end.successors) if end is not None else []
            if targets:
                ways = [self._always_behind(target) for target in targets]
                rest = tuple(b for b in ways[0] if all(b in way for way in ways))
            self.behind[block] = (block, *rest)
        found = self.behind[block]
        if found is None:
            raise UnsupportedError(
                f"the branches of {self.function.symbol} form a loop", hint="write loops as scf.for or scf.while"
            )
        return found

    def _count(self) -> None:
        self.budget -= 1
        if self.budget < 0:
            raise UnsupportedError(
                f"too many ways lead through the branches of {self.function.symbol}",
                hint="return at one place, or from fewer branches",
            )
