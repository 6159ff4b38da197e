"""Chains of products turned over: what is computed of a product is computed transposed where the next ones read it so.

wgmma takes its left operand from registers, in the layout in which another product leaves its result; what it reads
transposed, or as the right operand, goes through shared memory. Where more readers want the transposed tile, the
product at the head of the chain is turned over, (A B)^T = B^T A^T, whose operands lie in shared memory anyway, and all
that is computed of it:

    %s = tt.dot %q, %k, 0                       %s = tt.dot (tt.trans %k), (tt.trans %q), 0
    %p = f (%s, rows of %m)                     %p = f (%s, columns of %m)
    %v = tt.dot (tt.trans %p), %g, %v      ->   %v = tt.dot %p, %g, %v
    %d = tt.dot (tt.trans %q), %p, %d           %e = tt.dot %p, %q, %e          d = tt.trans %e, after the loop

So the scores in the loop over queries of attention's gradient never leave registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.recurrences import carried_sum
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.plan.dots import fragment_bits, is_wgmma
from tilewright.backends.nvidia.plan.subjects import TURNED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.values import is_tile, users_of
from tilewright.ir.walk import every
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.dot import DotOp
from tilewright.ops.shape import TransOp
from tilewright.ops.spec import REGISTRY
from tilewright.passes.building import Builder
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import replace
from tilewright.passes.transposed_sums import sum_transposed

_LEAST_ROWS = 64  # of a product of whole groups of warps, and of one that is turned over


@dataclass
class Chain:
    """What is computed of products of a block, element by element, and who reads it.

    Args:
        heads: the products.
        tiles: their results, and what is computed of these.
        left, right: products that read a tile as operand A, or B.
        views: transpositions of tiles for products.
        refused: why it has to stay as it is; None if nothing is against turning it.
    """

    heads: list[DotOp] = field(default_factory=list)
    tiles: list[SSAValue] = field(default_factory=list)
    left: list[DotOp] = field(default_factory=list)
    right: list[DotOp] = field(default_factory=list)
    views: list[TransOp] = field(default_factory=list)
    refused: No | None = None

    @property
    def readers(self) -> list[Operation]:
        """Who reads a tile for other products."""
        return [*self.left, *self.right, *self.views]


def turn_chains(module: ModuleOp, num_warps: int, arch: Arch, decisions: Decisions) -> bool:
    """Turn over every chain of a simplified module that is better read transposed, in place; whether there was one.

    Args:
        module: tile IR, all calls inlined.
        num_warps: warps of a block.
        arch: what the target has.
        decisions: of the compilation.
    """
    changed = False
    heads = [op for op in every(module, DotOp) if _may_head(op, num_warps, arch)]
    seen: set[Operation] = set()
    for head in heads:
        if head in seen:
            continue
        chain = _chain(head, set(heads))
        seen.update(chain.heads)
        if chain.readers and decisions.note(TURNED, head, _worth(chain)) is not None:
            _Turning(chain).run()
            changed = True
    if changed:
        eliminate_common_subexpressions(module)
        eliminate_dead_code(module)
    return changed


def _may_head(op: DotOp, num_warps: int, arch: Arch) -> bool:
    """Whether a product is one of whole groups of warps either way round, added to rows, columns and constants."""
    shape = shape_of(op.d.type)
    if len(shape) != 2 or min(shape) < _LEAST_ROWS or fragment_bits(op, arch) != 16 or not _is_made_anyhow(op.c):
        return False
    return element_type(op.a.type) == element_type(op.b.type) and is_wgmma(op, num_warps, arch)


def _chain(head: DotOp, heads: set[DotOp]) -> Chain:
    """The chain of a product."""
    chain, block, shape = Chain([head], [head.d]), head.parent_block(), shape_of(head.d.type)
    seen: set[SSAValue] = {head.d}
    for tile in chain.tiles:  # grows meanwhile
        for use in tile.uses:
            user = use.operation
            if isinstance(user, DotOp) and use.index < 2 and user.parent_block() is block:
                (chain.right if use.index else chain.left).append(user)
            elif isinstance(user, TransOp) and _is_for_products(user, block):
                chain.views.append(user)
            elif _is_lanewise(user, shape) and user.parent_block() is block:
                for value in _tiles_of(user):
                    if value in seen or _is_made_anyhow(value):
                        continue
                    seen.add(value)
                    chain.tiles.append(value)
                    maker = value.owner
                    if isinstance(maker, DotOp) and maker in heads:
                        chain.heads.append(maker)
                    elif not (isinstance(maker, Operation) and _is_lanewise(maker, shape)):
                        chain.refused = No("a tile that takes part is loaded, or comes from before", user)
            else:
                chain.refused = No(f"{describe_op(user)} reads it as it is", user)
    inner = next((dot for dot in chain.heads if any(value in seen for value in _operands(dot))), None)
    if inner is not None:
        chain.refused = No("a product of the chain is multiplied in it again", inner)
    return chain


def _operands(dot: DotOp) -> tuple[SSAValue, ...]:
    """A and B, as they were before somebody transposed them."""
    return tuple(v.owner.src if isinstance(v.owner, TransOp) else v for v in (dot.a, dot.b))


def _is_for_products(op: TransOp, block: Block | None) -> bool:
    users = users_of(op.result)
    return bool(users) and all(
        isinstance(user, DotOp) and user.parent_block() is block and user.c is not op.result for user in users
    )


def _is_lanewise(op: Operation, shape: tuple[int, ...]) -> bool:
    """Whether an operation computes each element of tiles of this shape from those at the same place."""
    spec = REGISTRY.get(op.name)
    is_elementwise = spec is not None and bool(spec.elementwise) and not op.attributes
    return is_elementwise and all(shape_of(value.type) == shape for value in _tiles_of(op))


def _tiles_of(op: Operation) -> Iterator[SSAValue]:
    yield from (value for value in (*op.operands, *op.results) if is_tile(value))


def _is_made_anyhow(value: SSAValue) -> bool:
    """Whether a tile is made of constants, rows and columns alone: as easily transposed."""
    owner = value.owner
    if constant_of(value) is not None or isinstance(owner, SplatOp):
        return True
    if isinstance(owner, BroadcastOp):
        return _is_made_anyhow(owner.src)
    if isinstance(owner, ExpandDimsOp):
        return len(shape_of(value.type)) == 2
    if not isinstance(owner, Operation) or not _is_lanewise(owner, shape_of(value.type)):
        return False
    return all(_is_made_anyhow(operand) for operand in owner.operands if is_tile(operand))


# --- is it worth it? ----------------------------------------------------------------------------------------------


def _worth(chain: Chain) -> Answer[Chain]:
    """Whether fewer tiles go through shared memory if the chain is turned over."""
    if chain.refused is not None:
        return chain.refused
    saved = [view for view in chain.views if any(use.index == 0 for use in view.result.uses)]
    turned = [dot for dot in chain.right if _large_sum(dot) is not None]
    lost = chain.left
    gain = len(saved) + len({_operands(dot)[1] for dot in turned}) - len({_operands(dot)[0] for dot in lost})
    if gain <= 0:
        return No("products read it in the layout of its result, or as often as transposed")
    return Yes(chain, f"{gain} tiles fewer go through shared memory")


def _large_sum(dot: DotOp) -> int | None:
    """`carried_sum` of a product with enough rows and columns for whole groups of warps."""
    return None if min(shape_of(dot.d.type)) < _LEAST_ROWS else carried_sum(dot)


# --- the rewrite --------------------------------------------------------------------------------------------------


class _Turning:
    """Rewrites one chain."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.known: dict[SSAValue, SSAValue] = {}

    def run(self) -> None:
        """Let the readers read what is computed transposed; what they read before is dead then."""
        for view in self.chain.views:
            replace(view, [self.turned(view.src)])
        for dot in dict.fromkeys(self.chain.right):
            number = _large_sum(dot)
            if number is None:
                dot.operands[1] = self._back(dot.b, dot)
            else:
                sum_transposed(dot, number, self.turned(dot.b), Builder(dot).transposed(dot.a))
        for dot in dict.fromkeys(self.chain.left):
            if dot.parent_block() is not None:
                dot.operands[0] = self._back(dot.a, dot)

    def _back(self, value: SSAValue, dot: DotOp) -> SSAValue:
        """A tile of the chain as it was, for a reader that does not turn."""
        return Builder(dot).transposed(self.turned(value))

    def turned(self, value: SSAValue) -> SSAValue:
        """A tile of the chain with rows and columns exchanged, computed where it is computed as it was."""
        if not is_tile(value):
            return value
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._made(value)
        return found

    def _made(self, value: SSAValue) -> SSAValue:
        op = value.owner
        assert isinstance(op, Operation)
        if isinstance(op, ConstantOp):
            return Builder(op).transposed(value)
        kind = tile_type(shape_of(value.type)[::-1], element_type(value.type))
        if isinstance(op, DotOp):
            operands = [*(Builder(op).transposed(value) for value in (op.b, op.a)), self.turned(op.c)]
            return Builder(op).again(op, kind, *operands)
        properties: dict[str, Attribute] = dict(op.properties)
        if isinstance(op, ExpandDimsOp):
            properties["axis"] = I32.encode(1 - op.attr_values()["axis"])  # type: ignore[assignment]
            operands = [op.src]
        else:
            operands = [self.turned(operand) for operand in op.operands]
        return Builder(op).put(type(op).create(operands=operands, result_types=[kind], properties=properties))


__all__ = ["turn_chains"]
