"""Channels of loops with two products one after the other, and their rotation: meaning in every order, and code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import attention_kernels as kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_roles import FIRST, LAST, RANDOM
from tilewright.backends.nvidia import cubin
from tilewright.backends.nvidia.tgir import level
from tilewright.backends.nvidia.tgir.ops import parse_module, print_module

Array = np.ndarray[Any, Any]
ORDERS = [(FIRST, False), (LAST, True), (RANDOM, False)]
M, N, WIDTH = 128, 64, 64


class Case:
    """Attention over keys and values of one head, and what it should be in float64.

    Args:
        fn: a kernel of `attention_kernels`.
        length: keys.
        rows: queries.
        values: type of V.
        options: of the compilation.
    """

    def __init__(self, fn: Any, length: int, *, rows: int = M, values: Any = np.float16, **options: Any) -> None:
        rng = np.random.default_rng(5)
        held = max(length, N)
        self.q, self.k = ((rng.standard_normal((n, WIDTH)) * 0.5).astype(np.float16) for n in (rows, held))
        self.v = rng.integers(-4, 5, (held, WIDTH)).astype(values)
        self.out = np.full((rows, WIDTH), 9, np.float16)
        blocks = ((self.q, M), (self.k, N), (self.v, N), (self.out, M))
        given = [*(describe(x, [n, WIDTH]) for x, n in blocks), length]
        given += [-(-rows // M)] if fn is kernels.staying else []
        options = {"num_warps": 8, **options}
        self.made = Described(fn, given, M_BLOCK=M, N_BLOCK=N, WIDTH=WIDTH, **options)
        self.grid = (2, 1) if fn is kernels.staying else (-(-rows // M), 1)
        self.expected = self._attended(fn, length)

    def _attended(self, fn: Any, length: int) -> Array:
        q, k, v = (x.astype(np.float64) for x in (self.q, self.k[:length], self.v[:length]))
        scores = q @ k.T
        if fn is kernels.summed:
            sums = np.cumsum((scores.reshape(len(q), -1, N, 1) * v.reshape(1, -1, N, WIDTH)).sum(2), 1)
            return np.asarray(sums[:, -1] + sums.max((1, 2))[:, None])
        if fn is kernels.one_cache:
            blocks = [q @ block for block in k.reshape(-1, N, WIDTH)]
            scores, v = np.concatenate(blocks, 1) + q @ v.T, k
        if fn is kernels.causal:
            scores = np.where(np.arange(len(q))[:, None] >= np.arange(len(k)), scores, -np.inf)
        shares = np.exp2(scores - scores.max(1, keepdims=True))
        return np.asarray(shares / shares.sum(1, keepdims=True) @ v)

    def check(self, order: str = FIRST, *, early: bool = False) -> None:
        """Run it, and compare."""
        self.out[:] = 9
        self.made.run(self.grid, order, early=early)
        near = 4e-3 * max(1.0, np.abs(self.expected).max() / 4)  # of shares in f16
        np.testing.assert_allclose(self.out.astype(np.float64), self.expected, rtol=4e-3, atol=near)

    @property
    def in_flight(self) -> list[int]:
        """How many groups of products the waits leave under way, in order."""
        waits = ops(self.made.whole.module, "ttng.warp_group_dot_wait")
        return [int(op.attr_values()["pendings"]) for op in waits]

    @property
    def channels(self) -> int:
        """How many there are: each has two barriers of several stages."""
        waits = ops(self.made.whole.module, "ttng.wait_phase")
        return len({op.operands[0] for op in waits}) // 2


# --- meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_attention(iterations: int, order: str, early: bool) -> None:
    case = Case(kernels.attention, iterations * N, num_stages=2)
    assert case.made.roles == [8, 4] and case.channels == 2 and case.in_flight == [0, 1, 0, 0]
    case.check(order, early=early)


def test_no_iteration() -> None:
    case = Case(kernels.attention, N)
    case.made._slots[-1] = 0  # the number of keys
    with np.errstate(invalid="ignore"):
        case.made.run(case.grid)
    assert np.isnan(case.out).all()  # 0 / 0


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_keys_that_are_values_are_released_once(order: str, early: bool) -> None:
    case = Case(kernels.one_cache, 4 * N, num_stages=2)
    assert case.channels == 2 and case.in_flight == [0, 1, 0, 0]
    case.check(order, early=early)


@pytest.mark.parametrize(("order", "early"), ORDERS)
def test_programs_that_take_several_blocks_of_queries(order: str, early: bool) -> None:
    case = Case(kernels.staying, 3 * N, rows=3 * M, num_stages=2)
    assert case.channels == 2 and 1 in case.in_flight
    case.check(order, early=early)


@pytest.mark.parametrize("warps", [4, 8])
def test_masked(warps: int) -> None:
    Case(kernels.causal, 2 * M, rows=2 * M, num_warps=warps).check(RANDOM)


@pytest.mark.parametrize(("fn", "values"), [(kernels.summed, np.float16), (kernels.widened, np.int8)])
def test_what_is_not_rotated(fn: Any, values: Any) -> None:
    case = Case(fn, 3 * N, values=values)
    assert case.made.roles == [8, 4] and case.channels == 2 and 1 not in case.in_flight
    for order, early in ORDERS:
        case.check(order, early=early)


def test_text_and_rules() -> None:
    module = Case(kernels.attention, 2 * N).made.whole.module
    level.verify(module, 8)
    text = print_module(module)
    assert print_module(parse_module(text)) == text


# --- every wait matters -------------------------------------------------------------------------------

_TRY = r"call i1 @llvm\.nvvm\.mbarrier\.try\.wait[^\n]*"
_ARRIVE = r"[^\n]*mbarrier\.arrive\.shared[^\n]*"


def _is_missed(case: Case, pattern: str, number: int, instead: str) -> bool:
    """Whether a run fails when one match of a pattern is replaced."""

    def change(text: str) -> str:
        found = list(re.finditer(pattern, text))[number]
        return text[: found.start()] + instead + text[found.end() :]

    case.made.changed = change
    for order, early in ORDERS:
        try:
            case.check(order, early=early)
        except (SimtError, AssertionError):
            return True
    return False


@pytest.mark.parametrize(("pattern", "instead"), [(_TRY, "icmp eq i32 0, 0"), (_ARRIVE, "")])
def test_what_is_left_out_is_missed(pattern: str, instead: str) -> None:
    case = Case(kernels.staying, 3 * N, rows=2 * M, num_stages=2)
    case.grid = (1, 1)
    count = len(re.findall(pattern, case.made.whole.lowered().llvm))
    missed = [_is_missed(case, pattern, number, instead) for number in range(count)]
    assert count >= 4 and all(missed)


def test_a_wait_for_products_that_is_left_out_is_missed() -> None:
    case = Case(kernels.staying, 3 * N, rows=2 * M, num_stages=2)
    case.grid = (1, 1)
    for place in (1, 2):  # of the loop, and behind it; the simulated products have their results at once
        if not _is_missed(case, r"wgmma\.wait_group\.sync\.aligned 0", place, "wgmma.wait_group.sync.aligned 3"):
            raise AssertionError(f"nobody misses wait {place}")


# --- code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [64, 128])
def test_exponentials_run_under_products(width: int) -> None:
    x = np.zeros((128, width), np.float16)
    given = [*(describe(x, [128, width]) for _ in range(4)), 128]
    made = Described(kernels.attention, given, M_BLOCK=128, N_BLOCK=128, WIDTH=width, num_warps=8, num_stages=2)
    ptx, code = made.whole.assembled()
    assert ".local" not in ptx and code.spill_bytes == 0 and not cubin.serial_notes(code.notes)
    if cubin.whole_program() is None:
        pytest.skip("no ptxas: nvJitLink leaves registers as they are")
    sass = cubin.disassemble(code.image)
    if sass is None:
        pytest.skip("no nvdisasm")
    waits = re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d).*?(?=WARPGROUP\.DEPBAR|\Z)", sass, re.DOTALL)
    parts = re.split(r"WARPGROUP\.DEPBAR", sass)[1:]
    under = [part.count("MUFU.EX2") for wait, part in zip(waits, parts, strict=True) if wait == "1"]
    assert under == [64] and sass.count("USETMAXREG") == 2
