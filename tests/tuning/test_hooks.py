"""Hooks that change what is compiled: block shapes of descriptors, fields of constants."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

import tilewright  # noqa: E402
import tilewright.language as tl  # noqa: E402
from tests.tuning import descriptor_programs as programs  # noqa: E402
from tilewright.base.errors import CompilationError  # noqa: E402
from tilewright.tuning import arrays  # noqa: E402

Config = tilewright.Config
QUICK = programs.QUICK


@pytest.fixture(autouse=True)
def _nothing_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cache, "dir", tmp_path)
    for kernel in (programs.add_up_in_place, programs.attend, programs.multiply, programs.add_columns):
        kernel.clear()


@pytest.mark.parametrize(("name", "workers"), [("tiles", 1), ("parts", 1), *((name, 2) for name in programs.PROGRAMS)])
def test_hooks_set_the_blocks_of_descriptors(name, workers, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", workers)
    torch.manual_seed(0)
    tuned, found, expected = programs.PROGRAMS[name]("cpu")
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)
    assert not tuned.failures and len(tuned.configs_timings) == len(tuned.configs)


def bench_of(launches):
    def bench(call, quantiles):
        call()
        launches.append(call)
        return [1.0 / len(launches)] * 3

    return bench


def test_every_way_of_measuring_sees_what_the_hooks_set():
    launches = []
    options = {"do_bench": bench_of(launches)}, {"check": lambda args: None}, {"executor": ThreadPoolExecutor(2)}
    for option in options:
        torch.manual_seed(0)
        tuned, found, expected = programs.tiles("cpu", **option)
        torch.testing.assert_close(found, expected)
        assert not tuned.failures
    assert len(launches) == 4


def test_candidates_are_compiled_once(monkeypatch):
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", 2)
    programs.tiles("cpu")
    assert len(programs.add_up_in_place.variants()) == 4


def test_warmup_compiles_what_the_hooks_set_and_leaves_the_arguments_alone():
    a, c = torch.ones(32, 32), torch.ones(32, 32)
    described = programs.whole(a), programs.whole(c)
    tuned = tilewright.autotune(programs.TILES, key=[], reset_to_zero=["C"])(programs.add_up_in_place)
    assert len({kernel.hash for kernel in tuned.warmup(*described, grid=(1, 1))}) == 4
    assert [x.block_shape for x in described] == [[1, 1]] * 2 and c.eq(1).all()


def test_a_candidate_without_a_hook_gets_what_the_caller_passed():
    tiles = [Config({"BM": 32, "BN": 32}, pre_hook=programs.set_tiles), Config({"BM": 16, "BN": 16})]
    a, c = torch.randn(64, 64), torch.zeros(64, 64)
    described = [programs.TensorDescriptor.from_tensor(x, [16, 16]) for x in (a, c)]
    for winner in (0, 1):
        times = iter([2.0 - winner, 1.0 + winner])
        bench = lambda call, quantiles, times=times: [call() or next(times)] * 3
        tuned = tilewright.autotune(tiles, key=[], do_bench=bench, reset_to_zero=["C"])(programs.add_up_in_place)
        tuned[lambda meta: (64 // meta["BM"], 64 // meta["BN"])](*described)
        assert not tuned.failures and tuned.best_config is tiles[1 - winner]
        torch.testing.assert_close(c, 2 * a)
        described = [programs.TensorDescriptor.from_tensor(x, [16, 16]) for x in (a, c)]


@dataclasses.dataclass
class Blocks:
    size: int
    kept: list


@tilewright.jit
def blocked(out, n, BLOCKS: tl.constexpr, KIND: tl.constexpr):
    at = tl.program_id(0) * BLOCKS.size + tl.arange(0, BLOCKS.size)
    tl.store(out + at, KIND * 1000 + BLOCKS.size, at < n)


def set_size(args):
    args["BLOCKS"].size = args["KIND"] * 16


@pytest.mark.parametrize("workers", [1, 2])
def test_constants_that_hooks_change_are_compiled_as_they_were(workers, monkeypatch):
    """Children are forked off after the hooks of all candidates ran: each must see what its own hook left."""
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", workers)
    for winner in (1, 2, 4):
        out, blocks = torch.zeros(128, dtype=torch.int32), Blocks(8, [])
        seen = []

        def bench(call, quantiles, winner=winner, out=out, seen=seen):
            call()
            seen.append(int(out[0]))
            return [1.0 if out[0] // 1000 == winner else 2.0] * 3

        configs = [Config({"KIND": kind}, pre_hook=set_size) for kind in (1, 2, 4)]
        tuned = tilewright.autotune(configs, key=[], do_bench=bench)(blocked)
        tuned[lambda meta: (tilewright.cdiv(128, meta["BLOCKS"].size),)](out, 128, blocks)
        assert seen == [1016, 2032, 4064] and out.eq(winner * 1016).all()
    blocked.clear()


def test_a_future_kernel_is_of_the_constants_that_it_was_asked_for_with():
    out, blocks = torch.zeros(64, dtype=torch.int32), Blocks(16, [])
    with ThreadPoolExecutor(1) as pool, tilewright.AsyncCompileMode(pool):
        block = pool.submit(time.sleep, 0.2)
        first = blocked.warmup(out, 64, blocks, 1, grid=(4,))
        blocks.size = 32
        block.result()
    first[(4,)](out, 64, Blocks(16, []), 1)
    assert out.eq(1016).all()


# --- what a launch is beside its code ---------------------------------------------------------------------


@tilewright.jit
def shared_out(out, n, parts, BLOCK: tl.constexpr):
    part = tl.cdiv(n, parts)
    for start in range(tl.program_id(0) * part, tl.program_id(0) * part + part, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, at, at < n)


@pytest.mark.parametrize("values", [{"parts": (2, 4, 8)}, {"num_threads": (1, 2)}])
def test_equal_code_that_is_launched_otherwise_is_timed_apart(values):
    ((name, choices),) = values.items()
    timed = []
    configs = [Config({name: value}) for value in choices]
    tuned = tilewright.autotune(configs, key=["n"], do_bench=bench_of(timed))(shared_out)
    out = torch.zeros(256, dtype=torch.int32)
    more = {} if name == "parts" else {"parts": 4}
    tuned[lambda meta: (meta["parts"],)](out, 256, BLOCK=32, **more)
    assert len(timed) == len(choices) and out.tolist() == list(range(256))


def test_arrays_in_tuples_and_descriptors_are_zeroed_and_put_back():
    one, two = torch.ones(4), torch.ones(4, 4)
    value = (one, None, programs.whole(two))
    saved = arrays.copy(value)
    arrays.fill_zero(value)
    assert not one.any() and not two.any()
    arrays.assign(value, saved)
    assert one.all() and two.all()


def test_hooks_of_configurations_that_pruning_makes_keep_results_off_the_disk(tmp_path):
    def prune(configs, named, **kwargs):
        return [Config({"BM": 16, "BN": config.kwargs["BN"]}, pre_hook=programs.set_tiles) for config in configs]

    plain = [Config({"BM": 64, "BN": size}) for size in (16, 32)]
    tuned = tilewright.autotune(
        plain, key=[], cache_results=True, prune_configs_by={"early_config_prune": prune}, **QUICK
    )(programs.add_up_in_place)
    tuned[lambda meta: (64 // meta["BM"], 64 // meta["BN"])](*(programs.whole(torch.ones(64, 64)) for _ in "ac"))
    assert not tuned.failures and not list(tmp_path.glob("tuning/*"))


# --- hooks further in ---------------------------------------------------------------------------------------


@tilewright.jit
def copy_pair(pair, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    pair[1].store([first], pair[0].load([first]) * TIMES)


def set_pair(args):
    for described in args["pair"]:
        described.block_shape = [args["BLOCK"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_hooks_of_an_inner_autotuner_set_descriptors_in_a_tuple(workers, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.autotuning, "workers", workers)
    copy_pair.clear()
    blocks = [Config({"BLOCK": block}, num_warps=None, pre_hook=set_pair) for block in (16, 32)]
    for configs in (blocks, [Config({"TIMES": 2})]), ([Config({"TIMES": 2}), Config({"TIMES": 2}, 8)], blocks):
        plain = [Config(config.kwargs, None, None, None, pre_hook=config.pre_hook) for config in configs[0]]
        inner = tilewright.autotune(plain, key=["n"], **QUICK)(copy_pair)
        outer = tilewright.autotune(configs[1], key=["n"], **QUICK)(inner)
        x, out = torch.randn(64), torch.zeros(64)
        outer[lambda meta: (64 // meta["BLOCK"],)]((programs.whole(x), programs.whole(out)), 64)
        torch.testing.assert_close(out, 2 * x)
        assert not inner.failures and not outer.failures


def test_a_search_that_fails_leaves_the_arguments_as_they_were():
    def wrong(args):
        args["A"].block_shape = [args["BM"], 128]
        args["C"].block_shape = [args["BM"], args["BN"]]

    a, c = programs.whole(torch.ones(64, 64)), programs.whole(torch.ones(64, 64))
    configs = [Config({"BM": rows, "BN": 16}, pre_hook=wrong) for rows in (16, 32)]
    with pytest.raises(CompilationError):
        tilewright.autotune(configs, key=[], **QUICK)(programs.add_up_in_place)[(1, 1)](a, c)
    assert a.block_shape == c.block_shape == [1, 1]
