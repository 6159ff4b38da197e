"""The table of operations, keyed by aten name, and what a row is.

A row says how its node is written in `tl` (`emit`), what the lanes that a mask cuts off hold afterwards (`pads`), and
what it needs them to hold before (`needs`). A recipe is a function on tensors; the dispatch mode runs it in the place
of the operation, so it is traced operation by operation. The files beside this one fill the table when they are
imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.hl import exc
from tilewright.hl.dims import Dim
from tilewright.hl.graph.nodes import Node, Region, Value
from tilewright.hl.symbols import Atom

ROWS: dict[str, Row] = {}
RECIPES: dict[str, Callable[..., Any]] = {}
REFUSED: dict[str, str] = {  # aten name -> why it has no meaning on tiles
    "_local_scalar_dense": "a Python number is needed here, and a tile has its values only when the kernel runs; "
    "a value of one element is computed with as it is, without item(), float() or int()",
    "is_nonzero": "a Python bool is needed here, and a tile has its values only when the kernel runs",
}


class Unknown:
    """What is known of lanes of which nothing is known."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN = Unknown()


class Emitter(Protocol):
    """What rows see of the code generator."""

    @property
    def gpu(self) -> bool:
        """Whether the text is for a GPU."""

    def operand(self, arg: Any, dtype: Any = None) -> str:
        """The text of a value, number or symbol, converted to `dtype` where it has another."""

    def typed(self, value: Value, dtype: Any) -> str:
        """The text of a value converted to `dtype`: numbers and symbols get their type."""

    def shape(self, dims: tuple[Dim, ...]) -> str:
        """The text of a shape: "[64, 128]"."""

    def extent(self, dim: Dim) -> int | str:
        """The number of lanes of a dimension."""

    def dtype(self, dtype: Any) -> str:
        """A type of PyTorch as `tl` writes it."""

    def assign(self, value: Value, text: str) -> None:
        """Write an assignment to `value`."""

    def assign_all(self, values: list[Value], text: str) -> None:
        """Write an assignment to one value or to several at once."""

    def write(self, text: str) -> None:
        """Write a statement."""

    def module_text(self, text: str) -> None:
        """Put definitions beside the kernel, once."""

    def function(self, wish: str, region: Region) -> str:
        """The name of a function of elements whose body is `region`."""

    def alias(self, value: Value, of: Any) -> None:
        """`value` is another name of `of`: nothing is written."""


class Pads(Protocol):
    """What rows see of the analysis of masked lanes."""

    def of(self, value: Any, atom: Atom) -> Any:
        """What the lanes of `value` hold that the axis `atom` masks: a constant or `UNKNOWN`."""


@dataclass(frozen=True)
class Need:
    """A row needs `neutral` in the masked lanes of dimensions `dims` of `value`."""

    value: Value
    dims: tuple[int, ...]
    neutral: Any


@dataclass(frozen=True)
class Row:
    """An operation.

    Args:
        name: aten name without the overload.
        keep: positions of the arguments that the graph holds; None for all. Sizes are never held: the dimensions of the
            result say them.
    """

    name: str
    keep: tuple[int, ...] | None = None

    # Keyword arguments that say nothing about values.
    DROPPED = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking", "half_to_float"))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the graph holds of a call.

        Raises:
            UnsupportedOperation: the call is one that the row does not have.
        """
        kept = args if self.keep is None else tuple(args[at] for at in self.keep if at < len(args))
        return kept, {name: value for name, value in kwargs.items() if name not in self.DROPPED}

    def compute_type(self, args: tuple[Any, ...], out: Any) -> Any:
        """The type in which operands meet, where it is not the result's."""
        return None

    def needs(self, node: Node) -> list[Need]:
        """What masked lanes of operands must hold."""
        return []

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        """What the lanes of `out` hold that the axis `atom` masks."""
        return UNKNOWN

    def emit(self, emitter: Emitter, node: Node) -> None:
        """Write the node."""
        raise NotImplementedError


def row(made: Row) -> Row:
    """Put a row into the table."""
    assert made.name not in ROWS, made.name
    ROWS[made.name] = made
    return made


def recipe(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function on tensors that stands for aten operations; where it returns NotImplemented, a row does."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in RECIPES, name
            RECIPES[name] = function
        return function

    return register


def refuse(name: str, why: str) -> None:
    """Register an operation that has no meaning on tiles."""
    REFUSED[name] = why


def unknown(name: str) -> exc.UnsupportedOperation:
    """The error for an operation that the table does not have."""
    if name in REFUSED:
        return exc.UnsupportedOperation(f"{name} cannot be computed on tiles: {REFUSED[name]}")
    near = difflib.get_close_matches(name, [*ROWS, *RECIPES], 3)
    hint = f"near names that exist: {', '.join(near)}" if near else "write it with operations that exist"
    return exc.UnsupportedOperation(f"{name} is not known to hl", hint=hint)
