"""Running maxima and recurrences: sums where a proof says so, else gradients from the last pass to the first."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients.compare import check
from tests.hl.gradients.texts import kernel_of, online
from tilewright import hl

X = torch.randn(11, 150, generator=torch.Generator().manual_seed(0))
FEW = X[:5, :40].contiguous()  # three passes of 16

INVARIANT = {
    "a logarithm": (online("largest + torch.log(total)"), lambda x: x.logsumexp(1)),
    "a mean": (online("acc / total"), lambda x: (x.softmax(1) * x).sum(1)),
    "both": (
        online("acc / total - (largest + torch.log(total))"),
        lambda x: (x.softmax(1) * x).sum(1) - x.logsumexp(1),
    ),
    "a function of a quotient": (online("torch.tanh(acc / total)"), lambda x: torch.tanh((x.softmax(1) * x).sum(1))),
    "powers of two": (
        online(
            "largest * 2.0 + torch.log2(total)",
            "total = total * torch.exp2((largest - new) * 2.0) + torch.exp2(v * 2.0 - new[:, None] * 2.0).sum(1)",
        ),
        lambda x: torch.log2(torch.exp2(2 * x).sum(1)),
    ),
    "a finite first value": (online("largest + torch.log(total)", start="-3.0"), lambda x: x.logsumexp(1)),
    "a sum beside it": (
        online("acc + largest + torch.log(total)", acc="acc = acc + v.sum(1)"),
        lambda x: x.sum(1) + x.logsumexp(1),
    ),
    "squares of weights": (
        online("acc / (total * total)", acc="acc = acc * shrink * shrink + (weights * weights).sum(1)"),
        lambda x: (x.softmax(1) ** 2).sum(1),
    ),
    "a maximum that nothing reads": (online("acc", acc="acc = acc + v.sum(1)"), lambda x: x.sum(1)),
}
DEPENDENT = {
    "the maximum": online("largest"),
    "its product": online("largest * total"),
    "its double": online("2.0 * largest + torch.log(total)"),
    "a function of it": online("torch.tanh(largest) + torch.log(total)"),
    "a sum that is relative to it": online("total"),
    "one too many": online("acc / (total * total)"),
    "not rescaled": online("largest + torch.log(total)", "total = total + weights.sum(1)"),
    "rescaled by another base": online(
        "largest + torch.log(total)", "total = total * torch.exp2(largest - new) + weights.sum(1)"
    ),
    "rescaled backwards": online(
        "largest + torch.log(total)", "total = total * torch.exp(new - largest) + weights.sum(1)", start="-3.0"
    ),
    "rescaled twice": online("largest + torch.log(total)", "total = total * shrink * shrink + weights.sum(1)"),
    "relative to the one before": online(
        "largest + torch.log(total)", "total = total * shrink + torch.exp(v - largest[:, None]).sum(1)", start="-3.0"
    ),
    "a first sum that is not 0": online("largest + torch.log(total)", first="1.0", start="-3.0"),
    "stored by a branch": online("torch.where(largest > 0, total, acc)"),
}


@pytest.mark.parametrize("name", INVARIANT)
def test_what_does_not_depend_on_a_maximum_has_a_gradient(name):
    kernel, reference = INVARIANT[name]
    check(kernel, reference, X)


def tiled(kernel):
    """A kernel as plain Python with its tiles, for autograd."""
    return lambda *args: kernel.bind(args).run_ref(*args, mode=hl.RefMode.TILED, gradients=True)


def passes(kernel, args):
    """The derived kernels as text."""
    return hl.grad(kernel).to_hl(args)


@pytest.mark.parametrize("name", DEPENDENT)
def test_what_depends_on_a_maximum_goes_back_pass_by_pass(name):
    kernel = hl.kernel(DEPENDENT[name].fn, config=hl.Config(block_sizes=[8, 16]))
    check(kernel, tiled(kernel), FEW)
    assert "reversed(hl.tile(" in passes(kernel, (FEW,))


@pytest.mark.parametrize("name", INVARIANT)
def test_what_is_proved_not_to_keeps_nothing(name):
    assert "reversed" not in passes(INVARIANT[name][0], (X,))


RECURRENCE = """
import torch
from tilewright import hl


@hl.kernel
def recurrence(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype)
    for rows in hl.tile(m):
        s = hl.zeros([rows], dtype=torch.float32)
        t = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(n):
            v = x[rows, columns].sum(1)
            {body}
        out[rows] = s
    return out
"""
BODIES = {
    "a function of the sum": "s = torch.tanh(s + v)",
    "a decay": "s = 0.9 * s + v",
    "the last pass": "s = v",
    "a product": "s = s * v",
    "two that change places": "s, t = t + v, s",
    "one through another": "t = t + v; s = s + t",
}


@pytest.mark.parametrize("name", BODIES)
def test_recurrences_go_back_from_the_last_pass_to_the_first(name):
    kernel = hl.kernel(kernel_of(RECURRENCE.format(body=BODIES[name])).fn, config=hl.Config(block_sizes=[8, 16]))
    check(kernel, tiled(kernel), FEW)
    assert "in reversed(hl.tile(40" in passes(kernel, (FEW,))


@hl.kernel
def from_the_end(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        state = hl.zeros([rows], dtype=x.dtype)
        for column in reversed(hl.grid(x.size(1))):
            state = torch.tanh(0.5 * state * x[rows, column].cos() + x[rows, column])
            out[rows, column] = state
    return out


def test_recurrences_from_the_last_pass_go_back_from_the_first():
    def reference(x):
        state, made = torch.zeros_like(x[:, 0]), []
        for column in reversed(range(x.size(1))):
            state = torch.tanh(0.5 * state * x[:, column].cos() + x[:, column])
            made.append(state)
        return torch.stack(made[::-1], 1)

    check(from_the_end, reference, torch.randn(7, 5, dtype=torch.float64))


@pytest.mark.parametrize("body", [BODIES["a decay"], BODIES["a function of the sum"], "s = s + v * v"])
def test_the_tiles_are_those_of_the_configuration_where_results_depend_on_them(body):
    kernel = kernel_of(RECURRENCE.format(body=body))
    for size in (16, 32):
        kernel.bind((FEW,)).set_config(hl.Config(block_sizes=[8, size]))
        check(kernel, tiled(kernel), FEW)


@hl.kernel
def by_tile(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = torch.minimum(x[rows], u[rows.begin + 1])
    return out


def test_a_number_of_each_tile_is_that_of_the_same_tiles():
    args = X[0, :11].contiguous(), X[1, :12].contiguous()
    by_tile.bind(args).set_config(hl.Config(block_sizes=[2]))
    check(by_tile, tiled(by_tile), *args)


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def longest(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        state = hl.zeros([rows])
        for columns in hl.jagged_tile(lengths[rows]):
            state = torch.tanh(state + x[rows, columns].sum(-1))
        out[rows] = state
    return out


def test_histories_of_which_only_data_say_how_long_they_are_are_refused():
    with pytest.raises(hl.exc.HistoryNeeded, match="state") as caught:
        longest(FEW.clone().requires_grad_(), torch.randint(0, 40, (5,)))
    assert caught.value.location is not None


def test_sums_of_sums_have_gradients():
    kernel = kernel_of(RECURRENCE.format(body="s = s + v * v; t = t + v"))
    blocks = kernel.bind((X,)).default_config().block_sizes[-1]
    parts = [slice(at, at + blocks) for at in range(0, 150, blocks)]
    check(kernel, lambda x: sum(x[:, part].sum(1) ** 2 for part in parts), X)


@hl.kernel(static_shapes=False)
def beside_numbers_of_the_launch(x, k):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        v = torch.sin(x[rows, :])
        if k in (0, 3) or rows.begin > 100:
            v = v * 0.5
        out[rows] = torch.tanh(v).amin(-1) * k
    return out


@pytest.mark.parametrize("k", [1, 3])
def test_what_is_computed_beside_an_extreme_may_be_a_number_of_the_launch(k):
    x, up = torch.randn(5, 7, generator=torch.Generator().manual_seed(1)), torch.arange(1.0, 6.0)
    mine, theirs = (x.clone().requires_grad_() for _ in range(2))
    (found,) = torch.autograd.grad(beside_numbers_of_the_launch(mine, k), mine, up)
    expected = torch.tanh(torch.sin(theirs) * (0.5 if k == 3 else 1.0)).amin(-1) * k
    (wanted,) = torch.autograd.grad(expected, theirs, up)
    torch.testing.assert_close(found, wanted)
