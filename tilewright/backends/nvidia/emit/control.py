"""`scf.for`, `scf.if`, `scf.while`: structured control flow whose conditions are the same for all threads of a block.

Tiles that a loop carries become one phi per register, of bytes one for four of them:

    before -> head: phis; index < upper? -> body ... -> head
                                \\-> exit: the phis are the results
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from tilewright.analysis.iterations import counter_of
from tilewright.backends.llvm.types import I8, I64, V, const
from tilewright.backends.nvidia.emit.context import Buffer, Kernel, emits
from tilewright.backends.nvidia.emit.shared_access import join, part
from tilewright.ops.control import ForOp, IfOp, WhileOp

_BYTES = 4  # of a register: LLVM gives each byte one of its own, and shares none where control flow joins


def _flat(k: Kernel, values: Sequence[SSAValue]) -> list[V]:
    """All registers of some values, one after another."""
    out: list[V] = []
    for value in values:
        made = k.values[value]
        if isinstance(made, list) and _is_in_words(made):
            out += [join(k, made[i : i + _BYTES]) for i in range(0, len(made), _BYTES)]
        else:
            out += [made.base] if isinstance(made, Buffer) else made if isinstance(made, list) else [made]
    return out


def _is_in_words(tile: Sequence[V]) -> bool:
    return tile[0].type is I8 and len(tile) % _BYTES == 0


def _bind(k: Kernel, targets: Sequence[SSAValue], like: Sequence[SSAValue], flat: Sequence[V]) -> None:
    """Define `targets`, of the form of the values `like`, from the registers that `_flat` gave."""
    start = 0
    for target, model in zip(targets, like, strict=True):
        made = k.values[model]
        if isinstance(made, list):
            count = len(made) // _BYTES if _is_in_words(made) else len(made)
            held = flat[start : start + count]
            k.set(target, [b for word in held for b in part(k, word, I8)] if count < len(made) else list(held))
            start += count
            continue
        one = flat[start]
        k.set(target, Buffer(one, made.layout, made.element, made.stride) if isinstance(made, Buffer) else one)
        start += 1


@emits(ForOp)
def emit_for(k: Kernel, op: ForOp) -> None:
    """A counted loop; an unsigned comparison of bounds is made by widening them."""
    f, body = k.f, op.body.block
    low, high, step = (k.scalar(value) for value in op.operands[:3])
    narrow = low.type
    unsigned = op.properties.get("unsignedCmp") is not None and narrow is not I64
    if unsigned:
        low, high, step = (f.cast("zext", bound, I64) for bound in (low, high, step))
    carried, counter = list(op.operands[3:]), counter_of(op)
    numbers = [] if counter is None or counter.alone else [const(narrow, 0)]  # of iterations, beside the counter
    if counter is not None:
        ends = (counter.first, counter.end, counter.step)
        low, high, step = (const(narrow, end) if isinstance(end, int) else k.scalar(end) for end in ends)
    with f.loop(low, high, step, init=[*numbers, *_flat(k, carried)]) as loop:
        number = loop.values[0] if numbers else loop.index
        k.set(body.args[0], f.cast("trunc", number, narrow) if unsigned else number)
        for value in counter.values if counter is not None else ():
            k.set(value, loop.index)
        _bind(k, body.args[1:], carried, loop.values[len(numbers) :])
        k.emit_block(body, [value.owner for value in counter.values] if counter is not None else ())
        assert body.last_op is not None
        loop.next(
            *[f.add(number, 1, "nsw") for number in loop.values[: len(numbers)]], *_flat(k, body.last_op.operands)
        )
    _bind(k, op.results, carried, loop.results[len(numbers) :])


@emits(IfOp)
def emit_if(k: Kernel, op: IfOp) -> None:
    """A branch that all threads of the block take together."""
    yielded: list[SSAValue] = []

    def side(number: int) -> Callable[[], list[V]]:
        def emit() -> list[V]:
            block = op.regions[number].blocks.first if op.regions[number].blocks else None
            if block is None:
                return []
            k.emit_block(block)
            assert block.last_op is not None
            yielded[:] = block.last_op.operands
            return _flat(k, yielded)

        return emit

    joined = k.f.if_else(k.scalar(op.cond), side(0), side(1))
    if op.results:
        _bind(k, op.results, yielded, joined)


@emits(WhileOp)
def emit_while(k: Kernel, op: WhileOp) -> None:
    """A loop whose first region decides and hands values on, to the second region and to the results."""
    before, after = op.before.block, op.after.block
    inits = list(op.operands)
    handed: list[SSAValue] = []

    def condition(values: list[V]) -> V:
        _bind(k, before.args, inits, values)
        k.emit_block(before)
        end = before.last_op
        assert end is not None
        handed[:] = end.operands[1:]
        return k.scalar(end.operands[0])

    def iteration(_: list[V]) -> list[V]:
        _bind(k, after.args, handed, _flat(k, handed))
        k.emit_block(after)
        assert after.last_op is not None
        return _flat(k, after.last_op.operands)

    k.f.while_(_flat(k, inits), condition, iteration)
    _bind(k, op.results, handed, _flat(k, handed))
