"""Parts that the host takes of tensors of open sizes: every call has the extents that PyTorch gives it."""

from __future__ import annotations

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
