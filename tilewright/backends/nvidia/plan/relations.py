"""How the layouts of the operands and results of one operation go together: the rules of laid-out tile IR.

The assignment of layouts follows them (`operand_layouts` backward from a demand, `result_layout` forward from an
operand), the level's check holds them. An operation is *uniform* if all its tiles share one layout; the shape
operations move no data but rename coordinates; the rest (reductions, joins, dots, ...) has rules of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Operation, SSAValue

from tilewright.ir.effect_traits import access_of
from tilewright.ir.op import TileOp
from tilewright.ir.types import shape_of
from tilewright.ir.values import is_tile
from tilewright.layouts import tile
from tilewright.layouts.distributed import dim_names, sliced
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.debug import InlineAsmOp
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import PoisonOp
from tilewright.ops.math_extern import ExternElementwiseOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp
from tilewright.ops.spec import REGISTRY

_ALSO_UNIFORM = (
    AddPtrOp, ConstantOp, ExternElementwiseOp, InlineAsmOp, MakeRangeOp, PoisonOp, ScanOp, SplatOp,
)  # fmt: skip

_sliced = functools.lru_cache(maxsize=4096)(sliced)
_narrow = functools.lru_cache(maxsize=4096)(tile.narrow_tile)
_expand = functools.lru_cache(maxsize=4096)(tile.expand_tile)
_transpose = functools.lru_cache(maxsize=4096)(tile.transpose_tile)
_reshape = tile.reshape_tile
_join = functools.lru_cache(maxsize=4096)(tile.join_tiles)


def is_access(op: Operation) -> bool:
    """Whether `op` reads or writes memory at pointers, which may be a tile of them."""
    return access_of(op) is not None and not isinstance(op, (DescriptorLoadOp, DescriptorStoreOp))


def is_uniform(op: Operation) -> bool:
    """Whether all tiles among operands and results of `op` have one layout."""
    spec = REGISTRY.get(op.name)
    return (spec is not None and bool(spec.elementwise)) or isinstance(op, _ALSO_UNIFORM) or is_access(op)


def is_only_multiplied(values: Sequence[SSAValue]) -> bool:
    """Whether what is loaded goes to products alone: it is converted anyway, and need not suit other accesses.

    It may be transposed before, or become another type.
    """
    users = [(use.operation, use.index) for value in values for use in value.uses]
    return bool(users) and all(
        is_only_multiplied(user.results) if _hands_on(user) else isinstance(user, DotOp) and index < 2
        for user, index in users
    )


def _hands_on(op: Operation) -> bool:
    """Whether an operation makes a tile of one other alone, element by element."""
    return isinstance(op, TransOp) or (len(op.operands) == len(op.results) == 1 and follows_result(op))


def follows_result(op: Operation) -> bool:
    """Whether the layouts of the operands follow from that of the result, whichever it is."""
    return (type(op) in _OPERANDS and not is_ragged(op)) or is_uniform(op)


def is_ragged(op: Operation) -> bool:
    """Whether a reshape or cat of padded tiles moves elements: padding would end up between them."""
    if isinstance(op, ReshapeOp):
        return not all(_padded_at_end(shape_of(value.type)) for value in (op.src, op.result))
    return isinstance(op, CatOp) and not _is_power(shape_of(op.lhs.type)[0])


def _padded_at_end(shape: Sequence[int]) -> bool:
    """In row-major order the padding of such a tile follows all elements."""
    inner = list(shape)
    while inner and inner[0] == 1:
        inner.pop(0)
    return all(_is_power(size) for size in inner[1:])


def _is_power(size: int) -> bool:
    return not size & (size - 1)


# --- from the result to the operands ------------------------------------------------------------------


def operand_layouts(op: Operation, layout: LinearLayout) -> tuple[LinearLayout | None, ...]:
    """Layouts that the operands need for a result laid out as `layout`; None for scalars.

    Args:
        op: an operation for which `follows_result`.
        layout: of the result; of all tiles for an access.
    """
    rule = _OPERANDS.get(type(op))
    if rule is not None:
        return (rule(op, layout),)
    return tuple(layout if is_tile(operand) else None for operand in op.operands)


def _untransposed(op: TransOp, layout: LinearLayout) -> LinearLayout:
    order = _order(op)
    return _transpose(layout, tuple(order.index(axis) for axis in range(len(order))))


def _unrepeated(op: Operation, layout: LinearLayout) -> LinearLayout:
    shapes = zip(shape_of(op.operands[0].type), shape_of(op.results[0].type), strict=True)
    for axis, (have, want) in enumerate(shapes):
        if have != want:
            layout = _narrow(layout, axis)
    return layout


# --- from an operand to the result --------------------------------------------------------------------


def result_layout(op: Operation, layout: LinearLayout) -> LinearLayout | None:
    """Layout of the result if the tiles that the operation takes are laid out as `layout` and nothing moves.

    None where the operand does not determine it (broadcast, ragged reshape, dot, gather of other elements, ...) and for
    a scalar result.
    """
    if is_uniform(op):
        return layout
    rule = _RESULTS.get(type(op))
    return None if rule is None or is_ragged(op) else rule(op, layout)


def splittable(layout: LinearLayout) -> LinearLayout:
    """`layout`, or one near it in which every thread holds both halves along the last dim (of size 2)."""
    if tile.split_register(layout) is not None:
        return layout
    return _join(_sliced(layout, len(layout.outs) - 1))


@functools.lru_cache(maxsize=1024)
def _halves(layout: LinearLayout) -> LinearLayout | None:
    """Layout of each half along the last dim."""
    bit = tile.split_register(layout)
    if bit is None:
        return None
    bases = {dim: [basis[:-1] for basis in group] for dim, group in layout.bases().items()}
    del bases["register"][bit]
    return LinearLayout.from_bases(bases, dict(list(layout.out_sizes.items())[:-1]))


@functools.lru_cache(maxsize=1024)
def _stacked(layout: LinearLayout) -> LinearLayout:
    """Layout of two tiles one after the other along dim 0: the highest register bit selects the tile."""
    twice = layout * LinearLayout.identity(2, "register", "dim0")
    return twice.transpose(ins=tuple(layout.in_sizes), outs=dim_names(len(layout.outs)))


def _axis(op: TileOp) -> int:
    return int(op.attr_values()["axis"])


def _order(op: TransOp) -> tuple[int, ...]:
    return tuple(op.attr_values()["order"])


# Operations whose operands' layouts follow from the layout of the result, though they are others.
_OPERANDS: dict[type[Operation], Callable[[Any, LinearLayout], LinearLayout]] = {
    ReshapeOp: lambda op, layout: _reshape(layout, padded_shape(shape_of(op.src.type))),
    TransOp: _untransposed,
    ExpandDimsOp: lambda op, layout: _sliced(layout, _axis(op)),
    BroadcastOp: _unrepeated,
}
_RESULTS: dict[type[Operation], Callable[[Any, LinearLayout], LinearLayout | None]] = {
    ReduceOp: lambda op, layout: _sliced(layout, _axis(op)) if shape_of(op.results[0].type) else None,
    ExpandDimsOp: lambda op, layout: _expand(layout, _axis(op)),
    TransOp: lambda op, layout: _transpose(layout, _order(op)),
    ReshapeOp: lambda op, layout: _reshape(layout, padded_shape(shape_of(op.result.type))),
    JoinOp: lambda op, layout: _join(layout),
    SplitOp: lambda op, layout: _halves(layout),
    CatOp: lambda op, layout: _stacked(layout),
}
