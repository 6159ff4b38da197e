"""Autotuned launches in which every two features meet: what surrounds a launch, what it is given, and where the choice
comes from. `Trial(row, device).run()` makes one and says what is wrong with it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import torch

import tilewright
import tilewright.language as tl
from tests.tuning.pairwise import pairwise
from tilewright.tools.tensor_descriptor import TensorDescriptor

FACTORS = {
    "argument": ("pointer", "host descriptor", "device descriptor", "tuple", "object", "keyword", "default"),
    "state": ("cold", "warm", "disk", "one worker", "several workers"),
    "before": ("nothing", "configuration", "autotuner", "both"),
    "after": ("nothing", "hook"),
    "given back": ("nothing", "reset_to_zero", "restore_value"),
    "pruned": ("no", "early", "by a model"),
    "heuristics": ("none", "above", "below"),
    "nested": ("no", "yes"),
    "timed": ("in turns", "by do_bench", "from graphs"),
    "executor": ("none", "threads", "processes"),
}
ROWS = pairwise(FACTORS)
N, BLOCKS, START = 96, (16, 32, 64), 5.0


@dataclasses.dataclass
class Layout:
    """A constant of the compilation whose fields hooks set."""

    block: int


@tilewright.jit
def _finish(value, out, at, n, ADDS: tl.constexpr, SCALE, EVEN: tl.constexpr):
    inside = at < n
    value = value * SCALE
    if ADDS:
        value += tl.load(out + at, inside)
    if EVEN:
        tl.store(out + at, value)
    else:
        tl.store(out + at, value, inside)


@tilewright.jit
def from_pointer(
    x, out, n, BLOCK: tl.constexpr, ADDS: tl.constexpr, EVEN: tl.constexpr = False, STEP: tl.constexpr = 1, scale=3.0
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _finish(tl.load(x + at, at < n), out, at, n, ADDS, scale, EVEN)


@tilewright.jit
def from_described(
    x, out, n, BLOCK: tl.constexpr, ADDS: tl.constexpr, EVEN: tl.constexpr = False, STEP: tl.constexpr = 1, scale=3.0
):
    tl.static_assert(x.block_shape[0] == BLOCK, "compiled ahead of a hook")
    first = tl.program_id(0) * BLOCK
    _finish(x.load([first]), out, first + tl.arange(0, BLOCK), n, ADDS, scale, EVEN)


@tilewright.jit
def from_describing(
    x, out, n, BLOCK: tl.constexpr, ADDS: tl.constexpr, EVEN: tl.constexpr = False, STEP: tl.constexpr = 1, scale=3.0
):
    first = tl.program_id(0) * BLOCK
    described = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
    _finish(described.load([first]), out, first + tl.arange(0, BLOCK), n, ADDS, scale, EVEN)


@tilewright.jit
def from_tuple(
    x, out, n, BLOCK: tl.constexpr, ADDS: tl.constexpr, EVEN: tl.constexpr = False, STEP: tl.constexpr = 1, scale=3.0
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _finish(tl.load(x[0] + at, at < n) + x[1], out[0], at, n, ADDS, scale, EVEN)


@tilewright.jit
def from_object(
    x, out, n, BLOCK: tl.constexpr, ADDS: tl.constexpr, LAYOUT: tl.constexpr, EVEN: tl.constexpr = False,
    STEP: tl.constexpr = 1, scale=3.0,
):  # fmt: skip
    tl.static_assert(LAYOUT.block == BLOCK, "compiled ahead of a hook")
    at = tl.program_id(0) * LAYOUT.block + tl.arange(0, LAYOUT.block)
    _finish(tl.load(x + at, at < n), out, at, n, ADDS, scale, EVEN)


KERNELS = {
    "pointer": from_pointer, "host descriptor": from_described, "device descriptor": from_describing,
    "tuple": from_tuple, "object": from_object, "keyword": from_pointer, "default": from_pointer,
}  # fmt: skip


@contextlib.contextmanager
def executors() -> Iterator[Callable[[str], Executor]]:
    """Executors by name, made when one is first asked for."""
    made: dict[str, Executor] = {}

    def executor(name: str) -> Executor:
        if name not in made:
            pool = ThreadPoolExecutor(2) if name == "threads" else None
            made[name] = pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        return made[name]

    yield executor
    for one in made.values():
        one.shutdown()


def even_from_block(args: dict[str, Any]) -> bool:
    """A heuristic below the autotuner: it sees the configuration, and what hooks have set."""
    if isinstance(args["x"], TensorDescriptor):
        assert args["x"].block_shape == [args["BLOCK"]], "a heuristic ran ahead of a hook"
    return args["n"] % args["BLOCK"] == 0


def scale_from_size(args: dict[str, Any]) -> float:
    """A heuristic above the autotuner."""
    assert "BLOCK" not in args
    return 3.0 if args["n"] == N else 0.0


class Trial:
    """One row.

    Args:
        row: a value for each factor.
        device: of torch.
        executor: gives an executor by its name ("threads", "processes").
        workers: sets how many processes compile; None: as many as there are cores.
    """

    def __init__(
        self,
        row: dict[str, str],
        device: str,
        executor: Callable[[str], Executor],
        workers: Callable[[int | None], None],
    ) -> None:
        self.row, self.device = row, device
        self.executor = None if row["executor"] == "none" else executor(row["executor"])
        workers({"one worker": 1, "several workers": 2}.get(row["state"]))
        self.kernel = KERNELS[row["argument"]]
        self.kernel.clear()
        self.is_hooked = row["before"] in ("configuration", "both")
        self.adds = row["given back"] != "nothing"
        # Nobody sets blocks where there are no hooks: then they are passed, and all configurations have the same.
        self.varies = row["argument"] not in ("host descriptor", "object") or row["before"] != "nothing"
        self.before: list[tuple[str, int]] = []
        self.after: list[int] = []
        self.configs = self.make_configs()

    # --- what is launched --------------------------------------------------------------------------------

    def make_configs(self) -> list[Any]:
        hook = self.configuration_hook if self.is_hooked else None
        rows = [(block, 4) for block in BLOCKS] if self.varies else [(32, warps) for warps in (2, 4, 8)]
        return [tilewright.Config({"BLOCK": block}, num_warps=warps, pre_hook=hook) for block, warps in rows]

    def arguments(self) -> tuple[list[Any], dict[str, Any], torch.Tensor, torch.Tensor]:
        """Positional arguments, keywords, the array for results, and what one launch adds to it or leaves in it."""
        x = torch.arange(N, dtype=torch.float32, device=self.device)
        out = torch.full((N,), START, device=self.device)
        block = [1] if self.varies else [32]
        given: Any = {"host descriptor": TensorDescriptor(x, [N], [1], block), "tuple": (x, 0.0)}
        result: Any = (out,) if self.row["argument"] == "tuple" else out
        keywords: dict[str, Any] = {"ADDS": self.adds}
        if self.row["argument"] == "object":
            keywords["LAYOUT"] = Layout(block[0])
        if self.row["argument"] != "default" and self.row["heuristics"] != "above":
            keywords["scale"] = 3.0
        args = [given.get(self.row["argument"], x)]
        if self.row["argument"] == "keyword":
            keywords |= {"n": N, "out": result}
        else:
            args += [result, N]
        return args, keywords, out, 3 * x

    def tuned(self) -> tuple[Any, Any]:
        """The autotuner, and what is launched, which may be around it."""
        row, kernel = self.row, self.kernel
        back = {row["given back"]: ["out"]} if self.adds else {}
        quick = {"key": ["n"], "warmup": 0.05, "rep": 0.1, "cache_results": row["state"] == "disk", **back}
        if row["nested"] == "yes":
            kernel = tilewright.autotune([tilewright.Config({"STEP": step}) for step in (1, 2)], **quick)(kernel)
            for config in self.configs:  # which the inner one chooses
                config.num_warps = config.num_ctas = config.num_stages = None
        if row["heuristics"] == "below":
            kernel = tilewright.heuristics({"EVEN": even_from_block})(kernel)
        options: dict[str, Any] = {**quick, "executor": self.executor}
        if row["before"] in ("autotuner", "both"):
            options["pre_hook"] = functools.partial(self.autotuner_hook, kept := {})
            options["post_hook"] = functools.partial(self.put_back, kept)
        elif row["after"] == "hook":
            options["post_hook"] = functools.partial(self.put_back, {})
        options |= {"from graphs": {"use_cuda_graph": True}, "by do_bench": {"do_bench": self.bench}}.get(
            row["timed"], {}
        )
        if row["pruned"] == "early":
            options["prune_configs_by"] = {"early_config_prune": lambda configs, named, **rest: configs[1:]}
        elif row["pruned"] == "by a model":
            options["prune_configs_by"] = {"perf_model": lambda BLOCK, **rest: -BLOCK, "top_k": 2}
        tuner = tilewright.autotune(self.configs, **options)(kernel)
        above = {"scale": scale_from_size} if row["heuristics"] == "above" else None
        return tuner, tilewright.heuristics(above)(tuner) if above else tuner

    # --- hooks ---------------------------------------------------------------------------------------------

    def set_blocks(self, args: dict[str, Any]) -> None:
        if isinstance(args["x"], TensorDescriptor):
            args["x"].block_shape = [args["BLOCK"]]
        if "LAYOUT" in args:
            args["LAYOUT"].block = args["BLOCK"]

    def configuration_hook(self, args: dict[str, Any]) -> None:
        self.before.append(("configuration", args["BLOCK"]))
        self.set_blocks(args)

    def autotuner_hook(self, kept: dict[str, Any], args: dict[str, Any], reset_only: bool = False) -> None:
        """What stands in place of zeroing and keeping must do it."""
        self.before.append(("reset" if reset_only else "autotuner", args["BLOCK"]))
        self.set_blocks(args)
        (out,) = args["out"] if isinstance(args["out"], tuple) else [args["out"]]
        if self.row["given back"] == "reset_to_zero":
            out.zero_()
        if not reset_only:
            assert not kept, "hooks are called in turns"
            kept["out"] = out.clone()

    def put_back(self, kept: dict[str, Any], args: dict[str, Any], exception: BaseException | None = None) -> None:
        self.after.append(args["BLOCK"])
        (out,) = args["out"] if isinstance(args["out"], tuple) else [args["out"]]
        if self.row["given back"] == "restore_value":
            out.copy_(kept.pop("out", torch.full_like(out, START)))
        kept.clear()

    def bench(self, call: Callable[[], Any], quantiles: Any) -> list[float]:
        """The second that is timed wins."""
        call()
        self.timed += 1
        return [2.0 if self.timed != 2 else 1.0] * 3

    timed = 0

    # --- what must hold ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raise AssertionError where a launch does not do what it must."""
        tuner, launched = self.tuned()
        args, keywords, out, step = self.arguments()
        if self.row["state"] == "disk":
            launched[self.grid](*args, **keywords)
            first = tuner
            tuner, launched = self.tuned()
            args, keywords, out, step = self.arguments()
            self.before.clear(), self.after.clear()
        launched[self.grid](*args, **keywords)
        self.check_search(tuner)
        self.check(out, step if not self.adds or self.resets else START + step)
        if self.row["state"] == "disk" and not self.is_hooked:
            assert tuner.configs_timings == first.configs_timings, "the results of the first search were not read"
            assert not self.after, "a run of a search that did not take place"
        for _ in range(2 if self.row["state"] == "warm" else 0):
            self.check_launch(tuner, launched, (args, keywords), out, step)

    @property
    def resets(self) -> bool:
        return self.row["given back"] == "reset_to_zero"

    def grid(self, meta: dict[str, Any]) -> tuple[int]:
        block = meta["LAYOUT"].block if "LAYOUT" in meta else meta["BLOCK"]
        assert block == meta["BLOCK"], "a grid is computed ahead of a hook"
        return (tilewright.cdiv(N, block),)

    def check(self, out: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(out, expected, msg=lambda text: f"{self.row}: {text}")

    def check_search(self, tuner: Any) -> None:
        """Which candidates there were, which won, and in which order hooks ran."""
        assert not tuner.failures, f"{self.row}: {tuner.failures}"
        pruned = self.row["pruned"]
        left = self.configs[1:] if pruned != "no" and (pruned == "early" or self.varies) else self.configs
        left = left[:2] if pruned == "by a model" and not self.varies else left
        assert set(tuner.configs_timings) == set(left) and tuner.best_config in left
        if self.row["timed"] == "by do_bench" and self.varies:
            assert self.timed == len(left) or self.row["state"] == "disk", "candidates were taken for the same code"
            assert tuner.best_config == min(left, key=lambda config: tuner.configs_timings[config][0])
        self.check_order(tuner.best_config.kwargs["BLOCK"])

    def check_order(self, best: int) -> None:
        """The configuration's hook runs ahead of the autotuner's, and the choice's last of all."""
        if self.is_hooked:
            assert self.before[-1] == ("configuration", best)
        if self.row["before"] in ("autotuner", "both"):
            assert ("reset", best) in self.before[-2:]
        runs = [block for name, block in self.before if name == "autotuner"]
        if runs:
            assert runs == self.after
        if self.row["before"] == "both":
            for (name, block), (following, same) in itertools.pairwise(self.before[:-2]):
                assert name != "configuration" or (following, same) == ("autotuner", block)

    def check_launch(self, tuner: Any, launched: Any, call: Any, out: torch.Tensor, step: torch.Tensor) -> None:
        """A launch whose choice is known: the hook of the configuration runs once, nothing else does."""
        (args, keywords), best = call, tuner.best_config
        before = out.clone() if self.adds else torch.zeros_like(out)
        self.before.clear(), self.after.clear()
        launched[self.grid](*args, **keywords)
        self.check(out, before + step)
        assert tuner.best_config is best and not self.after
        assert self.before == ([("configuration", best.kwargs["BLOCK"])] if self.is_hooked else [])
