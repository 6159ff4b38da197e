"""Base class of the operations of tile IR.

An operation class states operands, results, attributes and effects as fields; its
meaning (types, reference, facts, lowering) is the `OpSpec` beside it in `ops/`.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from xdsl.dialects.builtin import CallSiteLoc as _CallSiteLoc
from xdsl.dialects.builtin import FileLineColLoc, FusedLoc, IntAttr, NameLoc, StringAttr, UnknownLoc
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from tilewright.base.location import Location
from tilewright.ir.attrs import Codec

_Op = TypeVar("_Op", bound="TileOp")


class _OpType(ABCMeta):
    """Of xDSL's operations, `isinstance` asks a registry in Python; no class of ours is registered for another."""

    __instancecheck__ = type.__instancecheck__


class TileOp(IRDLOperation, metaclass=_OpType):
    """An operation of tile IR.

    `ATTRS` maps each property name to the codec that gives it as a Python value.
    """

    ATTRS: ClassVar[Mapping[str, Codec]] = {}

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
        if all(isinstance(o, SSAValue) for o in operands):
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


def to_loc_attr(location: Location | None) -> Attribute:
    """`Location` as the MLIR location printed after an operation."""
    if location is None:
        return UnknownLoc()
    here = FileLineColLoc(StringAttr(location.file), IntAttr(location.line), IntAttr(location.col))
    return here if location.caller is None else _CallSiteLoc(here, to_loc_attr(location.caller))


def from_loc_attr(attribute: Attribute | None) -> Location | None:
    """The reverse of :func:`to_loc_attr`; forms that carry no position give ``None``."""
    if isinstance(attribute, FileLineColLoc):
        return Location(attribute.filename.data, attribute.line.data, attribute.column.data)
    if isinstance(attribute, NameLoc):
        return from_loc_attr(attribute.location)
    if isinstance(attribute, FusedLoc):
        places = [from_loc_attr(part) for part in attribute.locations]  # type: ignore[attr-defined]
        return next((place for place in places if place is not None), None)
    if isinstance(attribute, _CallSiteLoc):
        inner, caller = from_loc_attr(attribute.callee), from_loc_attr(attribute.caller)
        if inner is not None:
            return Location(inner.file, inner.line, inner.col, caller=caller)
    return None


def location_of(op: Operation) -> Location | None:
    """Where in the user's source `op` comes from."""
    return from_loc_attr(op.location)
