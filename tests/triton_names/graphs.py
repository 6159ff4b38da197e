"""A fixed list of graphs for Inductor: each is a function of torch with its example inputs.

`graph(name, fn, *inputs)` enters one. Inputs are described by shape (float32 noise), or given as tensors by a function
without arguments, so that importing this file makes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Graph:
    """One graph.

    Args:
        name: unique.
        fn: what is compiled.
        inputs: shapes, or functions that give a tensor.
        grad: differentiate the sum of the floating results by every floating input.
        dynamic: compile with dynamic shapes and run again with inputs one and a half times as long.
        tolerance: absolute and relative; None for the usual one of the type.
    """

    name: str
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    grad: bool = False
    dynamic: bool = False
    tolerance: float | None = None


GRAPHS: dict[str, Graph] = {}


def graph(name: str, fn: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """Enter a graph."""
    assert name not in GRAPHS, name
    GRAPHS[name] = Graph(name, fn, inputs, **options)


def integers(*shape: int, low: int = 0, high: int = 10, dtype: Any = torch.int64) -> Callable[[], torch.Tensor]:
    """Random integers, as a function."""
    return lambda: torch.randint(low, high, shape).to(dtype)


def noise(*shape: int, dtype: Any = torch.float32) -> Callable[[], torch.Tensor]:
    """Normal noise of another type, as a function."""
    return lambda: torch.randn(shape).to(dtype)


def positive(*shape: int, dtype: Any = torch.float32) -> Callable[[], torch.Tensor]:
    """Numbers from 0.1 to 1.1, as a function."""
    return lambda: (torch.rand(shape) + 0.1).to(dtype)


def permutation(n: int) -> Callable[[], torch.Tensor]:
    """A random permutation, as a function."""
    return lambda: torch.randperm(n)


# --- element by element ---------------------------------------------------------------------------------------

for _name in ("exp", "log1p", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "erfc", "sqrt", "rsqrt", "atan", "asinh",
              "expm1", "floor", "ceil", "round", "trunc", "abs", "neg", "reciprocal", "lgamma", "sign"):  # fmt: skip
    graph(f"unary_{_name}", getattr(torch, _name), positive(130))
graph("unary_acos_asin", lambda x: torch.acos(x * 0.5) + torch.asin(x * 0.5), positive(99))
graph("unary_log_log2_log10", lambda x: x.log() + x.log2() + x.log10(), positive(99))
graph("unary_i0_i1", lambda x: torch.special.i0(x) + torch.special.i1(x), (60,))
graph("unary_erfinv", lambda x: torch.erfinv(x - 0.5), positive(64), tolerance=1e-4)
graph("relu_chain", lambda x, y: torch.relu(x + y) * 2 - 1, (1000,), (1000,))
graph("gelu", lambda x: F.gelu(x), (37, 41))
graph("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (37, 41))
graph("silu_mul", lambda x, y: F.silu(x) * y, (5, 300), (5, 300))
graph("hardswish", lambda x: F.hardswish(x) + F.hardtanh(x) + F.hardsigmoid(x), (500,))
graph("softplus_mish_elu", lambda x: F.softplus(x) + F.mish(x) + F.elu(x), (500,))
graph("leaky_clamp", lambda x: F.leaky_relu(x, 0.1).clamp(-0.5, 0.7), (500,))
graph("lerp_addcmul", lambda x, y, z: torch.lerp(x, y, 0.3) + torch.addcmul(z, x, y, value=2), (64,), (64,), (64,))
graph("pow", lambda x: x**2 + x**0.5 + x**3.7 + 2.0**x, positive(200))
graph("atan2_hypot", lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), (120,), (120,))
graph("fmod_remainder", lambda x, y: torch.fmod(x, y) + torch.remainder(x, y), (120,), positive(120))
graph("copysign_nextafter", lambda x, y: torch.copysign(x, y) + torch.nextafter(x, y), (120,), (120,))
graph("where_compare", lambda x, y: torch.where(x > y, x - 1, y + 1), (33, 9), (33, 9))
graph("logical", lambda x, y: (x > 0) & ~(y > 0) | (x == y), (77,), (77,))
graph("isnan_isinf", lambda x: torch.isnan(x / x.round()) | torch.isinf(1 / x.round()), (300,))
graph("nan_to_num", lambda x: torch.nan_to_num(x.round() / x.round()), (300,))
graph("min_max_nan", lambda x, y: torch.maximum(x.log(), y) + torch.fmin(x.log(), y), (300,), (300,))
graph("frac_ldexp", lambda x: torch.frac(x) + torch.ldexp(x, torch.tensor(3)), (50,))
graph("broadcast", lambda x, y: x[:, None] * y[None, :] + 1, (31,), (67,))
graph("broadcast_3d", lambda x, y, z: x + y * z, (4, 1, 33), (1, 7, 1), (33,))
graph("scalar_tensor", lambda x, s: x * s + s.sin(), (100,), ())
graph("int_arith", lambda x, y: x * y - x // (y + 1) + x % (y + 1), integers(90), integers(90))
graph("int_negative_division", lambda x, y: x // y + x % y, integers(90, low=-9), integers(90, low=1))
graph("int_bits", lambda x, y: (x & y) | (x ^ 5) ^ (y << 2) ^ (x >> 1), integers(90), integers(90))
graph("int32_cast", lambda x: x.to(torch.int32) + 1, (90,))
graph("bool_mul", lambda x, m: x * m, (64,), lambda: torch.rand(64) > 0.5)
graph("int8_uint8", lambda x: (x.to(torch.int8) + 3).to(torch.uint8) + 250, integers(90))
graph("bf16_silu", lambda x: F.silu(x) * 3, noise(333, dtype=torch.bfloat16))
graph("f16_gelu", lambda x: F.gelu(x), noise(333, dtype=torch.float16))
graph("f64_chain", lambda x: x.exp().sin() + x.erf(), noise(333, dtype=torch.float64))
graph("mixed_types", lambda x, y: x + y, noise(64, dtype=torch.float16), (64,))
graph("logit_xlogy", lambda x: torch.logit(x * 0.4 + 0.3) + torch.xlogy(x, x), positive(80))
graph("polygamma_free_digits", lambda x: torch.round(x, decimals=2) + torch.trunc(x * 10), (80,))
graph("several_outputs", lambda x: (x + 1, x * 2, (x > 0)), (64,))
graph("in_place", lambda x: x.clone().add_(1).mul_(x), (64,))
graph("sinc_deg", lambda x: torch.sinc(x) + torch.deg2rad(x), (64,))

# --- views and copies -----------------------------------------------------------------------------------------

graph("transpose_add", lambda x, y: x.t() + y, (65, 33), (33, 65))
graph("permute_contiguous", lambda x: x.permute(2, 0, 1).contiguous(), (5, 6, 7))
graph("cat", lambda x, y: torch.cat([x, y.sin()], 1), (4, 30), (4, 20))
graph("stack", lambda x, y: torch.stack([x, y], 0) * 2, (33,), (33,))
graph("chunk_mul", lambda x: (lambda a, b: a * b.sigmoid())(*x.chunk(2, -1)), (6, 64))
graph("slice_assign", lambda x: x.index_fill(0, torch.tensor([1, 3]), 7.0), (6, 10))
graph("slice_scatter", lambda x, y: torch.slice_scatter(x, y, 0, 2, 5), (8, 9), (3, 9))
graph("pad_constant", lambda x: F.pad(x, (1, 2, 3, 4), value=2.5), (7, 9))
graph("pad_reflect", lambda x: F.pad(x[None], (2, 3), mode="reflect"), (7, 9))
graph("pad_replicate", lambda x: F.pad(x[None], (2, 3), mode="replicate"), (7, 9))
graph("roll_flip", lambda x: torch.roll(x, 3, 0) + x.flip(0), (20, 5))
graph("repeat_interleave", lambda x: x.repeat(2, 3) + 1, (4, 5))
graph("expand_sum", lambda x: x[:, None].expand(-1, 8).cos(), (30,))
graph("unfold", lambda x: x.unfold(0, 5, 2) * 2, (50,))
graph("tril_triu", lambda x: x.tril(1) + x.triu(-1), (17, 19))
graph("diag_eye", lambda x: torch.eye(9) * x + torch.diag_embed(x[0]), (9, 9))
graph("strided", lambda x: x[::2, 1::3] + 1, (20, 30))
graph("as_strided_view", lambda x: x.as_strided((5, 4), (3, 2)) * 2, (60,))
graph("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (1, 8, 3, 3))
graph("to_channels_last", lambda x: x.to(memory_format=torch.channels_last) * 2, (2, 3, 4, 5))
graph("arange_linspace", lambda x: x + torch.arange(33) * torch.linspace(0, 1, 33), (33,))
graph("meshgrid", lambda x, y: (lambda a, b: a * b)(*torch.meshgrid(x, y, indexing="ij")), (9,), (7,))

# --- reductions -------------------------------------------------------------------------------------------------

graph("sum_rows", lambda x: x.sum(1), (33, 65))
graph("sum_columns", lambda x: x.sum(0), (129, 33))
graph("sum_all", lambda x: x.sum(), (70, 90))
graph("sum_large", lambda x: (x * 2).sum(), (1 << 17,))
graph("sum_long_rows", lambda x: x.sum(1), (3, 9000))
graph("sum_middle", lambda x: x.sum(1), (5, 200, 7))
graph("sum_int", lambda x: x.sum(1), integers(13, 70))
graph("sum_bool", lambda x: (x > 0).sum(), (500,))
graph("sum_bf16", lambda x: x.sum(-1), noise(9, 300, dtype=torch.bfloat16), tolerance=5e-2)
graph("mean_var", lambda x: (x.mean(-1), x.var(-1)), (14, 70))
graph("std_unbiased_all", lambda x: x.std(), (40, 50))
graph("var_mean_long", lambda x: torch.var_mean(x, 1, correction=0), (3, 9000))
graph("amax_amin", lambda x: x.amax(1) - x.amin(0), (35, 35))
graph("max_with_index", lambda x: torch.max(x, 1), (35, 65))
graph("min_with_index", lambda x: torch.min(x, 0), (65, 35))
graph("argmax_rows", lambda x: (x.argmax(1), x.argmin(1)), (20, 3000))
graph("argmax_all", lambda x: x.argmax(), (20, 30))
graph("argmax_ties", lambda x: x.round().argmax(1), (20, 300))
graph("any_all", lambda x: ((x > 2).any(1), (x > -3).all(0)), (35, 65))
graph("prod", lambda x: x.prod(1), positive(10, 20))
graph("norm", lambda x: torch.linalg.vector_norm(x, dim=1) + x.norm(p=1), (10, 200))
graph("logsumexp", lambda x: torch.logsumexp(x, 1), (10, 200))
graph("nansum", lambda x: torch.nansum(x.log(), 1), (10, 200))
graph("count_nonzero", lambda x: torch.count_nonzero(x.round(), dim=1), (10, 200))
graph("sum_of_products", lambda x, y: (x * y).sum(-1), (10, 200), (10, 200))
graph("cosine", lambda x, y: F.cosine_similarity(x, y, dim=1), (10, 200), (10, 200))
graph("mse", F.mse_loss, (50, 30), (50, 30))
graph("smooth_l1_huber", lambda x, y: F.smooth_l1_loss(x, y) + F.huber_loss(x, y), (50, 30), (50, 30))
graph("bce_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (50, 30), (50, 30))
graph("kl_div", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), (20, 30), (20, 30))

# --- normalisation, softmax, losses -----------------------------------------------------------------------------

graph("softmax_rows", lambda x: x.softmax(-1), (33, 100))
graph("softmax_columns", lambda x: x.softmax(0), (100, 33))
graph("softmax_long", lambda x: x.softmax(-1), (3, 9000))
graph("log_softmax", lambda x: x.log_softmax(-1), (33, 100))
graph("layer_norm", lambda x, w, b: F.layer_norm(x, (100,), w, b), (33, 100), (100,), (100,))
graph("layer_norm_long", lambda x: F.layer_norm(x, (5000,)), (3, 5000))
graph("rms_norm_bf16", lambda x, w: F.rms_norm(x, (128,), w), noise(9, 128, dtype=torch.bfloat16),
      noise(128, dtype=torch.bfloat16), tolerance=5e-2)  # fmt: skip
graph("group_norm", lambda x: F.group_norm(x, 4), (2, 8, 5, 5))
graph("batch_norm_eval", lambda x, m, v: F.batch_norm(x, m, v), (3, 8, 5, 5), (8,), positive(8))
graph("batch_norm_train", lambda x: F.batch_norm(x, None, None, training=True), (3, 8, 5, 5))
graph("instance_norm", lambda x: F.instance_norm(x), (2, 3, 9, 9))
graph("normalize", lambda x: F.normalize(x, dim=1), (9, 33))
graph("cross_entropy", lambda x, t: F.cross_entropy(x, t), (40, 100), integers(40, high=100))
graph("cross_entropy_ignore", lambda x, t: F.cross_entropy(x, t, ignore_index=3), (40, 10), integers(40))
graph("cross_entropy_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (40, 10), integers(40))
graph("nll", lambda x, t: F.nll_loss(x.log_softmax(1), t), (40, 10), integers(40))
graph("softmax_ln_gelu", lambda x: F.gelu(F.layer_norm(x.softmax(-1), (128,))), (64, 128))

# --- indexing -----------------------------------------------------------------------------------------------------

graph("embedding", lambda w, i: F.embedding(i, w) + 1, (50, 64), integers(7, 9, high=50))
graph("embedding_bag", lambda w, i: F.embedding_bag(i, w, mode="mean"), (50, 16), integers(7, 9, high=50))
graph("index_rows", lambda x, i: x[i] * 2, (50, 20), integers(30, high=50))
graph("index_pairs", lambda x, i, j: x[i, j], (50, 20), integers(30, high=50), integers(30, high=20))
graph("index_negative", lambda x, i: x[-i - 1], (50,), integers(30, high=50))
graph("index_select", lambda x, i: x.index_select(1, i), (9, 20), integers(30, high=20))
graph("gather", lambda x, i: x.gather(1, i), (9, 20), integers(9, 15, high=20))
graph("take_along", lambda x: torch.take_along_dim(x, x.argsort(1), 1), (9, 20))
graph("scatter", lambda x, i, y: x.scatter(1, i, y), (9, 20), lambda: torch.rand(9, 20).argsort(1)[:, :5], (9, 5))
graph("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), (9, 20), integers(9, 50, high=20), (9, 50))
graph("index_add", lambda x, i, y: x.index_add(0, i, y), (9, 20), integers(50, high=9), (50, 20))
graph(
    "index_put_accumulate", lambda x, i, y: x.index_put((i,), y, accumulate=True), (30,), integers(90, high=30), (90,)
)
graph("masked_fill", lambda x: x.masked_fill(x > 0, -1.0), (33, 9))
graph("one_hot", lambda i: F.one_hot(i, 12).float() * 2, integers(40, high=12))
graph("bucketize", lambda x, b: torch.bucketize(x, b.sort().values), (100,), (16,))
graph("searchsorted", lambda x, b: torch.searchsorted(b.sort(dim=-1).values, x), (4, 100), (4, 16))

# --- scans and sorts ------------------------------------------------------------------------------------------

graph("cumsum_rows", lambda x: x.cumsum(1), (9, 100))
graph("cumsum_columns", lambda x: x.cumsum(0), (100, 9))
graph("cumsum_long", lambda x: x.cumsum(0), (20000,), tolerance=1e-3)
graph("cumprod", lambda x: (x + 0.5).cumprod(1), positive(9, 30))
graph("cummax", lambda x: torch.cummax(x, 1), (9, 40))
graph("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), (9, 40))
graph("sort", lambda x: torch.sort(x, dim=1), (9, 60))
graph("argsort_descending", lambda x: torch.argsort(x, dim=1, descending=True, stable=True), (9, 60))

# --- products with epilogues, convolution, pooling -----------------------------------------------------------

graph("mm_relu", lambda x, y: torch.relu(x @ y + 1), (33, 40), (40, 50))
graph("linear_gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), (33, 40), (50, 40), (50,))
graph("bmm_scale", lambda x, y: torch.bmm(x, y) * 0.5, (3, 20, 30), (3, 30, 10))
graph("attention_by_hand", lambda q, k, v: ((q @ k.transpose(-1, -2)) / math.sqrt(32)).softmax(-1) @ v,
      (2, 4, 30, 32), (2, 4, 30, 32), (2, 4, 30, 32))  # fmt: skip
graph("conv_relu", lambda x, w: torch.relu(F.conv2d(x, w, padding=1)), (2, 3, 9, 9), (4, 3, 3, 3))
graph("max_pool", lambda x: F.max_pool2d(x, 3, 2), (2, 3, 11, 11))
graph("avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 11, 11))
graph("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, 4), (2, 3, 11, 11))
graph("upsample_nearest", lambda x: F.interpolate(x, scale_factor=2), (2, 3, 5, 5))
graph("upsample_bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (2, 3, 5, 5))
graph("grid_sample", lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (2, 3, 5, 5), (2, 4, 4, 2))
graph("rope", lambda x, c: torch.cat([-x[..., 16:], x[..., :16]], -1) * c.sin() + x * c.cos(), (2, 9, 32), (9, 32))

# --- backward, dynamic sizes --------------------------------------------------------------------------------------

graph("grad_gelu", lambda x: F.gelu(x) * x, (300,), grad=True)
graph("grad_softmax", lambda x, y: x.softmax(-1) * y, (20, 50), (20, 50), grad=True)
graph("grad_layer_norm", lambda x, w, b: F.layer_norm(x, (60,), w, b).sin(), (20, 60), (60,), (60,), grad=True)
graph("grad_cross_entropy", lambda x, t: F.cross_entropy(x, t), (40, 30), integers(40, high=30), grad=True)
graph("grad_embedding", lambda w, i: F.embedding(i, w).tanh(), (50, 16), integers(40, high=50), grad=True)
graph("grad_mlp", lambda x, w, v: torch.relu(x @ w) @ v, (20, 30), (30, 40), (40, 5), grad=True)
graph("grad_attention", lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v,
      (2, 12, 16), (2, 12, 16), (2, 12, 16), grad=True)  # fmt: skip
graph("grad_index_select", lambda x, i: x[i].exp(), (30, 8), integers(50, high=30), grad=True)
graph("dynamic_pointwise", lambda x, y: (x + y).relu(), (100,), (100,), dynamic=True)
graph("dynamic_softmax", lambda x: x.softmax(-1), (20, 36), dynamic=True)
graph("dynamic_sum", lambda x: x.sum(0), (60, 14), dynamic=True)
