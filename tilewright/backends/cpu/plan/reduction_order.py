"""The order of reductions over several dims: that along memory comes last, and the others are reduced in loops.

    tt.reduce (axis = 1) (tt.reduce (axis = 2) %x[4, 8, 64])    ->    tt.reduce (axis = 1) (tt.reduce (axis = 1) %x)
    tt.reduce (axis = 0) (tt.reshape %x[8, 64] : 512)           ->    tt.reduce (axis = 0) (tt.reduce (axis = 0) %x)

    for ..: %s' = addf %s, %x[4, 8, 64]                               for ..: %t' = addf %t, (tt.reduce (axis = 1) %x)
    tt.reduce (axis = 1) %s                                     ->    %t

Lanes along a dim that is reduced are folded once for each row of it, those along a dim that is kept never. What a loop
carries is smaller. Reductions that are one run of memory (`loops/reduction_loops.py`) are one reduction before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import operand_indices
from tilewright.analysis.index import CONST, Index, identity
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.subjects import REDUCTION_ORDER
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, pointee_bytes, shape_of
from tilewright.ir.values import defining_op, is_tile, property_int, result_number
from tilewright.ir.walk import among, every
from tilewright.ops.control import ForOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, is_volatile
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp
from tilewright.ops.spec import spec_of
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import replace, retype


@dataclass(slots=True)
class _Chain:
    """Reductions of reductions.

    Args:
        root: the last one, which gives the result.
        tile: what all of them reduce.
        body: the operation by which they combine.
        dims: of the tile, in the order in which they are reduced.
        is_flat: whether dims are reduced as one.
    """

    root: ReduceOp
    tile: SSAValue
    body: Operation
    dims: list[int]
    is_flat: bool


@dataclass(frozen=True, slots=True)
class _Order:
    """Dims of a tile in the order in which they are reduced: the first ones, and that along memory, if it is."""

    first: list[int]
    last: list[int]


def order_reductions(function: FuncOp, decisions: Decisions) -> bool:
    """Reorder all reductions of a function where that is better; says whether there were any."""
    analysis, changed = AffineAnalysis(facts=ElementFacts(function)), False
    for op in every(function, ReduceOp):
        chain = _chain(op) if op.parent is not None and not _is_reduced(op) else None
        if chain is None:
            continue
        loop = _loop(chain)
        if len(chain.dims) < 2 and loop is None:
            continue
        order = decisions.note(REDUCTION_ORDER, op, _order(chain, loop, analysis))
        if order is not None:
            _rewrite(chain, loop, order)
            eliminate_dead_code(function)
            changed = True
    return changed


def _is_reduced(op: ReduceOp) -> bool:
    """Whether a reduction is a part of a chain that ends elsewhere."""
    users = [use.operation for use in op.results[0].uses]
    return len(users) == 1 and any(_body(user) is not None for user in among(users, ReduceOp))


def _body(op: ReduceOp) -> Operation | None:
    """The one operation by which elements are combined, if it may be done in any order."""
    body = single_operation(op.regions[0].block) if len(op.operands) == 1 else None
    monoid = None if body is None else spec_of(body).monoid
    return body if monoid is not None and monoid.commutes else None


def _chain(root: ReduceOp) -> _Chain | None:
    """The chain that ends in a reduction."""
    body = _body(root)
    if body is None:
        return None
    ops, value = [root], root.operands[0]
    while inner := [op for op in among([defining_op(value)], ReduceOp) if value.has_one_use()]:
        if not _is_same(_body(inner[0]), body):
            break
        ops += inner
        value = inner[0].operands[0]
    left = list(range(len(shape_of(value.type))))  # dims of the tile that are still there
    dims = [left.pop(property_int(op, "axis")) for op in reversed(ops)]
    for view in among([defining_op(value)], ReshapeOp):
        groups = _groups(shape_of(view.operands[0].type), shape_of(value.type)) if value.has_one_use() else None
        if groups is not None:
            spread = [dim for d in dims for dim in groups[d]]
            return _Chain(root, view.operands[0], body, spread, len(spread) > len(dims))
    return _Chain(root, value, body, dims, False)


def _is_same(one: Operation | None, other: Operation) -> bool:
    return one is not None and type(one) is type(other) and one.properties == other.properties


def _groups(source: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """The dims of a tile that each dim of a view of it consists of; None if it cuts one."""
    found, at = list[list[int]](), 0
    for extent in shape:
        group, count = list[int](), 1
        while at < len(source) and (count < extent or source[at] == 1):
            count, at = count * source[at], at + 1
            group.append(at - 1)
        if count != extent:
            return None
        found.append(group)
    return found if at == len(source) else None


def _loop(chain: _Chain) -> ForOp | None:
    """The loop that adds up the tile and nothing else reads it, if there is one."""
    loops = among([defining_op(chain.tile)], ForOp) if chain.tile.has_one_use() else []
    if not loops:
        return None
    (loop,) = loops
    number = result_number(chain.tile)
    argument, given = loop.carried[number], defining_op(loop.yielded[number])
    neutral = spec_of(chain.body).monoid
    assert neutral is not None
    first = neutral.identity(bit_width(element_type(chain.tile.type)))
    adds = _is_same(given, chain.body) and given is not None and argument in given.operands
    alone = argument.has_one_use() and loop.yielded[number].has_one_use()
    return loop if adds and alone and constant_of(loop.iter_args[number]) == first else None


def _added(loop: ForOp, chain: _Chain) -> SSAValue:
    """What a loop adds in each iteration."""
    number = result_number(chain.tile)
    given = defining_op(loop.yielded[number])
    assert given is not None
    return next(value for value in given.operands if value is not loop.carried[number])


def _order(chain: _Chain, loop: ForOp | None, analysis: AffineAnalysis) -> Answer[_Order]:
    """The dims that are to be reduced first, and that along memory."""
    along = _along(chain.tile if loop is None else _added(loop, chain), chain.is_flat, analysis)
    if isinstance(along, No):
        return along
    order = _Order(*[[dim for dim in sorted(chain.dims) if (dim == along.plan) is last] for last in (False, True)])
    if not order.first:
        return No("it is the dim along memory alone")
    if loop is not None:
        return Yes(order, "in each iteration, but for the dim along memory" if order.last else "in each iteration")
    if not chain.is_flat and order.last in ([], chain.dims[-1:]):
        return No("the dim along memory is the last one")
    return Yes(order, "the dim along memory last" if order.last else "dim by dim")


def _along(tile: SSAValue, is_flat: bool, analysis: AffineAnalysis) -> Answer[int]:
    """The dim of a tile along which all loads that it is made of lie, or are one element."""
    seen, stack = set[tuple[SSAValue, Index]](), [(tile, identity(shape_of(tile.type)))]
    found = set[int]()
    while stack:
        key = stack.pop()
        maker = defining_op(key[0])
        if key in seen or not is_tile(key[0]):
            continue
        seen.add(key)
        if maker is None or not is_lazy(maker) or is_volatile(maker):
            return No("it needs a tile as a whole", maker)
        parts = operand_indices(*key)
        if among([maker], LoadOp):
            strides = _strides(*parts[0], analysis)
            if strides is None:
                return No("what it loads lies apart", maker)
            size = pointee_bytes(maker.operands[0].type)
            found |= {dim for dim, stride in strides.items() if stride == size}
            if is_flat and _is_run(strides, shape_of(tile.type), size):
                return No("it is one run of memory", maker)
            parts = parts[1:]
        stack += parts
    return Yes(found.pop()) if len(found) == 1 else No("no dim of it is that along memory")


def _strides(pointer: SSAValue, index: Index, analysis: AffineAnalysis) -> dict[int, int | None] | None:
    """How far apart a load's neighbours lie along each dim, in bytes, 0 for none; None for what the launch tells."""
    form = analysis.pointer(pointer, index)
    if form.base is None or form.offset.residual:
        return None
    found = dict[int, int | None]()
    for coord, stride in form.offset.coords.items():
        for field in coord:
            if field.src != CONST and not field.lo:
                found[field.src] = None if stride.constant is None else stride.constant << field.pos
    return found


def _is_run(strides: dict[int, int | None], shape: Sequence[int], size: int) -> bool:
    """Whether rows of a tile go on where others end."""
    for dim in reversed(range(len(shape))):
        if shape[dim] > 1 and strides.get(dim) != size:
            return False
        size *= shape[dim]
    return True


# --- writing ---------------------------------------------------------------------------------------------------------


def _rewrite(chain: _Chain, loop: ForOp | None, order: _Order) -> None:
    kind, b = chain.root.results[0].type, Builder(chain.root)
    if loop is None:
        made = _reduced(chain, chain.tile, [*order.first, *order.last], chain.root)
        replace(chain.root, [b.viewed(made, kind)])
        return
    number, tile = result_number(chain.tile), _added(loop, chain)
    combined = defining_op(loop.yielded[number])
    assert combined is not None
    part = _reduced(chain, tile, order.first, combined)
    combined.operands = [part if value is tile else value for value in combined.operands]
    loop.operands[3 + number] = Builder(loop).number(constant_of(loop.iter_args[number]) or 0, part.type)
    for value in (loop.carried[number], combined.results[0], chain.tile):
        retype(value, part.type)
    last = [dim - len([other for other in order.first if other < dim]) for dim in order.last]
    replace(chain.root, [b.viewed(_reduced(chain, chain.tile, last, chain.root), kind)])


def _reduced(chain: _Chain, tile: SSAValue, dims: Sequence[int], anchor: Operation) -> SSAValue:
    """A tile without some dims, in front of an operation."""
    b, left = Builder(anchor), list(range(len(shape_of(tile.type))))
    for dim in dims:
        tile = b.reduced(type(chain.body), tile, left.index(dim), chain.body.properties)
        left.remove(dim)
    return tile
