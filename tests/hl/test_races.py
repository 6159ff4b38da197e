"""Stores that several programs make to the same elements are told of; others are not."""

from __future__ import annotations

import warnings

import pytest
import torch

from tilewright import hl


def last_tile_wins(x):
    out = torch.empty_like(x[:, 0])
    for m, n in hl.tile(x.shape):
        out[m] = x[m, n].sum(-1)
    return out


def in_a_grid(x):
    out = torch.zeros_like(x[:, 0])
    for m in hl.tile(x.size(0)):
        out[m] = x[m, 0] * 0
    for n in hl.grid(x.size(1)):
        out[0] = x[0, n]
    return out


def summed_before(x):
    out = torch.empty_like(x[:, 0])
    for m, n in hl.tile(x.shape):
        total = hl.zeros([m], dtype=torch.float32)
        for k in hl.tile(x.size(1)):
            total += (x[m, k] * n.begin).sum(-1)
        out[m] = total
    return out


def summed_inside(x):
    out = torch.empty_like(x[:, 0])
    for m in hl.tile(x.size(0)):
        total = hl.zeros([m], dtype=torch.float32)
        for n in hl.tile(x.size(1)):
            total += x[m, n].sum(-1)
        out[m] = total
    return out


def added(x):
    out = torch.zeros_like(x[:, 0])
    for m, n in hl.tile(x.shape):
        hl.atomic_add(out, [m], x[m, n].sum(-1))
    return out


def by_the_first(x):
    out = torch.empty_like(x[:, 0])
    for m, n in hl.tile(x.shape):
        if n.id == 0:
            out[m] = x[m, n].sum(-1)
    return out


def under_a_mask(x):
    out = torch.empty_like(x[:, 0])
    for m, n in hl.tile(x.shape):
        hl.store(out, [m], x[m, n].sum(-1), extra_mask=(m.index >= 0) & (n.begin == 0))
    return out


def parts(x):
    out = x.new_empty(x.size(0), 4)
    for m, n in hl.tile(x.shape, block_size=[None, 64]):
        out[m, n.id] = x[m, n].sum(-1)
    return out


def by_gathered_places(x):
    out = torch.zeros_like(x[:, 0])
    for m, n in hl.tile(x.shape):
        out[(m.index + n.id) % 64] = x[m, n].sum(-1)
    return out


def alike(x):
    out = torch.empty_like(x[:, 0])
    for m, _ in hl.tile(x.shape):
        out[m] = x[m, 0]
    return out


def _given(function, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        hl.kernel(function, autotune_effort="none", **options)(torch.randn(64, 256))
    return [one for one in found if one.category is hl.exc.OverwrittenStore]


@pytest.mark.parametrize(
    ("function", "axis", "line"), [(last_tile_wins, "n", 3), (in_a_grid, "n", 5), (summed_before, "n", 6)]
)
def test_stores_that_are_overwritten(function, axis, line):
    options = {"config": hl.Config(block_sizes=[16, 64, 64][: 3 if function is summed_before else 2])}
    (warning,) = _given(function, **(options if function is not in_a_grid else {}))
    assert f"by each tile of {axis}, and one of them remains" in str(warning.message)
    assert warning.filename == __file__ and warning.lineno == function.__code__.co_firstlineno + line


@pytest.mark.parametrize(
    "function", [summed_inside, added, by_the_first, under_a_mask, by_gathered_places, alike, parts]
)
def test_stores_that_are_not(function):
    slots = 1 if function is parts else 2
    assert not _given(function, config=hl.Config(block_sizes=[16, 64][:slots]))


def test_one_tile_overwrites_nothing():
    assert not _given(last_tile_wins, config=hl.Config(block_sizes=[16, 256]))


@pytest.mark.parametrize("kind", [hl.exc.OverwrittenStore, hl.exc.BaseWarning])
def test_warnings_that_the_kernel_does_not_want(kind, monkeypatch):
    config = hl.Config(block_sizes=[16, 64])
    assert not _given(last_tile_wins, config=config, ignore_warnings=[hl.exc.WrongDevice, kind])
    assert _given(last_tile_wins, config=config, ignore_warnings=[hl.exc.WrongDevice])
    monkeypatch.setenv("TILEWRIGHT_HL_IGNORE_WARNINGS", f"WrongDevice, {kind.__name__}")
    assert not _given(last_tile_wins, config=config)
