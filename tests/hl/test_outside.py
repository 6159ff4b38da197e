"""What kernels read besides their arguments, and arguments that are containers and functions."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch

from tilewright import hl
from tilewright.hl import exc

close = torch.testing.assert_close
TABLE = torch.randn(20)
OFFSET = torch.tensor(1.5)
SCALE = 2.5


@hl.kernel(config=hl.Config(block_sizes=[8]))
def with_globals(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * SCALE + TABLE[tile] + OFFSET
    return out


@hl.kernel(config=hl.Config(block_sizes=[8]))
def applied(x, function):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = function(x[tile], tile)
    return out


def test_globals_are_what_they_are_now(monkeypatch):
    x = torch.randn(20)
    close(with_globals(x), x * SCALE + TABLE + 1.5)
    TABLE.add_(1)
    OFFSET.add_(1)
    close(with_globals(x), x * SCALE + TABLE + 2.5)
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    monkeypatch.setitem(globals(), "TABLE", torch.randn(40))
    close(with_globals(x), x * 4.0 + TABLE[:20] + 2.5)


def test_functions_of_one_text_differ_in_what_they_hold():
    """Defaults, functions of a library in closures, and a place that held the same function as another one."""

    @hl.kernel(config=hl.Config(block_sizes=[8]))
    def in_turn(x, functions):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            value = x[tile]
            for function in functions:
                value = function(value)
            out[tile] = value
        return out

    def calling(function):
        return lambda value: function(value)

    def times(factor):
        return lambda value: value * factor

    x, double, triple = torch.randn(20), times(2.0), times(3.0)
    for function in (torch.relu, torch.abs, torch.neg):
        close(in_turn(x, [lambda value, f=function: f(value)]), function(x))
        close(in_turn(x, [lambda value, *, f=function: f(value)]), function(x))
        close(in_turn(x, [calling(function)]), function(x))
        close(applied(x, lambda value, tile, f=function: f(value)), function(x))
    close(in_turn(x, [double, double]), x * 4)
    close(in_turn(x, [double, triple]), x * 6)
    close(in_turn(x, [triple, triple]), x * 9)


def test_closures_of_functions_that_are_arguments():
    def times(factor, row):
        return lambda value, tile: value * factor + row[tile]

    x, first, second = torch.randn(20), torch.randn(20), torch.randn(20, dtype=torch.float64)
    close(applied(x, times(2.0, first)), x * 2 + first)
    close(applied(x, times(3.0, first)), x * 3 + first)
    bound = applied.bind((x, times(3.0, first)))
    assert applied.bind((x, times(3.0, torch.randn(20)))) is bound  # the tensor is an argument, its form is in the key
    close(applied(x, times(3.0, x)), x * 4)
    close(applied(x, times(3.0, second)), (x * 3 + second).float())


class Layer:
    def __init__(self):
        self.weight = torch.randn(20)

    def forward(self, value, tile):
        return value + self.weight[tile]


def test_methods_and_graph_modules():
    x, layer = torch.randn(20), Layer()
    close(applied(x, layer.forward), x + layer.weight)
    layer.weight = torch.randn(20)
    close(applied(x, layer.forward), x + layer.weight)
    close(applied(x, torch.fx.symbolic_trace(lambda value, tile: torch.relu(value) + 1)), x.relu() + 1)


@dataclasses.dataclass
class Options:
    weight: torch.Tensor
    scale: float


class Pair(NamedTuple):
    weight: torch.Tensor
    count: int


@hl.kernel(config=hl.Config(block_sizes=[8]))
def with_containers(options, pair, listed):
    out = torch.empty_like(options.weight)
    for tile in hl.tile(out.size(0)):
        total = options.weight[tile] * options.scale + pair.weight[tile] * pair.count
        for item in listed["parts"]:
            total = total + item[tile] * listed["factor"]
        out[tile] = total
    return out


@pytest.mark.parametrize("static", [True, False])
def test_tensors_in_containers(static):
    kernel = hl.kernel(with_containers.fn, config=hl.Config(block_sizes=[8]), static_shapes=static)
    x = torch.ones(20)
    close(kernel(Options(x, 2.0), Pair(x, 3), {"parts": [x, x], "factor": 5}), x * 15)
    close(kernel(Options(x, 3.0), Pair(x, 4), {"parts": [x], "factor": 6}), x * 13)


def test_numbers_that_happen_to_be_samples():
    @hl.kernel(config=hl.Config(block_sizes=[8]))
    def kernel(x, both):
        out, width = x.new_empty([x.size(0)]), both + 1
        padded = x.new_zeros([x.size(0), width])
        for tile in hl.tile(x.size(0)):
            out[tile] = torch.cat([x[tile, :], x[tile, :5]], 1).sum(1)
            padded[tile, :] = torch.cat([x[tile, :], x[tile, :5]], 1)
        return out, padded

    for width in (6, 8, 12):
        x = torch.randn(20, width)
        out, padded = kernel(x, hl.constexpr(width + 4))
        close(padded, torch.cat([x, x[:, :5]], 1))
        close(out, padded.sum(1))


def test_continue_skips_the_rest_of_a_pass():
    @hl.kernel
    def kernel(x, which):
        out = torch.zeros_like(x)
        for row in hl.grid(x.size(0)):
            if which[row] == 0:
                continue
            total = hl.zeros([])
            for at in range(4):
                if at == 1:
                    continue
                if which[row] == 2:
                    total = total - at
                    continue
                total = total + at
            if which[row] == 3:
                out[row] = -1
                continue
            else:
                total = total * 2
            out[row] = x[row] + total
        return out

    x, which = torch.randn(8), torch.tensor([0, 1, 2, 3, 1, 2, 0, 1])
    choices = torch.stack([torch.zeros(8), x + 10, x - 10, torch.full([8], -1.0)])
    close(kernel(x, which), choices.gather(0, which[None])[0])


def test_means_of_rows_of_different_lengths():
    @hl.kernel(config=hl.Config(block_sizes=[4, 32]))
    def kernel(x, offsets):
        count = offsets.size(0) - 1
        mean, spread = x.new_empty([count]), x.new_empty([count])
        for tile in hl.tile(count):
            starts = offsets[tile]
            lengths = offsets[tile.index + 1] - starts
            for places in hl.jagged_tile(lengths):
                part = x[starts[:, None] + places.index[None, :]]
                mean[tile] = part.mean(1)
                spread[tile] = part.var(1)
        return mean, spread

    offsets = torch.tensor([0, 3, 5, 9, 11, 31])
    x = torch.randn(31)
    mean, spread = kernel(x, offsets)
    parts = [x[a:b] for a, b in pairwise(offsets)]
    close(mean, torch.stack([part.mean() for part in parts]))
    close(spread, torch.stack([part.var() for part in parts]))


def test_stores_to_extents_of_one():
    @hl.kernel(config=hl.Config(block_sizes=[8, 4]))
    def kernel(x, y):
        out, total = torch.zeros_like(x), torch.zeros_like(x)
        for rows, columns in hl.tile(x.size()):
            out[rows, columns] = x[rows, columns] + y[rows, columns]
            hl.atomic_add(total, [rows, columns], x[rows, columns])
        return out, total

    for width in (1, 6):
        x, y = torch.randn(20, width), torch.randn(20, 1)
        out, total = kernel(x, y)
        close(out, x + y)
        close(total, x)


def test_a_whole_dimension_subscripted_by_a_tile():
    @hl.kernel(config=hl.Config(block_sizes=[8, 4]))
    def kernel(x):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            whole = torch.softmax(x[rows, :], 1)
            for columns in hl.tile(x.size(1)):
                out[rows, columns] = whole[:, columns] * 2
        return out

    x = torch.randn(20, 18)
    close(kernel(x), x.softmax(1) * 2)


def test_kernels_do_not_call_kernels():
    @hl.kernel
    def outer(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = applied(x[tile], torch.relu)
        return out

    with pytest.raises(exc.NestedKernelCallsNotSupported, match="applied"):
        outer(torch.randn(5))


def test_kernels_inside_of_functions_read_variables_around_them():
    table, factor, parts = torch.randn(20), 2.0, {"more": [torch.randn(20)]}

    @hl.kernel(config=hl.Config(block_sizes=[8]))
    def kernel(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * factor + table[tile] + parts["more"][0][tile]
        return out

    x = torch.randn(20)
    close(kernel(x), x * 2 + table + parts["more"][0])
    factor, table = 3.0, torch.randn(20)
    parts["more"] = [torch.randn(20)]
    close(kernel(x), x * 3 + table + parts["more"][0])
