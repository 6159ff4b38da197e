"""`ConfigSpec`: the configurations that a kernel has."""

from __future__ import annotations

import difflib
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.trace.host import Traced
from tilewright.hl.tune.facts import RANGE_KEYS, Facts, extent
from tilewright.hl.tune.fragments import Fragment
from tilewright.hl.tune.keys import ALIASES, FOREIGN, KEYS, LARGEST_TILE, Ignored, Key, LaunchKey, ListKey, in_words
from tilewright.hl.tune.machine import machine_of

log = logging.getLogger("tilewright.hl.config")

MOST_TURNS = 8  # of a loop that a search unrolls
MOST_OF_A_WARP = 32 * 256  # elements of a tile that a search tries on a GPU


@dataclass(frozen=True)
class Choice:
    """One number or word of a configuration: a place in the flat form.

    Args:
        key: the key.
        at: place in its list; None for a key without one.
        fragment: its values.
        searched: whether a search varies it.
    """

    key: str
    at: int | None
    fragment: Fragment
    searched: bool = True


class ConfigSpec:
    """The choices that a kernel leaves open, from the facts of its trace.

    Args:
        traced: the kernel's graphs.
    """

    def __init__(self, traced: Traced) -> None:
        graphs = traced.graphs, traced.axes, traced.slots
        self.facts = Facts(*graphs, machine_of(traced.device), traced.tunables, traced.actual)
        self.choices = tuple(self._choices())

    def __repr__(self) -> str:
        return f"<hl.ConfigSpec of {', '.join(dict.fromkeys(choice.key for choice in self.choices))}>"

    def _choices(self) -> Iterator[Choice]:
        for name, key in KEYS.items():
            if not key.on(self.facts.machine.kind):
                continue
            count = len(self.facts.loops) if isinstance(key, LaunchKey) else len(self.facts.entries.get(name, ()))
            if isinstance(key, ListKey) or (isinstance(key, LaunchKey) and count != 1):
                for at in range(count):
                    yield Choice(name, at, key.fragment(self.facts, at), key.searched)
            else:
                yield Choice(name, None, key.fragment(self.facts, 0), key.searched)
        for name, fragment in self.facts.tunables.items():
            yield Choice(name, None, fragment)

    def default_config(self) -> Config:
        """What is taken when nothing was given or found."""
        return self.unflatten([choice.fragment.default() for choice in self.choices])

    # --- flat forms, for searches ------------------------------------------------------------------

    def flatten(self, config: Mapping[str, Any]) -> list[Any]:
        """The choices of a configuration in the order of `choices`."""
        full = self.normalize(config)
        return [_chosen(full, choice) for choice in self.choices]

    def unflatten(self, flat: Sequence[Any]) -> Config:
        """The configuration with these choices."""
        return self.normalize(self._together(flat))

    def _together(self, flat: Sequence[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for choice, value in zip(self.choices, flat, strict=True):
            if choice.at is None:
                made[choice.key] = value
            else:
                made.setdefault(choice.key, []).append(value)
        return made

    def random(self, rng: Random) -> Config:
        """Any configuration."""
        flat = [
            choice.fragment.random(rng) if choice.searched else choice.fragment.default() for choice in self.choices
        ]
        sizes = [at for at, choice in enumerate(self.choices) if choice.key in ("block_sizes", "reduction_loops")]
        while not self._is_small(flat):
            widest = max((at for at in sizes if self._shorter(at, flat[at])), key=lambda at: flat[at], default=None)
            if widest is None:
                break
            flat[widest] = self._shorter(widest, flat[widest])[0]
        return self.unflatten(self._rolled(flat))

    def _shorter(self, at: int, size: int | None) -> list[Any]:
        """What a size of blocks or chunks may be made so that tiles are smaller; nothing where it cannot."""
        choice = self.choices[at]
        if size is None or size < 2:
            return []
        if choice.key == "block_sizes":
            axis = self.facts.slots[choice.at or 0]
            return [size // 2] if size // 2 >= axis.least and size // 2 % axis.multiple == 0 else []
        return [size // 2 if choice.fragment.holds(size // 2) else None]

    def neighbors(self, config: Mapping[str, Any]) -> list[Config]:
        """The configurations that differ from one by one step of one choice or by its default, or by a tile that is as
        large, but longer along one axis and shorter along another."""
        flat, found = self.flatten(config), []
        steps = ({at: value} for at, values in self._steps(flat).items() for value in values)
        for changes in (*steps, *self._trades(flat)):
            changed = self._rolled([changes.get(at, value) for at, value in enumerate(flat)])
            if self._is_small(changed):
                found.append(self.unflatten(changed))
        own = self.normalize(config)
        return [near for near in dict.fromkeys(found) if near != own]

    def _steps(self, flat: Sequence[Any]) -> dict[int, list[Any]]:
        """By place, the values next to the one there, and the default."""
        moves = {}
        for at, choice in enumerate(self.choices):
            if choice.searched:
                values = choice.fragment.neighbors(flat[at])
                usual = choice.fragment.default()
                moves[at] = values if usual in (flat[at], *values) else [*values, usual]
        return {at: values for at, values in moves.items() if values}

    def _trades(self, flat: Sequence[Any]) -> Iterator[dict[int, Any]]:
        """A block size doubled and another one halved."""
        blocks = [at for at, choice in enumerate(self.choices) if choice.key == "block_sizes"]
        for longer, shorter in itertools.permutations(blocks, 2):
            changes = {longer: 2 * flat[longer], shorter: flat[shorter] // 2}
            if all(self.choices[at].fragment.holds(size) for at, size in changes.items()):
                yield changes

    def step(self, config: Mapping[str, Any], rng: Random) -> Config:
        """A configuration that differs from one by one step of one choice or by its default; itself where that is too
        large a tile."""
        flat = self.flatten(config)
        moves = self._steps(flat)
        if moves:
            at = rng.choice(list(moves))
            changed = self._rolled([*flat[:at], rng.choice(moves[at]), *flat[at + 1 :]])
            flat = changed if self._is_small(changed) else flat
        return self.unflatten(flat)

    def _is_small(self, flat: Sequence[Any]) -> bool:
        """Whether the largest tile is one that a search tries: on a GPU its elements have registers."""
        config = self._together(flat)
        warps = config.get("num_warps") if KEYS["num_warps"].on(self.facts.machine.kind) else None
        each = warps if isinstance(warps, list) else [warps] * len(self.facts.loops)
        most = [LARGEST_TILE if count is None else count * MOST_OF_A_WARP for count in each]
        return all(size <= m for (size, _), m in zip(self.facts.largest_tiles(config), most, strict=True))

    def _rolled(self, flat: list[Any]) -> list[Any]:
        """Choices that unroll no loop of many turns: its code would take minutes to compile."""
        config, entries = self._together(flat), self.facts.entries.get("static_ranges", ())
        sizes = config.get("block_sizes", ())
        for at, choice in enumerate(self.choices):
            if choice.key == "static_ranges" and choice.at is not None:
                axis = self.facts.axis(entries[choice.at])
                block = axis.block if axis.slot is None else sizes[axis.slot]
                turns = (extent(axis) or 0) // block if type(block) is int else MOST_TURNS + 1
                flat[at] = flat[at] and turns <= MOST_TURNS
        return flat

    # --- checking ------------------------------------------------------------------------------------

    def normalize(self, config: Mapping[str, Any]) -> Config:
        """`config` checked, with every choice made; choices that mean nothing here are left out.

        Raises:
            InvalidConfig: a key that does not exist, a value that it does not have, or a list of the wrong length.
        """
        given = {ALIASES.get(name, name): value for name, value in config.items() if value is not None}
        self._check_names(given)
        full: dict[str, Any] = {}
        for name, key in KEYS.items():
            if isinstance(key, LaunchKey):
                value = self._of_launches(key, given.get(name), full.get("block_sizes", ()))
            else:
                value = self._value(key, given.get(name))
            if key.on(self.facts.machine.kind) and value not in (None, []):
                full[name] = value
        for name, fragment in self.facts.tunables.items():
            full[name] = given.get(name, fragment.default())
            if not fragment.holds(full[name]):
                raise exc.InvalidConfig(f"{name}={full[name]!r}", hint=f"values are {in_words(fragment)}")
        elements, tile = max(self.facts.largest_tiles(full), key=lambda found: found[0], default=(1, None))
        if elements > LARGEST_TILE:
            name = f" of {tile.name}" if tile is not None and tile.name else ""
            raise exc.InvalidConfig(
                f"a tile{name} would have {elements} elements",
                hint=f"{LARGEST_TILE} is the most: choose smaller block_sizes, or reduction_loops",
            )
        return Config(**self._consistent(full))

    def _check_names(self, given: Mapping[str, Any]) -> None:
        known = [*KEYS, *self.facts.tunables]
        for name in given:
            if name.startswith(FOREIGN) or isinstance(KEYS.get(name), Ignored):
                _note_ignored(name)
            elif name not in known:
                near = difflib.get_close_matches(name, [*known, *ALIASES], 1)
                hint = f"did you mean {near[0]}?" if near else f"keys are {', '.join(known)}"
                raise exc.InvalidConfig(f"a configuration has no key {name!r}", hint=hint)

    def _value(self, key: Key, value: Any) -> Any:
        """The value of a key, defaults put in."""
        if not isinstance(key, ListKey):
            return key.fragment(self.facts, 0).default() if value is None else key.check(value, self.facts, 0)
        count = len(self.facts.entries.get(key.name, ()))
        if value is None:
            if key.name == "block_sizes" and count:
                self._wrong_length(key.name, 0, count)
            return [key.fragment(self.facts, at).default() for at in range(count)]
        listed = self._listed(key, value, count)
        return [key.check(item, self.facts, at) for at, item in enumerate(listed)]

    def _of_launches(self, key: LaunchKey, value: Any, blocks: Sequence[int]) -> Any:
        """One value for all launches where it is the same, else a list with one for each."""
        count = len(self.facts.loops)
        given = list(value) if isinstance(value, list | tuple) else [value] * count
        if len(given) != count:
            raise exc.InvalidConfig(
                f"{key.name} has {len(given)} entries, and the kernel has {count} top-level loops",
                hint=f"in this order: {', '.join(self.facts.loops)}; or one number for all of them",
            )
        values = [
            key.default(self.facts, at, blocks) if item is None else key.check(item, self.facts, at)
            for at, item in enumerate(given)
        ]
        return values[0] if values and values[1:] == values[:-1] else values

    def _listed(self, key: ListKey, value: Any, count: int) -> list[Any]:
        """A list of one value per entry from what was given: one value stands for all entries of accesses."""
        items = list(value) if isinstance(value, list | tuple) else [value]
        if key.name != "loop_orders":
            items = list(_flat(items))
        elif items and not isinstance(items[0], list | tuple):
            items = [items]
        if not isinstance(value, list | tuple) and key.name == "indexing":
            return items * count
        exact = key.name == "block_sizes"
        if exact and len(items) != count:
            self._wrong_length(key.name, len(items), count)
        if len(items) > count:
            log.warning(
                "%s has %d entries, and the kernel has %d %s: the last are ignored",
                key.name,
                len(items),
                count,
                _WHAT.get(key.name, "accesses"),
            )
            items = items[:count]
        return items + [key.fragment(self.facts, at).default() for at in range(len(items), count)]

    def _wrong_length(self, name: str, have: int, count: int) -> None:
        owners = ", ".join(self.facts.names.get(name, ()))
        raise exc.InvalidConfig(
            f"{name} has {have} entries, and the kernel has {count} {_WHAT.get(name, 'accesses')}",
            hint=f"in this order: {owners}" if count else f"leave out {name}",
        )

    def _consistent(self, full: dict[str, Any]) -> dict[str, Any]:
        """Choices that another one makes meaningless get their defaults."""
        if not full["pid_type"].startswith("persistent"):
            full.pop("num_sm_multiplier", None)
            full.pop("maxnreg", None)
            firsts = {axes[0].id for axes in self.facts.grids}
            for name in RANGE_KEYS:
                if name in full:
                    owners = self.facts.entries[name]
                    full[name] = [
                        KEYS[name].fragment(self.facts, at).default() if owners[at] in firsts else value
                        for at, value in enumerate(full[name])
                    ]
        return full


def _flat(items: Sequence[Any]) -> Iterator[Any]:
    """The entries of a list that may be grouped by loops: `[[32, 64], 16]`."""
    for item in items:
        yield from _flat(item) if isinstance(item, list | tuple) else (item,)


def _chosen(full: Mapping[str, Any], choice: Choice) -> Any:
    """What a full configuration says of a choice."""
    value = full.get(choice.key)
    if value is None:
        return choice.fragment.default()
    return value[choice.at] if choice.at is not None and isinstance(value, list) else value


@functools.cache
def _note_ignored(name: str) -> None:
    """Say once of a key that it has no effect."""
    log.warning("the key %s of configurations is ignored: it means nothing on the devices of Tilewright", name)


_WHAT = {
    "block_sizes": "tile loops to size",
    "loop_orders": "loops over several ranges",
    "flatten_loops": "loops over several ranges that can be taken as one",
    "l2_groupings": "grids of several ranges",
    "reduction_loops": "extents that can be visited in chunks",
    "static_ranges": "inner loops with constant bounds",
    **dict.fromkeys(RANGE_KEYS, "loops (the grid's first)"),
}
