"""Blocks of one batch become matrices: dims of 1 are taken from products, from what loops carry to them, from loads.

    %d = tt.dot %a, %b, %c : .. -> tensor<1x64x64xf32>  ->  %e = tt.dot (reshape %a), (reshape %b), (reshape %c)
                                                            %d = tt.reshape %e
    for .. (%c = %z : tensor<1x64x64xf32>)              ->  for .. (%m = (reshape %z) : tensor<64x64xf32>)
      .. tt.reshape %c ..  yield (reshape %m)                 .. %m ..  yield %m
    tt.reshape (tt.load %p)                             ->  tt.load (tt.reshape %p)

Kernels that compilers write have such blocks. A planner that looks for a load behind the operand of a product, or for
the sum that a loop hands to it, then finds it, whatever the rank of the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import ReshapeOp
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.rewriting import erase, insert_before, replace


def drop_unit_dims(root: Operation) -> bool:
    """Rewrite all of them below `root`, in place; says whether there was one."""
    dots = [op for op in walk(root) if isinstance(op, DotOp) and _is_of_one_batch(op)]
    if not dots and not any(isinstance(op, ReshapeOp) for op in walk(root)):
        return False
    changed = bool(dots)
    for dot in dots:
        _multiply_matrices(dot)
    for op in list(walk(root)):
        if isinstance(op, ForOp):
            changed |= _carry_in_shape_of_use(op)
    for op in list(walk(root)):
        if isinstance(op, ReshapeOp) and isinstance(op.src.owner, LoadOp) and op.src.has_one_use() and _is_by_ones(op):
            _load_in_shape_of_use(op.src.owner, op)
            changed = True
    if changed:
        canonicalize(root)
    return changed


def _is_of_one_batch(dot: DotOp) -> bool:
    shape = shape_of(dot.d.type)
    return len(shape) == 3 and shape[0] == 1


def _is_by_ones(op: ReshapeOp) -> bool:
    """Whether a reshape does nothing but drop or add dims of 1."""
    before, after = ([size for size in shape_of(value.type) if size != 1] for value in (op.src, op.result))
    return before == after


def _reshaped(value: SSAValue, shape: Sequence[int], anchor: Operation) -> SSAValue:
    """A tile under another shape, made in front of `anchor`."""
    made = ReshapeOp.create(operands=[value], result_types=[tile_type(shape, element_type(value.type))])
    insert_before(made, anchor)
    return made.result


def _multiply_matrices(dot: DotOp) -> None:
    """A product of one batch as one of matrices."""
    shape = shape_of(dot.d.type)
    operands = [_reshaped(value, shape_of(value.type)[1:], dot) for value in dot.operands]
    made = DotOp.create(operands=operands, result_types=[operands[2].type], properties=dict(dot.properties))
    insert_before(made, dot)
    replace(dot, [_reshaped(made.d, shape, dot)])


def _carry_in_shape_of_use(loop: ForOp) -> bool:
    """Tiles that a loop carries, reads in another shape alone, and hands on from that shape."""
    body, types = loop.body.block, dict[int, Attribute]()
    last = body.last_op
    assert last is not None
    for number, argument in enumerate(body.args[1:]):
        users, handed = [use.operation for use in argument.uses], last.operands[number].owner
        if not isinstance(handed, ReshapeOp) or not all(isinstance(user, ReshapeOp) for user in users):
            continue
        if _is_by_ones(handed) and {user.results[0].type for user in users} == {handed.src.type}:
            types[number] = handed.src.type
    if types:
        _carry(loop, types)
    return bool(types)


def _carry(loop: ForOp, types: dict[int, Attribute]) -> None:
    """Let a loop carry values of these types, by their numbers."""
    body, inits = loop.body.block, list(loop.operands[3:])
    last = body.last_op
    assert last is not None
    yielded = list(last.operands)
    for number, kind in types.items():
        inits[number] = _reshaped(inits[number], shape_of(kind), loop)
        made, old = body.insert_arg(kind, number + 1), body.args[number + 2]
        for use in list(old.uses):
            replace(use.operation, [made])
        body.erase_arg(old)
        handed = yielded[number].owner
        assert isinstance(handed, ReshapeOp)
        yielded[number] = handed.src
    last.operands = yielded
    made_loop = ForOp.create(
        operands=[*loop.operands[:3], *inits],
        result_types=[value.type for value in inits],
        properties=dict(loop.properties),
        attributes=dict(loop.attributes),
        regions=[loop.detach_region(0)],
    )
    insert_before(made_loop, loop)
    replace(
        loop,
        [
            _reshaped(new, shape_of(old.type), loop) if number in types else new
            for number, (new, old) in enumerate(zip(made_loop.results, loop.results, strict=True))
        ],
    )


def _load_in_shape_of_use(load: LoadOp, reshape: ReshapeOp) -> None:
    """Load what only a reshape reads in the shape that this gives it."""
    shape = shape_of(reshape.result.type)
    made = LoadOp.create(
        operands=[_reshaped(operand, shape, load) for operand in load.operands],
        result_types=[reshape.result.type],
        properties=dict(load.properties),
        attributes=dict(load.attributes),
    )
    insert_before(made, load)
    replace(reshape, [made.result])
    erase(load)
