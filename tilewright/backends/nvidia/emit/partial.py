"""What reductions and scans combine: one scalar of each operand, which may be absent, and room for it in scratch.

A body has no known identity, so padding is absent instead of neutral:

    join(a, b) = body(a, b) if both are present, else the one that is

Flags that are known fold away: for tiles whose sizes are powers of two nothing but the body is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Block, Operation

from tilewright.backends.llvm.types import I1, V, const, zero
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.scratch import Place, Room, rooms, starts
from tilewright.backends.nvidia.tgir.types import layout_of, with_layout
from tilewright.base.errors import InternalError
from tilewright.ir.types import i1, tile_type
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.reduce import single_operation
from tilewright.ops.spec import spec_of


@dataclass(frozen=True, slots=True)
class Partial:
    """A combined run of elements.

    Args:
        values: one scalar of each operand.
        present: whether there is anything in it (i1).
    """

    values: tuple[V, ...]
    present: V


def moved(k: Kernel, parts: Sequence[Partial], move: Callable[[V], V]) -> list[Partial]:
    """Partials of one kind with every scalar sent through a shuffle; flags that are known stay at home."""
    columns = [
        k.f.unpacked(list(map(move, k.f.packed(column))))
        for column in zip(*(part.values for part in parts), strict=True)
    ]
    flags = [part.present if part.present.const is not None else move(part.present) for part in parts]
    return [Partial(values, flag) for values, flag in zip(zip(*columns, strict=True), flags, strict=True)]


@dataclass(slots=True)
class Combiner:
    """The body of a reduction or scan.

    Args:
        k: the kernel.
        body: 2n arguments, n results.

    Fields: `operation` is its only operation, if it is one on the two arguments; `commutes` says whether the order of
    operands is known not to matter.
    """

    k: Kernel
    body: Block
    operation: Operation | None = field(init=False)
    commutes: bool = field(init=False)

    def __post_init__(self) -> None:
        self.operation = single_operation(self.body)
        monoid = None if self.operation is None else spec_of(self.operation).monoid
        self.commutes = monoid is not None and monoid.commutes

    def absent(self, types: Sequence[Attribute]) -> Partial:
        """Nothing, of tiles of these types."""
        return Partial(tuple(zero(self.k.element(t)) for t in types), const(I1, 0))

    def join(self, first: Partial, second: Partial, *, contracts: bool = True) -> Partial:
        """Both runs as one, `first` on the left; see `Kernel.combine` for `contracts`."""
        if first.present.const == 0:
            return second
        if second.present.const == 0:
            return first
        f = self.k.f
        made = self.k.combine(self.body, [*first.values, *second.values], contracts=contracts)
        both = Partial(tuple(made), const(I1, 1))
        values = self.choose(first.present, self.choose(second.present, both, first), second).values
        certain = first.present.const == 1 or second.present.const == 1
        return Partial(values, const(I1, 1) if certain else f.or_(first.present, second.present))

    def join_all(self, firsts: Sequence[Partial], seconds: Sequence[Partial]) -> list[Partial]:
        """Runs pair by pair as `join` does; under one flag, values of 8 and 16 bits are chosen several at a time."""
        flag = firsts[0].present
        if flag.const is not None or any(
            a.present != flag or b.present.const != 1 for a, b in zip(firsts, seconds, strict=True)
        ):
            return [self.join(a, b) for a, b in zip(firsts, seconds, strict=True)]
        f = self.k.f
        both = [self.k.combine(self.body, [*a.values, *b.values]) for a, b in zip(firsts, seconds, strict=True)]
        columns = [
            f.unpacked([f.select(flag, x, y) for x, y in zip(f.packed(yes), f.packed(no), strict=True)])
            for yes, no in zip(zip(*both, strict=True), zip(*(b.values for b in seconds), strict=True), strict=True)
        ]
        return [Partial(values, const(I1, 1)) for values in zip(*columns, strict=True)]

    def choose(self, flag: V, yes: Partial, no: Partial) -> Partial:
        """`yes` where the i1 `flag` holds, else `no`."""
        if flag.const is not None:
            return yes if flag.const else no
        f = self.k.f
        values = tuple(f.select(flag, a, b) for a, b in zip(yes.values, no.values, strict=True))
        return Partial(values, f.select(flag, yes.present, no.present))


# --- elements -----------------------------------------------------------------------------------------


def common_layout(op: Operation) -> LinearLayout:
    """The layout that all operands have.

    Raises:
        InternalError: they differ.
    """
    layouts = {layout_of(operand) for operand in op.operands}
    if len(layouts) != 1:
        raise InternalError(f"operands of {op.name} have different layouts")
    return layouts.pop()


def elements(
    k: Kernel, layout: LinearLayout, tiles: Sequence[Sequence[V]], bounds: Sequence[int] | None
) -> list[Partial]:
    """The registers of some tiles of one layout, absent where they lie outside of `bounds` (None: all are present)."""
    flags = [const(I1, 1)] * len(tiles[0])
    if bounds is not None:
        flags = k.inside(with_layout(tile_type(tuple(bounds), i1), layout))
    return [Partial(values, flag) for values, flag in zip(zip(*tiles, strict=True), flags, strict=True)]


def ragged_bounds(layout: LinearLayout, axis: int, size: int) -> tuple[int, ...] | None:
    """The padded tile cut to `size` along `axis`; None if there is nothing to cut."""
    sizes = list(layout.out_sizes.values())
    if sizes[axis] == size:
        return None
    sizes[axis] = size
    return tuple(sizes)


# --- scratch ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shelf:
    """Places for partials in scratch: an array for each operand and, if they may be absent, one for the flags.

    Args:
        k: the kernel.
        base: address of the first array.
        types: types of the operands.
        count: number of places.
        flagged: whether partials may be absent.
    """

    k: Kernel
    base: V
    types: Sequence[Attribute]
    count: int
    flagged: bool = False

    @property
    def _rooms(self) -> list[Room]:
        return rooms(self.k, self.base, [*self.types, *[i1] * self.flagged], self.count)

    def put(self, place: Place, partial: Partial) -> None:
        """Store."""
        for room, value in zip(self._rooms, (*partial.values, partial.present)):
            room.put(place, value)

    def get(self, place: Place) -> Partial:
        """Load."""
        row = tuple(room.get(place) for room in self._rooms)
        return Partial(row[:-1], row[-1]) if self.flagged else Partial(row, const(I1, 1))


def shelf_bytes(types: Sequence[Attribute], count: int, flagged: bool = False) -> int:
    """Bytes of the `Shelf` with these arguments."""
    return starts([*types, *[i1] * flagged], count)[-1]


__all__ = ["Combiner", "Partial", "Shelf", "common_layout", "elements", "moved", "ragged_bounds", "shelf_bytes"]
