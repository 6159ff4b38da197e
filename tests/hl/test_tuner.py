"""Searches whose candidates crash, hang, are killed or are wrong; what is kept of them, and how strategies choose.

The kernels are plain functions, so that nothing is compiled; times are those of a formula where they matter.
"""

from __future__ import annotations

import faulthandler
import io
import json
import math
import os
import random
import signal
import statistics
import sys
import time

import pytest
import torch

from tilewright import hl, testing
from tilewright.compile import forks as children
from tilewright.hl.tune import journal, pools, strategies, workers
from tilewright.hl.tune.bench import Bench, Subject
from tilewright.hl.tune.driver import Driver
from tilewright.hl.tune.journal import Journal
from tilewright.hl.tune.outcomes import Compiled, Failed, Job, Plan, Timed, is_faster
from tilewright.hl.tune.progress import Progress
from tilewright.hl.tune.strategies import Space
from tilewright.launch.asynchronous import active

forks = pytest.mark.skipif(not testing.can_fork(), reason="workers are forked off")


def scaled(x, factor):
    out = torch.empty_like(x)
    for rows, columns in hl.tile([x.size(0), x.size(1)]):
        out[rows, columns] = x[rows, columns] * factor
    return out


X = torch.randn(64, 64)
SPEC = hl.kernel(scaled).bind((X, 2)).config_spec
BLOCKS = [SPEC.normalize({"block_sizes": [rows, 64]}) for rows in (1, 2, 4, 8, 16, 32)]
QUIET = {"autotune_log_level": 0, "autotune_precompile_jobs": 2}


class Plain:
    """A kernel whose configurations are plain functions.

    Args:
        does: by number of rows, what happens ahead of the result in the process that runs it.
        compiles: the same for compiling.
    """

    name = "plain"

    def __init__(self, does=(), compiles=(), **settings):
        self.does, self.compiles = dict(does), dict(compiles)
        self.settings, self.config_spec = hl.Settings(**{**QUIET, **settings}), SPEC

    def precompile(self, config, args):
        self.compiles.get(config["block_sizes"][0], lambda: None)()

    def compile_config(self, config):
        def run(x, factor):
            self.does.get(config["block_sizes"][0], lambda: None)()
            return x * factor

        return run


def hang():
    time.sleep(100)


def crash():
    faulthandler.disable()  # pytest would print where
    os.abort()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(0)


def refuse():
    raise ValueError("no such thing")


@forks
@pytest.mark.parametrize("compiling", [False, True], ids=["running", "compiling"])
def test_a_crash_a_hang_and_a_kill_lose_their_candidates_alone(compiling):
    faults = {2: hang, 4: crash, 8: kill, 16: leave, 32: refuse}
    limits = {"autotune_benchmark_timeout": 2.0, "autotune_compile_timeout": 2.0}
    bound = Plain({} if compiling else faults, faults if compiling else {}, **limits)
    driver = Driver(bound, (X, 2))
    best = driver.among(BLOCKS)
    assert best == BLOCKS[0] and set(driver.times) == {BLOCKS[0]}
    said = {config["block_sizes"][0]: why.split(":")[0] for config, why in driver.failures.items()}
    assert said == {2: "timeout", 4: "crash", 8: "crash", 16: "crash", 32: "compile error" if compiling else "error"}
    assert "signal 9" in driver.failures[BLOCKS[3]] and "no such thing" in driver.failures[BLOCKS[5]]


@forks
def test_what_the_user_owns_is_as_it_was():
    x = X.clone()

    class Changing(Plain):
        def compile_config(self, config):
            return lambda x, factor: x.mul_(factor)

    assert Driver(Changing(), (x, 2)).among(BLOCKS[:2]) in BLOCKS and torch.equal(x, X)


@forks
def test_wrong_results_are_refused_with_the_place_of_the_first_difference():
    class Wrong(Plain):
        def compile_config(self, config):
            def run(x, factor):
                out = x * factor
                if config["block_sizes"][0] == 2:
                    out[3, 17] += 100
                return out

            return run

    driver = Driver(Wrong(), (X, 2))
    driver.among(BLOCKS[:3])
    (why,) = driver.failures.values()
    assert why.startswith("wrong result: ") and "result 0 differs first at [3, 17]" in why and "1 of 4096" in why


def test_the_first_run_of_the_reference_which_loads_code_is_no_time_where_turns_have_none():
    def function(seconds):
        cold = [0.3] if seconds < 0.01 else []

        def run(x):
            time.sleep(cold.pop() if cold else seconds)
            return x * 2

        return run

    functions = {0: function(0.001), 1: function(0.2)}
    subject = Subject((X,), functions.__getitem__, lambda what: ())
    said = {}
    job = Job([(number, number) for number in functions], Plan(drop=False, seconds=0.6))
    Bench(subject).do(job, lambda number, outcome: said.update({number: outcome}))
    assert said[0].ratio == 1 and said[1].ratio > 4


def test_what_a_host_prepares_in_early_calls_makes_no_candidate_hopeless():
    def function(*seconds):
        left = list(seconds)
        return lambda x: (time.sleep(left.pop(0) if len(left) > 1 else left[0]), x * 2)[1]

    functions = {0: function(0.005), 1: function(0.25, 0.25, 0.005), 2: function(0.25)}
    said = {}
    Bench(Subject((X,), functions.__getitem__, lambda what: ())).do(
        Job([(number, number) for number in functions], Plan()), lambda number, outcome: said.update({number: outcome})
    )
    assert len(said[1].rounds) >= 3 and said[1].ratio < 4
    assert len(said[2].rounds) == 1 and said[2].ratio > 4


@forks
@pytest.mark.parametrize("where", ["does", "compiles"])
def test_a_deadline_holds_inside_compiles_and_runs(where):
    slow = dict.fromkeys((1, 2, 4, 8, 16, 32, 64), hang)
    bound = Plain(**{where: slow}, autotune_budget_seconds=1.5, autotune_seed_configs=BLOCKS)
    Driver(Plain(), (X, 2)).among(BLOCKS[:1])  # loads the compiler
    begin = time.monotonic()
    found = Driver(bound, (X, 2)).search("quick")
    assert time.monotonic() - begin < 10 and found == SPEC.default_config()


@forks
def test_progress_is_a_line_a_second_also_while_nothing_comes_back(capsys):
    hanging = dict.fromkeys((1, 2, 4, 8, 16, 32, 64), hang)
    bound = Plain(compiles=hanging, autotune_budget_seconds=5.2, autotune_seed_configs=BLOCKS, autotune_log_level=1)
    Driver(bound, (X, 2)).search("quick")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[hl] plain: ")]
    left = [int(line.rsplit(" s left", 1)[0].rsplit(", ", 1)[1]) for line in lines if line.endswith(" s left")]
    assert 2 <= len(left) <= 6 and left == sorted(left, reverse=True) and "0 tried, 0 out" in lines[0]


def test_progress_on_a_terminal_is_one_line_that_changes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal, now = Terminal(), [0.0]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    shown = Progress("matmul", True, lambda: now[0])
    shown.tried, shown.out, shown.best, shown.default, shown.deadline, now[0] = 24, 1, 2.41, 2.77, 9.2, 6.0
    assert shown.line() == "matmul: compiling, 24 tried, 1 out, 4.0/s, best 2.41 ms (default 2.77 ms), 3 s left"
    with shown:
        shown.tick()
    written = terminal.getvalue()  # where it stood the program goes on
    assert "matmul: compiling" in written and " s left" in written  # with colours between
    assert written.rindex("\x1b[2K") > written.index(" s left")


@forks
def test_what_is_compiled_ahead_is_measured_while_the_others_compile(monkeypatch, tmp_path):
    """As for a GPU; one of two processes compiles its candidate until all others are timed, and dies."""
    monkeypatch.setattr(children, "_SECONDS_ANYWAY", 1e3)
    bound, timed = hl.kernel(scaled, **QUIET).bind((X, 2)), tmp_path / "timed"
    others = [SPEC.default_config(), *(config for config in BLOCKS if config != BLOCKS[1])]

    def wait():
        while not timed.exists():
            time.sleep(0.05)
        kill()

    class Waiting:
        name, settings, config_spec, compile_config = bound.name, bound.settings, SPEC, bound.compile_config

        def precompile(self, config, args):
            if config == BLOCKS[1]:
                return [active().executor.submit(wait)]
            return bound.precompile(config, args)

    class Noting(Driver):
        def _note_time(self, config, ms):
            super()._note_time(config, ms)
            if set(others) <= self.times.keys():
                timed.touch()

    subject = Subject((X, 2), bound.compile_config, lambda config: bound.precompile(config, (X, 2)))
    pool = workers.Pool([], [workers.forked(lambda: subject)], together=True)
    ahead = pools.Ahead(Waiting(), (X, 2), 2, pool, lambda config: config, lambda: None)
    driver = Noting(Waiting(), (X, 2), workers=(ahead, lambda config: config))
    driver.deadline = time.monotonic() + 120
    driver.race([SPEC.default_config(), *BLOCKS])
    ahead.close()
    assert driver.times.keys() == set(others)
    assert driver.failures[BLOCKS[1]].startswith("crash: ")


# --- searches whose times are a formula -------------------------------------------------------------------


class Formula:
    """Workers for whom a configuration takes as long as a function says, and time goes on by a second for each.

    Args:
        ms: milliseconds of a configuration; an exception is a failure.
        noise: relative, of each round.
        stop: after so many candidates Ctrl-C is pressed.
    """

    together, devices = False, 1

    def __init__(self, ms, noise=0.0, stop=math.inf):
        self.ms, self.noise, self.stop, self.rng = ms, noise, stop, random.Random(7)
        self.jobs, self.now, self.tried = [], 0.0, []

    def submit(self, job):
        self.jobs.append(job)

    def outcomes(self, deadline=math.inf):
        while self.jobs:
            job = self.jobs.pop(0)
            reference = None
            for number, config in job.items:
                if job.plan is None:
                    yield number, Compiled(0.25, 40, 8)
                    continue
                if len(self.tried) >= self.stop:
                    raise KeyboardInterrupt
                self.now += 0.02
                outcome = self.outcome(config, reference)
                reference = reference or getattr(outcome, "rounds", None)
                self.tried.append(config)
                yield number, outcome

    def outcome(self, config, reference):
        try:
            ms = self.ms(config)
        except ValueError as error:
            return Failed("error", str(error))
        rounds = tuple(ms * (1 + self.rng.uniform(-self.noise, self.noise)) for _ in range(30))
        return Timed(rounds, reference or rounds)

    def close(self):
        self.jobs.clear()


def bowl(config):
    """The smallest time is that of 8 rows by 32 columns, in one order."""
    rows, columns = (math.log2(size) for size in config["block_sizes"])
    return 1 + (rows - 3) ** 2 + (columns - 5) ** 2 + (config["loop_orders"] != [[0, 1]])


def searched(workers, effort="quick", journal=None, starts=(), **settings):
    driver = Driver(
        Plain(**settings), (X, 2), journal, starts, (workers, lambda config: config), clock=lambda: workers.now
    )
    return driver, driver.search(effort)


@pytest.mark.parametrize("strategy", ["pattern", "differential_evolution", "random", "surrogate"])
def test_every_strategy_finds_what_is_much_better_than_the_default_and_a_seed_gives_its_candidates(strategy):
    if strategy == "surrogate":
        pytest.importorskip("sklearn")
    runs = [Formula(bowl), Formula(bowl)]
    for run in runs:
        _, best = searched(run, autotuner_fn=strategy, autotune_budget_seconds=3)
        assert bowl(best) < 0.5 * bowl(SPEC.default_config())
    assert runs[0].tried == runs[1].tried
    other = Formula(bowl)
    searched(other, autotuner_fn=strategy, autotune_random_seed=5, autotune_budget_seconds=1)
    assert other.tried != runs[0].tried


class Tree:
    """A model of one tree: the time of the nearest configuration."""

    def fit(self, rows, values):
        self.known, self.estimators_ = list(zip(rows, values)), [self]
        return self

    def predict(self, rows):
        return [min(self.known, key=lambda pair: math.dist(pair[0], row))[1] for row in rows]


def test_a_surrogate_is_asked_what_is_promising():
    """A model that is right beats chance: of its own proposals most are among the better half of all."""
    space = Space(SPEC, random.Random(0))
    times = {config: bowl(config) for config in (space.random() for _ in range(24))}
    proposed = strategies.Surrogate(lambda seed: Tree(), pool=128).propose(space, times, 8)
    usual = sorted(bowl(space.random()) for _ in range(101))[50]
    assert len(proposed) == 8 and sum(bowl(config) < usual for config in proposed) >= 6


def test_a_strategy_of_ones_own():
    class Rows:
        def __init__(self, bound, args):
            assert args[1] == 2
            self.left = list(BLOCKS)

        def propose(self, space, times, count):
            taken, self.left = self.left[:2], self.left[2:]
            return taken

    driver, _ = searched(Formula(lambda config: config["block_sizes"][0] % 64 + 1), autotuner_fn=Rows)
    assert set(BLOCKS) <= set(driver.times) and driver.ended == "complete"
    with pytest.raises(hl.exc.InvalidAPIUsage, match="strategies are random"):
        searched(Formula(bowl), autotuner_fn="clever")


def test_time_that_the_user_gives_is_used_while_there_is_something_new():
    level, given = Formula(lambda config: 1.0), {"autotuner_fn": "random"}
    driver, _ = searched(level, **given)
    assert driver.ended == "complete" and len(level.tried) < 100
    level = Formula(lambda config: 1.0)
    driver, _ = searched(level, autotune_budget_seconds=6, **given)
    assert driver.ended == "deadline" and len(set(level.tried)) > 200

    class Same:
        def propose(self, space, times, count):
            return list(times)[:count]

    driver, _ = searched(Formula(bowl), autotune_budget_seconds=1e6, autotuner_fn=lambda bound, args: Same())
    assert driver.ended == "complete"


class Unordered(Formula):
    """As for a GPU: what is compiled is measured meanwhile, and any of it may be done first."""

    together = True

    def __init__(self, ms, seed):
        super().__init__(ms)
        self.chance = random.Random(seed)

    def outcomes(self, deadline=math.inf):
        while self.jobs:
            self.jobs.insert(0, self.jobs.pop(self.chance.randrange(len(self.jobs))))
            jobs, self.jobs = self.jobs[1:], self.jobs[:1]
            made = list(super().outcomes(deadline))
            self.jobs += jobs
            yield from made


def test_two_rounds_are_under_way_and_what_is_proposed_does_not_depend_on_which_is_done_first():
    class Watching(strategies.PatternSearch):
        def __init__(self):
            super().__init__()
            self.seen = []

        def propose(self, space, times, count):
            self.seen.append(dict(times))
            return super().propose(space, times, count)

    runs = []
    for seed in range(3):
        watching = Watching()
        workers = Unordered(lambda config: bowl(config) if config["block_sizes"] != [64, 64] else refuse(), seed)
        driver, _ = searched(
            workers,
            autotune_max_generations=6,
            autotune_budget_seconds=1e6,
            autotuner_fn=lambda bound, args, watching=watching: watching,
        )
        assert not driver.under_way.left() and len(driver.times) + len(driver.failures) >= len(watching.seen[-1])
        runs.append((watching.seen, driver.times, driver.failures.keys()))
    assert runs[0] == runs[1] == runs[2]
    for times in runs[0][0]:  # a round is under way, and counts as usual
        usual = statistics.median(ms for config, ms in times.items() if ms == runs[0][1].get(config))
        under_way = [config for config, ms in times.items() if ms != runs[0][1].get(config, math.inf)]
        assert under_way and {times[config] for config in under_way} == {usual}


@pytest.mark.parametrize("given", [0, 6, 30])
def test_a_first_round_is_seeds_their_neighbours_and_chance(given):
    rng = random.Random(3)
    seeds = list(dict.fromkeys(SPEC.random(rng) for _ in range(given)))
    level = Formula(lambda config: 1.0)
    searched(
        level,
        autotune_seed_configs=seeds,
        autotune_max_generations=0,
        autotune_budget_seconds=0.9,
        autotuner_fn="random",
    )
    first = list(dict.fromkeys(level.tried))[: max(8, 1 + len(seeds))]
    assert first[: 1 + len(seeds)] == [SPEC.default_config(), *seeds]
    near = [config for seed in first[: 1 + len(seeds)] for config in SPEC.neighbors(seed)]
    assert sum(config in near for config in first[1 + len(seeds) :]) >= (8 - 1 - len(seeds)) // 2


def test_half_of_a_pattern_has_shapes_that_were_not_tried_near_the_best_of_each_shape():
    space, default = Space(SPEC, random.Random(0)), SPEC.default_config()
    turned = SPEC.normalize({**default, "loop_orders": [[1, 0]]})
    times = {default: 1.0, turned: 1.1, BLOCKS[0]: 5.0, BLOCKS[1]: 4.0}
    assert space.leaders(times, 2) == [default, BLOCKS[1]] and space.shape(default) == space.shape(turned)
    proposed = strategies.PatternSearch().propose(space, times, 8)
    known = set(map(space.shape, times))
    assert len(set(proposed)) == 8 and sum(space.shape(config) not in known for config in proposed) == 4


def test_without_scikit_learn_a_full_search_says_what_it_does(monkeypatch, capsys):
    monkeypatch.setattr(strategies, "has_trees", lambda: False)
    driver, best = searched(Formula(bowl), "full", autotune_budget_seconds=30, autotune_log_level=1)
    driver.report(best)
    assert "tilewright[tuning]" in capsys.readouterr().err
    driver, best = searched(Formula(bowl), "full", autotune_budget_seconds=6, autotune_log_level=1)
    driver.report(best)  # it would not have had the time to load it
    assert "tilewright[tuning]" not in capsys.readouterr().err


def test_a_full_search_says_what_each_key_of_the_winner_is_worth(capsys):
    settings = {"autotuner_fn": "pattern", "autotune_budget_seconds": 8, "autotune_log_level": 1}
    driver, best = searched(Formula(bowl), "full", **settings)
    default = SPEC.default_config()
    assert driver.worth["block_sizes"] > 2
    assert set(driver.worth) == {key for key in best if best[key] != default[key]}
    driver.report(best)
    said = capsys.readouterr().err
    assert "times as long with the default's" in said and "@hl.kernel(config=" in said


def test_the_default_stays_unless_something_is_surely_faster():
    default = SPEC.default_config()
    _, best = searched(Formula(lambda config: 1.0, noise=0.2), autotune_budget_seconds=4)
    assert best == default
    _, best = searched(Formula(lambda config: 1.0 if config == default else 0.8, noise=0.2))
    assert best != default
    level = tuple(1 + 0.01 * (at % 3) for at in range(20))
    assert not is_faster(Timed(level, level[::-1])) and is_faster(Timed(tuple(0.9 * ms for ms in level), level))
    assert not is_faster(Timed((0.5, 1.1), (1.0, 1.0)))


@pytest.mark.parametrize("factor, wins", [(0.995, False), (0.5, True)])
def test_where_there_is_no_time_for_a_last_race_the_default_stays_unless_something_was_surely_faster(factor, wins):
    class Late(Formula):
        def submit(self, job):
            if not job.plan or job.plan.drop:  # the last race drops nobody
                super().submit(job)

    default = SPEC.default_config()
    late = Late(lambda config: 1.0 if config == default else factor, noise=0.02)
    driver, best = searched(late, autotune_budget_seconds=3)
    assert (best != default) == wins and min(driver.times, key=driver.times.get) != default


def test_where_the_default_fails_others_win():
    default = SPEC.default_config()

    def ms(config):
        if config == default:
            raise ValueError("no memory")
        return bowl(config)

    driver, best = searched(Formula(ms))
    assert best != default and driver.failures == {default: "error: no memory"}

    def nothing(config):
        raise ValueError("no memory")

    with pytest.raises(hl.exc.NoConfigFound, match="no memory"):
        searched(Formula(nothing))


def test_a_search_that_is_interrupted_installs_the_best_and_goes_on(tmp_path, capsys):
    path, head = tmp_path / "a.search.jsonl", {"kernel": "plain", "seed": "0"}
    whole = Formula(bowl)
    searched(whole, autotune_budget_seconds=5)

    first = Formula(bowl, stop=11)
    driver, best = searched(first, journal=Journal(path, head), autotune_budget_seconds=5, autotune_log_level=1)
    assert driver.ended == "interrupted" and bowl(best) == min(bowl(config) for config in first.tried)
    driver.report(best)
    assert "the next start goes on" in capsys.readouterr().err
    with path.open("a") as file:
        file.write('{"config": {"block_si')  # the machine went down

    second = Formula(bowl)
    journal_again = Journal(path, head)
    assert len(journal_again.known) == len(set(first.tried)) and journal_again.spent > 0
    searched(second, journal=journal_again, autotune_budget_seconds=5)
    default = SPEC.default_config()
    searching = [config for config in second.tried if config != default]
    assert not set(first.tried) & set(searching[: len(searching) // 2])  # nothing was measured twice
    assert set(first.tried) | set(second.tried) <= set(whole.tried)  # the search is the one that it would have been
    (search,) = journal.read(path)
    assert search.end["end"] in ("complete", "deadline") and not search.goes_on
    assert Journal(path, head).known == {}  # the next one begins anew


def test_ctrl_c_before_anything_was_timed_is_the_callers(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        searched(Formula(bowl, stop=0))


def test_a_line_per_measurement_says_what_was_measured(tmp_path):
    path = tmp_path / "a.search.jsonl"

    def ms(config):
        if config["block_sizes"][0] == 2:
            raise ValueError("no")
        return bowl(config)

    driver, best = searched(Formula(ms), journal=Journal(path, {"kernel": "plain"}), autotune_seed_configs=BLOCKS)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0].keys() == {"search", "kernel", "when"} and rows[-1]["best"] == best.config
    timed = [row for row in rows if "ms" in row and "config" in row and "part" not in row]
    assert {hl.Config(**row["config"]) for row in timed} == set(driver.times)
    assert all({"low", "high", "rounds", "compile", "registers", "spills", "at"} <= row.keys() for row in timed)
    assert [row["failed"] for row in rows if "failed" in row] == ["error"] * len(driver.failures)


@pytest.fixture
def interruptible():
    """Ctrl-C is an exception; it is ignored in what a shell has put into the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@forks
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_real_search():
    """The interrupt reaches the driver while workers work; they end with it, and what they had measured is kept."""

    def press():
        os.kill(os.getppid(), signal.SIGINT)
        hang()

    bound = Plain({32: press}, autotune_budget_seconds=60, autotune_seed_configs=BLOCKS)
    driver = Driver(bound, (X, 2))
    driver.race(BLOCKS[:2])
    assert driver.search("quick") in driver.times and driver.ended == "interrupted"
