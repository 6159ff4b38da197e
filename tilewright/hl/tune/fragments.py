"""Fragments: the values that one choice of a configuration may have, with what a search asks of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class Fragment:
    """The values of one choice."""

    def default(self) -> Any:
        """What is taken where nothing is said."""
        raise NotImplementedError

    def random(self, rng: random.Random) -> Any:
        """Any of the values."""
        raise NotImplementedError

    def neighbors(self, value: Any) -> list[Any]:
        """Values next to `value`."""
        raise NotImplementedError

    def holds(self, value: Any) -> bool:
        """Whether `value` is one of the values."""
        raise NotImplementedError


@dataclass(frozen=True)
class EnumFragment(Fragment):
    """One of some values; the first one by default."""

    choices: Sequence[Any]

    def default(self) -> Any:
        return self.choices[0]

    def random(self, rng: random.Random) -> Any:
        return rng.choice(list(self.choices))

    def neighbors(self, value: Any) -> list[Any]:
        return [choice for choice in self.choices if choice != value]

    def holds(self, value: Any) -> bool:
        return any(value == choice and type(value) is type(choice) for choice in self.choices)


class BooleanFragment(EnumFragment):
    """False or True."""

    def __init__(self, default: bool = False) -> None:
        super().__init__((default, not default))


@dataclass(frozen=True)
class IntegerFragment(Fragment):
    """An integer between two bounds, both included; the lower one where no default is given."""

    low: int
    high: int
    default_value: int | None = None

    def default(self) -> Any:
        return self.low if self.default_value is None else self.default_value

    def random(self, rng: random.Random) -> Any:
        return rng.randint(self.low, self.high)

    def neighbors(self, value: Any) -> list[Any]:
        return [near for near in (value - 1, value + 1) if self.low <= near <= self.high]

    def holds(self, value: Any) -> bool:
        return type(value) is int and self.low <= value <= self.high


@dataclass(frozen=True)
class PowerOfTwoFragment(IntegerFragment):
    """A power of two between two powers of two, both included; or as many times `unit`, between two such numbers."""

    unit: int = 1

    def random(self, rng: random.Random) -> Any:
        low, high = (bound // self.unit for bound in (self.low, self.high))
        return self.unit << rng.randint(low.bit_length() - 1, high.bit_length() - 1)

    def neighbors(self, value: Any) -> list[Any]:
        power = self.unit << max(0, (value // self.unit).bit_length() - 1)
        return [near for near in (power // 2, power * 2) if self.holds(near) and near != value]

    def holds(self, value: Any) -> bool:
        if not super().holds(value) or value % self.unit:
            return False
        power = value // self.unit
        return bool(power & (power - 1) == 0)


@dataclass(frozen=True)
class PermutationFragment(Fragment):
    """An order of `length` things; `usual` is the default, or their own order."""

    length: int
    usual: Sequence[int] = ()

    def default(self) -> Any:
        return list(self.usual or range(self.length))

    def random(self, rng: random.Random) -> Any:
        return rng.sample(range(self.length), self.length)

    def neighbors(self, value: Any) -> list[Any]:
        found = []
        for left, right in itertools.combinations(range(self.length), 2):
            near = list(value)
            near[left], near[right] = near[right], near[left]
            found.append(near)
        return found

    def holds(self, value: Any) -> bool:
        return isinstance(value, list) and sorted(value) == list(range(self.length))
