"""Rows rounded up: `hl.next_power_of_2(n)` as the extent of a tile beside a row of n elements."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tilewright import hl


def plus_ones(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = hl.full([t, hl.next_power_of_2(x.size(1))], 1.0) + x[t, :]
    return out


def sums(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t, n])
        acc = acc + x[t, :]
        out[t] = acc.sum(-1)
    return out


def softmax(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        v = x[t, hl.arange(n)]
        mask = hl.arange(n)[None, :] < x.size(1)
        v = torch.where(mask, v, float("-inf"))
        e = torch.exp(v - v.amax(-1, keepdim=True))
        out[t, :] = e / e.sum(-1, keepdim=True)
    return out


def positions(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        i = hl.arange(n)
        out[t, :] = x[t, :] * i[None, :]
    return out


def columns(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.zeros([x.size(1)])
    for t in hl.tile(1):
        acc = hl.zeros([n])
        for r in hl.tile(x.size(0)):
            acc += x[r, :].sum(0)
        out[:] = acc
    return out


def rms(x, w):
    out = torch.empty_like(x)
    d = hl.next_power_of_2(x.size(1))
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t, d], dtype=torch.float32)
        acc += x[t, :] * x[t, :]
        inv = torch.rsqrt(acc.sum(-1) / x.size(1) + 1e-5)
        out[t, :] = x[t, :] * inv[:, None] * w[:][None, :]
    return out


def state(k, v):
    dk = hl.next_power_of_2(k.size(1))
    dv = hl.next_power_of_2(v.size(1))
    out = torch.empty([k.size(1), v.size(1)])
    for one in hl.grid(1):
        acc = hl.zeros([dk, dv])
        for t in hl.tile(k.size(0)):
            acc = torch.addmm(acc, k[t, :].T, v[t, :])
        out[:, :] = acc
    return out


def attention(q, k, v):
    d = hl.next_power_of_2(q.size(1))
    out = torch.empty_like(q)
    for rows in hl.tile(q.size(0)):
        most = hl.full([rows], float("-inf"))
        total = hl.zeros([rows])
        acc = hl.zeros([rows, d])
        for columns in hl.tile(k.size(0)):
            scores = q[rows, :] @ k[columns, :].T
            larger = torch.maximum(most, scores.amax(-1))
            weights = torch.exp(scores - larger[:, None])
            scale = torch.exp(most - larger)
            total = total * scale + weights.sum(-1)
            acc = acc * scale[:, None] + weights @ v[columns, :]
            most = larger
        out[rows, :] = acc / total[:, None]
    return out


def scan(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        v = hl.zeros([t, hl.next_power_of_2(x.size(1))]) + x[t, :]
        out[t, :] = torch.cumsum(v, -1)
    return out


def maxima(x):
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        most = hl.full([t, hl.next_power_of_2(x.size(1))], float("-inf"))
        out[t] = torch.maximum(most, x[t, :]).amax(-1)
    return out


def where_zero(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        zero = hl.zeros([t, hl.next_power_of_2(x.size(1))])
        out[t, :] = torch.where(x[t, :] > 0, x[t, :], zero)
    return out


def two_rows(x, y):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a = hl.zeros([t, hl.next_power_of_2(x.size(1))]) + x[t, :]
        b = hl.zeros([t, hl.next_power_of_2(y.size(1))]) + y[t, :]
        out[t, :] = a * b.sum(1, keepdim=True)
    return out


def assigned_in_loop(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t, n])
        for i in range(2):
            acc = x[t, :]
        out[t] = acc.sum(-1)
    return out


def grid_loop(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t, n])
        for i in hl.grid(3):
            acc = acc + x[t, :]
        out[t, :] = acc
    return out


def branch(x):
    out = torch.empty_like(x)
    for t in hl.grid(x.size(0)):
        acc = hl.zeros([hl.next_power_of_2(x.size(1))])
        if x[t, :].sum() > 0:
            acc = x[t, :]
        out[t, :] = acc
    return out


def host_padded(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.zeros([x.size(0), n])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t, hl.next_power_of_2(x.size(1))])
        acc = acc + x[t, :]
        out[t, hl.arange(x.size(1))] = acc
    return out


def as_number(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = (torch.zeros([t, n]) + x[t, :]) / n
    return out


def contracted(x, w):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty([x.size(0), w.size(1)])
    for t, c in hl.tile([x.size(0), w.size(1)]):
        a = x[t, hl.arange(n)]
        out[t, c] = a @ w[:, c]
    return out


def sorts(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        i = hl.arange(n)
        v = torch.where(i[None, :] < x.size(1), x[t, i], float("inf"))
        out[t, :] = v.sort(1).values
    return out


def mean(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        v = hl.zeros([t, n]) + x[t, :]
        out[t, :] = v - v.mean(-1, keepdim=True)
    return out


def mixed_kinds(x):
    n = hl.next_power_of_2(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        v = hl.load(x, [t, hl.arange(0, n)], extra_mask=(hl.arange(n) < x.size(1))[None, :])
        out[t, :] = v.view(t, n)
    return out


def two_dims(x):
    a, b = hl.next_power_of_2(x.size(1)), hl.next_power_of_2(x.size(2))
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        v = hl.zeros([t, a, b])
        v = v + x[t, :, :]
        out[t] = v.sum((1, 2))
    return out


ROWS = [(10, 100)], [(3, 7)], [(5, 64)]
KERNELS = [  # kernel, shapes of arguments, what PyTorch computes, block sizes, whether it has a gradient
    (plus_ones, ROWS, lambda x: x + 1, [4], True),
    (sums, ROWS, lambda x: x.sum(1), [4], True),
    (softmax, ROWS, lambda x: x.softmax(1), [4], True),
    (positions, ROWS, lambda x: x * torch.arange(x.size(1)), [4], True),
    (columns, ([(40, 20)], [(3, 7)]), lambda x: x.sum(0), [1, 16], True),
    (
        rms,
        ([(10, 33), (33,)], [(3, 7), (7,)]),
        lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, 1e-5),
        [4],
        True,
    ),
    (state, ([(40, 20), (40, 12)], [(9, 7), (9, 5)]), lambda a, b: a.T @ b, [16], True),
    (
        attention,
        ([(40, 20), (30, 20), (30, 20)], [(9, 7), (8, 7), (8, 7)]),
        lambda q, k, v: torch.softmax(q @ k.T, -1) @ v,
        [16, 8],
        True,
    ),
    (scan, ROWS, lambda x: x.cumsum(1), [4], True),
    (maxima, ROWS, lambda x: x.amax(1), [4], True),
    (where_zero, ROWS, lambda x: x.relu(), [4], True),
    (two_rows, ([(10, 100), (10, 50)], [(3, 7), (3, 3)]), lambda x, y: x * y.sum(1, keepdim=True), [4], True),
    (assigned_in_loop, ROWS, lambda x: x.sum(1), [4], True),
    (grid_loop, ROWS, lambda x: x * 3, [4], True),
    (branch, ROWS, lambda x: torch.where(x.sum(1, keepdim=True) > 0, x, 0), None, False),
    (host_padded, ROWS[:1], lambda x: F.pad(x, (0, 28)), [4], False),
    (as_number, ROWS[:1], lambda x: x / 128, [4], False),
    (contracted, ([(10, 20), (20, 30)], [(3, 7), (7, 9)]), lambda x, w: x @ w, [4, 16], True),
    (sorts, ROWS, lambda x: x.sort(1).values, [4], False),
    (mean, ROWS, lambda x: x - x.mean(1, keepdim=True), [4], True),
    (mixed_kinds, ROWS, lambda x: x, [4], False),
    (two_dims, ([(4, 10, 20)], [(3, 5, 7)]), lambda x: x.sum((1, 2)), None, True),
]


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("function", "shapes", "eager", "blocks", "gradient"), KERNELS, ids=[one[0].__name__ for one in KERNELS]
)
def test_rows_rounded_up(function, shapes, eager, blocks, gradient, static):
    torch.manual_seed(0)
    for config in (None, *([hl.Config(block_sizes=blocks)] if blocks else [])):
        kernel = hl.kernel(function, config=config, static_shapes=static)
        for given in shapes:
            args = [torch.randn(shape) for shape in given]
            expected = eager(*args)
            torch.testing.assert_close(kernel(*args), expected, atol=1e-4, rtol=1e-4)
            for mode in (hl.RefMode.EAGER, hl.RefMode.TILED):
                found = kernel.bind(args).run_ref(*args, mode=mode)
                torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
            if gradient:
                ours, theirs = ([arg.clone().requires_grad_() for arg in args] for _ in range(2))
                grad = torch.randn_like(expected)
                kernel(*ours).backward(grad)
                eager(*theirs).backward(grad)
                for one, other in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(one.grad, other.grad, atol=1e-3, rtol=1e-3)


def test_one_binding_for_all_sizes():
    kernel = hl.kernel(sums, static_shapes=False)
    bound = {id(kernel.bind((torch.randn(10, n),))) for n in (30, 64, 100)}
    assert len(bound) == 1


def test_a_power_that_meets_no_row_has_all_its_elements():
    @hl.kernel
    def kernel(x):
        out = torch.empty([x.size(0)])
        for t in hl.tile(x.size(0)):
            ones = hl.full([t, hl.next_power_of_2(x.size(1))], 1.0)
            out[t] = ones.sum(-1) + x[t, :].sum(-1)
        return out

    torch.testing.assert_close(kernel(torch.zeros(3, 100)), torch.full([3], 128.0))
