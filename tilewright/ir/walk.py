"""All operations of a piece of IR, in order, in time that does not grow with how deeply they are nested.

xDSL's own `walk` hands each operation up through every region around it: a chain of 300 `elif`s took ten seconds in it.
Its iterators and properties cost more than what passes ask of most operations; here the links are followed themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, overload

from xdsl.ir import Block, Operation, Region, SSAValue

Kind = TypeVar("Kind", bound=Operation)
Other = TypeVar("Other", bound=Operation)


def walk(root: Operation | Region | Block) -> Iterator[Operation]:
    """`root`, if it is an operation, and what stands inside of it, each before what stands inside of that.

    An operation may be removed once the next one has been asked for.
    """
    if isinstance(root, Operation):
        yield root
        waiting = _blocks(root.regions)
    else:
        waiting = [root] if isinstance(root, Block) else _blocks((root,))
    while waiting:
        node = waiting.pop()
        op: Operation | None = node._first_op if type(node) is Block else node  # type: ignore[assignment]
        while op is not None:
            following = op._next_op
            yield op
            if op.regions:
                if following is not None:
                    waiting.append(following)
                waiting += _blocks(op.regions)
                break
            op = following


@overload
def every(root: Operation | Region | Block, kind: type[Kind], /) -> list[Kind]: ...
@overload
def every(root: Operation | Region | Block, kind: type[Kind], other: type[Other], /) -> list[Kind | Other]: ...
def every(root: Operation | Region | Block, *kinds: type[Operation]) -> list[Any]:
    """The operations of some classes in a piece of IR, in order; they may be moved and removed meanwhile."""
    return [op for op in walk(root) if isinstance(op, kinds)]


@overload
def among(ops: Iterable[Operation | Block | None], kind: type[Kind], /) -> list[Kind]: ...
@overload
def among(ops: Iterable[Operation | Block | None], kind: type[Kind], other: type[Other], /) -> list[Kind | Other]: ...
def among(ops: Iterable[Operation | Block | None], *kinds: type[Operation]) -> list[Any]:
    """Those of some operations, or owners of values, that are of some classes."""
    return [op for op in ops if isinstance(op, kinds)]


def contains(root: Operation | Region | Block, *kinds: type[Operation]) -> bool:
    """Whether a piece of IR is, or holds, an operation of one of some classes."""
    return any(isinstance(op, kinds) for op in walk(root))


def read_by(root: Operation) -> Iterator[SSAValue]:
    """The operands of an operation and of those inside of it."""
    return (operand for op in walk(root) for operand in op._operands)


def ancestors(op: Operation) -> Iterator[Operation]:
    """The operations around one, the innermost first."""
    parent = op.parent_op()
    while parent is not None:
        yield parent
        parent = parent.parent_op()


def holder_in(block: Block, op: Operation) -> Operation:
    """The operation of a block that another one, which stands in the block or deeper, is or stands in."""
    return next(each for each in (op, *ancestors(op)) if each.parent_block() is block)


def enclosing(op: Operation, *kinds: type[Kind]) -> Kind | None:
    """The innermost operation of one of some classes around another."""
    return next((parent for parent in ancestors(op) if isinstance(parent, kinds)), None)


def operations(block: Block) -> list[Operation]:
    """The operations of a block, without what stands inside of them."""
    found = []
    op = block._first_op
    while op is not None:
        found.append(op)
        op = op._next_op
    return found


def _blocks(regions: tuple[Region, ...]) -> list[Operation | Block]:
    """Their blocks, the last one first."""
    found: list[Operation | Block] = []
    for region in reversed(regions):
        block = region._last_block
        while block is not None:
            found.append(block)
            block = block._prev_block
    return found
