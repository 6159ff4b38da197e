"""Backward passes with other tiles than the forward pass, where results depend on what those are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import check, leaves, tiles_by_default
from tests.hl.gradients.texts import kernel_of
from tilewright import hl
from tilewright.hl.grad.calls import backward_of
from tilewright.hl.grad.lanes import ALONG
from tilewright.hl.rows import (
    creation,
    files,
    functions,
    gather,
    inline,
    pairs,
    pointwise,
    products,
    random,
    reductions,
    shapes,
)

GENERATOR = torch.Generator().manual_seed(0)
X, W = torch.randn(70, generator=GENERATOR), torch.randn(70, generator=GENERATOR)


# --- numbers of tiles ----------------------------------------------------------------------------------------------


def up_to_its_end(x, w):
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t])
        for u in hl.tile(t.end):
            total = total + (torch.sin(x[t])[:, None] * torch.sin(w[u])[None, :]).sum(1)
        out[t] = total
    return out


def from_its_begin(x, w):
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t])
        for u in hl.tile(t.begin, min(t.end + 9, x.size(0))):
            total = total + (x[t][:, None] * torch.sin(w[u])[None, :]).sum(1)
        out[t] = total * t.id
    return out


def that_begins_late(x, w):
    out = torch.zeros_like(x)
    for t in hl.tile(5, x.size(0)):
        out[t] = x[t] * w[t] * t.begin + t.id * x[t] * x[t] + t.block_size * torch.sin(x[t])
    return out


def one_for_all_lanes(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * w[t.begin] * w[t.id]
    return out


def by_branches(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        values = x[t]
        if t.id % 2 == 1:
            values = values * w[t]
        out[t] = torch.where(t.index > t.begin + 3, values * values, values)
    return out


def of_two(x, w):
    out = torch.empty([x.size(0), w.size(0)])
    for t, s in hl.tile([x.size(0), w.size(0)]):
        total = hl.zeros([t, s])
        for u in hl.tile(min(t.end, s.end)):
            total = total + (x[t][:, None, None] * w[s][None, :, None] * torch.sin(w[u])[None, None, :]).sum(2)
        out[t, s] = total * (t.id - s.id)
    return out


def of_loops_in_loops(x, w):
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t])
        for u in hl.tile(t.begin // 8 + 2):
            for v in hl.tile(t.end):
                total = total + (x[t][:, None, None] * w[u][None, :, None] * w[v][None, None, :]).sum((1, 2))
        out[t] = total
    return out


def beside_a_history(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        state = hl.zeros([t])
        for i in hl.grid(6):
            state = torch.tanh(state * 0.5 + x[t] * w[i]) + t.begin * 0.01
        out[t] = state
    return out


NUMBERS = [
    up_to_its_end,
    from_its_begin,
    that_begins_late,
    one_for_all_lanes,
    by_branches,
    of_two,
    beside_a_history,
]


# --- what is of a tile as a whole ------------------------------------------------------------------------------------


def places(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * x[t] * hl.arange(t.block_size)
    return out


def places_behind_the_first(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        index = t.begin + hl.arange(t.block_size)
        out[t] = x[t] * hl.load(w, [index], extra_mask=index < x.size(0))
    return out


def running_sums(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.cumsum(x[t] * x[t], 0)
    return out


def scans(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = hl.associative_scan(lambda a, b: a + b, x[t] * w[t], 0)
    return out


def in_order(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.sort(x[t] * w[t])[0]
    return out


def triangles(x, w):
    out = torch.empty([x.size(0), w.size(0)])
    for t, s in hl.tile([x.size(0), w.size(0)]):
        out[t, s] = torch.triu(x[t][:, None] * w[s][None, :] * x[t][:, None])
    return out


def softmax_of_a_tile(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.softmax(x[t], 0) * w[t]
    return out


def reduced_by_a_function(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * hl.reduce(lambda a, b: a + b, x[t] * w[t], 0)
    return out


def all_pairs_of_a_tile(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = (torch.exp(-(x[t][:, None] - x[t][None, :]).abs()) * w[t][None, :]).sum(1)
    return out


def once_a_tile(x, w):
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0)):
        out[t.id] = w[t.id] * w[t.id]
    return out


def a_term_of_each_pass(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t])
        for u in hl.tile(w.size(0)):
            total = total + ((x[t][:, None] * w[u][None, :]).sum(1) + torch.sin(x[t]))
        out[t] = total
    return out


def a_term_of_some_passes(x, w):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t])
        for u in hl.tile(w.size(0)):
            if x.size(0) > 3:
                total = total + torch.sin(x[t])
            total = torch.where(x[t] > 0, total + x[t], total)
        out[t] = total
    return out


def a_term_of_each_program(x, w):
    out = torch.zeros([1])
    for t in hl.tile(x.size(0)):
        hl.atomic_add(out, [0], (x[t] * w[t]).sum() + torch.sin(w[1]))
    return out


TOGETHER = [
    places,
    places_behind_the_first,
    running_sums,
    scans,
    in_order,
    triangles,
    softmax_of_a_tile,
    reduced_by_a_function,
    all_pairs_of_a_tile,
    once_a_tile,
    a_term_of_each_pass,
    a_term_of_some_passes,
    a_term_of_each_program,
]


def configured(function: Callable[..., Any], size: int, args: tuple[Any, ...], **settings: Any) -> tuple[Any, Any]:
    """A kernel with tiles of `size`, as a search chooses them, and its reference, which has the same."""
    kernel = hl.kernel(function, autotune_effort="none", **settings)
    bound = kernel.bind(args)
    spec = bound.config_spec.default_config().config
    bound.set_config(hl.Config(**{**spec, "block_sizes": [size, *(4 for _ in spec["block_sizes"][1:])]}))
    return kernel, lambda *given: bound.run_ref(*given, mode=hl.RefMode.TILED, gradients=True)


@pytest.mark.parametrize(("forward", "backward"), [(8, 2), (32, 4), (32, 64)])
@pytest.mark.parametrize("function", [*NUMBERS, of_loops_in_loops, *TOGETHER])
def test_tiles_of_another_size(function, forward, backward):
    with tiles_by_default(backward):
        check(*configured(function, forward, (X, W)), X, W)


@pytest.mark.parametrize("function", [*NUMBERS, *TOGETHER])
def test_which_tiles_are_free(function):
    kernel, _ = configured(function, 32, (X, W))
    text = hl.grad(kernel).to_hl((X, W))
    free = function in NUMBERS and function is not beside_a_history
    assert ("Dividing(32)" in text or "t.begin // 32" in text) is free


@pytest.mark.parametrize("backward", [4, 16])
@pytest.mark.parametrize("function", [up_to_its_end, from_its_begin, that_begins_late])
def test_open_sizes(function, backward):
    with tiles_by_default(backward):
        kernel, reference = configured(function, 32, (X, W), static_shapes=False)
        check(kernel, reference, X, W)
        more = [torch.cat([one, one[:30]]) for one in (X, W)]
        check(kernel, configured(function, 32, tuple(more))[1], *more)


def test_a_gradient_of_a_gradient():
    kernel, reference = configured(up_to_its_end, 32, (X, W))

    def twice(run):
        def first(x, w):
            return torch.autograd.grad(run(x, w).sin().sum(), (x, w), create_graph=True)

        return first

    with tiles_by_default(8):
        check(twice(kernel), twice(reference), X, W, tolerance=1e-3)


@hl.kernel(config=hl.Config(block_sizes=[2, 4]))
def by_lanes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for m, n in hl.tile(x.size()):
        out[m, n] = torch.tanh(x[m, n]) * w[n]
    return out


@hl.kernel(config=hl.Config(block_sizes=[8, 8, 4]))
def multiplied(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), w.size(1)])
    for m, n in hl.tile(out.size()):
        total = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            total = torch.addmm(total, torch.tanh(x[m, k]), w[k, n])
        out[m, n] = total
    return out


def test_tiles_that_the_user_gave():
    """They are those of the forward pass, and of a backward pass that multiplies no matrices."""
    kernel = hl.kernel(up_to_its_end, config=hl.Config(block_sizes=[32, 8]))
    assert "Dividing" not in hl.grad(kernel).to_hl((X, W))
    check(kernel, lambda *given: kernel.bind(given).run_ref(*given, mode=hl.RefMode.TILED, gradients=True), X, W)
    x, w, square = torch.randn(40, 30), torch.randn(30), torch.randn(30, 20)
    for kernel, args, theirs, given in (
        (by_lanes, (x, w), lambda x, w: torch.tanh(x) * w, True),
        (multiplied, (x, square), lambda x, w: torch.tanh(x) @ w, False),
    ):
        kernels = [backward.kernel for _, backward in backward_of(kernel, args)]
        assert [bool(kernel.configs) for kernel in kernels if kernel is not None] == [given] * len(kernels)
        check(kernel, theirs, *args)


def test_sizes_that_divide_another():
    kernel, reference = configured(up_to_its_end, 32, (X, W))
    made = kernel_of(hl.grad(kernel).to_hl((X, W)))
    ups = {"x": X, "w": W, "grad_out": torch.ones(70)}
    args = tuple(ups[name] for name in made.signature.parameters)
    bound = made.bind(args)
    spec = bound.default_config().config
    sizes = spec["block_sizes"]
    with pytest.raises(hl.exc.InvalidConfig, match="lie in tiles of 32"):
        bound.compile_config(hl.Config(**{**spec, "block_sizes": [64, *sizes[1:]]}))
    x, w = leaves((X, W))
    expected = torch.autograd.grad(reference(x, w).sum(), (x, w))
    for size in (1, 16, 32):
        found = bound.compile_config(hl.Config(**{**spec, "block_sizes": [size, *sizes[1:]]}))(*args)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_every_operation_is_lane_by_lane_or_named():
    lanewise = (
        pointwise.Pointwise,
        pointwise.Where,
        creation.Compare,
        creation.Convert,
        creation.Fill,
        creation.Symbol,
        shapes.Expand,
        shapes.Permute,
        shapes.Sole,
        shapes.Unsqueeze,
        shapes.View,
        pairs.Halves,
        pairs.JoinPair,
        pairs.SplitPair,
        random.Draw,
        random.DrawBelow,
        reductions.Masked,
        reductions.Accumulate,
        inline.Assembly,  # these have no gradient
        inline.Call,
        inline.Print,
    )
    gone = (products.Dot, products.ScaledDot, functions.ReduceFunction, reductions.Reduction)
    gone += (reductions.Extreme, reductions.Matches)
    others = {name for name, row in files.ROWS.items() if not isinstance(row, (*lanewise, *gone))}
    assert others - ALONG.keys() == {"lanes"}
    assert isinstance(files.ROWS["sort_lanes"], gather.SortLanes)
