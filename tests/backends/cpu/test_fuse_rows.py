"""Outer loop fusion: passes over rows are one loop where each reads its own row, and right everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

SHAPES = [(16, 1024), (13, 1000), (3, 777), (16, 129)]
TYPES = {"fp32": np.float32, "fp16": np.float16, "fp64": np.float64, "i32": np.int32}


def said(kernel, signature: str) -> list[tuple[bool, str]]:
    found = decisions_of(Spelling(kernel, signature, {}), "avx512")
    return [(d.taken, d.text) for d in found if d.subject == "outer loop fusion"]


@tilewright.jit
def softmax(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * columns + j, inside, -float("inf")).to(tl.float32)
    e = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(out + i * columns + j, e / tl.sum(e, 1)[:, None], inside)


@tilewright.jit
def norm(x, w, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Numbers of rows between the passes, a row that all share, sums over rows behind them."""
    i, j = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)
    inside = (i < rows) & (j < columns)[None, :]
    value = tl.load(x + i * columns + j[None, :], inside, 0).to(tl.float32)
    mean = tl.sum(value, 1) / columns
    centred = tl.where(inside, value - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / columns + 1e-5)
    weight = tl.exp(tl.load(w + j, j < columns, 0.0))
    tl.store(out + i * columns + j[None, :], centred * scale[:, None] * weight[None, :], inside)
    number = tl.program_id(0) * R + tl.arange(0, R)
    tl.store(out + rows * columns + number, scale, number < rows)


@tilewright.jit
def channels(x, w, out, rows, C: tl.constexpr, N: tl.constexpr, R: tl.constexpr):
    """A few numbers of each row, one of each channel, between the passes and behind them."""
    i = tl.program_id(0) * R + tl.arange(0, R)
    c, n = tl.arange(0, C), tl.arange(0, N)
    inside = i < rows
    at = (i[:, None] * C + c[None, :])[:, :, None] * N + n[None, None, :]
    value = tl.load(x + at, inside[:, None, None], 0.0)
    mean = tl.sum(tl.sum(value, 2), 1) / (C * N)
    centred = value - mean[:, None, None]
    square = tl.sum(tl.sum(centred * centred, 2), 1) / (C * N)
    made = centred * tl.rsqrt(square + 1e-5)[:, None, None] * tl.load(w + c)[None, :, None]
    tl.store(out + at, made, inside[:, None, None])
    tl.store(out + rows * C * N + i[:, None] * C + c[None, :], tl.sum(made * value, 2), inside[:, None])


@tilewright.jit
def neighbouring_row(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """What is kept of a row is read for the next one, modulo the tile."""
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    e = tl.exp(tl.load(x + i * columns + j, inside, 0.0).to(tl.float32) * 0.125)
    total = tl.sum(e, 1)
    next_total = tl.gather(total, (tl.arange(0, R) + 1) % R, 0)
    tl.store(out + i * columns + j, e - next_total[:, None], inside)


@tilewright.jit
def in_place_shifted(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """A pass stores where the next one loads another row."""
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    value = tl.load(x + i * columns + j, inside, 0.0)
    tl.store(out + i * columns + j, value - tl.max(value, 1)[:, None], inside)
    below = tl.load(out + (i + 1) * columns + j, inside & (i + 1 < rows), 0.0)
    tl.store(out + i * columns + j, below + tl.sum(below, 1)[:, None], inside)


@tilewright.jit
def in_a_loop(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """A tile that a loop carries, and passes over it in each iteration."""
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    acc = tl.load(x + i * columns + j, inside, 0.0).to(tl.float32)
    for _ in range(3):
        e = tl.exp(acc * 0.125)
        acc = acc + tl.where(inside, e, 0.0) / tl.sum(tl.where(inside, e, 0.0), 1)[:, None]
    tl.store(out + i * columns + j, acc, inside)


def launch(kernel, x, *more, programs=1, extra=0):
    rows, columns = x.shape
    out = np.zeros(x.size + extra, x.dtype)
    c = -(-columns // 16) * 16
    kernel[(programs,)](x, *more, out, rows, columns, R=16 // programs, C=c)
    return out[: x.size].reshape(x.shape), out[x.size :]


def data(shape, kind=np.float32):
    made = np.random.default_rng(0).standard_normal(shape) * 3
    return made.astype(kind)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "fp64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("programs", [1, 4])
def test_softmax(kind, shape, programs):
    x = data(shape, TYPES[kind])
    found, _ = launch(softmax, x, programs=programs)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=2e-3 if kind == "fp16" else 1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_of_rows_between_the_passes(shape):
    x, w = data(shape), data(shape[1]) * np.float32(0.1)
    found, scales = launch(norm, x, w, extra=shape[0])
    exact = x.astype(np.float64)
    centred = exact - exact.mean(1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(1) + 1e-5)
    np.testing.assert_allclose(found, centred * scale[:, None] * np.exp(w), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(scales, scale, rtol=1e-4)


@pytest.mark.parametrize("length", [32, 256, 1024])
@pytest.mark.parametrize("count", [1, 2, 4, 16])
@pytest.mark.parametrize("rows", [1, 8, 13])
def test_a_few_numbers_of_each_row_between_the_passes(rows, count, length):
    x, w = data((rows, count, length)), data(count)
    out = np.zeros(rows * count * (length + 1), np.float32)
    channels[(-(-rows // 8),)](x, w, out, rows, C=count, N=length, R=8)
    exact = x.astype(np.float64)
    centred = exact - exact.mean((1, 2), keepdims=True)
    made = centred / np.sqrt((centred**2).mean((1, 2), keepdims=True) + 1e-5) * w[:, None]
    np.testing.assert_allclose(out[: x.size].reshape(x.shape), made, rtol=1e-3, atol=1e-3)
    sums = (made * exact).sum(2)
    np.testing.assert_allclose(out[x.size :].reshape(sums.shape), sums, rtol=1e-3, atol=1e-3 * abs(sums).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pass_that_reads_other_rows_waits_for_all_of_them(shape):
    x = data(shape)
    found, _ = launch(neighbouring_row, x)
    columns = -(-shape[1] // 16) * 16
    whole = np.ones((16, columns))
    whole[: shape[0], : shape[1]] = np.exp(x * 0.125)
    total = np.roll(whole.sum(1), -1)[: shape[0], None]
    np.testing.assert_allclose(found, np.exp(x * 0.125) - total, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_stores_that_another_row_loads_keep_their_order(shape):
    x = data(shape)
    found, _ = launch(in_place_shifted, x)
    first = x - x.max(1, keepdims=True)
    below = np.vstack([first[1:], np.zeros((1, shape[1]), np.float32)])
    np.testing.assert_allclose(found, below + below.sum(1, keepdims=True), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_that_a_loop_carries(shape):
    x = data(shape)
    found, _ = launch(in_a_loop, x)
    acc = x.astype(np.float64)
    for _ in range(3):
        e = np.exp(acc * 0.125)
        acc = acc + e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(found, acc, rtol=1e-4, atol=1e-4)


def test_a_few_numbers_of_each_row_join_long_rows_and_not_short_ones():
    def joined(length):
        return sum(taken for taken, _ in said(channels, f"*fp32:16, *fp32:16, *fp32:16, i32, 4, {length}, 8"))

    assert (joined(16), joined(256)) == (0, 5)


def test_what_is_fused():
    two, three = ", ".join(["*fp32:16"] * 2), ", ".join(["*fp32:16"] * 3)
    assert [taken for taken, _ in said(softmax, f"{two}, i32, i32, 16, 1024")] == [True] * 3
    assert [taken for taken, _ in said(norm, f"{three}, i32, i32, 16, 1024")][:4] == [True] * 4
    assert not any(taken for taken, _ in said(softmax, f"{two}, i32, i32, 16, 64"))
    assert (False, "it reads other rows of what the pass before it writes") in said(
        neighbouring_row, f"{two}, i32, i32, 16, 1024"
    )
    assert (False, "what is stored might be loaded or stored in another row") in said(
        in_place_shifted, f"{two}, i32, i32, 16, 1024"
    )


# --- sums over the rows ------------------------------------------------------------------------------------


@tilewright.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@tilewright.jit
def norm_backward(x, up, out, sums, most, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Sums of rows, what is stored for them, and behind it sums and maxima over them."""
    i, j = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)
    inside = (i < rows) & (j < columns)[None, :]
    value, weighed = tl.load(x + i * columns + j[None, :], inside, 0), tl.load(up + i * columns + j[None, :], inside, 0)
    shared = tl.sum(value * weighed, 1)[:, None]
    made = weighed - value * shared
    tl.store(out + i * columns + j[None, :], made, inside)
    tl.store(sums + tl.program_id(0) * columns + j, tl.sum(value * made, 0), j < columns)
    largest = tl.reduce(value, 0, _larger) if value.dtype.is_floating() else tl.max(value, 0)
    tl.store(most + tl.program_id(0) * columns + j, largest, j < columns)


@pytest.mark.parametrize("kind", ["fp32", "fp64", "i32", "fp16"])
@pytest.mark.parametrize("shape", [(16, 1024), (13, 1000), (3, 777), (7, 131), (16, 9000), (30, 300)])
def test_sums_over_rows_behind_sums_of_rows(shape, kind):
    x, up = (np.random.default_rng(n).integers(-2, 3, shape).astype(TYPES[kind]) for n in (0, 1))
    if kind == "fp16":
        x[:, 5:] = 0  # exact in half precision
    rows, columns = shape
    programs, c = -(-rows // 16), -(-columns // 16) * 16
    out, sums, most = np.zeros_like(x), np.zeros((programs, columns), x.dtype), np.zeros((programs, columns), x.dtype)
    norm_backward[(programs,)](x, up, out, sums, most, rows, columns, R=16, C=c)
    made = up - x * (x * up).sum(1, dtype=x.dtype, keepdims=True)
    np.testing.assert_array_equal(out, made)
    for n in range(programs):
        own, rest = slice(16 * n, 16 * n + 16), 16 * n + 16 > rows  # rows past the end are zeros
        np.testing.assert_array_equal(sums[n], (x * made)[own].sum(0, dtype=x.dtype))
        np.testing.assert_array_equal(most[n], np.maximum(x[own].max(0), 0) if rest else x[own].max(0))


@tilewright.jit
def sums_in_turns(x, out, sums, columns, R: tl.constexpr, C: tl.constexpr):
    """The sums over rows of one iteration are what the next one takes from each row."""
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)
    value, carried = tl.load(x + i * C + j[None, :]), tl.zeros((C,), tl.float32)
    for _ in range(3):
        left = value - carried[None, :]
        part = tl.exp(left - tl.max(left, 1)[:, None])
        value = part / tl.sum(part, 1)[:, None]
        carried = tl.sum(value, 0)
    tl.store(out + i * C + j[None, :], value)
    tl.store(sums + j, carried)


def test_sums_over_rows_that_a_loop_carries():
    x = data((16, 256))
    out, sums = np.zeros_like(x), np.zeros(256, np.float32)
    sums_in_turns[(1,)](x, out, sums, 256, R=16, C=256)
    value, carried = x.astype(np.float64), np.zeros(256)
    for _ in range(3):
        part = np.exp(value - carried - (value - carried).max(1, keepdims=True))
        value = part / part.sum(1, keepdims=True)
        carried = value.sum(0)
    np.testing.assert_allclose(out, value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sums, carried, rtol=1e-4)


def test_which_sums_over_rows_are_made_row_by_row():
    signature = ", ".join(["*fp32:16"] * 5) + ", i32, i32, 16, "
    found = decisions_of(Spelling(norm_backward, f"{signature}1024", {}), "avx512")
    assert [d.taken for d in found if d.subject == "outer loop fusion"] == [True] * 2  # sums, and what is stored
    longer = decisions_of(Spelling(norm_backward, f"{signature}16384", {}), "avx512")
    assert not any(d.subject == "outer loop fusion" and d.taken for d in longer)  # the sums leave the first cache


# --- reductions in pieces --------------------------------------------------------------------------------


@tilewright.jit
def reduced(x, sums, most, first, both, rows, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    value = tl.load(x + i * C + j, i < rows, 0)
    tl.store(sums + tl.arange(0, R), tl.sum(value, 1), tl.arange(0, R) < rows)
    tl.store(most + tl.arange(0, R), tl.max(value, 1), tl.arange(0, R) < rows)
    tl.store(first + tl.arange(0, R), tl.argmax(value, 1), tl.arange(0, R) < rows)
    tl.store(both, tl.sum(tl.ravel(value)))


@pytest.mark.parametrize("columns", [49, 98, 131, 196, 259, 1000, 1008])
@pytest.mark.parametrize("kind", ["fp32", "fp64", "i32", "fp16"])
def test_rows_of_any_length_are_reduced_in_pieces(columns, kind):
    x = np.random.default_rng(0).integers(-8, 8, (5, columns)).astype(TYPES[kind])
    if kind == "fp32":
        x[1, :] = np.nan
        x[2, : columns - 1] = np.nan
    sums, most, both = np.zeros(5, x.dtype), np.zeros(5, x.dtype), np.zeros(1, x.dtype)
    first = np.zeros(5, np.int32)
    reduced[(1,)](x, sums, most, first, both, 5, R=5, C=columns)
    np.testing.assert_array_equal(sums, x.sum(1, dtype=x.dtype))
    want = x.max(1) if kind != "fp32" else np.fmax.reduce(x, axis=1)
    np.testing.assert_array_equal(most, want)
    numbers = ~np.isnan(x.astype(np.float64)).any(1)
    np.testing.assert_array_equal(first[numbers], x[numbers].argmax(1))


@tilewright.jit
def places(x, out, R: tl.constexpr, C: tl.constexpr):
    value = tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    tl.store(out + tl.arange(0, R), tl.argmax(value, 1))


def test_reductions_with_several_results_have_one_kind_of_chunk():
    found = decisions_of(Spelling(places, "*fp32:16, *i32:16, 5, 49", {}), "avx512")
    assert any(d.subject == "vectors" and not d.taken for d in found)
