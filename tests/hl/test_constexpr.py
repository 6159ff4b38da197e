"""`hl.constexpr`: the value itself in a kernel and its references, a mark that behaves as its value outside."""

from __future__ import annotations

import copy
import math
import operator
import pickle

import pytest
import torch

from tilewright import hl

WEIGHT = hl.constexpr(4)
MODES = (None, hl.RefMode.EAGER, hl.RefMode.TILED)


def run(kernel, mode, *args):
    return kernel(*args) if mode is None else kernel.bind(args).run_ref(*args, mode=mode)


@hl.kernel
def chosen(x, flag: bool, wide: int, shift: float):
    take, columns, offset = hl.constexpr(flag), hl.constexpr(wide), hl.constexpr(value=shift)
    scale = 1 if not take else 3
    out = torch.empty([x.size(0), columns])
    for rows in hl.tile(x.size(0)):
        if take:
            value = x[rows] + 1
        else:
            value = x[rows] + 2
        if columns == 3 and take:
            value = value + 10 * WEIGHT
        out[rows, :] = (value * scale + offset)[:, None].expand([rows, columns])
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wide", [2, 3])
@pytest.mark.parametrize("flag", [False, True])
def test_a_constant_made_in_a_body_decides(flag, wide, mode):
    x = torch.randn(5)
    base = x + (41 if wide == 3 else 1) if flag else x + 2
    expected = (base * (3 if flag else 1) + 0.5)[:, None].expand(5, wide)
    torch.testing.assert_close(run(chosen, mode, x, flag, wide, 0.5), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_constant_made_in_a_loop(mode):
    @hl.kernel
    def kernel(x, flag: bool):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows] = x[rows] if hl.constexpr(flag) else -x[rows]
        return out

    x = torch.randn(5)
    assert torch.equal(run(kernel, mode, x, False), -x)
    assert torch.equal(run(kernel, mode, x, True), x)


def test_sizes_made_constant_bind_anew():
    @hl.kernel(static_shapes=False)
    def kernel(x):
        width = hl.constexpr(x.size(1))
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] * width
        return out

    for shape in ((4, 8), (6, 8), (4, 9)):
        x = torch.randn(shape)
        torch.testing.assert_close(kernel(x), x * shape[1])
    assert sum(map(len, kernel._bound.values())) == 2


def test_arguments_that_are_equal_but_of_other_types_bind_apart():
    @hl.kernel
    def kernel(x, n: hl.constexpr):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows] = x[rows] + (10 if n is True else n)
        return out

    x = torch.zeros(3)
    assert [kernel(x, n)[0].item() for n in (1, True, 1.0)] == [1, 10, 1]


@pytest.mark.parametrize("value", [0, 3, -2, True, False, 2.5])
def test_outside_it_behaves_as_its_value(value):
    made = hl.constexpr(value)
    assert bool(made) is bool(value)
    assert made == value and value == made and not made != value and hash(made) == hash(value)
    assert int(made) == int(value) and float(made) == float(value) and round(made) == round(value)
    assert math.floor(made) == math.floor(value) and f"{made:.1f}" == f"{value:.1f}" and str(made) == str(value)
    for name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"):
        function = getattr(operator, name)
        assert function(made, 2) == function(value, 2) == function(made, hl.constexpr(2)), name
        if value:
            assert function(2, made) == function(2, value), name
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))
    if isinstance(value, int):
        assert range(5)[made] == range(5)[value]
        assert made & 1 == value & 1 and 1 << hl.constexpr(2) == 4 and ~made == ~value


def test_texts_and_sequences_behave_so_too():
    name, numbers = hl.constexpr("gelu"), hl.constexpr((1, 2, 3))
    assert name == "gelu" and name.upper() == "GELU" and len(name) == 4 and "el" in name and name[0] == "g"
    assert list(numbers) == [1, 2, 3] and 2 in numbers and numbers[hl.constexpr(1)] == 2
    assert {hl.constexpr(3): "three"}[3] == "three" and hl.constexpr(hl.constexpr(3)) == 3
