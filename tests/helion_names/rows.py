"""Jagged, grouped and gathered rows, containers, functions that combine, lines of Triton, random numbers."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import helion
import helion.language as hl
import torch
import triton
import triton.language as tl
from helion._testing import code_and_output

from tests.helion_names.cases import case, randn

full = functools.partial(helion.kernel, dot_precision="ieee")


# --- jagged, grouped, gathered -----------------------------------------------------------------------


def jagged_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([3, 0, 17, 5, 9])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    return randn(int(offsets[-1]), 12), offsets


def jagged_means(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    rows = [x[a:b].sum(0) / max(1, int(b - a)) for a, b in itertools.pairwise(offsets)]
    return torch.stack(rows)


@case(jagged_means, jagged_inputs)
@helion.kernel(static_shapes=False)
def jagged_mean(x_data: torch.Tensor, x_offsets: torch.Tensor) -> torch.Tensor:
    rows, m = x_offsets.size(0) - 1, x_data.size(1)
    out = torch.zeros([rows, m], dtype=x_data.dtype, device=x_data.device)
    x_flat = x_data.view(-1)
    for tile_b, tile_m in hl.tile([rows, m]):
        starts, ends = x_offsets[tile_b], x_offsets[tile_b.index + 1]
        lengths = ends - starts
        most = lengths.amax()
        acc = hl.zeros([tile_b, tile_m], dtype=x_data.dtype)
        for tile_k in hl.tile(0, most):
            at = (starts[:, None] + tile_k.index[None, :])[:, :, None] * m + tile_m.index[None, None, :]
            valid = (tile_k.index[None, :] < lengths[:, None])[:, :, None]
            acc = acc + hl.load(x_flat, [at], extra_mask=valid & (tile_m.index < m)[None, None, :]).sum(dim=1)
        counted = lengths.to(torch.float32).clamp(min=1.0)
        out[tile_b, tile_m] = acc / counted[:, None]
    return out


@case(lambda x, o: torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise(o)]), jagged_inputs)
@helion.kernel
def jagged_sum_of_tiles(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    rows = offsets.size(0) - 1
    out = torch.zeros([rows, x.size(1)], dtype=x.dtype, device=x.device)
    for tile_b in hl.tile(rows):
        starts = offsets[tile_b]
        lengths = offsets[tile_b.index + 1] - starts
        for tile_m in hl.tile(x.size(1)):
            acc = hl.zeros([tile_b, tile_m], dtype=x.dtype)
            for tile_k in hl.jagged_tile(lengths):
                acc = acc + x[starts[:, None] + tile_k.index[None, :], tile_m].sum(1)
            out[tile_b, tile_m] = acc
    return out


def grouped_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return randn(60, 24), randn(24, 20), torch.tensor([0, 20, 20, 45, 60], dtype=torch.int32)


@case(lambda a, b, o: a @ b, grouped_inputs)
@full(static_shapes=False)
def grouped_product(a: torch.Tensor, b: torch.Tensor, group_offsets: torch.Tensor) -> torch.Tensor:
    k, n = b.size()
    out = torch.empty([a.size(0), n], dtype=a.dtype, device=a.device)
    groups = group_offsets.size(0) - 1
    for g in hl.grid(groups):
        start, end = group_offsets[g], group_offsets[g + 1]
        rows = end - start
        if rows != 0:
            for tile_m, tile_n in hl.tile([rows, n]):
                acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(k):
                    left = hl.load(a, [start + tile_m.index, tile_k])
                    acc = torch.addmm(acc, left, b[tile_k, tile_n])
                hl.store(out, [start + tile_m.index, tile_n], acc.to(out.dtype))
    return out


@case(lambda i, w: w[i], lambda: (torch.randint(0, 30, (4, 9)), randn(30, 24)))
@helion.kernel
def embedding(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x_flat = x.reshape(-1)
    _, dim = weight.size()
    out = torch.empty([x_flat.size(0), dim], dtype=weight.dtype, device=weight.device)
    for tile_b, tile_e in hl.tile([x_flat.size(0), dim]):
        out[tile_b, tile_e] = weight[x_flat[tile_b], tile_e]
    return out.view(*x.size(), dim)


@case(lambda x, y: torch.cat([x, y], 1), lambda: (randn(20, 13), randn(20, 30)))
@helion.kernel
def concatenate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), x.size(1) + y.size(1)], dtype=x.dtype, device=x.device)
    for tile0, tile1 in hl.tile(out.size()):
        first = hl.load(x, [tile0, tile1], extra_mask=(tile1.index < x.size(1))[None, :])
        second = hl.load(y, [tile0, tile1.index - x.size(1)], extra_mask=(tile1.index >= x.size(1))[None, :])
        out[tile0, tile1] = torch.where((tile1.index < x.size(1))[None, :], first, second)
    return out


@case(
    lambda i, x, n: torch.zeros(n, x.size(1)).index_add_(0, i, x),
    lambda: (torch.randint(0, 9, (60,)).sort().values, randn(60, 8), 9),
)
@helion.kernel
def segment_sum(indices: torch.Tensor, data: torch.Tensor, segments: int) -> torch.Tensor:
    e, f = data.shape
    out = torch.zeros([segments, f], dtype=data.dtype, device=data.device)
    for tile_e, tile_f in hl.tile([e, f]):
        keys = indices[tile_e]
        following = hl.load(indices, [tile_e.index + 1], extra_mask=tile_e.index < e - 1)
        keys_wide = keys.float().unsqueeze(1).expand(tile_e, tile_f)
        sums, _ = hl.associative_scan(joined, (data[tile_e, tile_f], keys_wide), dim=0)
        is_last = (keys != following) | (tile_e.index % tile_e.block_size == tile_e.block_size - 1)
        is_last = is_last | (tile_e.index == e - 1)
        hl.atomic_add(out, [keys, tile_f], torch.where(is_last.unsqueeze(1), sums, 0.0))
    return out


def joined(left: Any, left_key: Any, right: Any, right_key: Any) -> Any:
    return torch.where(left_key == right_key, left + right, right), right_key


# --- the rest of the language --------------------------------------------------------------------------


@case(
    lambda x, s, y: (x * s[0] * s[1], y["a"] + y["b"][0]),
    lambda: (randn(30, 7), (randn(7), 2.5), {"a": randn(30, 7), "b": [randn(30, 7)]}),
)
@helion.kernel
def containers(
    x: torch.Tensor, scales: tuple[torch.Tensor, float], more: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    out, other = torch.empty_like(x), torch.empty_like(x)
    weight, factor = scales
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] * weight[:] * factor
        total = more["a"][tile, :]
        for term in more["b"]:
            total = total + term[tile, :]
        other[tile, :] = total
    return out, other


@case(lambda x: (x.argmax(1), x.amax(1)), lambda: (randn(21, 64),))
@helion.kernel
def argmax_by_pairs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    where = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    most = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        places = hl.arange(x.size(1))[None, :].expand(tile, x.size(1)).to(torch.float32)
        value, place = hl.reduce(greater, (x[tile, :], places), dim=1, other=(float("-inf"), 0.0))
        where[tile], most[tile] = place.to(torch.int64), value
    return where, most


def greater(left: Any, left_place: Any, right: Any, right_place: Any) -> Any:
    wins = right > left
    return torch.where(wins, right, left), torch.where(wins, right_place, left_place)


@case(lambda x: torch.cumsum(x, 1).flip(1).cumprod(1).flip(1), lambda: (randn(9, 8),))
@helion.kernel
def scans(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.cumprod(hl.cumsum(x[tile, :], dim=1), dim=1, reverse=True)
    return out


@triton.jit
def fused(x, y, SCALE: tl.constexpr):
    return x * SCALE + y


@case(lambda x, y: torch.relu(x * 3 + y), lambda: (randn(500), randn(500)))
@helion.kernel(config=helion.Config(block_sizes=[128]))
def lines_of_triton(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        left, right = x[tile], y[tile]
        total = hl.triton_kernel(fused, args=(left, right, 3), output_like=left)
        out[tile] = hl.inline_triton("tl.maximum({0}, 0.0)", args=(total,), output_like=left)
    return out


@case(lambda x: torch.tensor([True, True]), lambda: (randn(4000),))
def dropout_twice(x: torch.Tensor) -> torch.Tensor:
    first, second = (dropped(x, 0.25, 7) for _ in range(2))
    _, third = code_and_output(dropped, (x, 0.25, 7), block_sizes=[32])
    share = (first == 0).float().mean().item()
    return torch.tensor([torch.equal(first, second) and torch.equal(first, third), 0.2 < share < 0.3])


@helion.kernel
def dropped(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        keep = hl.rand([tile], seed=seed) > p
        out[tile] = torch.where(keep, x[tile] / (1 - p), 0.0)
    return out


@case(lambda x: x.cumsum(0)[-1].expand(3).clone(), lambda: (torch.arange(40.0),))
@helion.kernel
def turns_of_a_while(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([3], device=x.device)
    for i in hl.grid(3):
        at = hl.zeros([], dtype=torch.int32)
        total = hl.zeros([], dtype=torch.float32)
        while at < x.size(0):
            total = total + x[at]
            at = at + 1
        out[i] = total
    return out


@case(lambda x: torch.bincount(x, minlength=16), lambda: (torch.randint(0, 16, (300,)),))
@helion.kernel(static_shapes=False)
def histogram(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([16], dtype=torch.int64, device=x.device)
    for tile in hl.tile(x.size(0)):
        found = (x[tile][:, None] == hl.arange(16)[None, :]).to(torch.int64)
        hl.atomic_add(out, [hl.arange(16)], found.sum(0), sem="relaxed")
    return out


@case(lambda x, n: x[:, :n].sum(1) / n, lambda: (randn(50, 80), 33))
@helion.kernel(static_shapes=False, config=helion.Config(block_sizes=[8, 16], range_unroll_factors=[0, 2]))
def mean_of_the_first(x: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        total = hl.zeros([tile], dtype=torch.float32)
        for columns in hl.tile(n):
            total += x[tile, columns].sum(-1)
        out[tile] = total / n
    return out
