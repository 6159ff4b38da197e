"""The language as plain Python, its functions on values: random numbers, functions of the user, pairs, rows of
different lengths.

Random numbers are those of the compiled kernels, from a Philox of its own: Salmon, Moraes, Dror and Shaw, "Parallel
random numbers: as easy as 1, 2, 3" (2011), four words of 32 bits and ten rounds.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.language.reference import tiles_of
from tilewright.hl.language.reference_tiles import RefTile, running

_WORD = 0xFFFFFFFF
_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_TO_UNIT = 4.6566127342e-10  # just below 2**-31


def jagged_tile(parent: Any) -> Iterator[Any]:
    """Tiles of one row's positions: the loops around run lane by lane."""
    if parent.numel() != 1:
        raise exc.BackendUnsupported(
            "hl.jagged_tile over several rows at once has no reference", hint="run the kernel compiled"
        )
    reference = running()
    assert reference is not None
    (size,) = reference.sizes(sys._getframe(2).f_lineno, 1)
    return iter(list(tiles_of(0, int(parent.reshape(())), size)))


# --- random numbers ------------------------------------------------------------------------------------------


def _product(factor: int, word: Any) -> tuple[Any, Any]:
    """(high, low) word of a product of 32-bit words, held as int64."""
    low = word * (factor & 0xFFFF)
    high = word * (factor >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def philox(seed: int, counter: Any) -> list[Any]:
    """Four words, as int64, for every element of an integer tensor."""
    c = [counter.long() & _WORD, (counter.long() >> 32) & _WORD, torch.zeros_like(counter.long())]
    c.append(c[2])
    keys = [seed & _WORD, (seed >> 32) & _WORD]
    for _ in range(10):
        (high_a, low_a), (high_b, low_b) = _product(_FACTORS[0], c[0]), _product(_FACTORS[1], c[2])
        c = [high_b ^ c[1] ^ keys[0], low_b, high_a ^ c[3] ^ keys[1], low_a]
        keys = [(key + step) & _WORD for key, step in zip(keys, _STEPS, strict=True)]
    return c


def _uniform(word: Any) -> Any:
    """A word as float32 in [0, 1)."""
    return torch.where(word > _WORD >> 1, _WORD - word, word).to(torch.float32) * _TO_UNIT


def _counter(shape: Any) -> Any:
    """The place of every element of a shape in the whole range, row after row."""
    total: Any = torch.zeros((), dtype=torch.int64)
    for entry in shape if isinstance(shape, list | tuple) else [shape]:
        first, last = (entry.range[1], entry.first) if isinstance(entry, RefTile) else (int(entry), 0)
        total = total[..., None] * first + torch.arange(last, last + int(entry))
    return total


def rand(shape: Any, seed: Any, device: torch.device | str | None = None, offsets: Any = None) -> Any:
    """Uniform numbers in [0, 1)."""
    return _uniform(philox(int(seed), _counter(shape) if offsets is None else offsets)[0])


def randint(shape: Any, low: int, high: int, seed: Any, device: torch.device | str | None = None) -> Any:
    """Integers from `low` to below `high`."""
    return (philox(int(seed), _counter(shape))[0] % (high - low) + low).to(torch.int32)


def rand4x(seed: Any, offsets: Any, device: torch.device | str | None = None) -> tuple[Any, ...]:
    """Four tiles of uniform numbers."""
    return tuple(map(_uniform, philox(int(seed), offsets)))


# --- functions of the user --------------------------------------------------------------------------------------


def _combined(function: Callable[..., Any], operands: list[Any]) -> Callable[[list[Any], list[Any]], list[Any]]:
    """`function` on lists of operands."""
    function = getattr(function, "fn", function)
    packed = len(operands) > 1 and len(inspect.signature(function).parameters) == 2

    def call(left: list[Any], right: list[Any]) -> list[Any]:
        made = function(tuple(left), tuple(right)) if packed else function(*left, *right)
        return list(made) if isinstance(made, list | tuple) else [made]

    return call


def _running(function: Callable[..., Any], operands: list[Any], dim: int, reverse: bool) -> list[list[Any]]:
    """What is combined so far at every position of a dimension."""
    call = _combined(function, operands)
    rows = [list(row) for row in zip(*(operand.unbind(dim) for operand in operands), strict=True)]
    made: list[list[Any]] = []
    for row in reversed(rows) if reverse else rows:
        made.append(call(made[-1], row) if made else row)
    return made[::-1] if reverse else made


def reduce(
    combine_fn: Callable[..., Any], input_tensor: Any, dim: Any = None, other: Any = 0, keep_dims: bool = False
) -> Any:
    """The elements of dimensions combined."""
    several = isinstance(input_tensor, list | tuple)
    operands = list(input_tensor) if several else [input_tensor]
    rank = operands[0].dim()
    for at in range(rank)[::-1] if dim is None else [dim % rank]:
        operands = _running(combine_fn, operands, at, False)[-1]
        operands = [operand.unsqueeze(at) for operand in operands] if keep_dims else operands
    return tuple(operands) if several else operands[0]


def associative_scan(combine_fn: Callable[..., Any], input_tensor: Any, dim: int, reverse: bool = False) -> Any:
    """Running combinations."""
    several = isinstance(input_tensor, list | tuple)
    operands = list(input_tensor) if several else [input_tensor]
    rows = _running(combine_fn, operands, dim, reverse)
    made = [
        torch.stack(list(row), dim).to(operand.dtype)
        for row, operand in zip(zip(*rows, strict=True), operands, strict=True)
    ]
    return tuple(made) if several else made[0]


# --- pairs -------------------------------------------------------------------------------------------------------


def join(tensor0: Any, tensor1: Any) -> Any:
    """Two tiles along a new last dimension."""
    return torch.stack(torch.broadcast_tensors(tensor0, tensor1), -1)


def split(tensor: Any) -> tuple[Any, Any]:
    """The halves of a last dimension of 2."""
    first, second = tensor.unbind(-1)
    return first, second


def subscript(tensor: Any, index: Sequence[Any]) -> Any:
    """`tensor[index]`."""
    return tensor[tuple(index) if isinstance(index, list | tuple) else index]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (associative_scan, jagged_tile, join, rand, rand4x, randint, reduce, split, subscript)
}
