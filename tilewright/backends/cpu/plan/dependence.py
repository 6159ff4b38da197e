"""Who depends on whom among the steps of a block, and what a group of them does to memory, as facts that are merged.

Sets of steps are integers with a bit for each step: a question about a whole group is one operation on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.distinct import Bounds, common, mask_bounds
from tilewright.analysis.index import Coord, Index
from tilewright.analysis.origins import Origins
from tilewright.base.assumptions import NO_OVERLAP, holds
from tilewright.ir.effect_traits import mask_of
from tilewright.ir.types import pointee_bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of an iteration space are: equal places have equal addresses, element by element.

    Args:
        base: scalar pointer.
        offset: bytes from there to the first element.
        coords: bytes by which the address grows with each coordinate of the iteration space.
        shape: of the iteration space.
        size: bytes of an element.
    """

    base: SSAValue
    offset: Poly
    coords: frozenset[tuple[Coord, Poly]]
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tile of pointers leads.

    Args:
        origins: arguments from which it comes; None if they are not known.
        place: where its elements are; None if that is not affine.
        bounds: of the elements that a mask leaves.
        masked: whether there is a mask.
    """

    origins: frozenset[SSAValue] | None
    place: Place | None
    bounds: Bounds
    masked: bool = False

    def may_share(self, other: Address) -> bool:
        """Whether both may be of one array."""
        known = self.origins is not None and other.origins is not None and holds(NO_OVERLAP)
        return not known or bool(self.origins & other.origins)  # type: ignore[operator]


Apart = Callable[[Place, Bounds], bool]
"""Whether no two elements of a place have one address, as far as bounds leave them."""


@dataclass(frozen=True, slots=True)
class Touch:
    """What is done at one place: loads, stores, stores under a mask, and the bounds that all of them have."""

    loads: bool
    stores: bool
    masked: bool
    bounds: Bounds

    def and_(self, other: Touch) -> Touch:
        """Both."""
        return Touch(
            self.loads or other.loads,
            self.stores or other.stores,
            self.masked or other.masked,
            common(self.bounds, other.bounds),
        )

    def meets(self, other: Touch, place: Place, apart: Apart) -> bool:
        """Whether elements in another order than that of the program may show.

        The last one of several elements at an address wins, so stores may take turns there unless masks choose.
        """
        crossed = (self.loads and other.stores) or (self.stores and other.loads)
        chosen = self.stores and other.stores and (self.masked or other.masked)
        return (crossed or chosen) and not apart(place, common(self.bounds, other.bounds))


class Dependents:
    """For each step, by its number, the steps that depend on it, directly or through others.

    Args:
        direct: numbers of the steps on which each step depends.
    """

    def __init__(self, direct: list[Iterable[int]]) -> None:
        self._below = [0] * len(direct)
        self._members = [1 << number for number in range(len(direct))]
        users: list[list[int]] = [[] for _ in direct]
        waiting = [0] * len(direct)
        for number, needed in enumerate(direct):
            for other in set(needed):
                users[other].append(number)
                waiting[other] += 1
        needs = [set(needed) for needed in direct]
        ready = [number for number, count in enumerate(waiting) if not count]
        while ready:  # the steps that nobody waits for first
            number = ready.pop()
            for user in users[number]:
                self._below[number] |= self._below[user] | 1 << user
            for other in needs[number]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)

    def of(self, number: int) -> int:
        """The dependents of a group, told by its first member."""
        return self._below[number]

    def merge(self, group: int, number: int) -> None:
        """A step joins a group, told by its first member: who depends on one of them depends on all."""
        self._members[group] |= self._members[number]
        members = self._members[group]
        below = self._below[group] | self._below[number]
        self._below[group] = below
        for other, known in enumerate(self._below):
            if known & members:
                self._below[other] = known | below | members

    def members(self, group: int) -> int:
        """The steps of a group."""
        return self._members[group]


@dataclass(slots=True)
class Accesses:
    """The memory that a group of steps touches.

    Args:
        stored: arguments through which it stores.
        touched: what it does at each place, by argument; None stands for places that are not known.
        unknown: whether there is an access that may be of any array.
    """

    stored: set[SSAValue] = field(default_factory=set)
    touched: dict[SSAValue, dict[Place | None, Touch]] = field(default_factory=dict)
    unknown: bool = False
    stores: bool = False

    def add(self, address: Address, *, store: bool) -> None:
        """Note one access."""
        self.stores |= store
        if address.origins is None:
            self.unknown = True
            return
        touch = Touch(not store, store, store and address.masked, address.bounds)
        for origin in address.origins:
            self._touch(origin, address.place, touch)
        if store:
            self.stored |= address.origins

    def _touch(self, origin: SSAValue, place: Place | None, touch: Touch) -> None:
        places = self.touched.setdefault(origin, {})
        places[place] = places[place].and_(touch) if place in places else touch

    def include(self, other: Accesses) -> None:
        """Note everything that `other` touches."""
        self.stored |= other.stored
        for root, places in other.touched.items():
            for place, touch in places.items():
                self._touch(root, place, touch)
        self.unknown |= other.unknown
        self.stores |= other.stores

    def may_meet(self, other: Accesses, apart: Apart) -> bool:
        """Whether, in one loop nest with `other`, a store may meet an access to the same memory by another element.

        Neither has such a meeting in itself: where it stores, it has one place.

        Args:
            other: what joins; it is the smaller one.
            apart: whether no two elements of a place have one address.
        """
        if not (self.stores or other.stores):
            return False
        if self.unknown or other.unknown:
            return True
        if not holds(NO_OVERLAP):
            mine, theirs = (_everything(accesses) for accesses in (self, other))
            return mine != {} and theirs != {} and (not mine or not theirs or _clash(mine, theirs, apart))
        return any(
            _clash(self.touched[root], places, apart)
            for root, places in other.touched.items()
            if root in self.touched and (root in self.stored or root in other.stored)
        )


def _clash(mine: dict[Place | None, Touch], theirs: dict[Place | None, Touch], apart: Apart) -> bool:
    """Whether accesses to one array may meet, if one side stores to it."""
    if len(mine) > 1 or len(theirs) > 1 or None in mine or mine.keys() != theirs.keys():
        return True
    ((place, touch),) = theirs.items()
    return place is None or mine[place].meets(touch, place, apart)


def _everything(accesses: Accesses) -> dict[Place | None, Touch] | None:
    """The one place that is touched, or nothing; None where there are several."""
    found: dict[Place | None, Touch] = {}
    for places in accesses.touched.values():
        for place, touch in places.items():
            if found and place not in found:
                return None
            found[place] = found[place].and_(touch) if found else touch
    return found


def address_of(
    op: Operation, index: Index, shape: tuple[int, ...], analysis: AffineAnalysis, origins: Origins
) -> Address:
    """Where a load or a store goes.

    Args:
        op: the load or store.
        index: of its pointers, in coordinates of an iteration space.
        shape: of the iteration space.
        analysis: of the function.
        origins: of its addresses.
    """
    pointer = op.operands[0]
    mask = mask_of(op)
    form = analysis.pointer(pointer, index)
    place = None
    if form.base is not None and not form.offset.residual:
        coords = frozenset(form.offset.coords.items())
        place = Place(form.base, form.offset.constant, coords, shape, pointee_bytes(pointer.type))
    bounds = mask_bounds([] if mask is None else [(mask, index)], analysis)
    return Address(origins[pointer], place, bounds, masked=mask is not None)
