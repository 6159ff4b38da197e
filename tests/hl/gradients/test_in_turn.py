"""Gradients by index on a CPU: programs own columns, and take one index after the other, where elements may meet."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from tilewright import hl

torch.manual_seed(0)


@hl.kernel
def embedding(table, tokens):
    out = table.new_empty([tokens.size(0), table.size(1)])
    for rows, columns in hl.tile([tokens.size(0), table.size(1)]):
        out[rows, columns] = table[tokens[rows], columns]
    return out


@hl.kernel
def bags(table, tokens, weights):
    """Sums of several rows of a table, each with a weight, which has a gradient, too."""
    out = table.new_empty([tokens.size(0), table.size(1)])
    for rows, columns in hl.tile([tokens.size(0), table.size(1)]):
        found = table[tokens[rows, :], columns]
        out[rows, columns] = (found * weights[rows, :][:, :, None]).sum(1)
    return out


@hl.kernel
def pairs(table, tokens):
    """One index for each of two axes of the grid."""
    out = table.new_empty([*tokens.size(), table.size(1)])
    for a, b, columns in hl.tile([tokens.size(0), tokens.size(1), table.size(1)]):
        out[a, b, columns] = torch.sin(table[tokens[a, b], columns])
    return out


@hl.kernel
def jagged(x, offsets):
    out = x.new_zeros([offsets.size(0) - 1, x.size(1)])
    for rows in hl.tile(offsets.size(0) - 1):
        starts = offsets[rows]
        lengths = offsets[rows.index + 1] - starts
        for columns in hl.tile(x.size(1)):
            total = hl.zeros([rows, columns])
            for tile in hl.jagged_tile(lengths):
                total = total + x[starts[:, None] + tile.index[None, :], columns].sum(1)
            out[rows, columns] = total
    return out


@hl.kernel
def jagged_halves(x, offsets):
    """Two places of a row of different length have one element."""
    out = x.new_zeros([offsets.size(0) - 1, x.size(1)])
    for rows in hl.tile(offsets.size(0) - 1):
        starts = offsets[rows]
        lengths = offsets[rows.index + 1] - starts
        for columns in hl.tile(x.size(1)):
            total = hl.zeros([rows, columns])
            for tile in hl.jagged_tile(lengths):
                total = total + x[starts[:, None] + tile.index[None, :] // 2, columns].sum(1)
            out[rows, columns] = total
    return out


@hl.kernel
def weighed(table, tokens, weight):
    """A gradient of another form beside the one by index."""
    out = table.new_empty([tokens.size(0), table.size(1)])
    for rows, columns in hl.tile([tokens.size(0), table.size(1)]):
        out[rows, columns] = table[tokens[rows], columns] * weight[columns][None, :]
    return out


@hl.kernel(config=hl.Config(block_sizes=[8, 64]))
def of_tiles(table, tokens):
    """One index for each tile of rows, and means of tiles: other tiles would compute something else."""
    out = table.new_empty([tokens.size(0), table.size(1)])
    for rows, columns in hl.tile([tokens.size(0), table.size(1)]):
        found = table[tokens[rows], columns]
        out[rows, columns] = found - found.mean(0)[None, :]
    return out


def minus_means(table, tokens):
    found = F.embedding(tokens, table)
    return torch.cat([part - part.mean(0) for part in found.split(8)])


OFFSETS = torch.tensor([0, 3, 3, 10, 11, 29, 40])


def by_rows(x, offsets, half=False):
    places = [torch.arange(int(b - a)) // (2 if half else 1) + a for a, b in pairwise(offsets)]
    return torch.stack([x[at].sum(0) for at in places])


def halves(x, offsets):
    return by_rows(x, offsets, half=True)


TOKENS = torch.randint(0, 9, (50,))  # most of them several times
MANY = torch.randint(0, 9, (21, 4))
CASES = {
    "embedding": (embedding, lambda t, i: F.embedding(i, t), (9, 150), (TOKENS,), {"table": "add"}),
    "few columns": (embedding, lambda t, i: F.embedding(i, t), (9, 8), (TOKENS,), {"table": "atomic"}),
    "pairs": (pairs, lambda t, i: torch.sin(F.embedding(i, t)), (9, 64), (MANY,), {"table": "add"}),
    "jagged": (jagged, by_rows, (40, 130), (OFFSETS,), {"x": "add"}),
    "tiles": (of_tiles, minus_means, (9, 64), (TOKENS[:48],), {"table": "atomic"}),
    "jagged halves": (jagged_halves, halves, (40, 130), (OFFSETS,), {"x": "atomic"}),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_by_index_have_owners(name):
    kernel, reference, shape, more, forms = CASES[name]
    x = torch.randn(shape, requires_grad=True)
    (plan,) = hl.grad(kernel).plan((x, *more))
    assert {owner.tensor: owner.form for owner in plan.owners} == forms
    expected = reference(x, *more)
    up = torch.randn(expected.shape)
    grads = [torch.autograd.grad(kernel(x, *more), x, up)[0] for _ in range(2)]
    torch.testing.assert_close(grads[0], torch.autograd.grad(expected, x, up)[0], rtol=1e-4, atol=1e-5)
    assert "atomic" in forms.values() or torch.equal(*grads)


def test_several_rows_of_one_program_may_be_the_same_one():
    table, weights = torch.randn(9, 64, requires_grad=True), torch.randn(21, 4, requires_grad=True)
    (plan,) = hl.grad(bags).plan((table, MANY, weights))
    assert {owner.tensor: owner.form for owner in plan.owners}["table"] == "atomic"
    expected = (F.embedding(MANY, table) * weights[:, :, None]).sum(1)
    up = torch.randn(expected.shape)
    for one, other in zip(
        torch.autograd.grad(bags(table, MANY, weights), (table, weights), up),
        torch.autograd.grad(expected, (table, weights), up),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_another_gradient_keeps_its_loop():
    table, weight = torch.randn(9, 100, requires_grad=True), torch.randn(100, requires_grad=True)
    (plan,) = hl.grad(weighed).plan((table, TOKENS, weight))
    assert {owner.tensor: owner.form for owner in plan.owners} == {"table": "add", "weight": "partial"}
    assert hl.grad(weighed).to_hl((table, TOKENS, weight)).count("for columns in") == 1
    expected = F.embedding(TOKENS, table) * weight
    up = torch.randn(expected.shape)
    for one, other in zip(
        torch.autograd.grad(weighed(table, TOKENS, weight), (table, weight), up),
        torch.autograd.grad(expected, (table, weight), up),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_rows_of_different_lengths_have_one_order_too():
    x = torch.randn(40, 64, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        (grad,) = torch.autograd.grad(jagged(x, OFFSETS).sum(), x)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(grad, torch.ones_like(x))
