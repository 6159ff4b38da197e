"""Who depends on whom among the steps of a block, and what a group of them does to memory, as facts that are merged.

Sets of steps are integers with a bit for each step: a question about a whole group is one operation on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tilewright.base.assumptions import NO_OVERLAP, holds


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tile of pointers leads.

    Args:
        origins: arguments from which it comes; None if they are not known.
        place: affine address, equal where the addresses of all elements are; None if it is not affine.
    """

    origins: frozenset[SSAValue] | None
    place: object | None

    def may_share(self, other: Address) -> bool:
        """Whether both may be of one array."""
        known = self.origins is not None and other.origins is not None and holds(NO_OVERLAP)
        return not known or bool(self.origins & other.origins)  # type: ignore[operator]


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
        touched: addresses at which it loads or stores, by argument.
        unknown: whether there is an access that may be of any array.
    """

    stored: set[SSAValue] = field(default_factory=set)
    touched: dict[SSAValue, set[object]] = field(default_factory=dict)
    unknown: bool = False
    stores: bool = False

    def add(self, address: Address, *, store: bool) -> None:
        """Note one access."""
        self.stores |= store
        if address.origins is None:
            self.unknown = True
            return
        place = object() if address.place is None else address.place  # no address is known to be equal to it
        for origin in address.origins:
            self.touched.setdefault(origin, set()).add(place)
        if store:
            self.stored |= address.origins

    def include(self, other: Accesses) -> None:
        """Note everything that `other` touches."""
        self.stored |= other.stored
        for root, places in other.touched.items():
            self.touched.setdefault(root, set()).update(places)
        self.unknown |= other.unknown
        self.stores |= other.stores

    def may_meet(self, other: Accesses) -> bool:
        """Whether, in one loop nest with `other`, a store may meet an access to the same tensor at other indices.

        Neither has such a meeting in itself.
        """
        if not (self.stores or other.stores):
            return False
        if self.unknown or other.unknown:
            return True
        if not holds(NO_OVERLAP):
            return len(set().union(*self.touched.values(), *other.touched.values())) > 1
        return any(
            len(group.touched[root] | there.touched.get(root, set())) > 1
            for group, there in ((self, other), (other, self))
            for root in group.stored
            if root in there.touched or len(group.touched[root]) > 1
        )
