"""Candidates that compile beside each other, fail apart, are measured anywhere, and leave a file for people."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.tuning import tuned_kernels as kernels
from tilewright.backends.llvm import codegen
from tilewright.base.errors import ArgumentError, CompilationError
from tilewright.compile import build, forks, sources
from tilewright.compile.forks import ForkExecutor
from tilewright.tuning import remote
from tilewright.tuning.report import Failure, TuningResults
from tilewright.tuning.search import Candidate, time_in_turns

Config = tilewright.Config
QUICK = {"warmup": 0.1, "rep": 0.5}
BLOCKS = [Config({"BLOCK": block}) for block in (16, 32, 64, 128)]
needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    for kernel in (kernels.add_one, kernels.accumulate, kernels.troubled):
        kernel.clear()
    return tmp_path


def tune(kernel, n=100, configs=BLOCKS, **options):
    tuned = tilewright.autotune(configs, key=["n"], **{**QUICK, **options})(kernel)
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    tuned[lambda meta: (tilewright.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return tuned, out


# --- compiling beside each other ------------------------------------------------------------------------


@needs_fork
def test_children_compile(tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", 2)
    log, run = tmp_path / "pids", build._run

    def noted(request, key):
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return run(request, key)

    monkeypatch.setattr(build, "_run", noted)
    _, out = tune(kernels.add_one)
    pids = log.read_text().split()
    assert len(pids) == len(BLOCKS) and 1 <= len(set(pids)) <= 2 and str(os.getpid()) not in pids
    assert (out == np.arange(100) + 1).all()


@needs_fork
def test_children_find_the_compiler_loaded(tmp_path):
    """What each loaded for itself took longer than the compile, and a thread that was loading it left it locked."""
    program = f"""
import sys
import tilewright
from tests.tuning import tuned_kernels as kernels, test_race as race
from tilewright.compile import build
tilewright.knobs.cache.dir, tilewright.knobs.autotuning.workers = {str(tmp_path)!r}, 2
run = build._run
def noted(request, key):
    before = set(sys.modules)
    made = run(request, key)
    loaded = (name for name in sys.modules if name not in before)
    print(*(name for name in loaded if name.split(".")[0] in ("tilewright", "xdsl", "llvmlite")), flush=True)
    return made
build._run = noted
race.tune(kernels.add_one)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0 and told.stdout.split() == [], told.stdout + told.stderr


@needs_fork
def test_children_compile_while_another_thread_does():
    """The lock of LLVM, which a thread of the parent had at the fork, was never free again in a child."""
    taken, children = threading.Event(), ForkExecutor(1, deadline=time.monotonic() + 60)

    def compile_long() -> None:
        with codegen.lock:
            taken.set()
            time.sleep(0.3)

    thread = threading.Thread(target=compile_long)
    thread.start()
    taken.wait()
    free = children.submit(codegen.lock.acquire, timeout=5)
    assert free.result()
    thread.join()
    children.shutdown()


@needs_fork
def test_an_interrupt_ends_the_children(monkeypatch):
    forked, fork = [], forks._Child.fork
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", 2)
    monkeypatch.setattr(forks._Child, "fork", lambda *args: forked.append(fork(*args)) or forked[-1])
    begin = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored
    with monkeypatch.context() as slow, pytest.raises(KeyboardInterrupt):
        slow.setattr(build, "_run", lambda request, key: time.sleep(60))
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        tune(kernels.add_one)
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 30 and len(forked) == 2
    for child in forked:
        with pytest.raises(ChildProcessError):  # it has ended, and has been waited for
            os.waitpid(child.pid, os.WNOHANG)
    tuned, out = tune(kernels.add_one)
    assert not tuned.failures and (out == np.arange(100) + 1).all()


@needs_fork
def test_a_child_that_is_killed_costs_time_only(monkeypatch):
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", 2)
    parent, run = os.getpid(), build._run

    def deadly(request, key):
        if os.getpid() != parent and request.specialization.constants[(3,)] == 32:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(request, key)

    monkeypatch.setattr(build, "_run", deadly)
    tuned, out = tune(kernels.add_one)
    assert not tuned.failures and (out == np.arange(100) + 1).all()


@needs_fork
def test_children_give_results_and_errors():
    with ForkExecutor(2) as children:
        squares = [children.submit(lambda value: value * value, index) for index in range(7)]
        large = children.submit(lambda: b"x" * 3_000_000)
        wrong = children.submit([].pop)
        strange = children.submit(lambda: lambda: None)
        assert [square.result() for square in squares] == [index * index for index in range(7)]
        assert len(large.result()) == 3_000_000
        with pytest.raises(IndexError):
            wrong.result()
        with pytest.raises(Exception, match="cannot be sent"):
            strange.result()


@needs_fork
def test_calls_that_a_dead_child_has_not_taken_go_to_another():
    with ForkExecutor(1) as children:
        before = children.submit(os.getpid)
        deadly = children.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        cancelled = children.submit(os.getpid)
        after = children.submit(os.getpid)
        assert cancelled.cancel()
        assert after.result() != before.result() != os.getpid()
        with pytest.raises(BrokenExecutor, match="status 9"):
            deadly.result()


@needs_fork
def test_a_call_that_takes_much_longer_than_the_others_is_ended(monkeypatch):
    monkeypatch.setattr(forks, "_SECONDS_ANYWAY", 0.2)
    begin = time.monotonic()
    with ForkExecutor(2, patience=10) as children:
        first = children.submit(time.sleep, 60)
        quick = [children.submit(lambda index=index: index) for index in range(8)]
        second, middling = children.submit(time.sleep, 60), children.submit(time.sleep, 0.1)
        with pytest.raises(TimeoutError, match=r"stopped after 0\.2 s, when 8 of 11 had ended, half .* within 0\.0"):
            first.result()
        assert [call.result() for call in quick] == list(range(8)) and middling.result() is None
        with pytest.raises(TimeoutError):
            second.result()
    assert time.monotonic() - begin < 30


@needs_fork
def test_what_is_not_begun_at_the_deadline_is_cancelled():
    with ForkExecutor(1, deadline=time.monotonic() + 0.5) as children:
        begun, rest = children.submit(time.sleep, 60), children.submit(os.getpid)
        with pytest.raises(TimeoutError, match="no more time"):
            begun.result()
        with pytest.raises(CancelledError):
            rest.result()


@needs_fork
def test_a_candidate_that_compiles_too_slowly_is_out(monkeypatch):
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", 2)
    monkeypatch.setattr(forks, "_SECONDS_ANYWAY", 0.5)
    monkeypatch.setattr(forks, "_FEW", 3)
    parent, run = os.getpid(), build._run

    def slow(request, key):
        if os.getpid() != parent and request.specialization.constants[(3,)] == 32:
            time.sleep(60)
        return run(request, key)

    monkeypatch.setattr(build, "_run", slow)
    tuned, out = tune(kernels.add_one)
    assert [config.kwargs["BLOCK"] for config in tuned.failures] == [32]
    assert tuned.failures[BLOCKS[1]].kind == "slow compilation" and "stopped after" in tuned.failures[BLOCKS[1]].why
    assert (out == np.arange(100) + 1).all()


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_failures_are_told_apart_and_end_nothing(monkeypatch, capsys, workers):
    monkeypatch.setattr(tilewright.knobs.autotuning, "print", True)
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", workers)
    checked = []

    def check(args):
        checked.append(args["BLOCK"])
        return bool((args["out_ptr"] == args["x_ptr"]).all())

    tuned, _ = tune(kernels.troubled, check=check)
    assert checked == [16, 128]
    assert tuned.best_config == BLOCKS[0]
    assert {config.kwargs["BLOCK"]: failure.kind for config, failure in tuned.failures.items()} == {
        32: "compile error", 64: "compile error", 128: "wrong result",
    }  # fmt: skip
    assert "missing_name" in tuned.failures[BLOCKS[1]].why and "never 64" in tuned.failures[BLOCKS[2]].why
    printed = capsys.readouterr().out
    assert "compile error: 2 of the configurations, first BLOCK: 32" in printed
    assert "wrong result: 1 of the configurations, first BLOCK: 128" in printed


def test_an_assertion_of_the_check_is_a_wrong_result():
    def check(args):
        np.testing.assert_array_equal(args["out_ptr"], args["x_ptr"] + (args["BLOCK"] != 16))

    tuned, _ = tune(kernels.add_one, check=check)
    assert [failure.kind for failure in tuned.failures.values()] == ["wrong result"]
    assert BLOCKS[0] in tuned.failures


def test_when_all_fail_the_first_says_why():
    with pytest.raises(CompilationError, match="missing_name"):
        tune(kernels.troubled, configs=BLOCKS[1:3])
    with pytest.raises(ArgumentError, match="returned False"):
        tune(kernels.add_one, configs=BLOCKS[1:3], check=lambda args: False)


# --- results on disk ----------------------------------------------------------------------------------------


def test_results_are_kept_unasked_for_people_and_programs(folder):
    first, _ = tune(kernels.troubled)
    (file,) = folder.glob("tuning/troubled-*.json")
    found = json.loads(file.read_text())
    assert found["kernel"] == "troubled" and found["target"].startswith("cpu:")
    (result,) = found["results"].values()
    assert result["key"] == ["100", "float32", "float32"]
    assert result["configs"][0]["config"]["BLOCK"] == 16 and len(result["configs"][0]["ms"]) == 3
    assert result["configs"][1]["failed"] == "compile error" and "missing_name" in result["configs"][1]["why"]

    again, _ = tune(kernels.troubled)
    assert again.configs_timings == first.configs_timings and again.failures == first.failures

    tune(kernels.troubled, n=200)
    assert len(json.loads(file.read_text())["results"]) == 2
    file.write_text(file.read_text()[:-30])  # damaged: timed anew
    tune(kernels.troubled)
    assert len(json.loads(file.read_text())["results"]) == 1


def test_what_code_of_the_user_decided_is_kept_only_if_asked(folder):
    tune(kernels.add_one, check=lambda args: True)
    tune(kernels.add_one, do_bench=lambda call, quantiles: [call() or 1.0] * 3)
    assert not list(folder.glob("tuning/*"))
    tune(kernels.add_one, check=lambda args: True, cache_results=True)
    assert len(list(folder.glob("tuning/*.json"))) == 1


def test_files_of_two_machines_are_merged(tmp_path):
    mine, theirs = (TuningResults(tmp_path / name, {"kernel": "k"}) for name in ("mine", "theirs"))
    rows = [({"BLOCK": 16}, [1.0, 0.9, 1.1]), ({"BLOCK": 32}, Failure("compile error", "why"))]
    mine.store("a", {"key": ["1"]}, rows)
    theirs.store("b", {"key": ["2"]}, rows[:1])
    mine.merge(json.loads(theirs.path.read_text()))
    assert mine.load("a", 2) == [[1.0, 0.9, 1.1], Failure("compile error", "why")] and mine.load("b", 1) == [
        [1.0, 0.9, 1.1]
    ]
    assert mine.load("a", 1) is None and mine.load("c", 1) is None
    newer = {"results": {"a": {"when": "2999", "configs": [{"ms": [5, 4, 6]}]}}}
    mine.merge(newer)
    mine.merge({"results": {"a": {"when": "1999", "configs": []}}})
    assert mine.load("a", 1) == [[5.0, 4.0, 6.0]]


def _store_twenty(path, who):
    for at in range(20):
        TuningResults(path, {"kernel": "k"}).store(f"{who}-{at}", {"key": []}, [({"BLOCK": 16}, [1.0, 0.9, 1.1])])


def test_processes_that_tune_one_kernel_at_once_lose_no_result(tmp_path):
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "tuning" / "k.json"
    processes = [context.Process(target=_store_twenty, args=(path, who)) for who in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    assert len(json.loads(path.read_text())["results"]) == 80
    assert [file.name for file in path.parent.glob("*.json")] == ["k.json"]


# --- measuring elsewhere ------------------------------------------------------------------------------------


def test_times_of_other_machines_count_relative_to_the_reference():
    class Machines(Executor):
        """Each task runs on another machine: the second is ten times slower than the others."""

        def submit(self, fn, /, *args, **kwargs):
            future = Future()
            future.set_result(next(answers))
            return future

    answers = iter([([1.0, 1.0, 1.0], [1.0] * 3), ([10.0, 10.0, 10.0], [5.0] * 3), ([1.0, 2.0, 4.0], [2.0, 4.0, 8.0])])
    times, refused = remote.measure_remotely(Machines(), dict.fromkeys("abc"), 1, 1, (), lambda name: None)
    assert not refused and [times[name][0] for name in "abc"] == [2.0, 1.0, 4.0]


@pytest.mark.parametrize("option", ["restore_value", "reset_to_zero", None])
def test_processes_measure(option):
    kernel = kernels.accumulate if option else kernels.add_one
    configs = [Config({"BLOCK": block, **({"HALF": 0} if option else {})}) for block in (16, 64)]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        tuned, out = tune(kernel, configs=configs, executor=pool, **({option: ["out_ptr"]} if option else {}))
    assert set(tuned.configs_timings) == set(configs) and all(times[0] > 0 for times in tuned.configs_timings.values())
    assert (out == (np.arange(100) if option else np.arange(100) + 1)).all()  # nothing ran here but the launch


def test_what_cannot_be_sent_is_compiled_and_measured_here(monkeypatch):
    class Strangers(Executor):
        """Processes that do not have the kernel's module as it is here."""

        def submit(self, fn, /, *args, **kwargs):
            future = Future()
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr(sources, "_named", lambda *names: None)
                try:
                    future.set_result(fn(*args, **kwargs))
                except Exception as error:
                    future.set_exception(error)
            return future

    tuned, out = tune(kernels.add_one, executor=Strangers())
    assert not tuned.failures and (out == np.arange(100) + 1).all()

    @tilewright.jit
    def local(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n), offsets < n)

    tuned, out = tune(local, executor=Strangers())
    assert not tuned.failures and (out == np.arange(100)).all()


def test_a_cluster_of_dask_compiles_and_measures(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed")
    import dask

    dask.config.set({"temporary_directory": str(tmp_path / "dask")})
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        monkeypatch.setattr(tilewright.knobs.autotuning, "executor", client.get_executor())
        tuned, out = tune(kernels.troubled)
        where = client.run(
            lambda: len(__import__("tests.tuning.tuned_kernels").tuning.tuned_kernels.troubled.variants())
        )
    assert tuned.failures.keys() == {BLOCKS[1], BLOCKS[2]} and len(where) == 2
    assert "missing_name" in tuned.failures[BLOCKS[1]].why
    assert (out >= np.arange(100)).all()


# --- the rest -----------------------------------------------------------------------------------------------


def test_graphs_are_told_to_mean_nothing_on_a_cpu():
    with pytest.warns(UserWarning, match="use_cuda_graph means nothing on a CPU"):
        tune(kernels.add_one, use_cuda_graph=True)


def test_progress_shows_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for made, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", made)
        monkeypatch.setenv("TERM", "xterm")
        tune(kernels.add_one, n=101 + shown)
        assert ("tuning add_one" in made.getvalue()) is shown, made.getvalue()


def test_candidates_on_another_clock_take_turns_too():
    """What a GPU's clock does: samples come from it, and it says what they cost."""

    class Clock:
        def __init__(self):
            self.order = []

        def sample(self, candidate, repeats):
            self.order.append(candidate.run())
            return {"a": 1e-3, "b": 1.2e-3}[self.order[-1]] * repeats / repeats, 0.01

    clock = Clock()
    times, _ = time_in_turns({name: Candidate(lambda name=name: name) for name in "ab"}, 0, 60, clock=clock)
    assert clock.order[2:8] == ["a", "b", "b", "a", "a", "b"] and len(times["a"]) == 6
    assert statistics.median(times["b"]) == pytest.approx(1.2)
