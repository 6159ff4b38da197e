"""Kernels of `tilewright.hl` for the tests of operators, and programs that call them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tilewright import hl

SMALL = hl.Config(block_sizes=[16])


@hl.kernel(config=SMALL)
def doubled(x: Any) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * 2
    return out


@hl.kernel(config=SMALL, static_shapes=False)
def added(x: Any, y: Any, out: Any, n: int) -> Any:
    assert x.size(0) == y.size(0)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile] * n
    return out


@hl.kernel(config=SMALL)
def moments(x: Any, scale: float, wants_sum: bool) -> Any:
    flat = x.view(-1)
    squares, total = torch.zeros_like(flat), x.new_zeros([1])
    for tile in hl.tile(flat.size(0)):
        value = flat[tile] * scale
        squares[tile] = value * value
        hl.atomic_add(total, [0], value.sum(0))
    if wants_sum:
        return {"squares": squares.view(x.shape), "total": total}
    return squares.view(x.shape), None


@hl.kernel(config=SMALL)
def in_place(state: Any) -> None:
    flat = state["x"].view(-1)
    state["count"].add_(1)
    for tile in hl.tile(flat.size(0)):
        flat[tile] += state["steps"][0][tile]


@dataclasses.dataclass
class Options:
    weight: torch.Tensor
    power: int


@hl.kernel(config=SMALL)
def applied(x: Any, options: Any, function: Any) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = function(x[tile] + options.weight[tile] * options.power)
    return out


@hl.kernel(config=hl.Config(block_sizes=[32]))
def partial_sums(x: Any) -> Any:
    block = hl.register_block_size(64)
    parts = x.new_zeros([hl.cdiv(x.size(0), block)])
    for tile in hl.tile(x.size(0), block_size=block):
        parts[tile.id] = x[tile].sum(0)
    return parts.sum()


@hl.kernel(config=SMALL)
def noisy(x: Any) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + torch.rand_like(x[tile])
    return out


def halved(value: Any) -> Any:
    return value / 2


def one(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return doubled(x + 1) * y


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = added(x, y, torch.empty_like(x), 3)
    return out + x.sum()


def argument_written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    added(x, y, y, 2)
    return y * 2


def several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found = moments(x, 0.5, True)
    squares, nothing = moments(y, 2.0, wants_sum=False)
    assert nothing is None
    return found["squares"] + found["total"] + squares


def contained(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    count = torch.zeros(1)
    in_place({"x": x, "count": count, "steps": [y]})
    return x + count


def functions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return applied(x, Options(y, 3), halved)


def configured(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + partial_sums(x)


PROGRAMS = (one, written, argument_written, several, contained, functions, configured)


def pair(n: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, generator=generator), torch.randn(n, generator=generator)
