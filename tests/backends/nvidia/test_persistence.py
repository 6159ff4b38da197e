"""Blocks that run one program of a plain grid after the other: which kernels, their meaning, and every wait of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import attention_kernels, box_kernels
from tests.backends.nvidia import persistence_kernels as kernels
from tests.backends.nvidia.box_kernels import operands
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.simt_roles import FIRST, LAST, RANDOM
from tests.backends.nvidia.test_roles import _ARRIVE, _TRY, _without
from tilewright.backends.nvidia import cubin
from tilewright.backends.nvidia.tgir import level
from tilewright.backends.nvidia.tgir.ops import parse_module, print_module
from tilewright.base.decision import from_records

Array = np.ndarray[Any, Any]
ORDERS = [(FIRST, False), (LAST, True), (RANDOM, False)]
M, N, K = BLOCKS = (128, 64, 64)
OPTIONS = {"num_warps": 8, "num_stages": 6, "persistent_programs": True}  # six stages: one block a multiprocessor
CONSTANTS = {"M_BLOCK": M, "N_BLOCK": N, "K_BLOCK": K}


class Case:
    """A product of small whole numbers by programs of a grid.

    Args:
        fn: a kernel of `persistence_kernels`.
        depth: of the product.
        more: arguments between the matrices and the depth.
        rows, columns: of the result.
        options: other constants and options than the usual ones.
    """

    def __init__(self, fn: Any, depth: int, *more: Any, rows: int = M, columns: int = N, **options: Any) -> None:
        rng = np.random.default_rng(3)
        self.a = rng.integers(-4, 5, (rows, max(depth, K))).astype(np.float16)
        self.b = rng.integers(-4, 5, (max(depth, K), columns)).astype(np.float16)
        self.c = np.full((rows, columns), -1, np.float16)
        given = [describe(self.a, [M, K]), describe(self.b, [K, N]), describe(self.c, [M, N]), *more]
        given += [] if fn is kernels.of_known_length else [depth]
        self.made = Described(fn, given, **{**CONSTANTS, **OPTIONS, **options})
        self.grid = (-(-rows // M), -(-columns // N))
        self.expected = self.a[:, :depth].astype(np.float32) @ self.b[:depth].astype(np.float32)

    @property
    def persistent(self) -> bool:
        """Whether blocks run one program after the other."""
        return self.made.whole.lowered().persistent

    def check(self, order: str = FIRST, **run: Any) -> None:
        """Run it, and compare."""
        self.c[:] = -1
        self.made.run(self.grid, order, **run)
        np.testing.assert_array_equal(self.c, self.expected)


def why(made: Described) -> str:
    """What is said of blocks that run one program after the other."""
    (said,) = [row.text for row in from_records(made.decisions.records()) if row.subject == "persistent programs"]
    return said


# --- meaning ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize(("depth", "blocks"), [(0, 2), (K, 1), (3 * K - 8, 2), (7 * K, 2)])
def test_products(depth: int, blocks: int, order: str, early: bool) -> None:
    case = Case(kernels.product, depth, rows=M + 8, columns=2 * N)
    assert case.persistent and case.made.roles == [8, 4]
    case.check(order, early=early, blocks=blocks)


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("grid", [(3,), (2, 2), (1, 2, 2), (2, 1, 2)])
def test_programs_know_where_they_are_in_their_grid(grid: tuple[int, ...], order: str, early: bool) -> None:
    """Not where the block is in its row of blocks; and what a program stores and sums meets nobody else's."""
    sizes = (*grid, 1, 1)[:3]
    count = int(np.prod(sizes))
    sums, bias = np.zeros((count, N), np.float32), np.arange(N, dtype=np.float32) % 7
    case = Case(kernels.told, 2 * K, bias, sums, rows=count * M)
    assert case.persistent
    places = [(x, y, z) for z in range(sizes[2]) for y in range(sizes[1]) for x in range(sizes[0])]
    parts = case.expected.reshape(count, M, N)
    for part, (x, y, z) in zip(parts, places, strict=True):
        part += bias * (100 * x + 10 * y + z)
    case.grid = grid
    totals = parts.sum(1) + 1000 * sizes[2]
    case.expected = case.expected.astype(np.float16)
    case.check(order, early=early)
    np.testing.assert_array_equal(sums, totals)


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("depth", [K, 4 * K])
def test_loops_that_follow_each_other(depth: int, order: str, early: bool) -> None:
    case = Case(kernels.two_loops, depth, rows=3 * M)
    assert case.persistent
    case.check(order, early=early)


@pytest.mark.parametrize("mask", [0, 2])
def test_pointers(mask: int) -> None:
    m, n, k = [(256, 128, 192), None, (250, 144, 80)][mask]  # type: ignore[misc]
    a, b, c = operands(m, n, k)
    made = Described(
        box_kernels.product, [a, b, c, m, n, k, k, 1, n, 1, n], tensor_maps=True, BM=M, BN=N, BK=K, MASK=mask, **OPTIONS
    )
    assert made.whole.lowered().persistent
    made.run((-(-m // M), -(-n // N)))
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_text_and_rules() -> None:
    module = Case(kernels.told, K, np.zeros(N, np.float32), np.zeros(N, np.float32)).made.whole.module
    level.verify(module, 8)
    text = print_module(module)
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize(
    ("pattern", "number", "instead"),
    [(_TRY, 0, "icmp eq i32 0, 0"), (_TRY, 1, "icmp eq i32 0, 0"), (_ARRIVE, 0, ""), (_ARRIVE, 1, "")],
)
def test_what_is_left_out_is_missed(pattern: str, number: int, instead: str) -> None:
    case = Case(kernels.product, 7 * K, rows=3 * M)
    case.made.changed = _without(pattern, number, instead)
    for order, early in ORDERS:
        try:
            case.check(order, early=early, blocks=1)
        except (SimtError, AssertionError):
            return
    raise AssertionError("nobody misses it")


def test_code() -> None:
    """No spills, and places that the assembler knows to be the same for all threads of a warp: no loops over values."""
    a, b, c = (np.zeros(shape, np.float16) for shape in ((128, 64), (64, 256), (128, 256)))
    given = [describe(a, [128, 64]), describe(b, [64, 256]), describe(c, [128, 256]), 64]
    options = {**OPTIONS, "num_stages": 4}
    ptx, made = Described(kernels.product, given, M_BLOCK=128, N_BLOCK=256, K_BLOCK=64, **options).whole.assembled()
    assert ".local" not in ptx and made.spill_bytes == 0 and "call" not in ptx and "div.u64" not in ptx
    sass = cubin.disassemble(made.image)
    if cubin.whole_program() is None or sass is None:
        pytest.skip("no ptxas, or no nvdisasm")
    assert not cubin.serial_notes(made.notes)
    assert sass.count("USETMAXREG") == 2 and sass.count("HGMMA") == 4 and sass.count("UTMALDG") == 5
    assert "CALL" not in sass and not re.search(r"@!?P\d R2UR", sass)


# --- which kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("spins", "wait for earlier"), ("polls", "wait for earlier"), ("waits", "wait for earlier"),
        ("counts", "wait for earlier"), ("collatz", "by a condition"), ("prints", "effects"),
        ("splits", "different times"), ("grows", "different times"), ("ragged", "different times"),
    ],
)  # fmt: skip
def test_programs_that_must_be_blocks(how: str, said: str) -> None:
    case = Case(kernels.never_in_order, 3 * K, np.zeros(4, np.int32), HOW=how)
    assert not case.persistent and not ops(case.made.whole.module, "ttng.program_count")
    assert said in why(case.made)
    if how not in ("prints", "splits", "grows"):
        case.check()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"persistent_programs": False}, "who launches"), ({"launch_cooperative_grid": True}, "launch_cooperative"),
        ({"launch_pdl": True}, "launch_pdl"), ({"num_stages": 3}, "share a multiprocessor"),
    ],
)  # fmt: skip
def test_options(options: dict[str, Any], said: str) -> None:
    case = Case(kernels.product, 3 * K, **options)
    assert not case.persistent and said in why(case.made)


def test_long_programs_are_blocks() -> None:
    """Where it is known that they are: what one waits at its start and its end is little beside them."""
    assert Case(kernels.of_known_length, 64 * K, K=64 * K).persistent
    said = why(Case(kernels.of_known_length, 64 * K, K=2000 * K).made)
    assert "waits" in said


def test_what_cannot_be_divided_is_as_it_was() -> None:
    """Rows that are found in memory: the warps that copy would have to look there, too."""
    given = (np.zeros(4, np.int32),)
    case = Case(kernels.never_in_order, 3 * K, *given, HOW="gathers")
    before = Case(kernels.never_in_order, 3 * K, *given, HOW="gathers", persistent_programs=False)
    assert not case.persistent and "load" in why(case.made)
    assert print_module(case.made.whole.module) == print_module(before.made.whole.module)
    case.check()


@pytest.mark.parametrize(("order", "early"), ORDERS)
@pytest.mark.parametrize("iterations", [1, 3])
def test_attention(iterations: int, order: str, early: bool) -> None:
    rng = np.random.default_rng(5)
    length, rows, width = iterations * 64, 3 * 128, 64
    q, k = ((rng.standard_normal((n, width)) * 0.5).astype(np.float16) for n in (rows, length))
    v = rng.integers(-4, 5, (length, width)).astype(np.float16)
    out = np.full((rows, width), 9, np.float16)
    given = [describe(x, [n, width]) for x, n in ((q, 128), (k, 64), (v, 64), (out, 128))]
    made = Described(attention_kernels.attention, [*given, length], M_BLOCK=128, N_BLOCK=64, WIDTH=width, **OPTIONS)
    assert made.whole.lowered().persistent
    made.run((3, 1), order, early=early)
    scores = q.astype(np.float64) @ k.T.astype(np.float64)
    shares = np.exp2(scores - scores.max(1, keepdims=True))
    expected = shares / shares.sum(1, keepdims=True) @ v
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=4e-3, atol=4e-3)
