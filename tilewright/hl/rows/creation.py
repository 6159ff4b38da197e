"""Tiles made from nothing, conversions of type, and our own scalar nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.hl.graph.nodes import Node, Value
from tilewright.hl.rows.dtypes import fitted, literal
from tilewright.hl.rows.table import UNKNOWN, Emitter, Pads, Row, row
from tilewright.hl.symbols import Atom


@dataclass(frozen=True)
class Fill(Row):
    """A tile of one value.

    Args:
        value: the value, where it is not an argument.
        at: position of the argument that is the value.
    """

    value: Any = None
    at: int = 1

    def _value(self, node: Node) -> Any:
        return self.value if self.value is not None else node.args[0]

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (() if self.value is not None else (args[self.at],)), {}

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        value = fitted(self._value(node), node.out.dtype)
        return value if isinstance(value, bool | int | float) else UNKNOWN

    def emit(self, emitter: Emitter, node: Node) -> None:
        out = node.out
        value = fitted(self._value(node), out.dtype)
        if not out.dims:
            is_whole = out.dtype.is_floating_point and isinstance(value, bool | int)
            emitter.alias(out, float(value) if is_whole else value)
            return
        text = literal(value) if isinstance(value, bool | int | float) else emitter.operand(value, out.dtype)
        emitter.assign(out, f"tl.full({emitter.shape(out.dims)}, {text}, {emitter.dtype(out.dtype)})")


@dataclass(frozen=True)
class Convert(Row):
    """A conversion of type."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args[:1], {}

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        known = pads.of(node.args[0], atom)
        return (
            known
            if known in (0, 1, float("-inf"), float("inf")) and out.dtype.is_floating_point
            else (known if known in (0, 1) else UNKNOWN)
        )

    def emit(self, emitter: Emitter, node: Node) -> None:
        text = emitter.typed if node.out.dtype.is_floating_point else emitter.operand  # an integer fits in as it is
        emitter.assign(node.out, text(node.args[0], node.out.dtype))


@dataclass(frozen=True)
class Symbol(Row):
    """A symbol as a 0-d value: written where it is used."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        emitter.alias(node.out, node.args[0])


@dataclass(frozen=True)
class Compare(Row):
    """A comparison of symbols."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        op, left, right = node.args
        emitter.assign(node.out, f"{emitter.operand(left)} {op} {emitter.operand(right)}")


_EMPTY = ("empty", "empty_like", "new_empty")  # nobody may rely on what they hold
for _value, _names in ((0, ("zeros", "zeros_like", "new_zeros", *_EMPTY)), (1, ("ones", "ones_like", "new_ones"))):
    for _name in _names:
        row(Fill(_name, None, _value))
for _name, _at in (("full", 1), ("full_like", 1), ("new_full", 2), ("scalar_tensor", 0)):
    row(Fill(_name, None, None, _at))
row(Convert("_to_copy"))
row(Symbol("sym"))
row(Compare("compare"))
