"""Rounds of a tuning: configurations are compiled, checked and timed in turns by workers, and written to the journal.

A time is that of a candidate relative to the default's in the same rounds, times what the default took first, so that a
machine that gets busy, or another GPU, spoils no ranking.
"""

from __future__ import annotations

import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.hl.config import Config
from tilewright.hl.settings import Settings
from tilewright.hl.tune.journal import Journal
from tilewright.hl.tune.outcomes import Compiled, Failed, Job, Outcome, Plan, Timed
from tilewright.hl.tune.pools import Form, Tunable, Workers, make_pool
from tilewright.hl.tune.progress import Progress
from tilewright.hl.tune.spec import ConfigSpec
from tilewright.hl.tune.under_way import UnderWay

log = logging.getLogger("tilewright.tune")
_BATCH = 4  # compiled candidates that wait for others being measured, where the two do not disturb each other
_COMPILING, _SHARE = 0.6, 0.9  # of the time left: for compiling; that a worker is told of, as it is some way behind us
_SLOW, _PATIENCE, _FEW = 3.0, 10.0, 4
# seconds that all may compile; times the median of the others; how many those are


class Rounds:
    """Measures configurations, whoever chooses them.

    Args:
        bound: the kernel.
        args: arguments to time it with.
        journal: where everything measured is written.
        workers: who compiles and measures, and what stands for a configuration in their jobs; None for what there is.
        clock: gives seconds.

    Attributes:
        times: milliseconds of every configuration that ran.
        failures: why the others are out.
        deadline: by the clock, at which nothing goes on.
    """

    def __init__(
        self,
        bound: Tunable,
        args: Sequence[Any],
        journal: Journal | None = None,
        workers: tuple[Workers, Form] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bound, self.args, self.settings, self.spec = bound, tuple(args), bound.settings, bound.config_spec
        self.journal, self._given, self._clock = journal or Journal(None, {}), workers, clock
        self.times: dict[Config, float] = {}
        self.failures: dict[Config, str] = {}
        self.began, self.deadline = clock() - self.journal.spent, math.inf
        shown = self.settings.autotune_log_level >= 1 and bool(self.settings.autotune_progress_bar)
        self.progress = Progress(bound.name, shown, clock)
        self._workers: tuple[Workers, Form] | None = workers
        self._configs: list[Config] = []
        self._under_way: UnderWay | None = None
        self._ready: list[Config] = []  # compiled, to be measured
        self._measuring: set[Config] = set()
        self._compiled: dict[Config, Compiled] = {}
        self._timed: dict[Config, Timed] = {}
        self._usual: float | None = None  # milliseconds of the reference
        self._meanwhile: Callable[[], None] | None = None  # to do once, while workers are busy

    def race(self, configs: Sequence[Config]) -> None:
        """Compile, check and time configurations that were not tried before."""
        self.races(iter([configs]))

    def races(self, proposals: Iterator[Sequence[Config]]) -> None:
        """The same for rounds of configurations; what is asked for last may look at what is `known`."""
        share = 1.0 if self._pool()[0].together else _COMPILING
        while self._begin(proposals):
            self._follow(proposals, self._clock() + (self.deadline - self._clock()) * share)
            self.progress.phase = "measuring"
            self._measure()
            self._follow(proposals, self.deadline)
            self.under_way.give_up()

    @property
    def under_way(self) -> UnderWay:
        """What was asked for and has no outcome yet."""
        if self._under_way is None:
            self._under_way = UnderWay(self._pool()[0].together)
        return self._under_way

    def known(self) -> dict[Config, float]:
        """What a strategy is told: see `UnderWay.known`."""
        return self.under_way.known(self.times | dict.fromkeys(self.failures, math.inf))

    def _begin(self, proposals: Iterator[Sequence[Config]]) -> bool:
        """Have rounds compiled until there are as many under way as may be; whether there are any."""
        while not self._over() and self.under_way.has_room():
            configs = next(proposals, None)
            if configs is None:
                break
            self._compile(list(dict.fromkeys(_allowed(configs, self.spec, self.settings))))
        return bool(self.under_way.left())

    def _compile(self, wanted: Sequence[Config]) -> None:
        """Submit what of a round was not tried before."""
        begun = self.under_way.left()
        tried = self.times.keys() | self.failures.keys() | begun
        fresh = [config for config in wanted if config not in tried and not self._recalled(config)]
        self.under_way.add(wanted, fresh)
        reference = self.reference()
        if reference is None:
            self._usual = None
        extra = [] if reference is None or not fresh or reference in {*self._compiled, *begun, *fresh} else [reference]
        workers, form = self._pool()
        self.progress.phase = "compiling"
        for config in [*extra, *fresh]:
            try:
                job = Job(
                    [(self._number(config), form(config))],
                    None,
                    _seconds_to_compile(self.settings, self._compiled.values()),
                )
            except Exception as error:  # there is no code for it
                self._fail(config, Failed.of(error, compiling=True))
                continue
            workers.submit(job)

    def _follow(self, proposals: Iterator[Sequence[Config]], deadline: float) -> None:
        """Take in what workers send until they are done or time is up, and keep them busy."""
        workers, _ = self._pool()
        for number, outcome in workers.outcomes(deadline):
            config = self._configs[number]
            if isinstance(outcome, Compiled):
                self._compiled[config] = outcome
                self._ready += [config] if config in self.under_way.left() else []
            else:
                self._measuring.discard(config)
                self._take(config, outcome)
            if workers.together:
                self._begin(proposals)
                if len(self._ready) >= _BATCH or (self._ready and not self._measuring):
                    self._measure()

    def _tick(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.progress.tick()

    def _measure(self) -> None:
        """Submit what is to be measured, in as many parts as there are devices."""
        workers, form = self._pool()
        ready, self._ready = self._ready, []
        reference = self.reference()
        rest = [config for config in ready if config != reference]
        parts = max(1, min(workers.devices, len(rest)))
        for at in range(parts):
            part = [*([reference] if reference in self._compiled else ()), *rest[at::parts]]
            if part and (rest or reference in ready):
                self._measuring |= {config for config in part if config is not None}
                items = [(self._number(config), form(config)) for config in part if config is not None]
                workers.submit(Job(items, self._plan(), _seconds_to_run(self.settings, self._usual)))

    def timed(self, configs: Sequence[Config], plan: Plan) -> dict[Config, Timed]:
        """Time configurations in one job; the first is the reference."""
        workers, form = self._pool()
        workers.submit(
            Job(
                [(self._number(config), form(config)) for config in configs],
                plan,
                _seconds_to_run(self.settings, self._usual),
            )
        )
        found: dict[Config, Timed] = {}
        for number, outcome in workers.outcomes(self.deadline):
            if isinstance(outcome, Timed):
                found[self._configs[number]] = outcome
            elif isinstance(outcome, Failed):
                self._fail(self._configs[number], outcome)
        return found if configs[0] in found else {}

    def _take(self, config: Config, outcome: Outcome) -> None:
        """Take in an outcome."""
        reference, wanted = self.reference(), config in self.under_way.left()
        if isinstance(outcome, Failed):
            if config not in self.times and (wanted or config == reference):
                self._fail(config, outcome)
        elif isinstance(outcome, Timed) and config not in self.times:
            usual = statistics.median(outcome.rounds)
            if config == reference:
                self._usual = self._usual or usual
            related = self._usual is not None and reference is not None and reference not in self.failures
            ms = outcome.ratio * self._usual if related and self._usual is not None else usual
            if wanted:
                self._timed[config] = outcome
                self._note_time(config, ms)
                self.journal.timed(config, ms, outcome, self._compiled.get(config), at=self._at())

    def _note_time(self, config: Config, ms: float) -> None:
        self.times[config] = ms
        self.under_way.settle(config)
        self.progress.tried += 1
        self.progress.best = self._fastest()
        self.progress.default = self._usual
        self._say(2, f"  {ms:.4f} ms  {config!r}")

    def _rescale(self, usual: float) -> None:
        """Take another time of the reference, by which all others are known: its first one is of a machine that had
        just begun, and of few rounds."""
        if self._usual:
            self.times = {config: ms * usual / self._usual for config, ms in self.times.items()}
        self._usual = usual

    def _fail(self, config: Config, failed: Failed) -> None:
        self.failures[config] = f"{failed.kind}: {failed.why}"
        self.times.pop(config, None)
        self.under_way.settle(config)
        self.journal.failed(config, failed, at=self._at())
        self.progress.tried, self.progress.out = self.progress.tried + 1, self.progress.out + 1
        self._say(2, f"  out: {self.failures[config]}  {config!r}")

    def _recalled(self, config: Config) -> bool:
        """Whether an earlier start of this search has tried a configuration."""
        row = self.journal.known.get(config)
        if row is None:
            return False
        if "ms" in row:
            self.times[config] = float(row["ms"])
            if config == self.spec.default_config():
                self._usual = self.times[config]
        else:
            self.failures[config] = f"{row['failed']}: {row.get('why', '')}"
        return True

    def reference(self) -> Config | None:
        """What others are timed in turns with: the default configuration, if it works."""
        default = self.spec.default_config()
        return None if default in self.failures else default

    def _pool(self) -> tuple[Workers, Form]:
        if self._workers is None:
            workers, form, note = make_pool(self.bound, self.args, self._tick)
            self._workers = workers, form
            if note:
                self._say(1, note)
        return self._workers

    def _number(self, config: Config) -> int:
        if config not in self._configs:
            self._configs.append(config)
        return self._configs.index(config)

    def _plan(self, drop: bool = True, rep: float = 15.0) -> Plan:
        how = self.settings
        given = how.autotune_accuracy_check, how.autotune_baseline_atol, how.autotune_baseline_rtol
        return Plan(*given, rep=rep, drop=drop, seconds=_SHARE * (self.deadline - self._clock()))

    def close(self) -> None:
        """Make an end of the workers; a later race has new ones."""
        self.progress.close()
        if self._workers is not None and self._given is None:
            self._workers[0].close()
            self._workers = None

    def _fastest(self) -> float:
        return min(self.times.values(), default=math.inf)

    def _over(self) -> bool:
        return self._clock() >= self.deadline

    def _at(self) -> float:
        return round(self._clock() - self.began, 3)

    def _say(self, level: int, text: str) -> None:
        log.log(logging.INFO if level == 1 else logging.DEBUG, "%s: %s", self.bound.name, text)
        if self.settings.autotune_log_level >= level:
            self.progress.close()
            print(f"[hl] {text}", file=sys.stderr)


def _allowed(configs: Sequence[Config], spec: ConfigSpec, settings: Settings) -> Iterable[Config]:
    """What the user's settings leave of configurations."""
    fixed, allowed = settings.autotune_config_overrides or {}, settings.autotune_config_filter
    for config in configs:
        made = spec.normalize({**config, **fixed}) if fixed else config
        if allowed is None or allowed(made):
            yield made


def _seconds_to_run(settings: Settings, usual: float | None) -> float:
    """How long a run of a candidate may take, where the reference takes `usual` milliseconds."""
    most = settings.autotune_benchmark_timeout or math.inf
    return most if usual is None else min(most, max(_SLOW, usual / 10))


def _seconds_to_compile(settings: Settings, compiled: Iterable[Compiled]) -> float:
    """How long compiling a candidate may take, as others did; code that takes far longer spills registers."""
    most, known = settings.autotune_compile_timeout or math.inf, [one.seconds for one in compiled]
    return most if len(known) < _FEW else min(most, max(_SLOW, _PATIENCE * statistics.median(known)))
