"""Numbers beside tiles: as options of operations, out of the range of a tile's type, of sizes, under autocast."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.hl.strangers import agree, close
from tilewright import hl

OPTIONS = {
    "clamp": lambda x, n: x.clamp(0, n - 1),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "threshold": lambda x, n: F.threshold(x, n, n + 1),
    "hardshrink": F.hardshrink,
    "huber": lambda x, n: F.huber_loss(x, x * 0, reduction="none", delta=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "full_like": lambda x, n: torch.full_like(x, n) + x,
    "nan_to_num": lambda x, n: torch.nan_to_num(x / (x * 0), n),
    "branch of a function": lambda x, n: x if n > 2 else -x,
    "min of Python": lambda x, n: x * min(n, 3),
    "power": lambda x, n: x * 2**n,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_integers_are_options(name):
    option = OPTIONS[name]

    def k(x, n):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = option(x[t], n)
        return out

    agree(k, option, (torch.randn(40), 2), (torch.randn(40), 3))


@pytest.mark.parametrize("name", ["clamp", "alpha", "full_like", "threshold", "min of Python"])
def test_open_sizes_are_options(name):
    option = OPTIONS[name]

    def k(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = option(x[t], y.size(0))
        return out

    kernel = hl.kernel(k, static_shapes=False)
    for n in (17, 5):
        x = 10 * torch.randn(33)
        close(kernel(x, torch.empty(n)), option(x, n))


OPERATIONS = {
    "eq": lambda x, n: x == n,
    "lt": lambda x, n: x < n,
    "add": lambda x, n: x + n,
    "mul": lambda x, n: x * n,
    "xor": lambda x, n: x ^ n,
    "where": lambda x, n: torch.where(x > 2, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 2, n),
    "clamp": lambda x, n: x.clamp(min=n),
    "full_like": torch.full_like,
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "in place": lambda x, n: x.clone().add_(n),
}


@pytest.mark.parametrize("number", [-1, 200, -200, 70000, 2**33, 1.5])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool])
def test_numbers_that_a_type_does_not_hold(dtype, number):
    given = torch.randint(0, 100, (16,)).to(dtype)
    cases = {}
    for name, operation in OPERATIONS.items():
        try:
            cases[name] = operation, operation(given, number)
        except (RuntimeError, NotImplementedError):  # nor does PyTorch's own type
            continue

    def k(x, operation, made):
        out = torch.empty([x.size(0)], dtype=made)
        for t in hl.tile(x.size(0)):
            out[t] = operation(x[t], number)
        return out

    assert cases
    for operation, expected in cases.values():
        close(hl.kernel(k)(given, operation, expected.dtype), expected)


def test_the_sum_of_booleans_is_one_of_them():

    def k(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            a, b = x[t] > 0, y[t] > 0
            out[t] = torch.where((a + b) ^ (a + True) ^ True, x[t], y[t])
        return out

    def e(x, y):
        return torch.where((x > 0) + (y > 0), x, y)

    agree(k, e, (torch.randn(50), torch.randn(50)))


def test_powers_of_unsigned_tiles_and_poles_of_zeta():

    def k(x, y):
        out, zeta = torch.empty_like(x), torch.empty(x.shape, dtype=torch.float32)
        for t in hl.tile(x.size(0)):
            out[t] = torch.pow(x[t], y[t]) + torch.pow(2, x[t])
            zeta[t] = torch.special.zeta(2.5, y[t].float())
        return out, zeta

    def e(x, y):
        return torch.pow(x, y) + torch.pow(2, x), torch.special.zeta(2.5, y.float())

    numbers = [torch.randint(0, 5, (20,), dtype=torch.uint8) for _ in range(2)]
    agree(k, e, tuple(numbers))


@pytest.mark.parametrize("wants", [False, True])
def test_kernels_mean_the_same_under_autocast(wants):

    @hl.kernel
    def k(a, b):
        out = torch.empty([a.size(0), b.size(1)], dtype=a.dtype)
        for i, j in hl.tile(out.size()):
            acc = hl.zeros([i, j])
            for t in hl.tile(a.size(1)):
                acc = torch.addmm(acc, a[i, t], b[t, j])
            out[i, j] = acc
        return out

    a, b = (torch.randn(16, 16, requires_grad=wants) for _ in "ab")
    with torch.autocast("cpu", torch.bfloat16):
        out = k(a, b)
    close(out, a @ b, atol=1e-4, rtol=1e-4)
    if wants:
        close(torch.autograd.grad(out.sum(), (a, b)), torch.autograd.grad((a @ b).sum(), (a, b)), atol=1e-4, rtol=1e-4)
