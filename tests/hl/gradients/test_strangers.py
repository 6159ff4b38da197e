"""Gradients of kernels in idioms of others: products inside of products, programs of one batch and one head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import gelu, scaled_dot_product_attention

from tests.hl.gradients.compare import check
from tilewright import hl


def random(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@hl.kernel(autotune_effort="none")
def perceptron(x, up, down):
    m, k = x.shape
    n = hl.specialize(down.size(1))
    out = torch.empty([m, n], dtype=x.dtype)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=x.dtype)
        for tile_h in hl.tile(up.size(1)):
            hidden = hl.zeros([tile_m, tile_h], dtype=x.dtype)
            for tile_k in hl.tile(k):
                hidden = hidden + x[tile_m, tile_k] @ up[tile_k, tile_h]
            acc = acc + gelu(hidden) @ down[tile_h, :]
        out[tile_m, :] = acc
    return out


@pytest.mark.parametrize("blocks", [None, [16, 16, 16], [8, 32, 8]])
def test_a_product_inside_of_a_product(blocks: list[int] | None) -> None:
    kernel = perceptron if blocks is None else hl.kernel(perceptron.fn, config=hl.Config(block_sizes=blocks))
    check(kernel, lambda x, up, down: gelu(x @ up) @ down, *random((21, 30), (30, 48), (48, 16)))


@hl.kernel(autotune_effort="none")
def gated(x, gate, up, down):
    m, k = x.shape
    n = hl.specialize(down.size(1))
    out = torch.empty([m, n], dtype=x.dtype)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=x.dtype)
        for tile_h in hl.tile(up.size(1)):
            one = hl.zeros([tile_m, tile_h], dtype=x.dtype)
            other = hl.zeros([tile_m, tile_h], dtype=x.dtype)
            for tile_k in hl.tile(k):
                part = x[tile_m, tile_k]
                one = one + part @ gate[tile_k, tile_h]
                other = other + part @ up[tile_k, tile_h]
            acc = acc + (torch.sigmoid(one) * other) @ down[tile_h, :]
        out[tile_m, :] = acc
    return out


def test_two_products_inside_of_a_product() -> None:
    reference = lambda x, gate, up, down: (torch.sigmoid(x @ gate) * (x @ up)) @ down
    check(gated, reference, *random((19, 24), (24, 40), (24, 40), (40, 8)))


@hl.kernel(autotune_effort="none")
def attention_of_one_head(q, k, v, bias, causal: hl.constexpr):
    batches, heads, m, depth = q.shape
    depth = hl.specialize(depth)
    out = torch.empty_like(q)
    for b, h, tile_m in hl.tile([batches, heads, m], block_size=[1, 1, None]):
        query = q[b.begin, h.begin, tile_m, :]
        largest = hl.full([tile_m], float("-inf"), dtype=q.dtype)
        total = hl.zeros([tile_m], dtype=q.dtype)
        acc = hl.zeros([tile_m, depth], dtype=q.dtype)
        for tile_n in hl.tile(0, tile_m.end if causal else k.size(2)):
            score = torch.matmul(query, k[b.begin, h.begin, tile_n, :].T) * depth**-0.5 + bias[h.begin, tile_m, tile_n]
            if causal:
                score = torch.where(tile_m.index[:, None] >= tile_n.index[None, :], score, float("-inf"))
            above = torch.maximum(largest, score.amax(-1))
            p, decay = torch.exp(score - above[:, None]), torch.exp(largest - above)
            total = total * decay + p.sum(-1)
            acc = acc * decay[:, None] + p @ v[b.begin, h.begin, tile_n, :]
            largest = above
        out[b.begin, h.begin, tile_m, :] = acc / total[:, None]
    return out


@hl.kernel(autotune_effort="none")
def sums_by_index(x, w):
    batches, m, k = x.shape
    out = torch.empty([batches, m, w.size(1)], dtype=x.dtype)
    for b in hl.grid(batches):
        for tile_m, tile_n in hl.tile([m, w.size(1)]):
            acc = hl.zeros([tile_m, tile_n], dtype=x.dtype)
            for tile_k in hl.tile(k):
                acc = acc + x[b, tile_m, tile_k] @ w[tile_k, tile_n]
            out[b, tile_m, tile_n] = torch.tanh(acc)
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_programs_of_one_batch_and_one_head_keep_apart_what_they_keep(causal: bool) -> None:
    def reference(q: Any, k: Any, v: Any, bias: Any, causal: bool) -> Any:
        hidden = torch.ones(bias.shape[1:], dtype=torch.bool).triu(1) & causal
        return scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(hidden, float("-inf"))[None])

    shapes = [(2, 3, 33, 16)] * 3 + [(3, 33, 33)]
    check(attention_of_one_head, reference, *random(*shapes), causal)


def test_a_loop_over_tiles_in_a_loop_over_batches() -> None:
    check(sums_by_index, lambda x, w: torch.tanh(x @ w), *random((3, 20, 17), (17, 24)))
