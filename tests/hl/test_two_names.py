"""Two names of one tensor: a change in place is seen by both, through loops and branches, as in PyTorch."""

import linecache
import random
from types import SimpleNamespace

import pytest
import torch

from tilewright import hl


@hl.kernel
def summed(x):
    first, second = torch.empty([x.size(0)], dtype=x.dtype), torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        a = b = hl.zeros([rows], dtype=x.dtype)
        for columns in hl.tile(x.size(1)):
            a += x[rows, columns].sum(1)
            b += x[rows, columns].square().sum(1)
        first[rows], second[rows] = a, b
    return first, second


@hl.kernel
def one_changed(x):
    first, second = torch.empty([x.size(0)]), torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a = hl.zeros([rows])
        b = a
        for column in hl.grid(x.size(1)):
            a.add_(x[rows, column])
        first[rows], second[rows] = a, b
    return first, second


@hl.kernel
def rebound(x):
    first, second = torch.empty([x.size(0)]), torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a = b = hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            a, b = b + x[rows, column], a * 2
        first[rows], second[rows] = a, b
    return first, second


@hl.kernel
def branched(x):
    first, second = torch.empty([x.size(0)]), torch.empty([x.size(0)])
    for row in hl.grid(x.size(0)):
        a = b = x[row, 0] * 1
        if x[row, 1] > 0:
            a += 5
        a += 1
        first[row], second[row] = a, b
    return first, second


@pytest.mark.parametrize("kernel", [summed, one_changed, rebound, branched], ids=lambda kernel: kernel.fn.__name__)
def test_as_in_pytorch(kernel):
    x = torch.randn(9, 5)
    expected = hl.kernel(kernel.fn, ref_mode=hl.RefMode.EAGER)(x)
    for one, other in zip(kernel(x), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_is_that_of_what_is_computed():
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    y = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(sum(part.sin().sum() for part in summed(x)), x)
    total = y.sum(1) + y.square().sum(1)
    (expected,) = torch.autograd.grad(2 * total.sin().sum(), y)
    torch.testing.assert_close(grad, expected)


@hl.kernel
def parted(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a = b = hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            a += x[rows, column]
            b = b * 2
        out[rows] = a + b
    return out


@hl.kernel
def met(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        a, b = hl.zeros([rows]), hl.zeros([rows])
        for column in hl.grid(x.size(1)):
            a += x[rows, column]
            b = a
        out[rows] = a + b
    return out


@pytest.mark.parametrize("kernel", [parted, met], ids=lambda kernel: kernel.fn.__name__)
def test_one_in_some_passes_only_is_refused(kernel):
    with pytest.raises(
        hl.exc.ControlFlowTensorMismatch, match="one tensor in some passes .* changed in place"
    ) as caught:
        kernel(torch.randn(9, 5))
    assert "+=" in caught.value.location.source_line() and ".clone()" in caught.value.hint


def random_statement(rng, depth, in_loop):
    """Lines that change, rebind, swap or copy one of three names, or loop or branch over such lines."""
    one, other = rng.sample("abc", 2)
    term = rng.choice(["x[t, 0]", "x[t, 1]", other, f"({other} * 0.5)", *(["x[t, i]"] if in_loop else [])])
    plain = [f"{one} += {term}", f"{one} = {other}", f"{one} = {one} + {term}", f"{one}.mul_(0.5)",
             f"{one}, {other} = {other}, {one}", f"{one} = {other}.clone()"]  # fmt: skip
    kind = rng.choice([*plain, "for", "if"] if depth < 2 else plain)
    if kind in plain:
        return [kind]
    inside = [f"    {line}" for _ in range(2) for line in random_statement(rng, depth + 1, in_loop or kind == "for")]
    if kind == "for":
        return [f"for i in hl.grid({rng.choice((2, 3))}):", *inside]
    return ["if x[t, 2] > 0:", *inside, "else:", *(f"    {line}" for line in random_statement(rng, depth + 1, in_loop))]


def random_function(seed, scope):
    """A function of the text that a seed makes."""
    rng = random.Random(seed)
    first = rng.choice(["a = b = c = x[t, 3] * 1", "a = x[t, 3] * 1; b = a; c = x[t, 0] * 2"])
    lines = [first, *(line for _ in range(4) for line in random_statement(rng, 0, False))]
    lines += [f"out[{at}, t] = {name}" for at, name in enumerate("abc")]
    body = "".join(f"        {line}\n" for line in lines)
    head = "def mixed(x):\n    out = torch.empty([3, x.size(0)])\n    for t in hl.grid(x.size(0)):\n"
    text = f"{head}{body}    return out\n"
    name = f"<two names {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names = {"torch": torch, **scope}
    exec(compile(text, name, "exec"), names)
    return names["mixed"]


def test_random_programs_compute_what_python_does_or_are_refused():
    refused = 0
    for seed in range(24):
        torch.manual_seed(seed)
        x = torch.randn(5, 4)
        expected = random_function(seed, {"hl": SimpleNamespace(grid=range)})(x)
        try:
            found = hl.kernel(random_function(seed, {"hl": hl}))(x)
        except hl.exc.ControlFlowTensorMismatch as error:
            refused += "changed in place" in str(error)
            continue
        torch.testing.assert_close(found, expected, msg=f"seed {seed}")
    assert 0 < refused < 16
