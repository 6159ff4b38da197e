"""The level spec of tile IR ("ttir"), built from the registry of operations."""

from __future__ import annotations

import functools

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from tilewright.base.errors import VerificationError
from tilewright.ir.levels import Level, tile_type_rule
from tilewright.ir.levels import verify as verify_level
from tilewright.ir.op import TileOp
from tilewright.ops import families
from tilewright.ops.descriptor import TensorDescType
from tilewright.ops.spec import REGISTRY, call_of, spec_of


def check_types(op: Operation) -> None:
    """Raise unless the result types of `op` are those that its `infer` gives for its operands.

    Raises:
        VerificationError: they differ. ShapeError, DTypeError: the operands do not fit each other.
    """
    if not isinstance(op, TileOp):
        raise VerificationError(f"{op.name} is not an operation of tile IR")
    found = tuple(result.type for result in op.results)
    wanted = tuple(spec_of(op).infer(call_of(op)))
    if found != wanted:
        names = [", ".join(map(str, types)) or "none" for types in (found, wanted)]
        raise VerificationError(f"{op.name} has results of type {names[0]} where {names[1]} follows from its operands")


@functools.cache
def ttir() -> Level:
    """Tile IR: every registered operation, on tiles, scalars and descriptors."""
    assert families.FAMILIES
    return Level("ttir", frozenset(REGISTRY), type_rule, check_types)


def type_rule(type_: Attribute) -> str | None:
    """Says what is wrong with a type of tile IR, or `None`."""
    return tile_type_rule(type_.block if isinstance(type_, TensorDescType) else type_)


def verify(module: ModuleOp) -> None:
    """Check that `module` is legal tile IR.

    Raises:
        VerificationError: with the operation's text and its place in the user's source.
    """
    verify_level(module, ttir())
