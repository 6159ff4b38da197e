"""What a trace invents: a prime for each axis, and the data of sample tensors.

A prime must not divide an extent or an integer literal of the kernel, or a dimension could not be told from a constant.
Two samplings with other primes and other data must give the same graph; that is how invented numbers that reach the
code are found.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import torch

from tilewright.hl.symbols import Sym

_PRIMES = tuple(n for n in range(11, 2003, 2) if all(n % p for p in range(3, min(n, 45), 2)))
_APART = 15
"""Primes from an extent of one trace to that of the next: parts, `ceil(n / 8)`, should not round to one number."""
_MOST = 1 << 29  # elements of a sample: three open sizes beside a tile are more
_AXES, _EXTENTS = (tuple(n for n in _PRIMES if (n > 1000) is large) for large in (False, True))


@functools.lru_cache(64)  # both traces of a binding ask
def _free(constants: frozenset[int]) -> tuple[list[int], list[int]]:
    """The primes for axes and for extents that divide none of `constants`."""
    numbers = [n for n in constants if n > 1]
    axes, extents = ([prime for prime in primes if all(n % prime for n in numbers)] for primes in (_AXES, _EXTENTS))
    return axes, extents


class Sampling:
    """The inventions of one trace.

    Args:
        constants: integers of the kernel and its arguments that primes must not divide.
        round: 0 for the first trace, 1 for the second, and so on.
    """

    def __init__(self, constants: Iterable[int], round: int) -> None:
        free, extents = _free(frozenset(abs(int(n)) for n in constants))
        self.round = round
        self._axes, self._extents = free[round:], extents[round * _APART :]
        self.fractions = 0
        self.taken = 0, 0  # axes and extents; a pass that is thrown away gives its own back

    def axis(self) -> int:
        """The size of the next tile axis."""
        axes, extents = self.taken
        self.taken = axes + 1, extents
        return self._axes[axes]

    def extent(self) -> int:
        """The size of the next dynamic extent."""
        axes, extents = self.taken
        self.taken = axes, extents + 1
        return self._extents[extents]

    def fraction(self) -> float:
        """The next number for a floating-point argument: between 0.5 and 1, the same in float32."""
        self.fractions += 1
        return (2 * (1100 + 61 * self.round + self.fractions) + 1) / 4096

    def scalar(self, dtype: torch.dtype) -> Any:
        """The datum of sample tensors: never 0, as integers are divided by it."""
        if dtype.is_floating_point:
            return 1.0 + 0.5 * self.round
        return self.round % 2 == 0 if dtype == torch.bool else 1 + self.round

    def tensor(self, shape: Iterable[int], dtype: torch.dtype) -> Any:
        """A sample tensor of `shape`."""
        return torch.full(tuple(shape), self.scalar(dtype), dtype=dtype, device="cpu")


def literals(*trees: Any) -> Iterable[int]:
    """The integers in argument shapes and the like: nested tuples flattened."""
    for tree in trees:
        if isinstance(tree, tuple | list | set | frozenset):
            yield from literals(*tree)
        elif isinstance(tree, int) and not isinstance(tree, bool):
            yield tree


def elements(shape: Iterable[int]) -> int:
    """How many elements a sample of `shape` has."""
    return math.prod(shape)


def sample_of(trace: Any, shape: Iterable[int], dtype: torch.dtype) -> Any:
    """A sample tensor of a trace, standing for nothing yet.

    Raises:
        Fixed: it spans so many open sizes that memory would not do: one of them becomes a constant.
    """
    extents = tuple(shape)
    if elements(extents) > _MOST:
        for atom in (atom for dim in trace.factors.dims(extents) for atom in dim.atoms if atom.kind == "host"):
            trace.decide(Sym.of(atom))
    with trace.silence():
        return trace.sampling.tensor(extents, dtype)
