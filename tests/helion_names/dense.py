"""Configurations and what a program leaves to them; products, attention and norms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import helion
import helion.language as hl
import torch
import torch.nn.functional as F
from helion.autotuner import EnumFragment, IntegerFragment, PowerOfTwoFragment

from tests.helion_names.cases import case, randn

full = functools.partial(helion.kernel, dot_precision="ieee")


# --- configurations, and what a program leaves to them -----------------------------------------------


@case(lambda x, y: x + y, lambda: (randn(100, 300), randn(300)))
@helion.kernel(config=helion.Config(block_sizes=[16, 64], loop_orders=[[1, 0]], l2_groupings=[4], num_warps=8))
def add_of_a_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    out = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


@case(lambda x: x * torch.sigmoid(x), lambda: (randn(40, 30, 20),))
@helion.kernel(config={"block_sizes": [4, 8, 16], "flatten_loop": True}, static_shapes=False)
def swish_flattened(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * torch.sigmoid(x[tile])
    return out


@case(lambda x: torch.softmax(x, 1), lambda: (randn(130, 70),))
@helion.kernel(
    configs=[helion.Config(block_size=1, pid_type="persistent_interleaved"), helion.Config(block_size=[4])],
    autotune_log_level=0,
    autotune_accuracy_check=True,
)
def softmax_of_two_configurations(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_n in hl.tile(x.size(0)):
        values = x[tile_n, :].to(torch.float32)
        exps = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[tile_n, :] = (exps / torch.sum(exps, dim=1, keepdim=True)).to(out.dtype)
    return out


@case(lambda x: x.sum(-1), lambda: (randn(7, 1000),))
@helion.kernel(config=helion.Config(block_sizes=[64, 2]), index_dtype=torch.int64)
def sum_by_lanes(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    block_size_n = hl.register_block_size(n)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, block_size_n], dtype=x.dtype)
        for tile_n in hl.tile(n, block_size=block_size_n):
            acc += x[tile_m, tile_n]
        out[tile_m] = acc.sum(-1)
    return out


@case(lambda x: x.sum(), lambda: (randn(9, 500).abs(),))
@helion.kernel(config=helion.Config(block_sizes=[4], reduction_loops=[128], extra=4, wide=True, split=2))
def with_tunables(x: torch.Tensor) -> torch.Tensor:
    extra = hl.register_tunable("extra", PowerOfTwoFragment(1, 8, 2))
    split = hl.register_tunable("split", IntegerFragment(1, 4, 1))
    wide = hl.register_tunable("wide", EnumFragment((False, True)))
    out = torch.zeros([extra * split], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        rows = x[tile, :].sum(-1)
        if wide:
            hl.atomic_add(out, [0], rows.sum())
        else:
            hl.atomic_add(out, [tile.begin % (extra * split)], rows.sum())
    return out.sum()


@case(lambda x, k: x.float().pow(k).to(x.dtype), lambda: (randn(64, 3, dtype=torch.bfloat16), 3))
@helion.kernel
def power(x: torch.Tensor, k: hl.constexpr) -> torch.Tensor:
    m = hl.specialize(x.size(0))
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        value = torch.full_like(x[tile, :], 1.0, dtype=torch.float32)
        for _ in hl.static_range(k):
            value = value * x[tile, :]
        out[tile, :] = value.to(x.dtype)
    return out


# --- products --------------------------------------------------------------------------------------


@case(lambda x, y, b: F.gelu(x @ y + b), lambda: (randn(70, 50), randn(50, 90), randn(90)))
def matmul_with_a_closure(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return matmul_epilogue(x, y, lambda acc, tile: F.gelu(acc + b[tile[1]]))


@full(static_shapes=True)
def matmul_epilogue(
    x: torch.Tensor, y: torch.Tensor, epilogue: Callable[[torch.Tensor, tuple[torch.Tensor, ...]], torch.Tensor]
) -> torch.Tensor:
    m, k = x.size()
    k2, n = y.size()
    assert k == k2, f"size mismatch {k} != {k2}"
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = epilogue(acc, (tile_m, tile_n))
    return out


@case(torch.bmm, lambda: (randn(3, 40, 64), randn(3, 64, 20)))
@full(config=helion.Config(block_sizes=[1, 16, 16, 32], indexing="block_ptr", num_stages=3))
def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    size, m, k = a.size()
    n = b.size(2)
    out = torch.empty([size, m, n], device=a.device, dtype=a.dtype)
    for tile_b, tile_m, tile_n in hl.tile([size, m, n]):
        acc = hl.zeros([tile_b, tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.baddbmm(acc, a[tile_b, tile_m, tile_k], b[tile_b, tile_k, tile_n])
        out[tile_b, tile_m, tile_n] = acc
    return out


@case(lambda x, y: (x.double() @ y.double()).int(), lambda: (ints(33, 64), ints(64, 17)))
@full
def int8_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), n = x.size(), y.size(1)
    out = torch.empty([m, n], dtype=torch.int32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.int32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc
    return out


def ints(*shape: int) -> torch.Tensor:
    return torch.randint(-20, 20, shape, dtype=torch.int8)


@case(torch.matmul, lambda: (randn(20, 300), randn(300, 30)))
@full(config=helion.Config(block_sizes=[16, 16, 64, 16, 16]))
def split_k_in_two_stages(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.size(), b.size(1)
    block_k = helion.cdiv(k, 4)
    parts = torch.zeros([m, n, 4], device=a.device, dtype=a.dtype)
    out = torch.empty([m, n], device=a.device, dtype=a.dtype)
    for tile_m, tile_n, outer_k in hl.tile([m, n, k], block_size=[None, None, block_k]):
        acc = hl.zeros([tile_m, tile_n], device=a.device, dtype=a.dtype)
        for inner_k in hl.tile(outer_k.begin, outer_k.end):
            acc = torch.addmm(acc, a[tile_m, inner_k], b[inner_k, tile_n])
        parts[tile_m, tile_n, outer_k.id] = acc
    hl.barrier()
    for tile_m, tile_n in hl.tile([m, n]):
        out[tile_m, tile_n] = torch.sum(parts[tile_m, tile_n, :], dim=-1)
    return out


def packed_weights() -> tuple[torch.Tensor, torch.Tensor]:
    low, high = torch.randint(-8, 8, (32, 24)), torch.randint(-8, 8, (32, 24))
    return randn(16, 64), ((low & 15) | (high << 4)).to(torch.int8)


def unpacked(packed: torch.Tensor) -> torch.Tensor:
    low = (packed << 4) >> 4
    return torch.stack([low, packed >> 4], dim=1).reshape(-1, packed.size(1)).float()


@case(lambda a, b: a @ unpacked(b), packed_weights)
@full(static_shapes=False)
def int4_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m = a.size(0)
    half, n = b.shape
    out = torch.zeros([m, n], dtype=a.dtype, device=a.device)
    block_k = hl.register_block_size(half)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(half, block_size=block_k):
            left = a[tile_m, tile_k.begin * 2 : tile_k.begin * 2 + tile_k.block_size * 2]
            packed = b[tile_k, tile_n]
            low, high = ((packed << 4) >> 4).to(a.dtype), (packed >> 4).to(a.dtype)
            right = torch.stack([low, high], dim=1).reshape(tile_k.block_size * 2, tile_n.block_size)
            acc = hl.dot(left, right, acc=acc)
        out[tile_m, tile_n] = acc
    return out


# --- attention and norms -----------------------------------------------------------------------------


@case(
    F.scaled_dot_product_attention,
    lambda: (randn(2, 3, 50, 32), randn(2, 3, 70, 32), randn(2, 3, 70, 32)),
)
@full
def attention(q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor) -> torch.Tensor:
    m_dim, n_dim = q_in.size(-2), k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    q_view, v_view = q_in.reshape([-1, m_dim, head_dim]), v_in.reshape([-1, n_dim, head_dim])
    k_view = k_in.reshape([-1, n_dim, head_dim]).transpose(1, 2)
    out = torch.empty_like(q_view)
    scale = 1.0 / head_dim**0.5 * 1.44269504
    for tile_b, tile_m in hl.tile([q_view.size(0), m_dim]):
        m_i = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        l_i = torch.full_like(m_i, 1.0)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        q = q_view[tile_b, tile_m, :]
        for tile_n in hl.tile(v_view.size(1)):
            qk = torch.bmm(q, k_view[tile_b, :, tile_n])
            m_ij = torch.maximum(m_i, torch.amax(qk, -1) * scale)
            p = torch.exp2(qk * scale - m_ij[:, :, None])
            alpha = torch.exp2(m_i - m_ij)
            l_i = l_i * alpha + torch.sum(p, -1)
            acc = acc * alpha[:, :, None]
            acc = torch.baddbmm(acc, p.to(v_view.dtype), v_view[tile_b, tile_n, :])
            m_i = m_ij
        acc = acc / l_i[:, :, None]
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out.view(q_in.size())


@case(lambda x, w, b: F.layer_norm(x, (96,), w, b), lambda: (randn(30, 96), randn(96), randn(96)))
def layer_norm_of_a_tuple(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out, mean, rstd = layer_norm_forward(x, w, b)
    torch.testing.assert_close(mean, x.mean(1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(rstd, (x.var(1, unbiased=False) + 1e-5).rsqrt(), atol=1e-4, rtol=1e-4)
    return out


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def layer_norm_forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n = x.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    mean = torch.empty([m], dtype=torch.float32, device=x.device)
    rstd = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        acc = x[tile_m, :].to(torch.float32)
        centre = torch.sum(acc, dim=-1) / n
        centred = acc - centre[:, None]
        scale = torch.rsqrt(torch.sum(centred * centred, dim=-1) / n + eps)
        normal = centred * scale[:, None] * weight[:].to(torch.float32)
        if bias is not None:
            normal = normal + bias[:].to(torch.float32)
        out[tile_m, :] = normal.to(x.dtype)
        mean[tile_m] = centre
        rstd[tile_m] = scale
    return out, mean, rstd


def norm_gradients(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inv = (x * x).mean(1, keepdim=True).add(1e-5).rsqrt()
    gw = g * w
    return inv * gw - x * inv**3 * (gw * x).mean(1, keepdim=True), (g * x * inv).sum(0)


@case(norm_gradients, lambda: (randn(40, 32), randn(40, 32), randn(32)))
@helion.kernel
def rms_norm_backward(g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m_block = hl.register_block_size(x.size(0))
    grad_x = torch.empty_like(x)
    parts = x.new_empty([(x.size(0) + m_block - 1) // m_block, weight.size(0)], dtype=torch.float32)
    n = hl.specialize(x.size(1))
    for mb in hl.tile(x.size(0), block_size=m_block):
        acc = weight.new_zeros([n], dtype=torch.float32)
        for mt in hl.tile(mb.begin, mb.end):
            value, upstream = x[mt, :].to(torch.float32), g[mt, :].to(torch.float32)
            inv = torch.rsqrt(torch.mean(value * value, dim=-1) + 1e-5)[:, None]
            acc += (upstream * value * inv).sum(0)
            scaled = upstream * weight[None, :].to(torch.float32)
            mean = torch.mean(scaled * value, dim=-1)[:, None]
            grad_x[mt, :] = (inv * scaled - value * inv * inv * inv * mean).to(x.dtype)
        parts[mb.id, :] = acc
    return grad_x, parts.sum(0).to(weight.dtype)


@case(lambda x, y: F.cross_entropy(x, y), lambda: (randn(50, 40), torch.randint(0, 40, (50,))))
@helion.kernel
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    n, v = logits.shape
    losses = torch.zeros([n], dtype=logits.dtype, device=logits.device)
    flat = logits.view(-1)
    for tile_n in hl.tile(n):
        offsets = tile_n.index * v + labels[tile_n]
        chosen = hl.load(flat, [offsets])
        rows = logits[tile_n, :]
        most = torch.amax(rows, dim=-1, keepdim=True)
        total = torch.log(torch.sum(torch.exp(rows - most), dim=-1, keepdim=True)) + most
        losses[tile_n] = total.squeeze(1) - chosen
    return losses.mean()


@case(lambda q, k: rotated(q), lambda: (randn(2, 20, 16), randn(1)))
@helion.kernel
def rotary(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(q)
    half = hl.specialize(q.size(-1) // 2)
    for b in hl.grid(q.size(0)):
        for tile in hl.tile(q.size(1)):
            positions = hl.arange(half).to(torch.float32)
            angle = tile.index.to(torch.float32)[:, None] * torch.exp2(-positions)[None, :]
            first, second = q[b, tile, 0:half], q[b, tile, half : half * 2]
            out[b, tile, 0:half] = first * torch.cos(angle) - second * torch.sin(angle)
            out[b, tile, half : half * 2] = second * torch.cos(angle) + first * torch.sin(angle)
    return out


def rotated(q: torch.Tensor) -> torch.Tensor:
    half = q.size(-1) // 2
    angle = torch.arange(q.size(1)).float()[:, None] * torch.exp2(-torch.arange(half).float())
    first, second = q[..., :half], q[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


@case(lambda x, y: (x @ y, True), lambda: (randn(64, 48), randn(48, 32)))
def chosen_configurations(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """What programs do with a binding: look at its choices, compile some, keep one as text."""
    bound = matmul_epilogue.bind((x, y, plain))
    config = helion.Config.from_dict({**bound.config_spec.default_config(), "block_sizes": [16, 32, 16]})
    again = helion.Config.from_json(config.to_json())
    first, second = bound.compile_config(config)(x, y, plain), bound.compile_config(again)(x, y, plain)
    assert "matmul_epilogue" in bound.to_triton_code(again)
    return first, config == again and hash(config) == hash(again) and torch.equal(first, second)


def plain(acc: torch.Tensor, tile: Any) -> torch.Tensor:
    return acc
