"""Functions of conch, bitsandbytes, torchao, xformers and unsloth: what `library_functions.py` checks of them.

What each must be told on a machine without a GPU is said, and done, in the function of its name. Gradients are not
asked for: these are parts of inference, or backward passes by name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
import unittest.mock
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.triton_names.library_cases import Tensor, case

E4M3 = torch.float8_e4m3fn


def plain(name: str, fn: Callable[..., Any], expected: Callable[..., Any], *inputs: Any) -> None:
    """Enter a function without gradients."""
    case(name, *(lambda *x, f=f: f(*(t.detach().clone() for t in x)) for f in (fn, expected)), *inputs)


def into(launcher: Callable[..., Any], shape: Callable[..., Any], *rest: Any, dtype: Any = torch.float32) -> Any:
    """A function of a launcher that is given where its result goes first."""

    def call(*inputs: Tensor) -> Tensor:
        out = torch.empty(shape(*inputs), dtype=dtype)
        launcher(out, *inputs, *rest)
        return out

    return call


# --- conch ----------------------------------------------------------------------------------------------------------


def conch() -> None:
    """Nothing: its launchers ask no device."""
    from conch.kernels.activation.gelu_tanh_and_mul import gelu_tanh_and_mul_launcher
    from conch.kernels.activation.silu_and_mul import silu_and_mul_launcher
    from conch.kernels.embedding.rotary_embedding import rotary_embedding_launcher
    from conch.kernels.normalization.rms_norm import fused_add_rms_norm_launcher, rms_norm_launcher
    from conch.kernels.quantization.int8 import static_scaled_int8_quant_launcher
    from conch.kernels.vision.nms import nms_launcher

    half = lambda x: (*x.shape[:-1], x.shape[-1] // 2)
    parts = lambda x: (x[..., :96], x[..., 96:])
    plain(
        "conch silu_and_mul", into(silu_and_mul_launcher, half), lambda x: F.silu(parts(x)[0]) * parts(x)[1], (30, 192)
    )
    gelu = lambda x: F.gelu(parts(x)[0], approximate="tanh") * parts(x)[1]
    plain("conch gelu_tanh_and_mul", into(gelu_tanh_and_mul_launcher, half), gelu, (30, 192))
    rms = lambda x, w: F.rms_norm(x, (96,), w, 1e-6)
    plain("conch rms_norm", into(rms_norm_launcher, lambda x, w: x.shape, 1e-6), rms, (30, 96), (96,))

    def fused(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        fused_add_rms_norm_launcher(x, r, w, 1e-6)
        return x, r

    plain("conch fused_add_rms_norm", fused, lambda x, r, w: (rms(x + r, w), x + r), (30, 96), (30, 96), (96,))
    scale = lambda: torch.tensor([0.05])
    plain(
        "conch int8 quant",
        into(static_scaled_int8_quant_launcher, lambda x, s: x.shape, dtype=torch.int8),
        lambda x, s: (x / s).clamp(-128, 127).to(torch.int8),
        (30, 96),
        scale,
    )

    def rotary(q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        rotary_embedding_launcher(torch.arange(12), q, k, 32, table)
        return q, k

    plain("conch rotary_embedding", rotary, plain_rotary, (12, 128), (12, 64), rotations)

    def kept(boxes: Tensor, scores: Tensor) -> Tensor:
        n = len(boxes)
        over, keep = torch.zeros(n, n, dtype=torch.bool), torch.ones(n, dtype=torch.bool)
        return nms_launcher(boxes, scores, over, keep, 0.3)

    plain("conch nms", kept, plain_nms, boxes, lambda: torch.rand(40))


def rotations() -> Tensor:
    """Cosines and sines of twelve positions, 16 of each."""
    angles = torch.arange(12.0)[:, None] / 100 ** (torch.arange(16.0) / 16)
    return torch.cat([angles.cos(), angles.sin()], -1)


def plain_rotary(q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Rotation of pairs that lie half a head apart."""
    cos, sin = table[:, None, :16], table[:, None, 16:]
    out = []
    for x in (q, k):
        a, b = x.view(12, -1, 2, 16).unbind(2)
        out.append(torch.stack([a * cos - b * sin, b * cos + a * sin], 2).reshape(x.shape))
    return tuple(out)


def boxes() -> Tensor:
    """Forty boxes in a small field."""
    corners = torch.rand(40, 2) * 10
    return torch.cat([corners, corners + 1 + torch.rand(40, 2) * 4], -1)


def plain_nms(found: Tensor, scores: Tensor) -> Tensor:
    """The best box, and of the rest those that do not overlap one that is kept."""
    area = lambda b: (b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1)
    keep: list[int] = []
    for n in scores.argsort(descending=True, stable=True).tolist():
        one, others = found[n], [found[m] for m in keep]
        shared = [area(torch.cat([torch.maximum(one[:2], m[:2]), torch.minimum(one[2:], m[2:])])) for m in others]
        if all(x / (area(one) + area(m) - x) <= 0.3 for x, m in zip(shared, others, strict=True)):
            keep.append(n)
    return torch.tensor(keep)


# --- bitsandbytes -----------------------------------------------------------------------------------------------------


def bitsandbytes() -> None:
    """While it is imported, that the accelerator is the CPU, and that `torch.cpu` has devices.

    Its Triton back end is loaded by name: for the CPU it would take its C++.
    """
    torch.cpu.device = contextlib.nullcontext
    with unittest.mock.patch("torch.accelerator.current_accelerator", lambda *_: torch.device("cpu")):
        import bitsandbytes.functional as functional
        from bitsandbytes.backends.triton import ops

    table = functional.create_dynamic_map()
    plain(
        "bitsandbytes 8 bit",
        lambda x: ops.dequantize_blockwise(*ops.quantize_blockwise(x, table, 256), table, 256, torch.float32),
        lambda x: plain_blocks(x, table, 256),
        (4096,),
    )
    for kind in ("nf4", "fp4"):
        known = functional.get_4bit_type(kind, device="cpu")

        def four(x: Tensor, kind: str = kind) -> Tensor:
            packed, largest = ops.quantize_4bit(x, 64, kind, torch.uint8)
            return ops.dequantize_4bit(packed, largest, 64, kind, x.shape, torch.float32)

        plain(f"bitsandbytes {kind}", four, functools.partial(plain_blocks, table=known, block=64), (4096,))

    def adam(p: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        ops.optimizer_update_32bit("adam", g, p, m, v, None, 0.0, 0.0, 0.9, 0.999, 0.0, 0.0, 1e-8, 0.0, 1, 0.01, 1.0)
        return p, m, v

    first = lambda p, g: (p - 0.01 * g / (g.abs() + 1e-8), 0.1 * g, 0.001 * g * g)
    plain("bitsandbytes adam", adam, first, (4096,), (4096,))


def plain_blocks(x: Tensor, table: Tensor, block: int) -> Tensor:
    """Each block over its largest number, as the nearest number of a table."""
    rows = x.view(-1, block)
    largest = rows.abs().amax(-1, keepdim=True)
    nearest = (rows / largest).unsqueeze(-1).sub(table).abs().argmin(-1)
    return (table[nearest] * largest).view(x.shape)


# --- torchao ----------------------------------------------------------------------------------------------------------


def torchao() -> None:
    """Nothing for what it calls by name; operators that it registers for CUDA alone are called as functions."""
    from torchao.kernel import blockwise_quantization as blocks
    from torchao.kernel.intmm_triton import int_matmul_kernel, int_scaled_matmul_kernel
    from torchao.prototype.blockwise_fp8_training import kernels
    from torchao.prototype.quantized_training import int8_mm
    from triton import Config

    sizes = Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=2, num_warps=4)
    bytes_of = lambda *shape: lambda: torch.randint(-128, 128, shape, dtype=torch.int8)
    product = lambda a, b: a.int() @ b.int()
    whole = lambda a, b: int_matmul_kernel(a, b, torch.empty(64, 96, dtype=torch.int32), sizes)
    plain("torchao int_matmul", whole, product, bytes_of(64, 128), bytes_of(128, 96))
    scaled = lambda a, b, s: int_scaled_matmul_kernel(a, b, s.expand(64, 96), torch.empty(64, 96), sizes)
    plain(
        "torchao int_scaled_matmul",
        scaled,
        lambda a, b, s: product(a, b) * s,
        bytes_of(64, 128),
        bytes_of(128, 96),
        (64, 1),
    )
    del int8_mm._scaled_int8_mm_kernel.configs[2:]  # of 25: they are timed at the first call
    rows, columns = lambda: torch.rand(64), lambda: torch.rand(96)
    plain(
        "torchao scaled_int8_mm", int8_mm.scaled_int8_mm_cuda, lambda a, b, r, c: product(a, b) * r[:, None] * c,
        bytes_of(64, 128), bytes_of(128, 96), rows, columns,
    )  # fmt: skip
    back = lambda x: blocks.fp8_blockwise_weight_dequant(*blocks.fp8_blockwise_weight_quant(x))
    plain("torchao fp8 weights", back, plain_fp8_weights, (256, 256))
    plain(
        "torchao fp8 activations", lambda x: [t.float() for t in kernels.triton_fp8_blockwise_act_quant_lhs(x)],
        lambda x: [t.float() for t in kernels.torch_blockwise_scale_act_quant_lhs(x)], (32, 256),
    )  # fmt: skip


def plain_fp8_weights(x: Tensor) -> Tensor:
    """Squares of 128 over their largest number, as 8-bit floats, and back."""
    square = x.view(2, 128, 2, 128)
    scale = square.abs().amax((1, 3), keepdim=True) / 448.0
    return ((square / scale).to(E4M3).float() * scale).view(x.shape)


# --- xformers ---------------------------------------------------------------------------------------------------------


def xformers() -> None:
    """A `torch.cuda.device` that takes any device; what asserts CUDA tensors is launched as its wrapper would."""
    torch.cuda.device = contextlib.nullcontext
    from xformers.ops._triton.k_index_select_cat import index_select_cat_fwd_kernel
    from xformers.ops._triton.rmsnorm_kernels import _rms_norm_add_forward, _rms_norm_forward

    rms = lambda x, w: F.rms_norm(x, (96,), w, 1e-6)
    plain("xformers rms_norm", lambda x, w: _rms_norm_forward(x, w, 1e-6), rms, (30, 96), (96,))
    added = lambda x, y, w: (_rms_norm_add_forward(x, y, w, 1e-6), x)
    plain("xformers rms_norm_add", added, lambda x, y, w: (rms(x + y, w), x + y), (30, 96), (30, 96), (96,))

    def select(x: Tensor, index: Tensor) -> Tensor:
        out = torch.empty(len(index), 96)
        index_select_cat_fwd_kernel[(len(index), 1)](
            out, x, index, len(index), 96, *x.stride(), BLOCK_SIZE_INDEX=1, BLOCK_SIZE_COL=512
        )
        return out

    plain("xformers index_select_cat", select, lambda x, i: x[i], (30, 96), lambda: torch.randperm(30)[:12])


# --- unsloth ----------------------------------------------------------------------------------------------------------


def unsloth() -> None:
    """Its package asks for a GPU and for models when it is imported: two files of it are loaded beside a stand-in."""
    found = importlib.util.find_spec("unsloth")
    assert found is not None and found.submodule_search_locations
    root = found.submodule_search_locations[0]
    for name, path in (("unsloth", root), ("unsloth.kernels", f"{root}/kernels")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [path]
    utils = sys.modules["unsloth.kernels.utils"] = types.ModuleType("unsloth.kernels.utils")
    utils.calculate_settings, utils.torch_gpu_device = None, contextlib.nullcontext
    from triton.language.extra import libdevice

    utils.triton_tanh = libdevice.tanh
    from unsloth.kernels import geglu, swiglu

    rows = (2, 15, 96)
    plain("unsloth swiglu", swiglu.swiglu_fg_kernel, lambda e, g: F.silu(e) * g, rows, rows)
    plain("unsloth geglu", geglu.geglu_exact_forward_kernel, lambda e, g: F.gelu(e) * g, rows, rows)
    tanh = lambda e, g: F.gelu(e, approximate="tanh") * g
    plain("unsloth geglu tanh", geglu.geglu_approx_forward_kernel, tanh, rows, rows)
    for name, fn, gate in (
        ("swiglu", swiglu.swiglu_DWf_DW_dfg_kernel, F.silu),
        ("geglu", geglu.geglu_exact_backward_kernel, F.gelu),
    ):
        plain(f"unsloth {name} backward", fn, functools.partial(plain_gate_backward, gate=gate), *[(30, 96)] * 3)


def plain_gate_backward(d: Tensor, e: Tensor, g: Tensor, gate: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """The product of a gate, its derivative to the ungated side, and that to the gate's argument, all times `d`."""
    with torch.enable_grad():
        e = e.requires_grad_()
        f = gate(e)
        (slope,) = torch.autograd.grad(f.sum(), e)
    return (f * g).detach(), (d * f).detach(), d * g * slope


LIBRARIES = (conch, bitsandbytes, torchao, xformers, unsloth)
