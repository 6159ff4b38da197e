"""Strategies of a search: what is tried next, from what was measured so far.

A strategy only proposes; compiling, checking, timing, deadlines, files are the driver's. `autotuner_fn` names one of
these, or makes one of the user's own: whatever has `propose`.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy

from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.tune.fragments import IntegerFragment
from tilewright.hl.tune.spec import ConfigSpec

_LONG = 30.0  # seconds of a search that has time to load scikit-learn: two, and more from a cold disk
_SHAPE = ("block_sizes", "reduction_loops", "num_warps", "num_stages")

Times = Mapping[Config, float]
"""Milliseconds of what was tried; infinity for what does not work."""


@dataclass(frozen=True)
class Space:
    """What there is to choose from.

    Args:
        spec: the kernel's configurations.
        rng: the only source of chance, so that a seed gives a search.
    """

    spec: ConfigSpec
    rng: random.Random
    _vectors: dict[Config, list[float]] = field(default_factory=dict)

    def default(self) -> Config:
        """What is taken without a search."""
        return self.spec.default_config()

    def random(self) -> Config:
        """Any configuration."""
        return self.spec.random(self.rng)

    def neighbors(self, config: Config) -> list[Config]:
        """What differs by one step of one choice."""
        return self.spec.neighbors(config)

    def shape(self, config: Config) -> tuple[str, ...]:
        """What of a configuration says how much a program and its warps do at a time."""
        return tuple(repr(config.config.get(key)) for key in _SHAPE)

    def leaders(self, times: Times, count: int) -> list[Config]:
        """The fastest, each of another shape: what differs in the rest is about as fast, with the same neighbours."""
        found: dict[tuple[str, ...], Config] = {}
        for config in best_of(times, len(times)):
            found.setdefault(self.shape(config), config)
            if len(found) == count:
                break
        return list(found.values())

    def vector(self, config: Config) -> list[float]:
        """A configuration as numbers: logarithms of integers, places of other values."""
        if config not in self._vectors:
            flat = zip(self.spec.choices, self.spec.flatten(config), strict=True)
            self._vectors[config] = [_number(choice.fragment, value) for choice, value in flat]
        return self._vectors[config]


def _number(fragment: Any, value: Any) -> float:
    if isinstance(fragment, IntegerFragment):
        return math.log2(max(value, 0) + 1)
    choices = list(getattr(fragment, "choices", ()))
    if value in choices:
        return float(choices.index(value))
    return float(sum(place * len(value) ** at for at, place in enumerate(value))) if isinstance(value, list) else 0.0


class Strategy(Protocol):
    """Chooses what is tried.

    What it needs seconds for it may do in a method `prepare()`: it is called once while the first candidates compile.
    """

    def propose(self, space: Space, times: Times, count: int) -> Sequence[Config]:
        """Candidates to try next.

        Args:
            space: what there is to choose from.
            times: of everything tried so far.
            count: how many are wanted; what was tried before is passed over, and none at all ends the search.
        """


def best_of(times: Times, count: int) -> list[Config]:
    """The fastest that work."""
    return sorted((config for config in times if math.isfinite(times[config])), key=lambda config: times[config])[
        :count
    ]


class Finite:
    """Given configurations, and no others.

    Args:
        configs: in the order in which they are tried.
    """

    def __init__(self, configs: Iterable[Config]) -> None:
        self.configs = list(configs)
        self._left = list(self.configs)

    def propose(self, space: Space, times: Times, count: int) -> Sequence[Config]:
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class Random:
    """Random configurations."""

    def propose(self, space: Space, times: Times, count: int) -> Sequence[Config]:
        return [space.random() for _ in range(count)]


class PatternSearch:
    """Neighbours of the best, half of them with tiles, warps or pipelines that were not tried, as these differ most;
    and random configurations where all of these were tried.

    Args:
        parents: how many have neighbours tried.
    """

    def __init__(self, parents: int = 3) -> None:
        self._parents = parents

    def propose(self, space: Space, times: Times, count: int) -> Sequence[Config]:
        near = [near for parent in space.leaders(times, self._parents) for near in space.neighbors(parent)]
        fresh = [config for config in dict.fromkeys(near) if config not in times]
        fresh, known = space.rng.sample(fresh, len(fresh)), set(map(space.shape, times))
        other = [config for config in fresh if space.shape(config) not in known]
        rest = [config for config in fresh if space.shape(config) in known]
        chosen = [*other[: max(count // 2, count - len(rest))], *rest][:count]
        return [*chosen, *(space.random() for _ in range(count - len(chosen)))]


class DifferentialEvolution:
    """Differences of two good configurations added to a third (Storn, Price, "Differential evolution", 1997).

    What has an order is added as logarithms and rounded to a value that there is; what has none is one of the three.

    Args:
        population: how many of the best take part.
        weight: of the difference.
        crossover: how probably a choice is the new one rather than that of the parent.
    """

    def __init__(self, population: int = 20, weight: float = 0.8, crossover: float = 0.7) -> None:
        self._population, self._weight, self._crossover = population, weight, crossover

    def propose(self, space: Space, times: Times, count: int) -> Sequence[Config]:
        alive = best_of(times, self._population)
        if len(alive) < 4:
            return [space.random() for _ in range(count)]
        return [self._child(space, alive) for _ in range(count)]

    def _child(self, space: Space, alive: Sequence[Config]) -> Config:
        rng, spec = space.rng, space.spec
        parent, *others = (spec.flatten(config) for config in rng.sample(list(alive), 4))
        flat = []
        for at, choice in enumerate(spec.choices):
            new = self._mixed(choice.fragment, [other[at] for other in others], rng)
            fits = choice.searched and rng.random() < self._crossover and choice.fragment.holds(new)
            flat.append(new if fits else parent[at])
        try:
            return spec.unflatten(flat)
        except exc.InvalidConfig:  # a tile that is too large
            return space.random()

    def _mixed(self, fragment: Any, values: Sequence[Any], rng: random.Random) -> Any:
        if not isinstance(fragment, IntegerFragment):
            return rng.choice(list(values))
        one, two, three = (math.log2(max(value, 0) + 1) for value in values)
        wanted = 2 ** (one + self._weight * (two - three)) - 1
        near = min(max(round(wanted), fragment.low), fragment.high)
        power = 1 << max(0, round(math.log2(max(wanted, 1))))
        return near if fragment.holds(near) else min(max(power, fragment.low), fragment.high)


class Regressor(Protocol):
    """A model of times: scikit-learn's ensembles of trees."""

    estimators_: Sequence[Any]

    def fit(self, rows: Any, values: Any) -> Any:
        """Learn."""


class Surrogate:
    """What a model of the times so far expects to be fast, from near the best and from anywhere.

    An ensemble of randomised trees learns the logarithm of the time; a candidate is worth the mean of the trees less
    their deviation (a lower confidence bound: Hutter, Hoos, Leyton-Brown, "Sequential model-based optimization for
    general algorithm configuration", 2011). A quarter of the candidates are neighbours of the best whatever
    the model says.

    Args:
        make: an untrained model; None for `ExtraTreesRegressor` of scikit-learn.
        pool: how many candidates the model chooses from.
    """

    def __init__(self, make: Callable[[int], Regressor] | None = None, pool: int = 256) -> None:
        self._make: Callable[[int], Regressor] | None = make or _trees
        self._pool = pool

    def prepare(self) -> None:
        """Load the library of the model; without a model from here on where it is broken."""
        try:
            if self._make is _trees:
                importlib.import_module("sklearn.ensemble")
        except ImportError:
            self._make = None

    def propose(self, space: Space, times: Times, count: int) -> Sequence[Config]:
        self.prepare()
        if self._make is None or len(best_of(times, 8)) < 8:
            return PatternSearch().propose(space, times, count)
        near = list(PatternSearch().propose(space, times, max(1, count // 4)))
        pool = self._candidates(space, times)
        ranked = self._ranked(space, times, [config for config in pool if config not in near])
        return [*near, *ranked[: count - len(near)]]

    def _candidates(self, space: Space, times: Times) -> list[Config]:
        """One to three steps from the best, and random ones."""
        made = [space.random() for _ in range(self._pool // 2)]
        best = space.leaders(times, 5)
        while len(made) < self._pool:
            config = space.rng.choice(best)
            for _ in range(space.rng.randint(1, 3)):
                config = space.spec.step(config, space.rng)
            made.append(config)
        return [config for config in dict.fromkeys(made) if config not in times]

    def _ranked(self, space: Space, times: Times, pool: Sequence[Config]) -> list[Config]:
        """The most promising first."""
        if not pool:
            return []
        worst = 2 * max(time for time in times.values() if math.isfinite(time))
        logs = [math.log(time if math.isfinite(time) else worst) for time in times.values()]
        assert self._make is not None
        model = self._make(space.rng.randrange(1 << 30))
        model.fit([space.vector(config) for config in times], logs)
        rows = numpy.asarray([space.vector(config) for config in pool], numpy.float32)
        guesses = list(zip(*(tree.predict(rows) for tree in model.estimators_), strict=True))
        worth = {}
        for config, values in zip(pool, guesses, strict=True):
            mean = sum(values) / len(values)
            worth[config] = mean - math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
        return sorted(pool, key=lambda config: worth[config])


def has_trees() -> bool:
    """Whether scikit-learn is installed; importing it takes seconds."""
    return importlib.util.find_spec("sklearn") is not None


def _trees(seed: int) -> Regressor:
    ensemble = importlib.import_module("sklearn.ensemble")
    model: Regressor = ensemble.ExtraTreesRegressor(64, min_samples_leaf=2, random_state=seed)
    return model


NAMES: dict[str, Callable[[], Strategy]] = {
    "random": Random,
    "pattern": PatternSearch,
    "differential_evolution": DifferentialEvolution,
    "surrogate": Surrogate,
}


def named(wanted: str, seconds: float = math.inf) -> tuple[Strategy, str]:
    """A strategy, and what to say of it.

    Args:
        wanted: its name; "" for `surrogate` if scikit-learn is there, and if there is time for it: it takes seconds to
            load.
        seconds: that the search may take.
    """
    name = wanted or ("surrogate" if seconds >= _LONG else "pattern")
    if name not in NAMES:
        raise exc.InvalidAPIUsage(f"autotuner_fn={name!r}", hint=f"strategies are {', '.join(NAMES)}, or a function")
    if name == "surrogate" and not has_trees():
        return PatternSearch(), "pattern (pip install tilewright[tuning] for the search by a model)"
    return NAMES[name](), name
