"""Tuning ahead: tables beside the source are made of a declared set of arguments, and held against it.

    each set of arguments is tuned --> every configuration found is timed with every set --> a tree as small as can be

The tree is grown by what a wrong choice costs (a decision tree with costs, as in Turney, "Cost-sensitive
classification", 1995): a leaf whose configuration takes at most `TOLERANCE` of the fastest one's time with each of its
sets is not split.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from tilewright import __version__
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.trace.source import Source
from tilewright.hl.tune import driver, tables, warm
from tilewright.hl.tune.tables import Row, Table, Tree

if TYPE_CHECKING:
    from tilewright.hl.runtime.bound import BoundKernel

TOLERANCE = 1.03
SLOWER = 1.1  # of the default's time: a table's choice that takes longer is out of date


class Tunable(Protocol):
    """A kernel, as far as this asks."""

    name: str
    signature: inspect.Signature
    source: Source

    def bind(self, args: Sequence[Any]) -> BoundKernel:
        """The kernel for arguments like these."""

    def normalize_args(self, *args: Any) -> tuple[Any, ...]:
        """Arguments by position."""


Pair = tuple["BoundKernel", tuple[Any, ...]]


def make(kernel: Tunable, path: Path, sets: Sequence[Sequence[Any]], effort: str, force: bool) -> list[Table]:
    """Tune for each set of arguments and write the tables.

    Args:
        kernel: the kernel.
        path: of the file.
        sets: arguments of calls.
        effort: "quick" or "full", of each search.
        force: search even where the best configuration is known.
    """
    made = []
    for kind, pairs in _groups(kernel, sets).items():
        found = [bound.autotune(args, force=force, effort=effort) for bound, args in pairs]
        configs = list(dict.fromkeys(found))
        rows = [
            Row(tables.sizes_of(_named(kernel, args)), _rounded(default), [_rounded(ms) for ms in times])
            for (_, args), (default, times) in zip(pairs, raced(pairs, configs), strict=True)
        ]
        machine = tables.machine_name(tables.device_of(_named(kernel, pairs[0][1])))
        versions = f"tilewright {__version__}, torch {torch.__version__}"
        made.append(pruned(Table(machine, kind, versions, tuple(configs), 0, tuple(rows))))
    tables.write(path, kernel.name, tables.source_hash(kernel.source), made)
    return made


def _groups(kernel: Tunable, sets: Sequence[Sequence[Any]]) -> dict[str, list[Pair]]:
    """Bindings and arguments by their kind."""
    if not sets:
        raise exc.InvalidAPIUsage(
            f"{kernel.name} is tuned ahead for no arguments",
            hint="declare some: shapes=lambda: [(torch.randn(64, 64),)]",
        )
    found: dict[str, list[Pair]] = {}
    for given in sets:
        args = kernel.normalize_args(*given)
        found.setdefault(tables.kind_of(_named(kernel, args)), []).append((kernel.bind(args), args))
    return found


def _named(kernel: Tunable, args: Sequence[Any]) -> Mapping[str, Any]:
    return dict(zip(kernel.signature.parameters, args, strict=True))


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else float(f"{ms:.4g}")


def raced(pairs: Sequence[Pair], configs: Sequence[Config]) -> Iterator[tuple[float | None, list[float | None]]]:
    """(time of the default, times of configurations) for each of several bindings, in milliseconds; None for what does
    not work there."""
    for bound, args in pairs:
        race = driver.Driver(bound, args)
        own = [warm.spec_of(config.config, bound.config_spec) for config in configs]
        default = bound.config_spec.default_config()
        try:
            race.race(list(dict.fromkeys([default, *(config for config in own if config is not None)])))
        finally:
            race.close()
        yield race.times.get(default), [None if config is None else race.times.get(config) for config in own]


# --- the tree ---------------------------------------------------------------------------------------------


def pruned(table: Table) -> Table:
    """A table with a tree, and with the configurations that its tree chooses among alone."""
    while True:
        table = replace(table, tree=grown(table.measured))
        used = sorted(set(tables.numbers(table.tree)))
        if len(used) == len(table.configs):
            return table
        rows = tuple(replace(row, ms=[row.ms[at] for at in used]) for row in table.measured)
        table = replace(table, configs=tuple(table.configs[at] for at in used), measured=rows)


def grown(rows: Sequence[Row]) -> Tree:
    """The smallest tree found whose choice is near the fastest with each row's arguments.

    Raises:
        NoConfigFound: nothing works with the arguments of a row.
    """
    costs = []
    for row in rows:
        working = [ms for ms in row.ms if ms is not None]
        if not working:
            raise exc.NoConfigFound(f"nothing works with arguments of {dict(row.sizes)}")
        costs.append([math.log(ms / min(working)) if ms is not None else 1e9 for ms in row.ms])
    return _grown([row.sizes for row in rows], costs)


def _grown(sizes: list[Mapping[str, int]], costs: list[list[float]]) -> Tree:
    best = _cheapest(costs)
    splits = [] if max(row[best] for row in costs) <= math.log(TOLERANCE) else list(_splits(sizes))
    if not splits:
        return best

    def cost(split: tuple[str, int]) -> tuple[float, int]:
        """What is lost behind a split; of equal ones the most even is taken."""
        parts = _parts(split, sizes, costs)
        lost = sum(sum(row[_cheapest(part)] for row in part) for _, part in parts)
        return round(lost, 9), abs(len(parts[0][1]) - len(parts[1][1]))

    chosen = min(splits, key=cost)
    low, high = (_grown(*part) for part in _parts(chosen, sizes, costs))
    return low if low == high else {"if": f"{chosen[0]} <= {chosen[1]}", "then": low, "else": high}


def _cheapest(costs: Sequence[Sequence[float]]) -> int:
    return min(range(len(costs[0])), key=lambda at: sum(row[at] for row in costs))


def _splits(sizes: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, int]]:
    """Every size, with a bound between each two values that it has: their geometric mean, as sizes grow by factors."""
    for name in sizes[0]:
        values = sorted({row[name] for row in sizes})
        for low, high in itertools.pairwise(values):
            yield name, math.isqrt(low * high) if low > 0 else low


def _parts(split: tuple[str, int], sizes: list[Mapping[str, int]], costs: list[list[float]]) -> list[Any]:
    name, bound = split
    sides = [[at for at, row in enumerate(sizes) if (row[name] <= bound) is low] for low in (True, False)]
    return [([sizes[at] for at in side], [costs[at] for at in side]) for side in sides]


# --- held against the source --------------------------------------------------------------------------------


def check(kernel: Tunable, path: Path, sets: Sequence[Sequence[Any]]) -> list[str]:
    """What is wrong with the tables of a kernel: they are missing, of another text, of other arguments than declared,
    not what their measurements say, or have configurations that there are not. Nothing is timed."""
    held = tables.read(path).get(kernel.name)
    if held is None:
        return [f"{kernel.name}: {path.name} has no table of it"]
    found = tables.tables_of(path, kernel.name)
    wrong = [] if held.get("source") == tables.source_hash(kernel.source) else ["the kernel has changed since"]
    for table in found:
        if grown(table.measured) != table.tree:
            wrong.append(f"{table.machine}, {table.kind}: the tree is not what the measurements say")
    for kind, pairs in _groups(kernel, sets).items() if sets else ():
        declared = [tables.sizes_of(_named(kernel, args)) for _, args in pairs]
        own = [table for table in found if table.kind == kind]
        if not own:
            wrong.append(f"there is no table for {kind}")
        for table in own:
            if sorted(map(_order, declared)) != sorted(_order(row.sizes) for row in table.measured):
                wrong.append(f"{table.machine}, {table.kind}: it was measured with other sizes than are declared")
            wrong += _invalid(table, pairs[0][0], declared)
    return [f"{kernel.name}: {text}" for text in dict.fromkeys(wrong)]


def _order(sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items())


def _invalid(table: Table, bound: BoundKernel, declared: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """Configurations of a table that the kernel does not have, where it is for a device like that of a binding."""
    if table.machine.partition(":")[0] != bound.config_spec.facts.machine.kind:
        return
    for number in sorted({table.choose(sizes) for sizes in declared}):
        try:
            bound.config_spec.normalize(table.configs[number])
        except exc.InvalidConfig as error:
            yield f"{table.machine}, {table.kind}: configuration {number} is none of the kernel's: {error.message}"


def slower(kernel: Tunable, path: Path, sets: Sequence[Sequence[Any]]) -> list[str]:
    """Where the configuration that a table chooses takes longer than the default on this machine, measured now."""
    wrong = []
    for pairs in _groups(kernel, sets).values():
        for bound, args in pairs:
            named = _named(kernel, args)
            table = tables.table_for(path, kernel.name, named)
            if table is None:
                wrong.append(f"{kernel.name}: there is no table for this machine")
                continue
            chosen = table.configs[table.choose(tables.sizes_of(named))]
            ((default, (ms,)),) = raced([(bound, args)], [chosen])
            if ms is None or (default is not None and ms > SLOWER * default):
                shown = f"{ms:.4g} ms, the default {default:.4g} ms" if ms and default else "it does not work"
                wrong.append(f"{kernel.name}: {tables.sizes_of(named)}: {shown}")
    return list(dict.fromkeys(wrong))
