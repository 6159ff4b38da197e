"""Extents that are not products of sizes: `n // 2`, `n + 1`, `hl.cdiv(n, block)`, `hl.next_power_of_2(n)`.

What a dimension is made of is read off the factors of its sample, so such an extent has a prime of its own, as a size
has.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.hl import symbols
from tilewright.hl.dims import part_of
from tilewright.hl.symbols import Atom, Sym
from tilewright.hl.trace.divided import in_units
from tilewright.hl.trace.rounded import row_of
from tilewright.hl.trace.state import Trace
from tilewright.hl.trace.tiles import Tile

_KNOWN = ("block", "all", "host", "tunable", "whole", "op")  # at the launch, or by the configuration


def extent(trace: Trace, size: Any) -> Any:
    """The sample of an extent of what the program makes: a number, a tile, or a symbol.

    Raises:
        SizeUsedAsNumber: it differs from tile to tile.
    """
    if isinstance(size, Tile):
        return size.axis.prime
    if isinstance(size, Sym) and any(atom.kind not in _KNOWN for atom in size.atoms()):
        raise symbols.number_needed(size)
    size = in_units(trace.multiples, row_of(trace, size))
    if not isinstance(size, Sym) or _is_zero(trace.factors.size(size.sample) - size):
        return symbols.sample(size)
    if len(size.terms) == 1 and not size.constant:
        ((atom, factor),) = size.terms.items()
        if atom.kind != "op":
            return factor * atom.sample
        if atom.key == "*":
            left, right = atom.args
            return factor * extent(trace, left) * extent(trace, right)
        return factor * _prime(trace, atom)
    last = size - size.constant if size.constant else Sym.of(next(iter(size.terms)))
    return _prime(trace, Atom("op", "+", args=(last, size - last)))


def _is_zero(difference: Any) -> bool:
    """Whether it is the number 0; of two symbols, whether they are the same whatever the configuration."""
    return not isinstance(difference, Sym) and bool(difference == 0)


def _prime(trace: Trace, atom: Atom) -> int:
    """The prime of an expression: one that the launcher computes is a number of the host like any other."""
    size = Sym.of(atom)
    if all(inner.kind in ("host", "op") for inner in size.atoms()):
        actual = symbols.substitute(size, trace.actual.get)
        known = actual if type(actual) is int else None
        made = trace.host_symbol(f"extent_{len(trace.factors.atoms)}", symbols.show(size), known)
        return symbols.sample(made)
    for prime, found in trace.factors.atoms.items():
        if found == atom:
            return prime
    prime = trace.sampling.extent()
    if (parts := part_of(atom)) is not None:
        axis = trace.axes[int(parts[0].key)]
        axis.least = max(axis.least, parts[1])
        trace.chosen.has_parts = True
    trace.factors.add(prime, dataclasses.replace(atom, sample=prime))
    return prime
