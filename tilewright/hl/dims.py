"""Dimensions: which tile axes an extent is made of, read off its prime factors.

While a kernel is traced each tile axis has a prime of its own as size (see `trace.samples`), so an extent of a sample
tensor says by its factorisation what it is: 11 is `tile_m`, 2·11 is twice `tile_m`, 11·64 is `tile_m` merged with 64.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl.symbols import Atom, Sym


@functools.lru_cache(1024)
def _atom(kind: str, axis: int, sample: int) -> Atom:
    """What an axis is made of; it is asked for thousands of times."""
    return Atom(kind, axis, sample=sample)


def all_lanes(atom: Atom) -> Atom:
    """A size that the program chose, where all lanes count: no loop's last tile cuts them."""
    key = atom.written if atom.kind == "op" else atom.key
    return Atom("all", key, atom.text, (Sym.of(atom),), atom.sample)


def cut_atom(atom: Atom) -> Atom:
    """The size of which `atom` is all lanes, or `atom` itself."""
    size = atom.args[0].atom if atom.kind == "all" else None
    return atom if size is None else size


def part_of(atom: Atom) -> tuple[Atom, int] | None:
    """(a block size, by what it is divided) where an atom is such a quotient, `tile.block_size // 2`."""
    if atom.kind != "op" or atom.key != "//" or type(atom.args[1]) is not int or not isinstance(atom.args[0], Sym):
        return None
    block = atom.args[0].atom
    return (block, atom.args[1]) if block is not None and block.kind == "block" and atom.args[1] > 0 else None


def part(block: Atom, by: int) -> Atom:
    """The size of a block in parts of `by` lanes."""
    return Atom("op", "//", args=(Sym.of(block), by), sample=block.sample // by)


def block_of(atom: Atom) -> Atom:
    """The block size of which an atom is a part, all lanes, or it itself."""
    atom = cut_atom(atom)
    found = part_of(atom)
    return atom if found is None else found[0]


@dataclass(eq=False, repr=False)
class Axis:
    """A loop over tiles.

    Args:
        id: number in the kernel, in the order of the source.
        name: the loop variable without "tile_"; names in generated code are made of it.
        kind: "tile", "grid" (block 1, yields an index), "jagged" (each lane of `parent` has its own end) or "roll" (the
            chunks of a reduction).
        begin: first index.
        end: index behind the last.
        block: size given in the program, or None where the configuration chooses.
        slot: position in the configuration's `block_sizes`; None where `block` is given or 1.
        prime: size in this trace.
        first: the first index of the current tile in this trace.
        top: whether the loop is a grid.
        shared: the block size of `hl.register_block_size` that this axis has, where it is one.
        parent: of a jagged axis the value that holds the end of each lane.
        wide: whether its indices pass 32 bits.
        backward: whether the last tile comes first.
        multiple: a number that divides the block size: the kernel takes so many lanes together.
        least: the smallest block size of which the parts that the kernel makes have lanes.
        within: a power of two that the block size divides, so that tiles lie in tiles of that size; 0 for any size.
    """

    id: int
    name: str
    kind: str
    begin: Any
    end: Any
    block: Any = None
    slot: int | None = None
    prime: int = 1
    first: int = 1
    top: bool = False
    shared: Atom | None = None
    parent: Any = None
    wide: bool = False
    backward: bool = False
    multiple: int = 1
    least: int = 1
    within: int = 0

    @property
    def parts(self) -> list[tuple[int, Atom]]:
        """(by what the block size is divided, the quotient) of all quotients that are whole."""
        return [(by, part(self.size, by)) for by in range(2, self.multiple + 1) if self.multiple % by == 0]

    @property
    def size(self) -> Atom:
        """The block size."""
        return self.shared or _atom("block", self.id, self.prime)

    @property
    def is_even(self) -> bool:
        """Whether its block size is a number to the trace, as no tile is cut: extents of tiles are that number."""
        return type(self.block) is int and self.prime == self.block

    @property
    def valid(self) -> Atom:
        """How many lanes of the current tile are valid."""
        return _atom("valid", self.id, self.prime)

    @property
    def offset(self) -> Atom:
        """The first index of the current tile."""
        return _atom("begin", self.id, self.first)

    def __repr__(self) -> str:
        return f"{self.kind} {self.name}[{self.begin!r}:{self.end!r}]"


@dataclass(frozen=True, repr=False)
class Dim:
    """An extent: `static` times the extents of `atoms` (block sizes and dynamic extents of host tensors)."""

    static: int
    atoms: tuple[Atom, ...] = ()

    @property
    def is_one(self) -> bool:
        return self.static == 1 and not self.atoms

    @property
    def atom(self) -> Atom | None:
        """The tile axis or dynamic extent that this dimension is, unless it is something else or more."""
        return self.atoms[0] if self.static == 1 and len(self.atoms) == 1 else None

    def size(self) -> Any:
        """The extent as a number or symbol."""
        value: Any = self.static
        for atom in self.atoms:
            value = Sym.of(atom) * value
        return value

    @property
    def cut(self) -> Dim:
        """The same extent where tiles cut it."""
        return Dim(self.static, tuple(map(cut_atom, self.atoms)))

    def __repr__(self) -> str:
        parts = [
            f"{atom.kind}{atom.key}" if atom.kind in ("block", "all") else atom.text or atom.written
            for atom in self.atoms
        ]
        return "·".join([*([str(self.static)] if self.static != 1 or not parts else []), *parts])


@dataclass(eq=False, repr=False)
class Factors:
    """The primes of one trace and what they stand for."""

    atoms: dict[int, Atom] = field(default_factory=dict)
    sums: dict[int, Any] = field(default_factory=dict)
    _known: dict[int, Dim] = field(default_factory=dict)

    def dim(self, extent: int) -> Dim:
        """What an extent of a sample tensor is made of."""
        known = self._known.get(extent)
        if known is None:
            found, rest = [], extent
            if rest > 1:
                for prime, atom in self.atoms.items():
                    while rest % prime == 0:
                        rest //= prime
                        found.append(atom)
            known = self._known[extent] = Dim(rest, tuple(found))
        return known

    def add(self, prime: int, atom: Atom) -> None:
        """From now on a prime stands for an atom."""
        self.atoms[prime] = atom
        self._known.clear()

    def reset(self, atoms: dict[int, Atom]) -> None:
        """From now on primes stand for these atoms."""
        self.atoms = dict(atoms)
        self._known.clear()

    def dims(self, shape: tuple[int, ...]) -> tuple[Dim, ...]:
        """The dimensions of a sample tensor."""
        return tuple(self.dim(int.__int__(extent)) for extent in shape)

    def size(self, extent: int) -> Any:
        """An extent of a sample tensor as user code may see it: a number, or a symbol."""
        return self.dim(extent).size()
