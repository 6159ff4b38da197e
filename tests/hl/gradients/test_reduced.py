"""Accumulators of a block size that the program registers, of which the last tile is cut: reduced in each pass."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.hl.gradients.compare import check
from tests.hl.gradients.texts import kernel_of
from tilewright import hl

X, Y = torch.randn(2, 9, 100, generator=torch.Generator().manual_seed(0))
BLOCKS = (64, 16, 100, 128)


def summed(x, y):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc = hl.zeros([rows, block])
        for columns in hl.tile(x.size(1), block_size=block):
            acc += torch.sin(x[rows, columns]) * y[rows, columns]
            acc = acc + y[rows, columns] ** 2
        out[rows] = torch.tanh(acc.sum(-1) * 0.1)
    return out


def weighted(x, y):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc = x.new_zeros([rows, block])
        for columns in hl.tile(x.size(1), block_size=block):
            acc = acc + x[rows, columns] * y[0, columns]
        out[rows] = acc.sum(1, keepdim=True).sum(1) * acc.mean(1) * block
    return out


def running(x, y):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc, seen = hl.zeros([rows, block]), hl.zeros([rows])
        for columns in hl.tile(x.size(1), block_size=block):
            seen = seen + acc.sum(-1) ** 2
            acc = acc + x[rows, columns]
            acc += y[rows, columns]
            seen = seen + acc.sum(-1)
        out[rows] = seen * acc.sum(-1)
    return out


def run(x, y, block):
    total, seen = 0, 0
    for first in range(0, x.size(1), block):
        seen = seen + total**2
        total = total + (x + y)[:, first : first + block].sum(1)
        seen = seen + total
    return seen * total


def divergence(x, y):
    loss = torch.zeros([x.size(0)])
    n, m = hl.register_block_size(x.size(1)), hl.register_block_size(x.size(0))
    for rows in hl.tile(x.size(0), block_size=m):
        total = hl.zeros([rows, n])
        for columns in hl.tile(x.size(1), block_size=n):
            part = hl.zeros([m, n])
            p, q = x[rows, columns], y[rows, columns]
            part += torch.exp(q) * (q - p)
            total += part
        loss[rows] = total.sum(dim=-1)
    return loss.sum() / x.size(0)


def largest(x, y):
    out = torch.empty([x.size(0)], dtype=x.dtype)
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        most, least = hl.full([rows, block], float("-inf")), hl.full([rows, block], 9.0)
        place = hl.zeros([rows, block], dtype=torch.int32)
        for columns in hl.tile(x.size(1), block_size=block):
            values = x[rows, columns]
            place = torch.where(values > most, columns.index[None, :], place)
            most = torch.where(values > most, values, most)
            least = torch.minimum(least, y[rows, columns])
        out[rows] = torch.tanh(most.amax(-1)) * least.amin(-1) + (place < 0).sum(-1)
    return out


def by_rows(x, y):
    out = torch.empty_like(x)
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(x.size(1), block_size=block):
            total = total * 0.5 + (x[rows, columns] * y[rows, columns]).sum(-1)
        for columns in hl.tile(x.size(1), block_size=block):
            out[rows, columns] = x[rows, columns] * torch.tanh(total)[:, None]
    return out


def decayed(x, y, block):
    total = 0
    for first in range(0, x.size(1), block):
        total = total * 0.5 + (x * y)[:, first : first + block].sum(1)
    return x * torch.tanh(total)[:, None]


KERNELS = {
    "sums of two tiles": (summed, lambda x, y: torch.tanh((x.sin() * y + y * y).sum(1) * 0.1)),
    "a weight": (weighted, lambda x, y: (x * y[0]).sum(1) ** 2),
    "a divergence": (divergence, lambda x, y: F.kl_div(x, y, log_target=True, reduction="batchmean")),
    "maxima and minima": (largest, lambda x, y: torch.tanh(x.amax(1)) * y.amin(1)),
}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", KERNELS)
def test_accumulators_have_the_gradients_of_what_they_are_reduced_to(name, block):
    function, reference = KERNELS[name]
    sizes = {"a divergence": [block, 4]}.get(name, [block, 4])
    check(hl.kernel(function, config=hl.Config(block_sizes=sizes)), reference, X, Y)


@pytest.mark.parametrize("block", BLOCKS)
def test_loops_over_tiles_of_a_registered_size(block):
    kernel = hl.kernel(by_rows, config=hl.Config(block_sizes=[block, 4]))
    check(kernel, lambda x, y: decayed(x, y, block), X, Y)


@pytest.mark.parametrize("block", BLOCKS)
def test_sums_of_lanes_in_a_pass(block):
    check(hl.kernel(running, config=hl.Config(block_sizes=[block, 4])), lambda x, y: run(x, y, block), X, Y)


def test_sums_of_16_bits_are_not_rounded_in_each_pass():
    x = torch.full([4, 3000], 0.5, dtype=torch.bfloat16)
    kernel = hl.kernel(summed, config=hl.Config(block_sizes=[64, 4]))
    check(kernel, lambda x, y: torch.tanh((x.sin() * y + y * y).sum(1) * 0.1).to(x.dtype), x, torch.zeros(4, 3000))


def _kernel(start="hl.zeros([rows, block])", step="acc = acc + x[rows, columns]", result="acc.sum(-1)"):
    return kernel_of(f"""
import torch
from tilewright import hl


@hl.kernel
def kernel(x):
    out = torch.empty([x.size(0)])
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc = {start}
        for columns in hl.tile(x.size(1), block_size=block):
            {step}
        out[rows] = {result}
    return out
""")


REFUSED = {
    "another first value": {"start": "hl.full([rows, block], 1.0)"},
    "read by lanes": {"result": "torch.tanh(acc).sum(-1)"},
    "lanes that are kept": {"result": "(acc * acc).sum(-1)"},
    "lanes of a tile in a pass": {"step": "acc = acc + x[rows, columns] + (acc + x[rows, columns]).sum(-1)[:, None]"},
    "another reduction in a pass": {"step": "acc = acc + x[rows, columns] * acc.amax(-1)[:, None]"},
    "another reduction": {"result": "acc.amax(-1)"},
    "two ways": {"step": "acc = torch.maximum(acc + x[rows, columns], x[rows, columns])"},
    "a product": {"step": "acc = acc * x[rows, columns]"},
    "one that broadcasts": {"step": "acc = acc + x[rows, columns].sum(-1, keepdim=True) + 0 * x[rows, columns]"},
    "not the last sum": {"step": "acc, _ = acc + x[rows, columns], acc + x[rows, columns].exp()"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_right_or_refused(name):
    kernel = _kernel(**REFUSED[name])
    with pytest.raises(hl.exc.NotDifferentiable, match="a block size that the program registers"):
        kernel(X.clone().requires_grad_()).sum().backward()
