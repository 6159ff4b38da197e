"""Masks in many spellings: what they become, and that they still say the same."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import tile_ir
from tilewright.backends.cpu.plan.subjects import UNMASKED
from tilewright.base.decision import from_records
from tilewright.ops.elementwise import CmpIOp, SelectOp, XOrIOp

N = 64


@tilewright.jit
def less(i, n):
    return i < n


@tilewright.jit
def not_at_least(i, n):
    return ~(i >= n)


@tilewright.jit
def not_not(i, n):
    return ~(~(n > i))


@tilewright.jit
def neither(i, n):
    return ~((i >= n) | (i < 0))


@tilewright.jit
def chosen(i, n):
    return tl.where(i < n, True, False)


@tilewright.jit
def chosen_the_other_way(i, n):
    return tl.where(i >= n, False, True)


@tilewright.jit
def chosen_or_nothing(i, n):
    return tl.where(i < n, i >= 0, False)


@tilewright.jit
def multiplied(i, n):
    return (i < n) * (i >= 0)


@tilewright.jit
def as_number(i, n):
    return (i < n).to(tl.int32) != 0


@tilewright.jit
def not_equal_to_false(i, n):
    return (i < n) != False  # noqa: E712


@tilewright.jit
def equal_to_false(i, n):
    return (i >= n) == False  # noqa: E712


@tilewright.jit
def at_most(i, n):
    return i <= n - 1


@tilewright.jit
def room_left(i, n):
    return n - i > 0


@tilewright.jit
def doubled(i, n):
    return 2 * i + 1 < 2 * n


@tilewright.jit
def tripled(i, n):
    return i * 3 < n * 3


@tilewright.jit
def unsigned(i, n):
    return i.to(tl.uint32) < n.to(tl.uint32)


@tilewright.jit
def wide(i, n):
    return i.to(tl.int64) < n


@tilewright.jit
def both_ends(i, n):
    return (i > -1) & (0 <= i) & (n > i)


@tilewright.jit
def python_words(i, n):
    return (i >= 0) and (i < n)


SPELLINGS = [
    less, not_at_least, not_not, neither, chosen, chosen_the_other_way, chosen_or_nothing, multiplied, as_number,
    not_equal_to_false, equal_to_false, at_most, room_left, doubled, tripled, unsigned, wide, both_ends, python_words,
]  # fmt: skip


@tilewright.jit
def copy(x, y, n, MASK: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    inside = MASK(i, n)
    tl.store(y + i, tl.load(x + i, inside, -1.0), inside)


@tilewright.jit
def copy_with_a_late_view(x, y, n, MASK: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)[:, None] * 2 + tl.arange(0, 2)[None, :]
    outside = ~MASK(tl.program_id(0) * N + tl.arange(0, N), n)
    tl.store(y + i, tl.load(x + i, ~outside[:, None], -1.0), ~outside[:, None])


def _ir(kernel, mask):
    return tile_ir(kernel, {"x": "*fp32", "y": "*fp32", "n": "i32"}, MASK=mask, N=N)


@pytest.mark.parametrize("mask", SPELLINGS, ids=lambda mask: mask.fn.__name__)
@pytest.mark.parametrize("kernel", [copy, copy_with_a_late_view], ids=["plain", "view"])
def test_masks_are_conjunctions_of_comparisons(kernel, mask):
    ops = [type(op) for op in _ir(kernel, mask).walk()]
    assert CmpIOp in ops and SelectOp not in ops and XOrIOp not in ops


@pytest.mark.parametrize("mask", SPELLINGS, ids=lambda mask: mask.fn.__name__)
def test_masks_are_tested_once_for_many_elements_on_the_cpu(mask):
    decisions = from_records(Compiled(_ir(copy, mask), passes=False).program.decisions)
    asked = [decision for decision in decisions if decision.subject == UNMASKED.name]
    assert asked and all(decision.taken for decision in asked), asked


@pytest.mark.parametrize("mask", SPELLINGS, ids=lambda mask: mask.fn.__name__)
@pytest.mark.parametrize("n", [0, 1, N - 1, N, 2 * N + 5])
def test_masks_say_the_same(mask, n):
    x, y = np.arange(1, 3 * N + 1, dtype=np.float32), np.zeros(3 * N, np.float32)
    Compiled(_ir(copy, mask), passes=False)((3,), x, y, n)
    assert np.array_equal(y, np.where(np.arange(3 * N) < n, x, 0))


@tilewright.jit
def no_bound(i, n):
    return ~((i < n) & (i > 3))


@tilewright.jit
def one_element(i, n):
    return ~(i == n)


@tilewright.jit
def may_be_negative(i, n):
    return i - 7 >= 0


@pytest.mark.parametrize(
    ("mask", "keep"),
    [
        (no_bound, lambda i, n: (i >= n) | (i <= 3)),
        (one_element, lambda i, n: i != n),
        (may_be_negative, lambda i, n: i >= 7),
    ],
)
def test_other_masks_are_left_as_they_are(mask, keep):
    i, x, y = np.arange(3 * N), np.arange(1, 3 * N + 1, dtype=np.float32), np.zeros(3 * N, np.float32)
    Compiled(_ir(copy, mask), passes=False)((3,), x, y, 100)
    assert np.array_equal(y, np.where(keep(i, 100), x, 0))


@tilewright.jit
def signs_that_are_asked_for(x, y, n, N: tl.constexpr):
    d = n.to(tl.int64)
    if d >= 0:
        tl.store(y, 1.0 + (7 // d).to(tl.float32))
    else:
        tl.store(y, -1.0 + (7 // d).to(tl.float32))


@pytest.mark.parametrize("n", [-7, 7])
def test_a_divisor_may_be_asked_for_its_sign(n):
    """That divisors are positive is assumed of addresses and masks, not of what a program tests."""
    x, y = np.zeros(1, np.float32), np.zeros(1, np.float32)
    module = tile_ir(signs_that_are_asked_for, {"x": "*fp32", "y": "*fp32", "n": "i32"}, N=N)
    Compiled(module, passes=False)((1,), x, y, n)
    assert y[0] == (2.0 if n > 0 else -2.0)
