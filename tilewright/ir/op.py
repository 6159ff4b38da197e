"""Base class of the operations of tile IR.

An operation class states operands, results, attributes and effects as fields; its
meaning (types, reference, facts, lowering) is the `OpSpec` beside it in `ops/`.
"""

from __future__ import annotations

import functools
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from xdsl.dialects.builtin import CallSiteLoc as _CallSiteLoc
from xdsl.dialects.builtin import FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import Attribute, BlockArgument, IRNode, Operation, OpResult, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.traits import OpTrait

from tilewright.base.location import Location
from tilewright.ir.attrs import Codec

_VALUES = frozenset({OpResult, BlockArgument})  # `isinstance` asks a registry in Python
_Op = TypeVar("_Op", bound="TileOp")


class _OpType(ABCMeta):
    """Of xDSL's operations, `isinstance` asks a registry in Python; no class of ours is registered for another."""

    __instancecheck__ = type.__instancecheck__


class TileOp(IRDLOperation, metaclass=_OpType):
    """An operation of tile IR.

    `ATTRS` maps each property name to the codec that gives it as a Python value.
    """

    ATTRS: ClassVar[Mapping[str, Codec]] = {}
    # Operations are equal if they are one object; xDSL says so in Python.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        """Nothing: xDSL would look for defaults of all properties and attributes, and those of tile IR have none."""

    @classmethod
    def has_trait(cls, trait: type[OpTrait] | OpTrait, *, value_if_unregistered: bool = True) -> bool:
        """Whether operations of this class have a trait; xDSL looks through all of them each time."""
        return _has_trait(cls, trait)  # type: ignore[arg-type]

    def is_ancestor(self, op: IRNode) -> bool:
        """Whether `op` is this operation or stands inside of it; xDSL asks whenever an operation is inserted."""
        return op is self or (bool(self.regions) and super().is_ancestor(op))

    @classmethod
    def build_op(
        cls: type[_Op],
        operands: Sequence[SSAValue | Sequence[SSAValue]],
        result_types: Sequence[Attribute],
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Region] = (),
    ) -> _Op:
        """Make an operation; `attrs` holds Python values, absent ones are left out.

        Args:
            operands: one entry per operand field; a sequence for optional and variadic ones.
            result_types: IR types of the results.
            attrs: property values by name.
            regions: bodies.
        """
        properties = {name: enc for name, v in (attrs or {}).items() if (enc := cls.ATTRS[name].encode(v)) is not None}
        if _VALUES.issuperset(map(type, operands)):
            return cls.create(
                operands=list(operands),  # type: ignore[arg-type]
                result_types=list(result_types),
                properties=properties,
                regions=list(regions),
            )
        return cls(
            operands=list(operands), result_types=list(result_types), properties=properties, regions=list(regions)
        )

    def attr_values(self) -> dict[str, Any]:
        """All attributes as Python values; absent ones decode to their default."""
        return {name: codec.decode(self.properties.get(name)) for name, codec in self.ATTRS.items()}


@functools.cache
def _has_trait(kind: type[TileOp], trait: type[OpTrait] | OpTrait) -> bool:
    return kind.get_trait(trait) is not None


def from_loc_attr(attribute: Attribute | None) -> Location | None:
    """The location that an MLIR location says; None of forms that carry no position."""
    kind = type(attribute)  # `isinstance` asks a registry in Python
    if kind is FileLineColLoc:
        return Location(attribute.filename.data, attribute.line.data, attribute.column.data)  # type: ignore[union-attr]
    if kind is _CallSiteLoc:
        inner = from_loc_attr(attribute.callee)  # type: ignore[union-attr]
        if inner is not None:
            return Location(inner.file, inner.line, inner.col, caller=from_loc_attr(attribute.caller))  # type: ignore[union-attr]
    if kind is NameLoc:
        return from_loc_attr(attribute.location)  # type: ignore[union-attr]
    if kind is FusedLoc:
        places = [from_loc_attr(part) for part in attribute.locations]  # type: ignore[union-attr]
        return next((place for place in places if place is not None), None)
    return None


def location_of(op: Operation) -> Location | None:
    """Where in the user's source `op` comes from."""
    return from_loc_attr(op.location)
