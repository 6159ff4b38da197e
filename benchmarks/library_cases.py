"""Functions of libraries of Triton kernels for `benchmarks.libraries_gpu`, each with the same in PyTorch.

A library is imported when its cases are asked for: in a process that has either Triton or Tilewright as `triton`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from tests.triton_names.library_functions import plain_gla
from tests.triton_names.quantizing_libraries import into

Tensor = torch.Tensor
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A function to time.

    Args:
        name: of it.
        fn: of the library.
        expected: the same in PyTorch.
        inputs: shapes of noise, or functions that give a tensor.
        backward: whether gradients of the noise are part of it.
        dtype: of the noise.
    """

    name: str
    fn: Callable[..., Any]
    expected: Callable[..., Any]
    inputs: tuple[Shape | Callable[[], Tensor], ...]
    backward: bool = True
    dtype: torch.dtype = torch.bfloat16


@triton.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Twice `n` elements, by one program."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, i < n), i < n)


def load_compiler() -> None:
    """Compile and run a small kernel, so that what follows is measured without the imports of the compiler."""
    x = torch.ones(1000, device="cuda")
    twice[(1,)](x, torch.empty_like(x), 1000, BLOCK=1024)
    torch.cuda.synchronize()


def labels(count: int, high: int) -> Callable[[], Tensor]:
    """Random classes, as a function."""
    return lambda: torch.randint(0, high, (count,), device="cuda")


def liger() -> Iterator[Case]:
    """Norms, gated activations, softmax and losses of liger-kernel."""
    from liger_kernel.ops import geglu, softmax, swiglu
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as Entropy
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as AddNorm
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction as LayerNorm
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as Norm

    rows, width, ends = (8192, 4096), 4096, (4096,)
    rms = lambda x, w: F.rms_norm(x, ends, w, 1e-6)
    yield Case("rms_norm", lambda x, w: Norm.apply(x, w, 1e-6), rms, (rows, ends))
    layer = lambda x, w, b: F.layer_norm(x, ends, w, b, 1e-6)
    yield Case("layer_norm", lambda *x: LayerNorm.apply(*x, 1e-6), layer, (rows, ends, ends))
    fused = lambda x, r, w: (rms(x + r, w), x + r)
    yield Case("fused_add_rms_norm", lambda x, r, w: AddNorm.apply(x, r, w, 1e-6), fused, (rows, rows, ends))
    yield Case("swiglu", swiglu.LigerSiLUMulFunction.apply, lambda x, y: F.silu(x) * y, (rows, rows))
    gelu = lambda x, y: F.gelu(x, approximate="tanh") * y
    yield Case("geglu", geglu.LigerGELUMulFunction.apply, gelu, (rows, rows))
    yield Case("softmax", softmax.LigerSoftmaxFunction.apply, lambda x: x.softmax(-1), (rows,))
    classes = ((width, 32000), labels(width, 32000))
    yield Case("cross_entropy", lambda x, t: Entropy.apply(x, t, None)[0], F.cross_entropy, classes)


def fla() -> Iterator[Case]:
    """Activations, norms, sums by chunks and linear attention of flash-linear-attention."""
    from fla.modules.activations import swiglu, swish
    from fla.modules.norm.l2norm import l2_norm
    from fla.modules.norm.layernorm import layer_norm, rms_norm
    from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla
    from fla.ops.utils import chunk_local_cumsum

    rows, ends = (8192, 1024), (1024,)
    yield Case("swish", swish, F.silu, (rows,))
    yield Case("swiglu", swiglu, lambda x, y: F.silu(x) * y, (rows, rows))
    yield Case("l2_norm", l2_norm, lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6), (rows,))
    yield Case("rms_norm", lambda x, w: rms_norm(x, w, None), lambda x, w: F.rms_norm(x, ends, w, 1e-5), (rows, ends))
    layer = lambda x, w, b: F.layer_norm(x, ends, w, b)
    yield Case("layer_norm", layer_norm, layer, (rows, ends, ends))
    sums = lambda g: g.view(4, 32, 64, 16).cumsum(2).view(4, 2048, 16)
    yield Case("chunk_local_cumsum", lambda g: chunk_local_cumsum(g, 64), sums, ((4, 2048, 16),), backward=False)
    heads = ((2, 512, 8, 64),) * 3 + ((2, 512, 8),)
    plain = lambda q, k, v, g: plain_gla(q, k, v, F.logsigmoid(g)[..., None].expand(-1, -1, -1, 64))
    for name, fn in (("fused_recurrent", fused_recurrent_simple_gla), ("chunk", chunk_simple_gla)):
        yield Case(f"{name}_simple_gla", lambda q, k, v, g, fn=fn: fn(q, k, v, F.logsigmoid(g))[0], plain, heads)


def flag_gems() -> Iterator[Case]:
    """Operators of FlagGems."""
    import flag_gems

    ops, rows, ends = flag_gems.ops, (4096, 4096), (4096,)
    layer = lambda x, w, b: ops.layer_norm(x, ends, w, b)[0]
    index = labels(8192, 32000)
    for name, fn, expected, inputs in (
        ("add", ops.add, torch.add, (rows, rows)),
        ("gelu", ops.gelu, F.gelu, (rows,)),
        ("sum", ops.sum, torch.sum, (rows,)),
        ("amax", lambda x: ops.amax(x, [1]), lambda x: x.amax(1), (rows,)),
        ("softmax", lambda x: ops.softmax(x, -1), lambda x: x.softmax(-1), (rows,)),
        ("layer_norm", layer, lambda x, w, b: F.layer_norm(x, ends, w, b), (rows, ends, ends)),
        ("cumsum", lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), (rows,)),
        ("embedding", ops.embedding, lambda w, i: w[i], ((32000, 1024), index)),
        ("mm", ops.mm, torch.mm, ((2048, 2048), (2048, 2048))),
    ):
        yield Case(name, fn, expected, inputs, backward=False)


def conch() -> Iterator[Case]:
    """Launchers of conch."""
    from conch.kernels.activation.gelu_tanh_and_mul import gelu_tanh_and_mul_launcher
    from conch.kernels.activation.silu_and_mul import silu_and_mul_launcher
    from conch.kernels.normalization.rms_norm import rms_norm_launcher
    from conch.kernels.quantization.int8 import static_scaled_int8_quant_launcher

    rows, ends = (8192, 4096), (4096,)
    half = lambda x: (*x.shape[:-1], x.shape[-1] // 2)
    for name, launcher, act in (
        ("silu_and_mul", silu_and_mul_launcher, F.silu),
        ("gelu_tanh_and_mul", gelu_tanh_and_mul_launcher, lambda x: F.gelu(x, approximate="tanh")),
    ):
        gated = lambda x, act=act: act(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]
        yield Case(name, into(launcher, half), gated, ((8192, 8192),), backward=False, dtype=torch.float32)
    norm = into(rms_norm_launcher, lambda x, w: x.shape, 1e-6, dtype=torch.bfloat16)
    yield Case("rms_norm", norm, lambda x, w: F.rms_norm(x, ends, w, 1e-6), (rows, ends), backward=False)
    quant = into(static_scaled_int8_quant_launcher, lambda x, s: x.shape, dtype=torch.int8)
    eight = lambda x, s: (x.float() / s).clamp(-128, 127).to(torch.int8)
    scale = lambda: torch.tensor([0.05], device="cuda")
    yield Case("int8 quant", quant, eight, (rows, scale), backward=False)


LIBRARIES: dict[str, Callable[[], Iterator[Case]]] = {
    "liger_kernel": liger, "conch": conch, "flag_gems": flag_gems, "fla": fla,
}  # fmt: skip
"""Package -> its cases."""
