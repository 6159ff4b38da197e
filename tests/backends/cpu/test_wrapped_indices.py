"""Indices that a remainder or a bound holds inside of a tensor: results, plans, and where they must stay."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import in_pairs
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir, tile_ir
from tests.decisions.harness import Spelling, decisions_of
from tilewright.backends.cpu.plan.subjects import IN_PLACE, K_STRIPS, WRAPPED
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.base.decision import from_records

BLOCK = 16


@tilewright.jit
def remainder(i, n):
    return i % n


@tilewright.jit
def smaller(i, n):
    return tl.minimum(i, n - 1)


@tilewright.jit
def smaller_the_other_way(i, n):
    return tl.minimum(n - 1, i)


@tilewright.jit
def chosen(i, n):
    return tl.where(i < n, i, 0)


@tilewright.jit
def chosen_by_at_most(i, n):
    return tl.where(i <= n - 1, i, n - 1)


@tilewright.jit
def remainder_of_hints(i, n):
    return tl.max_contiguous(tl.multiple_of(i % n, 16), 16)


HELD = [remainder, smaller, smaller_the_other_way, chosen, chosen_by_at_most, remainder_of_hints]


@tilewright.jit
def product(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i, j, p = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T), tl.arange(0, T)
    x, y = a + HOLD(i, m)[:, None] * k + p[None, :], b + p[:, None] * n + HOLD(j, n)[None, :]
    acc = tl.zeros((T, T), tl.float32)
    for q in range(0, k, T):
        inside = p < k - q
        left, right = tl.load(x, inside[None, :], 0.0), tl.load(y, inside[:, None], 0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        x += T
        y += T * n
    tl.store(c + i[:, None] * n + j[None, :], acc + 1.0, (i < m)[:, None] & (j < n)[None, :])


@tilewright.jit
def rows_and_their_sums(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i, j = tl.program_id(0) * T + tl.arange(0, T)[:, None], tl.arange(0, T)[None, :]
    x = tl.load(a + HOLD(i, m) * k + j)
    if n > 3:
        x = x * 2.0
    row = tl.sum(x, 1)
    tl.store(c + tl.ravel(i), row, tl.ravel(i) < m)


@tilewright.jit
def grouped_by_table(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    """What is loaded says where the next load is."""
    i = tl.program_id(0) * T + tl.arange(0, T)
    at = tl.load(a + HOLD(i, m)).to(tl.int32) & 7
    tl.store(c + i, tl.load(b + at), i < m)


READY = [product, rows_and_their_sums, grouped_by_table]


@tilewright.jit
def stored_without_mask(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(c + i, tl.load(a + HOLD(i, m)))


@tilewright.jit
def stored_with_a_wider_mask(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(c + i, tl.load(a + HOLD(i, m)), i < m + 1)


@tilewright.jit
def summed(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    x = tl.load(a + HOLD(i, m))
    tl.store(c + i, x + tl.sum(x), i < m)


@tilewright.jit
def along_the_summed_dim(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i, p = tl.arange(0, T), HOLD(tl.arange(0, T), k)
    acc = tl.dot(tl.load(a + i[:, None] * k + p[None, :]), tl.load(b + p[:, None] * T + i[None, :]))
    tl.store(c + i[:, None] * T + i[None, :], acc, (i < k)[:, None] & (i < k)[None, :])


@tilewright.jit
def turned_over(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(c + i, tl.flip(tl.load(a + HOLD(i, m))), i < m)


@tilewright.jit
def may_be_negative(a, b, c, m, n, k, HOLD: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T) - n
    tl.store(c + i + n, tl.load(a + m + HOLD(i, m)), i < m)


MUST_STAY = [stored_without_mask, stored_with_a_wider_mask, summed, along_the_summed_dim, turned_over]
_TYPES = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "m": "i32", "n": "i32", "k": "i32"}


def _name(value):
    return str(value) if isinstance(value, tuple) else value.fn.__name__


def _run(kernel, hold, m, n, k):
    """The result against that of the reference; what lies behind the tensors is NaN."""
    rng = np.random.default_rng(0)
    a, b, c = (np.full(9000, np.nan, np.float32) for _ in range(3))
    a[: 2 * m * k], b[: k * max(n, 16)] = rng.integers(-8, 8, 2 * m * k), rng.integers(-8, 8, k * max(n, 16))
    want, memory = c.copy(), Memory()
    addresses = [memory.register(array) for array in (a, b, want)]
    constants, grid = {"HOLD": hold, "T": BLOCK}, (-(-m // BLOCK), -(-n // BLOCK))
    Evaluator(built_ir(kernel, _TYPES, **constants), memory).launch(kernel.fn.__name__, grid, [*addresses, m, n, k])
    compiled = Compiled(tile_ir(kernel, _TYPES, **constants), passes=False)
    compiled(grid, a, b, c, m, n, k)
    assert np.array_equal(c, want, equal_nan=True)
    return from_records(compiled.program.decisions)


@pytest.mark.parametrize(
    ("kernel", "hold", "sizes"), in_pairs(READY, HELD, [(16, 16, 16), (37, 21, 40), (5, 3, 16)]), ids=_name
)
def test_rows_past_the_end_are_left_out(kernel, hold, sizes):
    m, n, k = sizes
    decisions = _run(kernel, hold, m, n, k)
    asked = [decision.taken for decision in decisions if decision.subject == WRAPPED.name]
    assert asked and all(asked)
    if kernel is product:
        assert all(d.taken for d in decisions if d.subject in (IN_PLACE.name, K_STRIPS.name))


@pytest.mark.parametrize("hold", HELD, ids=_name)
@pytest.mark.parametrize("kernel", MUST_STAY, ids=_name)
def test_rows_that_are_used_are_read(kernel, hold):
    decisions = _run(kernel, hold, 37, 21, 11)
    asked = [decision.taken for decision in decisions if decision.subject == WRAPPED.name]
    assert asked and not any(asked)


@pytest.mark.parametrize("hold", [remainder, smaller, chosen], ids=_name)
def test_a_negative_index_is_held_only_by_the_remainder(hold):
    decisions = _run(may_be_negative, hold, 30, 9, 4)
    asked = [decision.taken for decision in decisions if decision.subject == WRAPPED.name]
    assert asked == [hold is not remainder]


@tilewright.jit
def handed_on(x, out, n, iterations, BLOCK: tl.constexpr):
    """What an iteration reads the next one, which lies before it, stores under bounds of its own."""
    before = tl.zeros((BLOCK,), tl.float32)
    for iteration in range(iterations):
        j = (iterations - 1 - iteration) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + j, before, j < n)
        before = tl.load(x + tl.minimum(j, n - 1))


def test_rows_are_stored_by_a_later_iteration() -> None:
    x, n = np.arange(1, 65, dtype=np.float32), 20
    out = np.zeros(64, np.float32)
    handed_on[(1,)](x, out, n, 4, 16)
    np.testing.assert_array_equal(out[:n], x[np.minimum(np.arange(n) + 16, n - 1)])
    assert not out[n:].any()


@tilewright.jit
def chosen_beside(x, out, n, BLOCK: tl.constexpr):
    """Zero outside, whatever lies at the place that is held inside."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.where(i > 0, tl.load(x + tl.maximum(i - 1, 0), i < n, 0.0), 0.0)
    right = tl.where(i + 1 < n, tl.load(x + tl.minimum(i + 1, n - 1)), 0.0)
    weaker = tl.where(i > 1, tl.load(x + tl.maximum(i - 3, 0), i < n, 0.0), 7.0)  # 2 is held back and wanted
    tl.store(out + i, left + 2 * right + 4 * weaker, i < n)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 300])
def test_choices_leave_out_what_is_held(n: int) -> None:
    memory = np.full(n + 256, np.nan, np.float32)
    x, out = memory[128:-128], np.full(n + 64, np.nan, np.float32)
    x[:] = np.random.default_rng(0).integers(-8, 8, n)
    chosen_beside[(-(-n // 64),)](x, out[:n], n, 64)
    i = np.arange(n)
    left, right = np.where(i > 0, x[i - 1], 0), np.where(i + 1 < n, x[np.minimum(i + 1, n - 1)], 0)
    weaker = np.where(i > 1, x[np.maximum(i - 3, 0)], 7)
    np.testing.assert_array_equal(out[:n], left + 2 * right + 4 * weaker)
    assert np.isnan(out[n:]).all()


@tilewright.jit
def flat_columns(x, out, n, BLOCK: tl.constexpr):
    """Places of a row counted through all rows, and the column by a remainder, which masks and an address ask for."""
    i, end = tl.program_id(0) * n + tl.arange(0, BLOCK), (tl.program_id(0) + 1) * n
    column = i % n
    left = tl.load(x + i - 1, (column != 0) & (i < end), 0.0)
    right = tl.load(x + i + 1, (column != n - 1) & (i < end), 0.0)
    first = tl.load(x + column, i < end, 0.0)
    tl.store(out + i, left + 2 * right + 4 * first, i < end)


@tilewright.jit
def columns_of_more_rows(x, out, n, BLOCK: tl.constexpr):
    """More than a row is stored."""
    i = tl.program_id(0) * n + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i % n, i < 2 * n), i < 2 * n)


@tilewright.jit
def columns_from_before(x, out, n, BLOCK: tl.constexpr):
    """What is left of an index without the multiple may be negative."""
    i = (tl.program_id(0) + 1) * n + tl.arange(0, BLOCK) - 2
    tl.store(out + i, tl.load(x + i % n, i < 2 * n), i < 2 * n)


@pytest.mark.parametrize("n", [1, 3, 63, 64, 65, 200])
def test_remainders_of_multiples_and_an_index(n: int) -> None:
    x = np.random.default_rng(0).integers(-8, 8, (3, n)).astype(np.float32)
    out = np.full((3, n), np.nan, np.float32)
    flat_columns[(3,)](x, out, n, 256)
    wide = np.pad(x, ((0, 0), (1, 1)))
    np.testing.assert_array_equal(out, wide[:, :-2] + 2 * wide[:, 2:] + 4 * x[0])


@pytest.mark.parametrize("n", [2, 3, 63, 64, 65, 100])
def test_remainders_that_begin_anew(n: int) -> None:
    x = np.arange(1, n + 1, dtype=np.float32)
    for kernel, first in ((columns_of_more_rows, 0), (columns_from_before, n - 2)):
        out, i = np.full(2 * n, np.nan, np.float32), np.arange(first, 2 * n)
        kernel[(1,)](x, out, n, 256)
        np.testing.assert_array_equal(out[i], x[i % n])


def test_which_remainders_are_indices() -> None:
    taken = []
    for kernel in (flat_columns, columns_of_more_rows, columns_from_before):
        decisions = decisions_of(Spelling(kernel, "*fp32:16, *fp32:16, i32, 256", {}), "avx512")
        taken.append([decision.taken for decision in decisions if decision.subject == WRAPPED.name])
    assert taken == [[True], [False], [False]]
