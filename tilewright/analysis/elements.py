"""Which element of which operand an element of a result is made of.

A tile value need never be computed as a whole: a consumer asks for it at an index (`index.py`), and `operand_indices`
says which operands, at which indices, that element comes from. So changes of shape cost nothing. Planners, the affine
analysis and evaluators all walk through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.analysis.index import ZERO, Index, bits_of, constant, cut, keeps_bits, normal, reshape
from tilewright.base.order import reached
from tilewright.ir.types import shape_of
from tilewright.ir.values import is_tile, operands_of, property_int
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp

At = tuple[SSAValue, Index]
"""A tile, and the index at which it is wanted."""


def is_ragged(op: Operation) -> bool:
    """Whether `op` is a reshape that has no index for its operand, so that its result must be in memory."""
    return isinstance(op, ReshapeOp) and not keeps_bits(shape_of(op.operands[0].type), shape_of(op.results[0].type))


def operand_indices(value: SSAValue, index: Index) -> list[At]:
    """Operands of the lazy operation that defines `value`, each with the index at which it is wanted.

    For join and cat both sides are given; the evaluator picks by the bit of the index that tells them apart. For
    gather, the source is not among them.
    """
    assert isinstance(value, OpResult)
    op = value.op
    operands, rule = operands_of(op), _RULES.get(type(op))
    if type(op) is GatherOp:
        return [(operands[1], index)]
    if rule is not None:
        return list(zip(operands, rule(op, value, index), strict=False))
    return [(operand, index if is_tile(operand) else ()) for operand in operands]


def tiles_behind(roots: Iterable[At], parts: Callable[[SSAValue, Index], Iterable[At]]) -> Iterator[At]:
    """The tiles among some roots and all that they are made of, each once.

    Args:
        roots: where to start.
        parts: what a tile is made of; it is asked when the caller wants the next.
    """

    def tiles(found: Iterable[At]) -> list[At]:
        return [at for at in found if is_tile(at[0])]

    return reached(tiles(roots), lambda at: tiles(parts(*at)))


def _expand_dims(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    axis = property_int(op, "axis")
    return [index[:axis] + index[axis + 1 :]]


def _broadcast(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    shape = shape_of(operands_of(op)[0].type)
    return [tuple([ZERO if n == 1 else c for c, n in zip(index, shape, strict=True)])]


def _trans(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    order = list(op.properties["order"].get_values())  # type: ignore[attr-defined]
    source = [ZERO] * len(order)
    for position, dim in enumerate(order):
        source[int(dim)] = index[position]
    return [tuple(source)]


def _reshape(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    return [reshape(index, shape_of(op.operands[0].type), shape_of(value.type))]


def _split(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    return [(*index, constant(1 if value is op.results[1] else 0))]


def _cat(op: Operation, value: SSAValue, index: Index) -> list[Index]:
    below = bits_of(shape_of(value.type)[0]) - 1
    inner = (normal(cut(index[0], 0, below)), *index[1:])
    return [inner, inner]


def side_bit(op: Operation, value: SSAValue, index: Index) -> Index:
    """The coordinate (as an index of one dim) that is 0 on the left side of a join or cat and 1 on the right."""
    if isinstance(op, JoinOp):
        return (index[-1],)
    return (normal(cut(index[0], bits_of(shape_of(value.type)[0]) - 1, 1)),)


_RULES: dict[type[Operation], Callable[[Operation, SSAValue, Index], list[Index]]] = {
    SplatOp: lambda op, value, index: [()],
    ExpandDimsOp: _expand_dims,
    BroadcastOp: _broadcast,
    TransOp: _trans,
    ReshapeOp: _reshape,
    JoinOp: lambda op, value, index: [index[:-1], index[:-1]],
    SplitOp: _split,
    CatOp: _cat,
    LoadOp: lambda op, value, index: [index] * len(op.operands),
}
