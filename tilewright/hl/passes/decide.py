"""What a configuration decides: the lanes of every dimension, and which axes need masks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.dims import Axis, Dim, part_of
from tilewright.hl.graph.nodes import Value
from tilewright.hl.symbols import Atom, Sym, next_power_of_2, substitute


def check_multiple(axis: Axis, size: int) -> None:
    """Refuse a block size that the kernel cannot take apart as it does.

    Raises:
        InvalidConfig: it is no multiple of the lanes that are taken together.
    """
    if size % axis.multiple:
        raise exc.InvalidConfig(
            f"the block size of {axis.name} is {size}, and the kernel takes {axis.multiple} of its lanes together",
            hint=f"block sizes of {axis.name} are multiples of {axis.multiple}",
        )


@dataclass
class Decision:
    """A configuration applied to the axes of a kernel.

    Args:
        config: normalized configuration.
        axes: every axis, by number; passes may add some.
        entries: what the entries of each list of the configuration belong to, in order.
        graph: number of the top-level loop that is emitted.
        portable: whether the text must compile under Triton too, whose tiles have powers of two and which has other
            forms of access.
        vector: of how many lanes those of a reduced extent that a tile spans whole are a multiple.

    Attributes:
        padded: dynamic extents that a tile spans whole, with the kernel's constant parameter for their lanes.
    """

    config: Config
    axes: list[Axis]
    entries: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    graph: int = 0
    portable: bool = False
    vector: int = 1
    padded: dict[Atom, str] = field(default_factory=dict)

    @property
    def gpu(self) -> bool:
        """Whether this is a configuration for a GPU: no other has warps."""
        return "num_warps" in self.config

    def choice(self, key: str, owner: Any) -> Any:
        """What a list of the configuration says of a loop, axis, extent or access; None where it says nothing."""
        owners = self.entries.get(key, ())
        return self.config[key][owners.index(owner)] if key in self.config and owner in owners else None

    def option(self, key: str) -> Any:
        """What the configuration says of the launch of the loop that is emitted; None where it says nothing."""
        value = self.config.get(key)
        return value[self.graph] if isinstance(value, list) else value

    def add_axis(self, axis: Axis) -> Axis:
        """An axis that a pass makes; its number is `len(axes)`."""
        self.axes.append(axis)
        return axis

    def block(self, axis: Axis) -> int:
        """The block size of an axis."""
        if axis.kind == "grid":
            return 1
        block = axis.block if axis.slot is None else self.config["block_sizes"][axis.slot]
        found = int(substitute(block, self.number)) if isinstance(block, Sym) else int(block)
        check_multiple(axis, found)
        return int(next_power_of_2(found)) if self.portable else found

    def number(self, atom: Atom) -> int | None:
        """The number that an atom is under this configuration, if it is one."""
        if atom.kind == "tunable":
            return int(self.config[str(atom.key)])
        if atom.kind == "op":
            found = substitute(Sym.of(atom), self.number)
            return None if isinstance(found, Sym) else int(found)
        if atom.kind in ("whole", "all"):
            return int(substitute(atom.args[0], self.number))
        if atom.kind == "block" or (atom.kind == "valid" and not self.masked(self.axes[int(atom.key)].size)):
            return self.block(self.axes[int(atom.key)])
        return None

    def lanes(self, dim: Dim) -> int | str:
        """How many lanes a dimension has: a number, or for a dynamic extent an expression of the kernel."""
        total, names = dim.static, []
        for atom in dim.atoms:
            number = self.number(atom)
            if number is None and atom.kind == "op":
                raise exc.SizeUsedAsNumber(
                    f"a tile spans {atom.written}, which is made of a block size and a size of the call",
                    hint="make that size a constant with hl.specialize, or loop over the extent with hl.tile",
                )
            if number is None:
                names.append(self.padded.setdefault(atom, f"LANES_{str(atom.key).upper()}"))
            elif number < 1:
                raise exc.InvalidConfig(f"a tile spans {atom.written}, which is {number} under this configuration")
            else:
                total *= number
        if not names:
            return total
        return " * ".join([*([str(total)] if total != 1 else []), *names])

    def masked(self, atom: Atom) -> bool:
        """Whether lanes of the last tile along `atom` may be invalid."""
        if atom.kind == "op":
            found = part_of(atom)
            return self.number(atom) is None if found is None else self.masked(found[0])
        if atom.kind not in ("block", "tunable"):
            return atom.kind != "all"
        return any(self._cut(axis) for axis in self.axes if axis.size == atom and axis.kind != "block")

    def _cut(self, axis: Axis) -> bool:
        """Whether the last tile of an axis may have fewer valid lanes."""
        if axis.kind == "jagged":  # lanes of its parent end at different places, whatever the block
            return True
        block = self.block(axis)
        if block == 1:
            return False
        if isinstance(axis.begin, Value) or isinstance(axis.end, Value):
            return True
        if not isinstance(axis.begin, int) or not isinstance(axis.end, int):
            return True
        extent = substitute(axis.end - axis.begin, self.number)
        if extent.is_multiple(block) if isinstance(extent, Sym) else extent % block == 0:
            return False
        return bool(self.divisor(axis.begin) % block or self.divisor(axis.end) % block)

    def divisor(self, value: Any) -> int:
        """A number that divides a size or index: tiles begin at multiples of their size. 0 divides 0 alone."""
        value = substitute(value, self.number)
        if not isinstance(value, Sym):
            return abs(int(value))
        return math.gcd(value.constant, *(factor * self._divisor_of(atom) for atom, factor in value.terms.items()))

    def _divisor_of(self, atom: Atom) -> int:
        if atom.kind == "begin":
            axis = self.axes[int(atom.key)]
            data = isinstance(axis.begin, Value) or axis.kind not in ("tile", "grid")
            return 1 if data else math.gcd(self.block(axis), self.divisor(axis.begin))
        if atom.kind == "op" and atom.key in ("min", "max"):
            return math.gcd(*map(self.divisor, atom.args))
        return 1

    def masks(self, dims: Sequence[Dim]) -> list[tuple[int, Atom]]:
        """(dimension, atom) of every masked axis of a shape."""
        return [(at, atom) for at, dim in enumerate(dims) for atom in dim.atoms if self.masked(atom)]
