"""Autotuning and heuristics: what is timed, what is remembered, and what the hooks see."""

from __future__ import annotations

import copy
import pickle
import random
import statistics
import time
from collections import Counter

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import AutotunerError, CompileTimeAssertionFailure
from tilewright.tuning import search as timing
from tilewright.tuning.search import Candidate, quantiles_of, time_in_turns

Config = tilewright.Config
BLOCKS = [Config({"BLOCK": block}) for block in (16, 32, 64)]
QUICK = {"warmup": 0.1, "rep": 0.5}


@pytest.fixture(autouse=True)
def _nothing_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)


@tilewright.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask), mask)


@tilewright.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask) + 1, mask)


@tilewright.jit
def only_small(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 16, "too large")
    tl.store(x_ptr + tl.arange(0, BLOCK), BLOCK)


def grid_of(n):
    return lambda meta: (tilewright.cdiv(n, meta["BLOCK"]),)


def launch_double(tuned, n=100, dtype=np.float32):
    x, out = np.arange(n, dtype=dtype), np.zeros(n, dtype)
    kernel = tuned[grid_of(n)](x, out, n)
    np.testing.assert_array_equal(out, 2 * x)
    return kernel


def test_a_search_times_every_configuration_and_remembers_the_best():
    tuned = tilewright.autotune(BLOCKS, key=["n"], **QUICK)(double)
    kernel = launch_double(tuned)
    assert isinstance(kernel, tilewright.CompiledKernel)
    assert set(tuned.configs_timings) == set(BLOCKS)
    assert all(len(times) == 3 and 0 < times[1] <= times[0] <= times[2] for times in tuned.configs_timings.values())
    assert tuned.best_config == min(BLOCKS, key=lambda config: tuned.configs_timings[config][1])
    assert list(tuned.cache.values()) == [tuned.best_config] and tuned.bench_time > 0


def test_a_copy_of_an_autotuner_searches_for_itself():
    """Models that have one are copied whole, `copy.deepcopy` and all."""
    tuned = tilewright.autotune(BLOCKS, key=["n"], **QUICK)(double)
    twin = copy.deepcopy(tuned)
    launch_double(twin)
    assert len(twin.cache) == 1 and not tuned.cache


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_an_autotuner_after_launches_launches_by_itself(copied):
    """Machine code makes the original's launches, and has its choices; the copy knows these, and makes others."""
    tuned = tilewright.autotune(BLOCKS, key=["n"], **QUICK)(double)
    kept = tuned[grid_of(100)]
    for _ in range(3):
        launch_double(tuned)
    twin = copied(tuned)
    assert twin.cache == tuned.cache and twin.best_config == tuned.best_config
    twin.cache, chosen = dict.fromkeys(tuned.cache, BLOCKS[0]), tuned.best_config
    tuned.best_config = twin.best_config = None
    for _ in range(3):
        launch_double(twin)
    assert twin.best_config == BLOCKS[0] and tuned.best_config is None
    for launch in (tuned[grid_of(100)], kept):
        tuned.best_config = twin.best_config = None
        launch(np.zeros(100, np.float32), np.zeros(100, np.float32), 100)
        assert tuned.best_config == chosen and twin.best_config is None


def test_the_key_is_made_of_the_key_arguments_and_the_dtypes():
    searches = []
    tuned = tilewright.autotune(BLOCKS, key=["n"], do_bench=lambda call, quantiles: searches.append(0) or [1, 1, 1])(
        double
    )
    for n, dtype, expected in ((100, np.float32, 3), (100, np.float32, 3), (101, np.float32, 6), (100, np.int32, 9)):
        launch_double(tuned, n, dtype)
        assert len(searches) == expected
    assert (100, "float32", "float32") in tuned.cache


def test_a_name_in_the_key_that_is_no_parameter_is_ignored():
    with pytest.warns(UserWarning, match=r"the key names 'nope', which is no parameter of double and is ignored"):
        tuned = tilewright.autotune(BLOCKS, key=["n", "nope"], **QUICK)(double)
    launch_double(tuned, 100)
    assert len(tuned.cache) == 1


def test_the_users_bench_function_decides():
    times = iter([3.0, 1.0, 2.0])

    def bench(call, quantiles):
        assert quantiles == (0.5, 0.2, 0.8)
        call()
        return [next(times)] * 3

    tuned = tilewright.autotune(BLOCKS, key=[], do_bench=bench)(double)
    launch_double(tuned)
    assert tuned.best_config is BLOCKS[1]


def test_a_single_configuration_is_not_timed():
    tuned = tilewright.autotune([Config({"BLOCK": 32})], key=["n"], do_bench=pytest.fail)(double)
    launch_double(tuned)
    assert tuned.best_config.kwargs == {"BLOCK": 32}


def test_no_configuration_stands_for_one_without_parameters():
    tuned = tilewright.autotune([], key=[])(double)
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    tuned[(1,)](x, out, 4, BLOCK=4)
    assert out.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("option", [{"restore_value": ["x_ptr"]}, {"reset_to_zero": ["x_ptr"]}])
def test_timed_runs_leave_no_trace(option):
    x = np.zeros(100, np.int32)
    tuned = tilewright.autotune(BLOCKS, key=["n"], **option, **QUICK)(increment)
    tuned[grid_of(100)](x, 100)
    assert x.tolist() == [1] * 100


def test_without_restore_the_timed_runs_add_up():
    x = np.zeros(100, np.int32)
    tilewright.autotune(BLOCKS, key=["n"], **QUICK)(increment)[grid_of(100)](x, 100)
    assert x.min() > 1


def test_hooks_of_the_user_surround_every_run_and_get_all_arguments():
    seen = []

    def before(args, reset_only=False):
        seen.append(("before", args["n"], args["BLOCK"], reset_only))

    def after(args, exception):
        seen.append(("after", args["n"], args["BLOCK"], exception))

    def bench(call, quantiles):
        call()
        return [1.0]

    tuned = tilewright.autotune(BLOCKS[:2], key=[], pre_hook=before, post_hook=after, do_bench=bench)(double)
    launch_double(tuned)
    assert seen == [
        ("before", 100, 16, False),
        ("after", 100, 16, None),
        ("before", 100, 32, False),
        ("after", 100, 32, None),
        ("before", 100, 16, True),
    ]
    assert tuned.user_defined_pre_hook


def test_the_hook_of_a_configuration_runs_before_each_launch_with_it():
    calls = []
    config = Config({"BLOCK": 32}, pre_hook=lambda args: calls.append(args["BLOCK"]))
    tuned = tilewright.autotune([config], key=[])(double)
    launch_double(tuned)
    launch_double(tuned)
    assert calls == [32, 32]


def test_early_pruning():
    def prune(configs, named_args, **kwargs):
        assert named_args["n"] == 100
        return [config for config in configs if config.kwargs["BLOCK"] == 64]

    tuned = tilewright.autotune(BLOCKS, key=[], prune_configs_by={"early_config_prune": prune})(double)
    launch_double(tuned)
    assert tuned.best_config is BLOCKS[2]


def test_pruning_everything_is_an_error():
    tuned = tilewright.autotune(BLOCKS, key=[], prune_configs_by={"early_config_prune": lambda c, a: []})(double)
    with pytest.raises(AutotunerError, match="left no configuration of double"):
        launch_double(tuned)


@pytest.mark.parametrize(("top_k", "expected"), [(1, {64}), (0.1, {64}), (2, {32, 64}), (1.0, {16, 32, 64})])
def test_a_model_keeps_the_best_few(top_k, expected):
    timed = []

    def bench(call, quantiles):
        timed.append(call)
        return [1.0]

    by = {"perf_model": lambda n, BLOCK, **rest: -BLOCK, "top_k": top_k}
    tuned = tilewright.autotune(BLOCKS, key=[], prune_configs_by=by, do_bench=bench)(double)
    launch_double(tuned)
    timings = {config.kwargs["BLOCK"] for config in tuned.configs_timings} or {tuned.best_config.kwargs["BLOCK"]}
    assert timings == expected and len(timed) == (0 if len(expected) == 1 else len(expected))


@pytest.mark.parametrize("do_bench", [None, lambda call, quantiles: [call() or 1.0]])
def test_configurations_that_cannot_run_are_passed_over(do_bench):
    x = np.zeros(64, np.int32)
    tuned = tilewright.autotune([*reversed(BLOCKS)], key=[], do_bench=do_bench, **QUICK)(only_small)
    tuned[(1,)](x)
    assert tuned.best_config.kwargs == {"BLOCK": 16} and x[15] == 16
    assert tuned.configs_timings[BLOCKS[2]] == [float("inf")] * 3


def test_when_none_can_run_the_reason_shows():
    tuned = tilewright.autotune(BLOCKS[1:], key=[], **QUICK)(only_small)
    with pytest.raises(CompileTimeAssertionFailure, match="too large"):
        tuned[(1,)](np.zeros(64, np.int32))


def test_meta_parameters_may_not_be_given_twice():
    tuned = tilewright.autotune(BLOCKS, key=[])(double)
    x = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        tuned[(1,)](x, x, 4, BLOCK=4)


@pytest.mark.parametrize("option", ["reset_to_zero", "restore_value"])
def test_unknown_names_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} names 'm'.*double"):
        tilewright.autotune(BLOCKS, **{"key": [], option: ["m"]})(double)


def test_only_kernels_are_tuned():
    with pytest.raises(TypeError, match="decorate a kernel"):
        tilewright.autotune(BLOCKS, key=[])(lambda x: x)


def test_choices_are_kept_on_disk(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    monkeypatch.setattr(tilewright.knobs.autotuning, "print", True)
    heard = []
    monkeypatch.setattr(tilewright.knobs.autotuning, "listener", lambda **facts: heard.append(facts))
    timings = []
    for _ in range(2):
        tuned = tilewright.autotune(BLOCKS, key=["n"], cache_results=True, **QUICK)(double)
        launch_double(tuned)
        timings.append(tuned.configs_timings)
    assert timings[0] == timings[1]  # to the last bit: read, not timed again
    assert [facts["cache_hit"] for facts in heard] == [False, True]
    assert heard[0]["best_config"] == heard[1]["best_config"] and heard[0]["configs_timings"] == timings[0]
    printed = capsys.readouterr().out
    assert "autotuning double for (100, 'float32', 'float32')" in printed and "read from the cache" in printed


def test_warmup_compiles_every_configuration_and_launches_none():
    tuned = tilewright.autotune(BLOCKS, key=["n"])(increment)
    x = np.zeros(100, np.int32)
    kernels = tuned.warmup(x, 100, grid=(1,))
    assert [kernel.name for kernel in kernels] == ["increment"] * 3 and not x.any()


def test_interpreted_kernels_take_the_first_configuration():
    kernel = tilewright.jit(double.fn, interpret=True)
    tuned = tilewright.autotune(BLOCKS, key=["n"], do_bench=pytest.fail)(kernel)
    launch_double(tuned)
    assert tuned.best_config is BLOCKS[0]


def test_candidates_of_equal_code_are_timed_once(monkeypatch):
    timed = []
    bench = lambda call, quantiles: timed.append(call) or [1.0 + len(timed)] * 3
    configs = [Config({"BLOCK": block}, num_warps=warps) for block in (16, 32) for warps in (2, 4, 8)]
    tuned = tilewright.autotune(configs, key=[], do_bench=bench)(double)
    launch_double(tuned)
    assert len(timed) == 2 and [tuned.configs_timings[config][0] for config in configs] == [2.0] * 3 + [3.0] * 3
    hooked = [Config({"BLOCK": 16}, num_warps=warps, pre_hook=lambda args: None) for warps in (2, 4)]
    launch_double(tilewright.autotune(hooked, key=[], do_bench=bench)(double))
    assert len(timed) == 4  # a hook may make a difference


# --- subclasses, as libraries have them ------------------------------------------------------------


class Counted(tilewright.Autotuner):
    def run(self, *args, **kwargs):
        self.calls = [*getattr(self, "calls", []), sorted(kwargs)]
        return super().run(*args, **kwargs)

    def _bench(self, *args, config, **meta):
        self.benched = [*getattr(self, "benched", []), config]
        return super()._bench(*args, config=config, **meta)


def test_what_a_subclass_puts_before_a_launch_and_a_measurement_is_called():
    tuned = Counted(double, double.arg_names, BLOCKS, ["n"], None, None, None, None, None, 1, 1, False)
    for _ in range(2):
        launch_double(tuned)
    assert tuned.calls == [["grid", "warmup"]] * 2 and tuned.benched == BLOCKS
    assert tuned.best_config in BLOCKS and set(tuned.configs_timings) == set(BLOCKS)


def test_a_subclass_that_measures_by_itself_is_told_what_cannot_run():
    class Policy(tilewright.Autotuner):
        def run(self, *args, **kwargs):
            self.nargs = dict(zip(self.arg_names, args))
            self.times = {config: self._bench(*args, config=config, **kwargs) for config in self.prune_configs(kwargs)}
            config = min(self.times, key=lambda config: self.times[config])
            return self.fn.run(*args, **kwargs, **config.all_kwargs())

    tuned = Policy(only_small, only_small.arg_names, BLOCKS, [], None, None, warmup=1, rep=1)
    x = np.zeros(64, np.int32)
    tuned[(1,)](x)
    assert x[15] == 16 and tuned.times[BLOCKS[2]] == [float("inf")] * 3 and tuned.times[BLOCKS[0]][0] > 0


def test_anything_with_run_can_be_launched():
    class Noted(tilewright.KernelInterface):
        def run(self, *args, **kwargs):
            return args, kwargs

    assert Noted()[(3,)](1, n=2) == ((1,), {"grid": (3,), "warmup": False, "n": 2})


def test_heuristics_compute_parameters_in_order():
    rules = {"n": lambda args: args["x_ptr"].size, "BLOCK": lambda args: tilewright.next_power_of_2(args["n"])}
    kernel = tilewright.heuristics(rules)(double)
    x, out = np.ones(5, np.float32), np.zeros(5, np.float32)
    kernel[(1,)](x, out)
    assert out.tolist() == [2] * 5


def test_heuristics_and_autotune_stack_both_ways():
    over = tilewright.heuristics({"n": lambda args: args["x_ptr"].size})(
        tilewright.autotune(BLOCKS, key=["n"], **QUICK)(double)
    )
    under = tilewright.autotune([Config({"n": 5})], key=[])(
        tilewright.heuristics({"BLOCK": lambda args: args["n"] + 3})(double)
    )
    for kernel in (over, under):
        x, out = np.ones(5, np.float32), np.zeros(5, np.float32)
        kernel[(1,)](x, out)
        assert out.tolist() == [2] * 5
    assert over.base_fn is under.base_fn is double and under.fn.values.keys() == {"BLOCK"}


def test_a_configuration_is_a_value():
    config = Config({"BLOCK": 4}, num_warps=2, num_stages=5)
    assert config.all_kwargs() == {"BLOCK": 4, "num_warps": 2, "num_ctas": 1, "num_stages": 5}
    assert config == pickle.loads(pickle.dumps(config)) and len({config, Config({"BLOCK": 4}, 2, 5)}) == 1
    assert config != Config({"BLOCK": 8}, 2, 5)
    assert str(config) == "BLOCK: 4, num_warps: 2, num_ctas: 1, num_stages: 5, maxnreg: None, ir_override: None"


# --- timing in turns ----------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when `clock.spend(milliseconds)` is called."""

    class Clock:
        now = 0.0

        def spend(self, milliseconds):
            self.now += milliseconds * 1e-3

        def perf_counter(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(timing, "time", made)
    return made


def test_candidates_take_turns_and_slow_ones_drop_out(clock):
    order = []

    def candidate(name, milliseconds):
        return Candidate(lambda: (order.append(name), clock.spend(milliseconds)))

    times, refused = time_in_turns({"fast": candidate("fast", 1), "slow": candidate("slow", 10)}, 0, 29.5)
    assert not refused and times == {"fast": pytest.approx([1] * 6), "slow": pytest.approx([10] * 3)}
    # two runs each to warm up, then rounds that start with another one each time
    assert order[4:10] == ["fast", "slow", "slow", "fast", "fast", "slow"]


def test_candidates_warm_the_machine_up_for_each_other_and_halve(clock):
    runs = Counter()

    def candidate(name, milliseconds):
        return Candidate(lambda: (runs.update([name]), clock.spend(milliseconds)))

    named = {"a": candidate("a", 1), "b": candidate("b", 1.01), "near": candidate("near", 1.03)}
    named |= {"d": candidate("d", 1.02), "far": candidate("far", 3)}
    times, _ = time_in_turns(named, 35, 30)
    warm = 1 + 5  # a round takes 7.06 ms
    timed = {"a": 30, "b": 30, "near": 5, "d": 5, "far": 3}  # the slower half drops out after 30 / 7 ms
    assert list(times) == list(named) and {name: len(found) for name, found in times.items()} == timed
    assert runs == {name: warm + count for name, count in timed.items()}
    runs.clear()
    time_in_turns(named, 35, 30, drop=False)
    assert runs["far"] == warm + 10


def test_noise_does_not_change_the_choice_and_little_time_is_spent(clock):
    """Eight candidates 6 % apart or more, with the noise of a busy machine: 40 % of their time is spent."""
    right, spent = 0, []
    for seed in range(60):
        dice = random.Random(seed)
        usual = [2.0 * 1.06**index * (1 + 0.3 * (index > 4)) for index in range(8)]
        dice.shuffle(usual)

        def run(milliseconds, dice=dice):
            clock.spend(milliseconds * (1 + abs(dice.gauss(0, 0.05))) * (3 if dice.random() < 0.05 else 1))

        before = clock.now
        times, _ = time_in_turns({i: Candidate(lambda t=t: run(t)) for i, t in enumerate(usual)}, 25, 100)
        spent.append((clock.now - before) / (8 * 0.125))
        choice = min(times, key=lambda i: quantiles_of(times[i], (0.2, 0.5)))
        right += usual[choice] == min(usual)
    assert right >= 59 and statistics.median(spent) < 0.4, (right, statistics.median(spent))


def test_many_rounds_of_short_runs_are_judged_in_no_time(clock):
    """A kernel of microseconds whose arguments are restored before each run is a sample, and a round, by itself."""
    named = {name: Candidate(lambda: clock.spend(0.001), before=lambda: None) for name in "ab"}
    begin = time.process_time()
    times, _ = time_in_turns(named, 0, 10)
    assert len(times["a"]) == pytest.approx(10_000, abs=1)
    assert time.process_time() - begin < 0.7  # sorting the times of every round anew takes 2 s or more


def test_only_the_run_is_timed(clock):
    surrounded = Candidate(lambda: clock.spend(2), before=lambda: clock.spend(50), after=lambda error: clock.spend(50))
    times, _ = time_in_turns({"a": surrounded}, 0, 0)
    assert times["a"] == [pytest.approx(2)] * 3


def test_runs_that_the_clock_cannot_tell_are_repeated(clock):
    times, _ = time_in_turns({"a": Candidate(lambda: clock.spend(0.001))}, 0, 0.09)
    assert times["a"] == pytest.approx([0.001] * 5)  # a sample is 20 runs of a microsecond


def test_errors_of_other_kinds_propagate_past_the_hook():
    seen = []

    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        time_in_turns({"a": Candidate(fail, after=seen.append)}, 0, 1, (ValueError,))
    assert isinstance(seen[0], KeyError)


def test_quantiles_interpolate():
    assert quantiles_of([4.0, 1.0, 2.0, 3.0], (0, 0.5, 1, 0.25)) == [1.0, 2.5, 4.0, 1.75]
    assert quantiles_of([7.0], (0.2, 0.8)) == [7.0, 7.0]
