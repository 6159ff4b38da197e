"""Long rows over a cluster: what the blocks of a simulated one compute together in any order, and what is refused."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia import long_row_kernels as kernels
from tests.backends.nvidia.laying import tile_ir
from tests.backends.nvidia.simt import run_kernel
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.whole import Whole, whole
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.backends.nvidia.plan.subjects import LONG_ROWS
from tilewright.backends.nvidia.tgir import level
from tilewright.backends.nvidia.tgir.ops import parse_module, print_module
from tilewright.ir.decisions import Decisions

B = 32768
ORDERS = {2: [(0, 1), (1, 0)], 4: [(0, 1, 2, 3), (2, 0, 3, 1)], 8: [(5, 2, 7, 0, 1, 3, 6, 4)]}


def made(kernel: Any, types: dict[str, str], blocks: int, constants: dict[str, int], **options: Any) -> Whole:
    found = whole(kernel, types, constants, 90, **options)
    lowered = found.lowered()
    assert lowered.cluster == blocks
    level.verify(found.module, lowered.num_warps, blocks)
    assert print_module(parse_module(print_module(found.module))) == print_module(found.module)
    return found


def rows(n: int, count: int = 3, kind: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).integers(-9, 10, (count, n)).astype(kind)


@pytest.mark.parametrize(("length", "n", "blocks"), [(B, B, 2), (B, 16001, 2), (2 * B, 40_001, 4), (4 * B, 100_003, 8)])
def test_softmax(length: int, n: int, blocks: int):
    x = rows(n, 2)
    found = made(kernels.softmax, {"x": "*fp32!", "out": "*fp32!", "n": "i32"}, blocks, {"B": length})
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    for order in ORDERS[blocks]:
        out = np.zeros(2 * n + 1, np.float32)
        found.run((2,), x, out, n, order=order)
        np.testing.assert_allclose(out[:-1].reshape(2, n), powers / powers.sum(1, keepdims=True), rtol=2e-5)
        assert out[-1] == 0


@pytest.mark.parametrize(
    ("kind", "dtype"), [("fp16", np.float16), ("i64", np.int64), ("fp64", np.float64), ("i8", np.int8)]
)
def test_types(kind: str, dtype: Any):
    """Numbers of 64 bits take two registers, so more blocks share them."""
    x, blocks = rows(20_000, 3, dtype) % 3, 4 if kind.endswith("64") else 2
    x[1] = -x[1]
    out = np.zeros(10, np.int64 if "i" in kind else np.float64)
    to = "*i64" if "i" in kind else "*fp64"
    found = made(kernels.total, {"x": f"*{kind}!", "out": to, "n": "i32!"}, blocks, {"B": B})
    for order in ORDERS[blocks]:
        found.run((3,), x, out, 20_000, order=order)
        whole = x.sum(1, keepdims=True, dtype=np.float32 if kind == "fp16" else None)
        want = [*whole.ravel(), 30, 31, 32, *(x > whole).sum(1), 0]
        np.testing.assert_allclose(out, want, rtol=2e-3)


@pytest.mark.parametrize("programs", [1, 3])
@pytest.mark.parametrize(("kind", "dtype"), [("fp16", np.float16), ("fp32", np.float32)])
def test_rows_in_a_loop(programs: int, kind: str, dtype: Any):
    n, blocks = 30_000, 2
    x, w, b = rows(n, 3, dtype), rows(n, 1, dtype)[0], rows(n + 1, 1, dtype)[0][:-1]
    types = {"x": f"*{kind}!", "weight": f"*{kind}!", "bias": f"*{kind}!", "out": f"*{kind}!", "n": "i32!"}
    found = made(kernels.layer_norm, types, blocks, {"B": B})
    wide = x.astype(np.float64)
    away = wide - wide.mean(1, keepdims=True)
    want = away / np.sqrt((away * away).mean(1, keepdims=True) + 1e-5) * w + b
    for order in ORDERS[blocks]:
        out = np.zeros((3, n), dtype)
        found.run((programs,), x, w, b, out, n, order=order)
        np.testing.assert_allclose(out, want, rtol=2e-3 if kind == "fp16" else 1e-4, atol=1e-3)


def test_several_rows_a_tile():
    n, x, w = 9001, rows(9001), rows(9002, 1)[0][:-1]
    out, tops = np.zeros((3, n), np.float32), np.zeros(4 + n + 1, np.float32)
    types = dict.fromkeys(("x", "weight", "out", "tops"), "*fp32!") | {"n": "i32"}
    found = made(kernels.centred, types, 4, {"R": 4, "B": 16384})
    for order in ORDERS[4]:
        found.run((1,), x, w, out, tops, n, order=order)
        want = x * w
        np.testing.assert_array_equal(out, want - want.max(1, keepdims=True))
        np.testing.assert_array_equal(tops, [*want.max(1), 0, *want.sum(0), 0])


def test_columns():
    n, x = 1900, rows(16, 1900)
    out = np.zeros_like(x)
    made(kernels.of_columns, {"x": "*fp32!", "out": "*fp32!", "n": "i32"}, 2, {"B": B}).run((1,), x, out, n)
    np.testing.assert_array_equal(out, x - np.maximum(x.max(0), 0))


def test_places_of_the_largest():
    n, x = 30_001, rows(30_001, 2, np.int32) % 5
    out, places = np.zeros(2, np.int32), np.zeros(2, np.int32)
    types = {"x": "*i32!", "out": "*i32", "places": "*i32", "n": "i32"}
    found = made(kernels.largest, types, 2, {"B": B})
    for order in ORDERS[2]:
        found.run((2,), x, out, places, n, order=order)
        np.testing.assert_array_equal([out, places], [(x == x.max(1, keepdims=True)).sum(1), x.argmax(1)])


def test_neighbours_keep_their_order():
    n, x = B, rows(B, 1, np.int32)[0]
    one, other = 1, 0
    for i, step in enumerate(x.tolist()):
        sign = -1 if i % 7 == 3 else 1
        one, other = one * sign, other * sign + step
    out = np.zeros(3, np.int32)
    made(kernels.composed, {"x": "*i32!", "out": "*i32", "n": "i32!"}, 2, {"B": B}).run((1,), x, out, n)
    assert out.tolist() == [one, other, (x < other).sum()]


def test_blocks_wait_for_what_others_store():
    n, x = 30_000, rows(30_000, 1)[0]
    found = made(kernels.in_place, {"x": "*fp32!", "out": "*fp32!", "n": "i32!"}, 2, {"B": B})
    for order in ORDERS[2]:
        given, out = x.copy(), np.zeros(n, np.float32)
        found.run((1,), given, out, n, order=order)
        want = x - x.max()
        np.testing.assert_array_equal(out, np.roll(want, -9000) + 7)
        np.testing.assert_array_equal(given, [7, *want[1:]])


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_branches(flag: int, sign: int):
    n, x = 30_000, sign * np.abs(rows(30_000, 1)[0])
    out = np.zeros(n + 16, np.float32)
    types = {"x": "*fp32!", "out": "*fp32!", "n": "i32!", "flag": "i32"}
    made(kernels.chosen, types, 2, {"B": B}).run((1,), x, out, n, flag, order=(1, 0))
    want = np.zeros(n + 16, np.float32)
    want[:16] = x[:16] + x[:16].sum()
    if flag:
        want[16:] = x if sign > 0 else 0
        want[16] = want[16] if sign > 0 else x.max()
    np.testing.assert_allclose(out, want)


# --- what is refused ------------------------------------------------------------------------------------


@tilewright.jit
def scanned(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.store(out + i, tl.cumsum(values, 0) / tl.max(values, 0), i < n)


@tilewright.jit
def counted(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.atomic_add(out + i, values - tl.sum(values, 0), i < n)


@tilewright.jit
def carried(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.zeros((B,), tl.float32)
    for step in range(n):
        values = tl.exp(values + tl.load(x + step * B + i))
    tl.store(out, tl.max(values, 0))


@tilewright.jit
def square(x, out, n, B: tl.constexpr):
    """What is found of a row is used of a column."""
    i, j = tl.arange(0, 256)[:, None], tl.arange(0, 256)[None, :]
    values = tl.load(x + i * 256 + j)
    tl.store(out + i * 256 + j, values - tl.sum(values, 1)[None, :])


@tilewright.jit
def weighted(x, out, n, B: tl.constexpr):
    """Weights of columns, which are shared, and of rows, which are not, have one shape."""
    i, places = tl.arange(0, 256)[:, None], tl.arange(0, 256)
    values = (
        tl.load(x + i * 256 + places[None, :]) * tl.load(out + places)[None, :] + tl.load(out + n + places)[:, None]
    )
    tl.store(x + places, tl.sum(values, 1))


@tilewright.jit
def volatile(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(x + i, i < n, 0.0, volatile=True), 0))


@tilewright.jit
def once(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.store(out, tl.sum(values, 0))
    tl.store(out + 8 + i, values * 2, i < n)


REFUSED = [
    (scanned, 90, {}, "a scan has no form for clusters"),
    (counted, 90, {}, "an atomic rmw has no form for clusters"),
    (carried, 90, {}, "a for takes it whole"),
    (square, 90, {}, "it is taken along two dims"),
    (weighted, 90, {}, "what a load gives is whole, and has the shape of a shared tile"),
    (volatile, 90, {}, "a load has no form for clusters"),
    (once, 90, {}, "one pass reads it, which need not keep it"),
    (kernels.total, 89, {}, "the architecture has no clusters"),
    (kernels.total, 90, {"launch_cooperative_grid": True}, "launch_cooperative_grid counts blocks"),
]


def answers(kernel: Any, capability: int, length: int, **options: Any) -> list[tuple[bool, str]]:
    decisions = Decisions()
    module = tile_ir(kernel, {"x": "*fp32!", "out": "*fp32!", "n": "i32!"}, B=length)
    lay_out_module(module, CudaOptions(**options), target_of(capability), decisions)
    return [(d.taken, d.text) for d in decisions if d.subject == LONG_ROWS.name]


@pytest.mark.parametrize(("kernel", "capability", "options", "reason"), REFUSED)
def test_what_stays_one_block(kernel: Any, capability: int, options: dict[str, Any], reason: str):
    assert answers(kernel, capability, B, **options) == [(False, reason)]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (B, "2 blocks of 16 warps, 32 registers of each thread; else one block of 4 warps"),
        (4 * B, "8 blocks of 16 warps, 32 registers of each thread; else one block of 4 warps"),
        (8 * B, "8 blocks of 16 warps, 64 registers of each thread; else one block of 4 warps"),
    ],
)
def test_as_many_blocks_as_hold_the_row(length: int, text: str):
    assert answers(kernels.softmax, 90, length) == [(True, text)]


def test_more_than_a_cluster_holds():
    assert answers(kernels.softmax, 90, 16 * B) == [(False, "it is more than 8 blocks of 16 warps hold")]


@pytest.mark.parametrize(("length", "warps"), [(B // 2, 4), (B // 2, 1), (B, 8), (B, 16), (B, 32)])
def test_rows_that_a_block_holds_well_are_not_asked_about(length: int, warps: int):
    assert answers(kernels.softmax, 90, length, num_warps=warps) == []


# --- what holds the blocks together -----------------------------------------------------------------------


def test_no_wait_or_arrival_is_there_for_nothing():
    """Each is left out in turn, of a kernel that exchanges twice in a loop: the simulator objects to all."""
    n, x = 32_000, rows(32_000, 3)
    types = dict.fromkeys(("x", "weight", "bias", "out"), "*fp32!") | {"n": "i32!"}
    made_of = made(kernels.layer_norm, types, 2, {"B": B}).lowered()
    lines = made_of.llvm.split("\n")
    places = [i for i, line in enumerate(lines) if "barrier.c" in line and "call" in line]
    assert len(places) == 2 + 2 * 5

    def run(text: str, order: tuple[int, ...]) -> np.ndarray[Any, Any]:
        out = np.zeros_like(x)
        args = [x, x[0].copy(), x[1].copy(), out, n]
        run_kernel(text, made_of.symbol, (1,), 16, args, made_of.shared_bytes, cluster=2, order=order)
        return out

    assert run(made_of.llvm, (0, 1)).any()
    for place in places:
        text = "\n".join(lines[:place] + lines[place + 1 :])
        with pytest.raises(SimtError):
            for order in ORDERS[2]:
                run(text, order)
