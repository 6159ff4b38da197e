"""What a kernel reads and writes, told to torch in the way in which torch asks: as operations that it can walk.

torch finds out what a kernel of a user mutates by walking Triton's IR from its stores back to parameters. It gets a
function that says the same in as few operations as possible, made of the effects that Tilewright has found::

    tt.func(p0, p1, ...) { tt.load p0; tt.store p1; ...; tt.return }

Every operand is a parameter, so there is nothing to follow, and nothing that torch would not understand. Integers whose
values torch has are constants, so that stores which these rule out do not count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tilewright.base.errors import CompilationError, UnsupportedError
from tilewright.ops.function import FuncOp, ReturnOp
from tilewright.ops.memory import LoadOp, StoreOp

_numbers = count(1)


class Numbered:
    """A value, block or region: something with an identity."""

    def __init__(self) -> None:
        self._number = next(_numbers)

    def id(self) -> int:
        """Its identity."""
        return self._number


class Block(Numbered):
    """The body of the function.

    Args:
        arguments: the parameters.
    """

    def __init__(self, arguments: Sequence[Numbered]) -> None:
        super().__init__()
        self.arguments, self.region = arguments, Numbered()

    def get_num_arguments(self) -> int:
        """Number of parameters."""
        return len(self.arguments)

    def get_argument(self, index: int) -> Numbered:
        """A parameter."""
        return self.arguments[index]

    def get_parent(self) -> Numbered:
        """The region that holds the block."""
        return self.region


@dataclass
class Op:
    """An operation.

    Args:
        name: as in Triton's IR.
        operands, results, regions: what it has of each.
        block: that holds it.
        symbol: name of a function.
    """

    name: str
    operands: Sequence[Numbered] = ()
    results: Sequence[Numbered] = ()
    regions: Sequence[Numbered] = ()
    block: Block | None = None
    symbol: str = ""

    def __getattr__(self, asked: str) -> Callable[..., Any]:
        """`get_num_operands()`, `get_operand(i)` and the same for results and regions."""
        kind = asked.removeprefix("get_").removeprefix("num_").removesuffix("s")
        if not asked.startswith("get_") or f"{kind}s" not in ("operands", "results", "regions"):
            raise AttributeError(asked)
        items: Sequence[Numbered] = getattr(self, f"{kind}s")
        return (lambda: len(items)) if "num_" in asked else items.__getitem__

    def get_name(self) -> str:
        """Name of the operation."""
        return self.name

    def get_block(self) -> Block | None:
        """The block that holds it."""
        return self.block

    def get_str_attr(self, name: str) -> str | None:
        """A text attribute: the name of the function."""
        return self.symbol if name == "sym_name" else None


@dataclass
class Walk:
    """The operations, innermost first."""

    ops: Sequence[Op]

    def verify(self) -> bool:
        """Whether it is well formed."""
        return True

    def walk(self, visit: Callable[[Op], None]) -> None:
        """Call `visit` on every operation, those inside another one before it."""
        for op in self.ops:
            visit(op)


def walk_of(
    fn: Any, signature: Mapping[str, Any], constants: Mapping[str, Any], integers: Mapping[str, int] | None = None
) -> Walk:
    """The effects of a kernel as a walk.

    Args:
        fn: the kernel.
        signature: type by parameter name, "constexpr" for constants.
        constants: value by name.
        integers: values, by name, of integers that are no constants of the kernel.

    Raises:
        UnsupportedError: an argument that is a tuple or a descriptor.
    """
    types = {name: _kind(kind, name) for name, kind in signature.items() if name not in constants}
    found = _effects(fn, types, dict(constants), integers or {})
    pointers = [name for name, kind in types.items() if kind.startswith("*")]
    touched = {side: {fn.arg_names[path[0]] for path in getattr(found, side)} for side in ("reads", "writes")}
    if found.unsure_write is not None:
        touched["writes"] = set(pointers)
    values = {name: Numbered() for name in types}
    body = Block(list(values.values()))
    loads = [Op(LoadOp.name, [values[n]], [Numbered()], block=body) for n in pointers if n in touched["reads"]]
    stores = [Op(StoreOp.name, [values[n]], block=body) for n in pointers if n in touched["writes"]]
    end = Op(ReturnOp.name, block=body)  # of a kernel that does nothing the body would be unknown without it
    function = Op(FuncOp.name, regions=[body.region], symbol=fn.fn.__name__)
    return Walk([*loads, *stores, end, function, Op("builtin.module")])


def _effects(fn: Any, types: Mapping[str, str], constants: Mapping[str, Any], integers: Mapping[str, int]) -> Any:
    """The effects with integers as constants, or of any value where the kernel does not compile with those."""
    if integers:
        with contextlib.suppress(CompilationError):
            rest = {name: kind for name, kind in types.items() if name not in integers}
            return fn.effects(rest, {**constants, **integers})
    return fn.effects(types, constants)


def _kind(kind: Any, name: str) -> str:
    """Kind of an argument whose value is not known, by its type in a signature."""
    if not isinstance(kind, str) or kind.startswith("tensordesc"):
        raise UnsupportedError(f"argument `{name}` is of type {kind}, which torch's analysis is not told about")
    if kind.startswith("*"):
        return kind
    if kind in ("u1", "i1"):
        return "bool"
    return "int" if kind[0] in "iu" else "float"
