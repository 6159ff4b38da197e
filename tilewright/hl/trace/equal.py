"""Sizes that an operation wants equal: if they are in the call that binds, the trace starts again and knows it.

::

    x: [rows, columns], weight: [columns], all sizes dynamic
    x[tile, :] * weight[:]      x.size(1) and weight.size(0) have primes of their own, which do not broadcast
                                -> `Equal`: one prime for both, and a guard; calls where they differ bind anew
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from tilewright.hl.dims import Dim
from tilewright.hl.symbols import Sym, is_chosen, same, show, substitute
from tilewright.hl.trace.divided import divide_for_equal
from tilewright.hl.trace.even import even_for_equal
from tilewright.hl.trace.rounded import RoundUp, rows_of
from tilewright.hl.trace.state import Fixed, Restart, Trace

_NUMBER = re.compile(r"(?<!dimension )(?<!\.)\b\d+")


class Equal(Restart):
    """Two expressions of the host are equal: the trace starts again with one sample for both."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(left, right)
        self.pair = left, right


def equate(trace: Trace, one: int, other: int) -> None:
    """Take two extents of samples for one, where they stand for sizes that are equal in the call that binds.

    Raises:
        Equal: they are two sizes.
        Fixed: one of them is an expression, or the other is a constant: the size is a constant of the code then.
    """
    sizes = [trace.factors.size(extent) for extent in (one, other)]
    open_sizes = [size for size in sizes if isinstance(size, Sym)]
    if one != other:
        even_for_equal(trace, *sizes)
        divide_for_equal(trace, *sizes)
        _round_up(trace, *sizes)
        _round_up(trace, *reversed(sizes))
    if one == other or not open_sizes or any(map(is_chosen, open_sizes)):
        return
    known = [substitute(size, trace.actual.get) for size in sizes]
    if isinstance(known[0], Sym) or known[0] != known[1]:
        return
    take_for_one(*sizes)
    for size in open_sizes:
        fix_size(trace, size)


def _round_up(trace: Trace, power: Any, row: Any) -> None:
    """Take the next power of two of a row's size for the row; of a size that is equal to it in the call that binds too.

    Raises:
        RoundUp: they are not one yet.
    """
    for size in [] if trace.rounds else rows_of(trace, power):
        known = [substitute(one, trace.actual.get) for one in (size, row)]
        if same(size, row):
            raise RoundUp
        if type(known[0]) is int and known[0] == known[1]:
            take_for_one(size, row)


def fix_size(trace: Trace, number: Any) -> None:
    """Make the sizes of which a number is made constants, where the call that binds determines it.

    Raises:
        Fixed: one of them is none yet.
    """
    if not isinstance(number, Sym) or is_chosen(number) or isinstance(substitute(number, trace.actual.get), Sym):
        return
    for atom in number.atoms():
        known = trace.actual.get(atom)
        if atom.kind == "host" and known is not None:
            raise Fixed(atom.text, known)


def take_for_one(left: Any, right: Any) -> None:
    """Start the trace again where two numbers that are equal in the call that binds are one number of the host and
    another, or a constant; of expressions a guard is all that can be known.

    Raises:
        Equal: both are numbers of the host.
        Fixed: one is.
    """
    if _is_host(left) and _is_host(right):
        raise Equal(show(left), show(right))
    size, number = (left, right) if isinstance(left, Sym) else (right, left)
    if _is_host(size) and not isinstance(number, Sym):
        raise Fixed(show(size), number)


def _is_host(value: Any) -> bool:
    atom = value.atom if isinstance(value, Sym) else None
    return atom is not None and atom.kind == "host"


def equate_shapes(trace: Trace, one: Sequence[int], other: Sequence[int]) -> None:
    """`equate` for the extents of two shapes that broadcast, from the last on."""
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if 1 not in (left, right):
            equate(trace, left, right)


def equate_dims(trace: Trace, one: Sequence[Dim], other: Sequence[Dim]) -> None:
    """`equate` for the dimensions of two values that a loop or a branch makes one."""
    if len(one) == len(other) and one != other:
        equate_shapes(trace, *(tuple(map(trace.extent_of, dims)) for dims in (one, other)))


def equate_in(trace: Trace, message: str) -> None:
    """`equate` for the extents that a message of PyTorch names; sizes that a reshape splits have to be constants."""
    first = re.sub(r"(?<=\d)x(?=\d)", " ", message.splitlines()[0] if message else "")
    numbers = dict.fromkeys(int(found) for found in _NUMBER.findall(first))
    if "is invalid for input of size" in message:
        named = {atom for number in numbers for atom in trace.factors.dim(number).atoms}
        for size in (size for tensor in trace.hosts.values() for size in tensor.shape):
            if isinstance(size, Sym) and named & set(size.atoms()):
                fix_size(trace, size)
        for atom in sorted(named, key=lambda atom: atom.written):
            if ".size(" in atom.text:  # an extent that is made of sizes
                fix_size(trace, Sym.of(atom))
    for one, other in itertools.combinations([number for number in numbers if number > 1], 2):
        equate(trace, one, other)
