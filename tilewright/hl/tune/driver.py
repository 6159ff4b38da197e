"""Tuning: candidates are compiled beside each other, checked against a baseline, and timed in turns.

    strategy proposes --> compile --> run once and compare --> time in turns with the default --> strategy proposes ...
    --> the last five and the default take turns once more --> what each key of the winner was worth

Candidates compile and run in worker processes (workers.py); what does not compile, crashes, hangs or computes something
else is out, with its reason (rounds.py). Everything measured is in the journal (journal.py), from which a search that
was interrupted goes on: it proposes the same again, and what the journal knows is not measured twice.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.hl import environment, exc
from tilewright.hl.config import Config
from tilewright.hl.settings import Settings
from tilewright.hl.tune import strategies
from tilewright.hl.tune.journal import Journal
from tilewright.hl.tune.outcomes import is_faster
from tilewright.hl.tune.pools import Form, Tunable, Workers, cores
from tilewright.hl.tune.rounds import Rounds
from tilewright.hl.tune.strategies import Space, Strategy

_SECONDS = {"quick": 10.0, "full": 600.0}
_ROUND = {"quick": 8, "full": 16}  # candidates of a round, at least
_EACH = 2  # and for each process that compiles
_IDLE = {"quick": 3, "full": 6}  # so many rounds that improve less than _ENOUGH end a search whose time nobody set
_ENOUGH = 0.005
_STALE = 3  # so many rounds without a configuration that was not tried before end any search
_SEARCHING = {"quick": 0.88, "full": 0.9}  # of all time; the rest is for the end
_FINALISTS, _FINAL = 5, {"quick": 40.0, "full": 200.0}  # of the last race: candidates, milliseconds of each
_TURNS = 3  # of the last race, or there was no time for it
_WORTHY = 0.6  # of the time behind the search the last race gets so much, the rest is for what the keys are worth


class Driver(Rounds):
    """One tuning.

    Args:
        bound: the kernel.
        args: arguments to time it with.
        journal: where everything measured is written.
        starts: configurations that a search begins with, beside those of the settings.
        workers: who compiles and measures, and what stands for a configuration in their jobs; None for what there is.
        clock: gives seconds.

    Attributes:
        times: milliseconds of every configuration that ran.
        failures: why the others are out.
        ended: how the search did: "complete", "deadline" or "interrupted".
        worth: by key of the winner, how many times as long it takes with the default's value.
    """

    def __init__(
        self,
        bound: Tunable,
        args: Sequence[Any],
        journal: Journal | None = None,
        starts: Sequence[Config] = (),
        workers: tuple[Workers, Form] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(bound, args, journal, workers, clock)
        self._starts, self._note = starts, ""
        self.worth: dict[str, float] = {}
        self.ended = "complete"

    def among(self, configs: Iterable[Config]) -> Config:
        """The fastest of some configurations.

        Raises:
            NoConfigFound: none of them works.
        """
        try:
            self.race([self.spec.normalize(config) for config in configs])
        except KeyboardInterrupt:
            self._interrupted()
        finally:
            self.close()
        best = self.best()
        self._end(best)
        return best

    def search(self, effort: str, strategy: Strategy | None = None) -> Config:
        """What a strategy finds until the time is over or nothing gets better; Ctrl-C gives the best so far.

        Args:
            effort: "quick" or "full".
            strategy: None for what the settings say.

        Raises:
            NoConfigFound: nothing works.
            KeyboardInterrupt: Ctrl-C before anything was timed.
        """
        effort = effort if effort in _SECONDS else "quick"
        seconds = self.settings.autotune_budget_seconds or _SECONDS[effort]
        strategy = strategy or self._strategy(seconds)
        if isinstance(strategy, strategies.Finite):
            return self.among(strategy.configs)
        self._meanwhile = getattr(strategy, "prepare", None)
        last = self.began + seconds
        self.deadline = self.progress.deadline = self.began + seconds * _SEARCHING[effort]
        best: Config | None = None
        try:
            self._explore(effort, strategy)
            best = self._finals(effort, last)
            if effort == "full":
                self.deadline = last
                self.worth = self.ablation(best)
        except KeyboardInterrupt:
            self._interrupted()
        finally:
            self.close()
        best = best or self._fallback()
        self._end(best)
        return best

    def _explore(self, effort: str, strategy: Strategy) -> None:
        """Rounds of proposals."""
        self.races(self._proposals(effort, strategy))
        self.ended = "deadline" if self._over() else "complete"

    def _proposals(self, effort: str, strategy: Strategy) -> Iterator[Sequence[Config]]:
        """What is tried, round by round: seeds, their neighbours and chance first, then what the strategy says."""
        space = Space(self.spec, random.Random(self.settings.autotune_random_seed))
        count = max(_ROUND[effort], _EACH * (self.settings.autotune_precompile_jobs or cores()))
        first = self._first(space, count * self.under_way.depth)
        for at in range(0, len(first), count):
            yield first[at : at + count]
        patience = math.inf if self.settings.autotune_budget_seconds else _IDLE[effort]
        most = self.settings.autotune_max_generations or math.inf
        idle, stale, rounds, best = 0, 0, 0, math.inf
        while idle < patience and stale < _STALE and rounds < most:
            known = self.known()
            now, rounds = min(known.values(), default=math.inf), rounds + 1
            idle, best = (idle + 1, best) if rounds > 1 and now > best * (1 - _ENOUGH) else (0, now)
            proposed = list(strategy.propose(space, known, count))
            if not proposed:
                return
            yield proposed
            stale = 0 if any(config not in known for config in self.under_way.last()) else stale + 1

    def _first(self, space: Space, count: int) -> Sequence[Config]:
        """What a search begins with, `count` or more."""
        given = map(self.spec.normalize, self.settings.autotune_seed_configs or ())
        seeds = list(dict.fromkeys([space.default(), *given, *self._starts]))
        room = max(0, count - len(seeds))
        near = strategies.PatternSearch().propose(space, dict.fromkeys(seeds, 0.0), room // 2)
        return [*seeds, *near, *(space.random() for _ in range(room - len(near)))]

    def _strategy(self, seconds: float) -> Strategy:
        wanted = self.settings.autotuner_fn
        if callable(wanted):
            made: Strategy = wanted(self.bound, self.args)
            if not hasattr(made, "propose"):
                raise exc.InvalidAPIUsage(
                    f"autotuner_fn gave a {type(made).__name__}", hint="something with propose(space, times, count)"
                )
            return made
        strategy, self._note = strategies.named(wanted or "", seconds)
        return strategy

    def _interrupted(self) -> None:
        """Ctrl-C: what is known is enough, if anything is."""
        self.ended = "interrupted"
        if not self.times:
            self.journal.ended("interrupted", None)
            raise KeyboardInterrupt

    def _fallback(self) -> Config:
        """Without a last race: the fastest of what was surely faster than the default, or the default."""
        default = self.reference()
        if default is None or (self.times and default not in self.times):
            return self.best()
        sure = [config for config in self.times if config not in self._timed or is_faster(self._timed[config])]
        return min([default, *sure], key=lambda config: self.times.get(config, math.inf))

    def best(self) -> Config:
        """The fastest so far.

        Raises:
            NoConfigFound: no candidate works.
        """
        if not self.times:
            reasons = "\n".join(f"  {config!r}: {reason}" for config, reason in list(self.failures.items())[:5])
            raise exc.NoConfigFound(f"no configuration of {self.bound.name} works:\n{reasons}")
        return min(self.times, key=lambda config: self.times[config])

    def _finals(self, effort: str, last: float) -> Config:
        """The winner of a last race of the fastest and the default, which stays unless something is surely faster."""
        default = self.reference()
        ranked = sorted(self.times, key=lambda config: self.times[config])
        finalists = [config for config in ranked[:_FINALISTS] if config != default]
        if default is None or not finalists:
            return self._fallback()
        share = 1.0 if effort == "quick" else _WORTHY
        self.progress.phase = "timing the last five"
        self.deadline = self._clock() + max(0.0, last - self._clock()) * share
        plan = self._plan(drop=False, rep=_FINAL[effort])
        found = self.timed([default, *finalists], plan)
        if default in found:
            self._rescale(statistics.median(found[default].rounds))
        for config, timed in found.items():
            self.times[config] = timed.ratio * (self._usual or statistics.median(timed.reference))
            self.journal.timed(
                config, self.times[config], timed, self._compiled.get(config), at=self._at(), part="final"
            )
        if default not in found or len(found[default].rounds) < _TURNS:
            return self._fallback()
        sure = [config for config, timed in found.items() if config == default or is_faster(timed)]
        return min(sure, key=lambda config: found[config].ratio)

    def ablation(self, config: Config) -> dict[str, float]:
        """What each key of a configuration is worth: how many times as long it takes with the default's value there.

        Args:
            config: one that was timed.
        """
        self.progress.phase = "what each key is worth"
        default, made = self.spec.default_config(), {}
        for key in config:
            if key in default and config[key] != default[key]:
                with_default = self.spec.normalize({**config.config, key: default[key]})
                if with_default != config:
                    made[key] = with_default
        self.race([config, *made.values()])
        mine = self.times.get(config)
        return {key: self.times[other] / mine for key, other in made.items() if mine and other in self.times}

    def _end(self, best: Config) -> None:
        more: dict[str, Any] = {"ms": self.times.get(best), "default_ms": self._usual, "seconds": self._at()}
        self.journal.ended(self.ended, best, **more, **({"worth": self.worth} if self.worth else {}))

    def report(self, config: Config) -> None:
        """Say what was found, with the decorator to paste."""
        seconds = self._clock() - self.began
        found = (
            f"Best: {self.times[config]:.4f} ms"
            if config in self.times
            else "Nothing was timed in that time: the default"
        )
        if self._usual and config in self.times and config != self.spec.default_config():
            found += f" ({self._usual / self.times[config]:.2f} times as fast as the default)"
        how = " Interrupted: the next start goes on." if self.ended == "interrupted" else ""
        counts = f"{len(self.times)} configurations timed, {len(self.failures)} out, {seconds:.1f} s"
        strategy = f", by {self._note}" if self._note else ""
        lines = [f"{self.bound.name}: {counts}{strategy}.{how} {found} with", decorator(config, self.settings)]
        for key, ratio in sorted(self.worth.items(), key=lambda pair: -pair[1]):
            lines.append(f"  {key}={config[key]!r}: {ratio:.3f} times as long with the default's")
        self._say(1, "\n".join(lines))


def several(pairs: Sequence[tuple[Any, Sequence[Any]]], aggregation: str) -> Config:
    """One configuration for several bound kernels: candidates are those that each finds best, and the default.

    Args:
        pairs: bound kernels and arguments.
        aggregation: "geomean" or "max" of the times relative to the default's.
    """
    drivers = [Driver(bound, args) for bound, args in pairs]
    default = drivers[0].bound.config_spec.default_config()
    found = [driver.search("quick") for driver in drivers]
    wanted = list(dict.fromkeys([default, *found]))
    for driver in drivers:
        driver.deadline = math.inf
        driver.race(wanted)
        driver.close()
    ratios = {
        config: [driver.times[config] / driver.times[default] for driver in drivers]
        for config in wanted
        if all(config in driver.times and default in driver.times for driver in drivers)
    }
    if not ratios:
        raise exc.NoConfigFound("no configuration works for all sets of arguments")
    join = max if aggregation == "max" else math.prod
    return min(ratios, key=lambda config: join(ratios[config]))


def decorator(config: Config, settings: Settings | None = None) -> str:
    """The line to put above the kernel; with settings that are not the defaults, but for those of tuning."""
    options = "" if settings is None else settings.changed(tuning=False)
    return f"@{environment.package()}.kernel(config={config!r}{', ' if options else ''}{options})"
