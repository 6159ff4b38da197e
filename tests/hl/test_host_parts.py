"""Parts that the host takes of tensors of open sizes: every call has the extents that PyTorch gives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tilewright import hl

torch: Any = pytest.importorskip("torch")

PARTS: dict[str, Callable[[Any], Any]] = {
    "beginning": lambda w: w[:3],
    "behind": lambda w: w[3:],
    "end": lambda w: w[-3:],
    "all but the end": lambda w: w[:-3],
    "inside": lambda w: w[1:4],
    "every third": lambda w: w[1::3],
    "half": lambda w: w[: w.size(0) // 2],
    "last two": lambda w: w[w.size(0) - 2 :],
    "first of two chunks": lambda w: w.chunk(2)[0],
    "last of two chunks": lambda w: w.chunk(2)[-1],
    "last of pieces of three": lambda w: w.split(3)[-1],
    "split in three": lambda w: w.tensor_split(3)[1],
    "windows": lambda w: w.unfold(0, 2, 2).sum(-1) if w.size(0) > 1 else w,
    "of two": lambda w: torch.cat([w, w])[:5],
    "of a view": lambda w: w.view(-1, 1)[:3, 0],
    "through an ellipsis": lambda w: w[..., :3],
    "differences": lambda w: w.diff(),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    take = PARTS[name]

    @hl.kernel(static_shapes=False)
    def kernel(w: torch.Tensor) -> torch.Tensor:
        few = take(w)
        out = torch.empty_like(few)
        for t in hl.tile(few.size(0)):
            out[t] = few[t] * 2
        return out

    for size in (5, 2, 6, 1, 3, 0, 40, 5):
        w = torch.arange(1.0, 100.0)[:size]
        torch.testing.assert_close(kernel(w), take(w) * 2, rtol=0, atol=0)


GRIDS: dict[str, Callable[[Any], Any]] = {
    "twice as many rows": lambda x: x.repeat(2, 1),
    "rows one after the other": lambda x: torch.cat([x, x + 1]),
    "three of each": lambda x: x.repeat_interleave(3, dim=0),
    "products of sizes": lambda x: x[:, None].expand(-1, x.size(1), -1).reshape(-1, x.size(1)),
    "diagonal": lambda x: x.diagonal()[:, None],
    "padded": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "squeezed": lambda x: x[None].squeeze(),
    "a column squeezed": lambda x: x[..., None].squeeze(-1),
    "every second": lambda x: x[::2, 1::2],
    "pooled": lambda x: torch.nn.functional.avg_pool1d(x[None], 2)[0] if x.size(1) > 1 else x,
    "lower triangle": lambda x: x.tril(),
    "heads": lambda x: x.view(x.size(0), 2, x.size(1) // 2).sum(1) if x.size(1) % 2 == 0 else x,
    "rows of windows": lambda x: x.unfold(1, 2, 1).reshape(-1, 2) if x.size(1) > 1 else x,
}


@pytest.mark.parametrize("block", [None, 1, 4])
@pytest.mark.parametrize("name", GRIDS)
def test_tiles_of_what_the_host_made(name: str, block: int | None) -> None:
    make = GRIDS[name]

    @hl.kernel(static_shapes=False)
    def kernel(x: torch.Tensor) -> torch.Tensor:
        y = make(x)
        y = y if y.dim() == 2 else y[None]
        out = torch.full_like(y, 7)
        for rows, columns in hl.tile(y.shape, block_size=[block, None]):
            out[rows, columns] = y[rows, columns] * 2
        return out

    for shape in ((8, 6), (3, 5), (2, 2), (1, 4), (7, 1), (12, 8)):
        x = torch.arange(1.0, 1 + shape[0] * shape[1]).view(shape)
        expected = make(x) * 2
        torch.testing.assert_close(kernel(x).view(expected.shape), expected, rtol=0, atol=0)


def test_indices_past_a_part() -> None:
    """A part of three of a tensor that has two: the third is no element of it, and masked as any other."""

    @hl.kernel(static_shapes=False)
    def kernel(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        few, out = w[:3], torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = few[t.index + 1] + x[t]
        return out

    for size in (5, 2, 4):
        w, x = torch.arange(1.0, 9.0)[:size], torch.zeros(6)
        expected = torch.cat([w[1:3], torch.zeros(6)])[:6]
        torch.testing.assert_close(kernel(w, x), expected, rtol=0, atol=0)


def test_sizes_stay_open_where_the_beginning_is_there() -> None:
    @hl.kernel(static_shapes=False)
    def kernel(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        few, out = w[:3], torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * few[:].sum()
        return out

    for size in (5, 7, 300):
        kernel(torch.ones(size), torch.ones(4))
    assert len({id(kernel.bind((torch.ones(size), torch.ones(4)))) for size in (5, 7, 300)}) == 1


def _twice_the_power(x: Any) -> Any:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + hl.next_power_of_2(x.size(0)) * 2 + hl.next_power_of_2(x.size(0) + 3)
    return out


def _length_or_one(x: Any) -> Any:
    n = hl.next_power_of_2(x.size(0)) if x.size(0) else 1
    out = x.new_zeros(n)
    if not x.size(0):
        return out
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * (x.size(0) and 4) + math.sqrt(max(x.size(0), 4)) / math.sqrt(x.size(0) + 1)
    return out


def _products_in_divisions(x: Any) -> Any:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + hl.cdiv(x.size(0), 2) % (x.size(0) * 2) + x.size(0) * 7 // (x.size(0) * 3) - -x.size(0) % 5
    return out


@pytest.mark.parametrize("function", [_twice_the_power, _length_or_one, _products_in_divisions])
def test_expressions_of_sizes(function: Any) -> None:
    """The same as with constant sizes."""
    fixed, kernel = hl.kernel(static_shapes=True)(function), hl.kernel(static_shapes=False)(function)
    for size in (5, 8, 1, 13) + (0,) * (function is _length_or_one):
        x = torch.arange(1.0, size + 1)
        torch.testing.assert_close(kernel(x), fixed(x))
