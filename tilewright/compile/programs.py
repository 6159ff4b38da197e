"""Programs of a bundle: what a call of a host function did, as data that runs with neither the function nor PyTorch.

    Program("softmax", [Variant(arguments, buffers, steps, results), ...])

A variant is for arguments of certain types, shapes, strides and numbers. Its steps are launches with grid and
arguments; memory that the function made is a buffer. `hl` makes programs, `launch/bundled_program.py` runs them,
`c_program.py` writes them in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Number = bool | int | float


@dataclass(frozen=True)
class Memory:
    """A tensor: an argument, or one that the function made.

    Args:
        name: of the parameter; of a buffer a name for readers.
        dtype: as PyTorch and numpy name it: "float32".
        shape: extents.
        strides: in elements.
        fill: what all elements are at first; None for anything.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    fill: Number | None = None

    @property
    def elements(self) -> int:
        """How many elements lie between its first and its last one, both included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Given:
    """An argument that is no tensor; a call has to pass the same.

    Args:
        name: of the parameter.
        value: a number, a text or None.
    """

    name: str
    value: Any


@dataclass(frozen=True)
class At:
    """A place in memory.

    Args:
        memory: the number of an argument; behind them of a buffer.
        offset: in bytes, from its first element.
        dtype: of what lies there.
    """

    memory: int
    offset: int
    dtype: str


@dataclass(frozen=True)
class Step:
    """A launch.

    Args:
        kernel: its name in the bundle.
        grid: three numbers.
        arguments: by position: places and numbers.
        options: of the launch.
    """

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[At | Number, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """A tensor that a call returns.

    Args:
        at: where.
        shape: extents.
        strides: in elements.
    """

    at: At
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """What a call with certain arguments does.

    Args:
        target: of the kernels.
        arguments: tensors, and what else there is.
        buffers: what the function makes.
        steps: launches, in order.
        results: what it returns.
        single: whether it returns one tensor and no tuple.
    """

    target: str
    arguments: tuple[Memory | Given, ...]
    buffers: tuple[Memory, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    single: bool

    @property
    def memories(self) -> tuple[Memory | Given, ...]:
        """What places count: arguments, then buffers."""
        return (*self.arguments, *self.buffers)


@dataclass(frozen=True)
class Program:
    """A host function.

    Args:
        name: of it.
        variants: what it does, by arguments.
    """

    name: str
    variants: tuple[Variant, ...]


def to_rows(program: Program) -> dict[str, Any]:
    """A program as JSON has it."""
    return asdict(program)


def from_rows(rows: Mapping[str, Any]) -> Program:
    """The inverse of `to_rows`; raises what wrong rows raise."""
    return Program(str(rows["name"]), tuple(map(_variant, rows["variants"])))


def _variant(row: Mapping[str, Any]) -> Variant:
    arguments = tuple(_memory(one) if "dtype" in one else Given(**one) for one in row["arguments"])
    steps = tuple(
        Step(one["kernel"], _three(one["grid"]), tuple(map(_argument, one["arguments"])), dict(one["options"]))
        for one in row["steps"]
    )
    results = tuple(Result(At(**one["at"]), tuple(one["shape"]), tuple(one["strides"])) for one in row["results"])
    buffers = tuple(map(_memory, row["buffers"]))
    return Variant(str(row["target"]), arguments, buffers, steps, results, bool(row["single"]))


def _three(grid: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = grid
    return int(x), int(y), int(z)


def _memory(row: Mapping[str, Any]) -> Memory:
    return Memory(row["name"], row["dtype"], tuple(row["shape"]), tuple(row["strides"]), row["fill"])


def _argument(value: Any) -> At | Number:
    return At(**value) if isinstance(value, Mapping) else value
