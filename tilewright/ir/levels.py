"""Levels of the program: which operations and types are legal at each, and a check that says what is not.

A level is data. `verify` runs xDSL's structural verification, then the level's rules, then the check of
types that the caller gives (the type rules live with the operations, above this room).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import MAX_TILE_NUMEL
from tilewright.base.errors import TilewrightError, VerificationError
from tilewright.ir.op import location_of
from tilewright.ir.text import print_op
from tilewright.ir.types import is_float, is_integer, is_pointer
from tilewright.ir.walk import walk

Check = Callable[[Operation], None]
TypeRule = Callable[[Attribute], "str | None"]


@dataclass(frozen=True)
class Level:
    """What is legal at one level.

    Args:
        name: shown in errors and used as the file extension of the level's text.
        ops: names of the legal operations.
        type_rule: says what is wrong with a type, or `None`.
        check: raises a `TilewrightError` for an operation whose operands or results do not fit its rules.
    """

    name: str
    ops: frozenset[str]
    type_rule: TypeRule
    check: Check


def tile_type_rule(type_: Attribute) -> str | None:
    """Tile IR: numbers, pointers, and tiles of them, of any shape."""
    element = type_
    if isinstance(type_, TensorType):
        element, total = type_.element_type, 1
        for dim in type_.get_shape():
            if dim <= 0:
                return f"dimension {dim} of {type_} is not positive"
            total *= dim
        if not type_.get_shape() or total > MAX_TILE_NUMEL:
            return f"{type_} does not have between 1 and {MAX_TILE_NUMEL} elements in one or more dimensions"
    if is_integer(element) or is_pointer(element) or is_float(element):
        return None
    return f"{element} is neither a number nor a pointer"


def verify(module: ModuleOp, level: Level) -> None:
    """Check that `module` obeys `level`.

    Raises:
        VerificationError: with the operation's text and its place in the user's source.
    """
    try:
        module.verify()
    except VerifyException as error:
        raise VerificationError(f"{level.name}: {error}") from None
    for op in walk(module):
        if op is module:
            continue
        if op.name not in level.ops:
            raise _error(op, level, f"{op.name} is not legal at this level")
        for result in op.results:
            wrong = level.type_rule(result.type)
            if wrong is not None:
                raise _error(op, level, wrong)
        try:
            level.check(op)
        except TilewrightError as error:
            raise _error(op, level, str(error)) from error


def _error(op: Operation, level: Level, message: str) -> VerificationError:
    place = location_of(op)
    text = print_op(op).split("\n", 1)[0]
    at = f"\n{place.render()}" if place is not None else ""
    return VerificationError(f"{level.name}: {message}\n  {text}{at}")
