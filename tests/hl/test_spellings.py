"""Programs with unusual spellings, under random configurations, against PyTorch."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch

from tilewright import hl


@dataclass
class Moments:
    """State in a dataclass, of different types."""

    total: torch.Tensor
    count: torch.Tensor


@hl.kernel
def tuple_state(x):
    low, high = x.new_empty([x.size(0)]), x.new_empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        state = (hl.full([rows], float("inf")), hl.full([rows], float("-inf")))
        for columns in hl.tile(x.size(1)):
            part = x[rows, columns]
            pair = zip((torch.minimum, torch.maximum), state, (part.amin(1), part.amax(1)), strict=True)
            state = tuple(join(old, new) for join, old, new in pair)
        low[rows], high[rows] = state
    return low, high


@hl.kernel
def nested_while(x):
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        value, steps = x[i], 0
        while value > 1:
            inner = value
            while inner > 3:
                inner = inner - 2
                steps += 1
            value = torch.where(inner < value, inner, value - 1)
            steps += 1
        out[i] = value + steps
    return out


def nested_while_reference(x):
    out = []
    for value in x.tolist():
        steps = 0
        while value > 1:
            inner = value
            while inner > 3:
                inner, steps = inner - 2, steps + 1
            value, steps = (inner if inner < value else value - 1), steps + 1
        out.append(value + steps)
    return torch.tensor(out)


@hl.kernel
def several_subscripts(table, first, second):
    out = table.new_empty([first.size(0), second.size(0)])
    for rows, columns in hl.tile(out.shape):
        a, b = first[rows], second[columns]
        out[rows, columns] = table[a[:, None], b[None, :]] + table[a, b] + table[b, a].t()
    return out


@hl.kernel
def crossed(table, first, second):
    out = table.new_empty([first.size(0), table.size(1)])
    for rows in hl.tile(first.size(0)):
        out[rows, :] = table[first[rows][:, None], hl.arange(table.size(1))[None, :], second[rows][:, None]]
    return out


@hl.kernel
def changed_view(x):
    view = x.t()
    for rows, columns in hl.tile(x.shape):
        view[columns, rows] = view[columns, rows] * 2 + 1
    return x


@hl.kernel
def mixed_types(a, b, c):
    out = torch.empty(a.shape, dtype=torch.float64)
    for rows in hl.tile(a.size(0)):
        out[rows, :] = (a[rows, :] + b[rows, :]) * c[rows, None] + (a[rows, :] > 0) - b[rows, :].to(torch.int8) // 3
    return out


@hl.kernel
def three_levels(x):
    out = x.new_empty([x.size(0)])
    for outer in hl.tile(x.size(0)):
        total = hl.zeros([outer])
        for middle in hl.tile(x.size(1)):
            best = hl.full([outer, middle], float("-inf"))
            for inner in hl.tile(x.size(2)):
                best = torch.maximum(best, x[outer, middle, inner].amax(-1))
            total += best.sum(1)
        out[outer] = total
    return out


@hl.kernel
def over_several(x):
    sums, means, spread = (x.new_empty([x.size(1)]) for _ in range(3))
    for columns in hl.tile(x.size(1)):
        part = x[:, columns, :, :]
        sums[columns] = part.sum((0, 2, 3))
        means[columns] = part.mean(dim=[0, -1, -2])
        spread[columns] = part.var((0, 3, 2), correction=0) + part.amax((0, 2, 3))
    return sums, means, spread


@hl.kernel
def strided(x):
    out = torch.empty(x.shape)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = x[rows, columns] - x[rows, 0][:, None] + x[-1, columns]
    return out


@hl.kernel
def in_a_dataclass(x):
    out = x.new_empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        state = Moments(hl.zeros([rows]), hl.zeros([rows], dtype=torch.int32))
        for columns in hl.tile(x.size(1)):
            part = x[rows, columns]
            state.total += part.sum(-1)
            state.count += (part > 0).sum(-1, dtype=torch.int32)
        out[rows] = state.total / (state.count + 1)
    return out


@hl.kernel
def moved(x):
    out = torch.zeros_like(x)
    for tile in hl.tile(1, x.size(0) - 1):
        out[tile] = (x[tile.index - 1] + x[tile] + x[tile + 1]) / 3
    return out


@hl.kernel
def keyed(x, y):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        parts = {"x": x[rows, :], "y": [y[rows, :], y[rows, :] * 2]}
        parts["x"] = parts["x"] + parts["y"][1]
        parts["y"][0].sub_(parts["x"].mean(-1, keepdim=True))
        first, *rest = parts["y"]
        out[rows, :] = first * parts["x"] - rest[-1]
    return out


@hl.kernel
def triangle(x):
    out = x.new_empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(0, rows.end):
            below = rows.index[:, None] >= columns.index[None, :]
            total = total + torch.where(below, x[rows, columns], 0).sum(1)
        out[rows] = total
    return out


@hl.kernel
def by_bits(x):
    out = torch.empty(x.shape, dtype=torch.int32)
    for tile in hl.tile(x.size(0)):
        value = x[tile].to(torch.int32)
        out[tile] = ((value << 3) ^ (value >> 2) & ~value | 5) % 7 - value // -3
    return out


@hl.kernel
def two_results(x):
    best, at = x.new_empty([x.size(0)]), torch.empty(x.size(0), dtype=torch.int64)
    for rows in hl.tile(x.size(0)):
        top = hl.full([rows], float("-inf"))
        place = hl.zeros([rows], dtype=torch.int64)
        for columns in hl.tile(x.size(1)):
            value, index = x[rows, columns].max(1)
            place = torch.where(value > top, index + columns.begin, place)
            top = torch.maximum(value, top)
        best[rows], at[rows] = top, place
    return best, at


@hl.kernel
def with_epilogues(x, functions):
    out = torch.empty_like(x)
    for rows, columns in hl.tile([*x.shape]):
        value = x[rows, columns]
        for function in functions:
            value = function(value) if value.dtype == torch.float32 else function(value.float())
        out[rows, columns] = value
    return out


@hl.kernel
def generated_names(first, v0, pid, tl, offset_rows: int, total: float, mask_rows):
    """Parameters that are called as the variables of generated code are."""
    out = torch.empty_like(first)
    for rows, columns in hl.tile(first.shape):
        lane_32 = first[rows, columns] * total + offset_rows
        out[rows, columns] = lane_32 + v0[rows, columns] * pid[columns]
    for rows in hl.tile(first.size(0)):
        tl_1 = torch.softmax(out[rows, :], -1)
        out[rows, :] = tl_1 + tl[rows, :] + mask_rows[rows, :].sum(-1, keepdim=True)
    return out


def _named(first, v0, pid, tl, offset_rows, total, mask_rows):
    return torch.softmax(first * total + offset_rows + v0 * pid, -1) + tl + mask_rows.sum(-1, keepdim=True)


def _ragged(x):
    return torch.stack([x[i, : i + 1].sum() for i in range(len(x))])


def _mixed(a, b, c):
    return ((a + b) * c[:, None] + (a > 0) - b.to(torch.int8) // 3).double()


def _bits(x):
    value = x.to(torch.int32)
    return ((value << 3) ^ (value >> 2) & ~value | 5) % 7 - value // -3


def _keyed(x, y):
    new = x + 2 * y
    return (y - new.mean(-1, keepdim=True)) * new - 2 * y


def _smooth(x):
    out = torch.zeros_like(x)
    out[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3
    return out


def _several(x):
    dims = (0, 2, 3)
    return x.sum(dims), x.mean(dims), x.var(dims, correction=0) + x.amax(dims)


def real(*shape):
    return torch.randn(shape)


CASES = {
    "tuple_state": (tuple_state, lambda x: (x.amin(1), x.amax(1)), lambda: (real(9, 37),)),
    "nested_while": (nested_while, nested_while_reference, lambda: (torch.rand(11) * 12,)),
    "several_subscripts": (
        several_subscripts,
        lambda t, a, b: t[a[:, None], b[None, :]] * 2 + t[b[None, :], a[:, None]],
        lambda: (real(13, 13), torch.randint(0, 13, (7,)), torch.randint(0, 13, (10,))),
    ),
    "crossed": (
        crossed,
        lambda t, a, b: t[a, :, b],
        lambda: (real(5, 12, 6), torch.randint(0, 5, (9,)), torch.randint(0, 6, (9,))),
    ),
    "changed_view": (changed_view, lambda x: x * 2 + 1, lambda: (real(9, 14),)),
    "mixed_types": (
        mixed_types,
        _mixed,
        lambda: (real(7, 10).bfloat16(), real(7, 10).half() * 5, torch.randint(-3, 3, (7,))),
    ),
    "three_levels": (three_levels, lambda x: x.amax(2).sum(1), lambda: (real(6, 11, 19),)),
    "over_several": (over_several, _several, lambda: (real(3, 9, 4, 5),)),
    "strided": (strided, lambda x: x - x[:, :1] + x[-1], lambda: (real(40, 30)[::3, 1::2],)),
    "turned": (strided, lambda x: x - x[:, :1] + x[-1], lambda: (real(12, 9).t(),)),
    "nothing": (strided, lambda x: x + 0.0, lambda: (real(0, 9),)),
    "in_a_dataclass": (
        in_a_dataclass,
        lambda x: x.sum(1) / ((x > 0).sum(1) + 1),
        lambda: (real(9, 33),),
    ),
    "moved": (moved, _smooth, lambda: (real(37),)),
    "keyed": (keyed, _keyed, lambda: (real(9, 21), real(9, 21))),
    "triangle": (triangle, _ragged, lambda: (real(23, 23),)),
    "by_bits": (by_bits, _bits, lambda: (torch.randint(-100, 100, (50,), dtype=torch.int16),)),
    "two_results": (two_results, lambda x: tuple(x.max(1)), lambda: (real(9, 41),)),
    "with_epilogues": (
        with_epilogues,
        lambda x, f: torch.tanh(x.relu() + 1) * 2,
        lambda: (real(9, 17), [torch.relu, lambda v: v + 1, torch.tanh, lambda v: v.mul(2)]),
    ),
    "generated_names": (
        generated_names,
        _named,
        lambda: (real(9, 30), real(9, 30), real(30), real(9, 30), 3, 2.5, real(9, 30)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_random_configurations_agree_with_pytorch(name, count=2):
    kernel, reference, arguments = CASES[name]
    torch.manual_seed(0)
    args, rng = arguments(), random.Random(name)
    expected = reference(*args)
    bound = kernel.bind(args)
    for config in [None, *(bound.config_spec.random(rng) for _ in range(count))]:
        mine = [arg.clone() if name == "changed_view" else arg for arg in args]
        found = bound.compile_config(config)(*mine)
        torch.testing.assert_close(
            found, expected, atol=1e-4, rtol=1e-4, msg=lambda text, at=config: f"{at}: {text}", check_stride=False
        )


@hl.kernel(static_shapes=False)
def added(x, y):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = x[rows, columns] + y[rows, columns]
    return out


def test_dimensions_of_one_broadcast_where_sizes_are_no_constants():
    x = real(5, 7)
    for y in (real(5, 7), real(1, 7), real(5, 1), real(1, 1), real(5, 9)[:, ::9], real(5, 7)):
        torch.testing.assert_close(added(x, y), x + y)
    one = real(1, 6)
    torch.testing.assert_close(added(one, one.t().t()), one * 2)


@hl.kernel(static_shapes=False)
def copied(x):
    out = torch.empty(x.shape)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def test_rows_with_gaps_where_strides_are_no_constants():
    for x in (real(10), real(20)[::2], real(20, 1)[:, 0], real(20, 3)[:, 1]):
        torch.testing.assert_close(copied(x), x * 2)


@hl.kernel
def middles(x):
    out = x.new_empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            out[rows] = x[rows, columns].median(-1).values
    return out


def test_sorting_along_a_tile_wants_a_power_of_two():
    x = real(5, 18)
    bound = middles.bind((x,))
    torch.testing.assert_close(bound.compile_config(hl.Config(block_sizes=[4, 32]))(x), x.median(-1).values)
    with pytest.raises(hl.exc.UnsupportedOperation, match="block size that is a power of two"):
        bound.to_code(hl.Config(block_sizes=[4, 18]))


@hl.kernel
def named_as_builtins(x, min, max, range, len):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = (x[tile] * range).clamp(0, len) + min[tile] + max[tile]
    return out


@pytest.mark.parametrize("order", ["flat", "persistent_blocked", "persistent_interleaved"])
def test_parameters_with_the_names_of_builtins(order: str) -> None:
    x, low, high = torch.randn(3, 100)
    kernel = hl.kernel(config=hl.Config(block_sizes=[16], pid_type=order))(named_as_builtins.fn)
    torch.testing.assert_close(kernel(x, low, high, 2.0, 1.5), (x * 2).clamp(0, 1.5) + low + high)
