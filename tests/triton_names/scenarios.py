"""What Inductor's Triton code relies on beyond single kernels: waiting for other programs, random streams, assertions.

    python -m tilewright.as_triton -m tests.triton_names.scenarios [names]

Each function is one check, of a subject of its own, in one process. The last line is a summary in JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch._inductor.config as inductor
from torch._inductor.utils import run_and_get_code

import tilewright
from tilewright.backends.cpu.device.team import team

inductor.cpu_backend = "triton"
inductor.cpp.cxx = ("/nonexistent/c++",)
inductor.compile_threads = 1
inductor.triton.autotune_pointwise = False

SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(fn: Callable[[], None]) -> Callable[[], None]:
    """Enter a check under the name of its function."""
    SCENARIOS[fn.__name__] = fn
    return fn


def compiled(fn: Callable[..., Any], *inputs: Any, **settings: Any) -> tuple[Any, str]:
    """Result of `fn` compiled by Inductor with these settings, and the code that it wrote."""
    torch._dynamo.reset()
    with inductor.patch(settings):
        found, code = run_and_get_code(torch.compile(fn, fullgraph=True), *inputs)
    return found, "\n".join(code)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Run grids with that many threads."""
    before, tilewright.knobs.cpu.num_threads = tilewright.knobs.cpu.num_threads, count
    try:
        assert team.threads() == count
        yield
    finally:
        tilewright.knobs.cpu.num_threads = before


# --- programs that wait for each other ------------------------------------------------------------------------


@scenario
def scans_longer_than_a_block_look_back() -> None:
    """A block waits for the sums of those before it: with one thread, and with far more programs than threads."""
    for dtype in (torch.float32, torch.int64):
        x = torch.randint(-9, 9, (100_000,)).to(dtype)
        torch._dynamo.reset()
        run = torch.compile(lambda x: x.cumsum(0), fullgraph=True)
        for count in (1, 2, 7):
            with threads(count):
                found, code = run_and_get_code(run, x) if count == 1 else (run(x), None)
                assert code is None or "decoupled_lookback" in code[0]
                assert torch.equal(found, x.cumsum(0)), (dtype, count)


@scenario
def reductions_in_one_cooperative_grid() -> None:
    """All programs meet at a barrier, so all must be running: more of them than there are processors."""
    x = torch.randn(3, 20_000)
    settings = {"triton.force_cooperative_reductions": True}
    for fn in (lambda x: x.softmax(1), lambda x: torch.var_mean(x, 1)):
        found, code = compiled(fn, x, **settings)
        assert "x_grid_barrier" in code and "'launch_cooperative_grid': True" in code
        torch.testing.assert_close(found, fn(x))


@scenario
def reductions_in_two_kernels() -> None:
    """A reduction to few numbers is split: partial results, then theirs."""
    x = torch.randn(1 << 20)
    for fn in (torch.sum, lambda x: x.view(1 << 16, 16).sum(0), lambda x: torch.var_mean(x, 0)):
        found, code = compiled(fn, x)
        assert code.count("async_compile.triton(") == 2, code.count("async_compile.triton(")
        torch.testing.assert_close(found, fn(x), rtol=1e-5, atol=1e-3)  # sums in which numbers cancel


# --- random numbers -----------------------------------------------------------------------------------------------


def philox(seed: int, counters: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Philox 4x32-10 as its authors define it: four words for each counter, whose upper three words are zero."""
    low, mask = [np.asarray(counters, np.uint64), *(np.zeros_like(counters, np.uint64) for _ in range(3))], 2**32 - 1
    k0, k1 = seed & mask, seed >> 32 & mask
    for _ in range(10):
        a, b = low[0] * np.uint64(0xD2511F53), low[2] * np.uint64(0xCD9E8D57)
        low = [b >> 32 ^ low[1] ^ np.uint64(k0), b & mask, a >> 32 ^ low[3] ^ np.uint64(k1), a & mask]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return low


def uniform(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A float32 of [0, 1) of each word: its magnitude as a signed number, the lowest for -1, times 2**-31 and a bit."""
    signed = words.astype(np.uint32).view(np.int32)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)


@scenario
def random_numbers_are_those_of_a_gpu() -> None:
    """torch's Triton code numbers the elements of one stream of Philox; the same seed gives the same numbers."""
    x, many = torch.zeros(1000), np.arange(1000)
    for fn, expected in (
        (torch.rand_like, lambda words: uniform(words[0])),
        (torch.randn_like, lambda words: normal(*words[:2])),
        (lambda x: torch.randint_like(x, 5, 1000, dtype=torch.int64), lambda words: integers(words, 5, 1000)),
    ):
        torch.manual_seed(11)
        found, code = compiled(fn, x)
        assert "tl.load(in_ptr" in code  # the seed is loaded, the numbers are made in the kernel
        torch.manual_seed(11)
        seed = int(torch.randint(-(2**63), 2**63 - 1, [1])) % 2**64
        np.testing.assert_allclose(found.numpy(), expected(philox(seed, many)), rtol=2e-6, atol=2e-6)


def normal(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Box and Muller's cosine."""
    radius = np.sqrt(-2 * np.log(np.maximum(1e-7, uniform(first)).astype(np.float64)))
    return radius * np.cos(2 * np.pi * uniform(second).astype(np.float64))


def integers(words: list[np.ndarray[Any, Any]], low: int, high: int) -> np.ndarray[Any, Any]:
    """The first two words as one number, modulo the range."""
    return ((words[0] | words[1] << np.uint64(32)) % np.uint64(high - low)).astype(np.int64) + low


# --- assertions, templates ------------------------------------------------------------------------------------------


@scenario
def an_index_out_of_bounds_raises() -> None:
    """Inductor's assertion stops the launch, and the next one is as before."""
    torch._dynamo.reset()
    run = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    x, index = torch.randn(10), torch.tensor([1, 9, -10])
    assert torch.equal(run(x, index), x[index] * 2)
    for wrong in (10, -11, 2**40):  # the last is nowhere near: it must not be loaded
        try:
            run(x, torch.tensor([0, wrong, 2]))
        except Exception as error:
            assert "index out of bounds" in str(error), error
        else:
            raise AssertionError(f"nothing was said of index {wrong}")
    assert torch.equal(run(x, index), x[index] * 2)


@scenario
def a_product_from_a_template_with_what_follows_it() -> None:
    """`max_autotune` times configurations of a template and fuses bias and activation into the best."""
    x, y, bias = torch.randn(70, 50), torch.randn(50, 90), torch.randn(90)
    settings = {
        "max_autotune": True, "max_autotune_gemm_backends": "TRITON", "benchmark_epilogue_fusion": False,
        "test_configs.max_mm_configs": 2,
    }  # fmt: skip
    fn = lambda x, y, bias: torch.relu(x @ y + bias)
    found, code = compiled(fn, x, y, bias, **settings)
    assert "triton_tem_fused" in code and "extern_kernels.mm" not in code
    torch.testing.assert_close(found, fn(x, y, bias))


def main(names: list[str]) -> None:
    """Run the checks that are asked for, or all."""
    failures: dict[str, str] = {}
    chosen = {name: fn for name, fn in SCENARIOS.items() if not names or name in names}
    for name, fn in chosen.items():
        torch.manual_seed(0)
        begin = time.perf_counter()
        try:
            fn()
        except Exception:
            failures[name] = traceback.format_exc()[-3000:]
        verdict = "FAILED" if name in failures else "right"
        print(f"{name:48} {verdict} {time.perf_counter() - begin:.1f} s", flush=True)
    print(*failures.values(), sep="\n", file=sys.stderr)
    print(json.dumps({"scenarios": len(chosen), "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1:])
