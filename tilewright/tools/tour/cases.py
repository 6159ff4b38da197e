"""What the tour runs: each kernel with its inputs, its rival in PyTorch and its float64 reference.

Outputs are allocated and touched beforehand, so that no time contains a page fault. Errors are the
largest absolute difference from the reference, divided by the largest absolute reference value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

Tensor = Any


@dataclass(frozen=True, slots=True)
class Work:
    """A case with its data.

    Args:
        shape: sizes and data type, for the table.
        ours: runs the example's function, given its module; returns the output.
        rival: the same in PyTorch.
        reference: float64 result; is given our output (dropout needs nothing else, the others ignore it).
        tolerance: largest error that passes.
    """

    shape: str
    ours: Callable[[ModuleType], Tensor]
    rival: Callable[[], Tensor]
    reference: Callable[[], Tensor]
    tolerance: float
    compare_rival: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the tour: title, example file, and a function that makes its data (``quick``: a small size)."""

    title: str
    example: str
    prepare: Callable[[bool], Work]


def _vector_add(quick: bool) -> Work:
    import torch

    n = 1 << (16 if quick else 24)
    x, y, out = torch.rand(n), torch.rand(n), torch.zeros(n)
    rival_out = torch.zeros(n)
    return Work(
        f"{n >> 10}K f32" if quick else f"{n >> 20}M f32",
        lambda example: example.add(x, y, out=out),
        lambda: torch.add(x, y, out=rival_out),
        lambda: x.double() + y.double(),
        1e-7,
    )


def _softmax(quick: bool) -> Work:
    import torch

    rows, cols = (64, 512) if quick else (4096, 1024)
    x, out = torch.randn(rows, cols), torch.zeros(rows, cols)
    rival_out = torch.zeros(rows, cols)
    return Work(
        f"{rows}×{cols} f32",
        lambda example: example.softmax(x, out=out),
        lambda: torch.softmax(x, dim=1, out=rival_out),
        lambda: torch.softmax(x.double(), dim=1),
        2e-6,
    )


def _layer_norm(quick: bool) -> Work:
    import torch

    rows, cols = (64, 512) if quick else (4096, 1024)
    x = torch.randn(rows, cols).half()
    weight, bias = torch.rand(cols).half(), torch.rand(cols).half()
    out = torch.zeros_like(x)
    return Work(
        f"{rows}×{cols} f16",
        lambda example: example.layer_norm(x, weight, bias, out=out),
        lambda: torch.nn.functional.layer_norm(x, (cols,), weight, bias),
        lambda: torch.nn.functional.layer_norm(x.double(), (cols,), weight.double(), bias.double()),
        1e-3,
    )


def _matmul(dtype: str, tile: tuple[int, int, int], tolerance: float) -> Callable[[bool], Work]:
    def prepare(quick: bool) -> Work:
        import torch

        n = 128 if quick else 1024
        kind = getattr(torch, dtype)
        a, b = torch.randn(n, n).to(kind), torch.randn(n, n).to(kind)
        out, rival_out = torch.zeros_like(a), torch.zeros_like(a)
        return Work(
            f"{n}³ {_short(dtype)}",
            lambda example: example.matmul(a, b, out=out, tile=tuple(min(side, n) for side in tile)),
            lambda: torch.mm(a, b, out=rival_out),
            lambda: a.double() @ b.double(),
            tolerance,
        )

    return prepare


def _dropout(quick: bool) -> Work:
    import torch

    n, p, seed = 1 << (14 if quick else 22), 0.5, 123
    x, out = torch.randn(n), torch.zeros(n)
    keep = torch.from_numpy(philox_uniform(seed, n) > np.float32(p))
    return Work(
        f"{n >> 10}K f32" if quick else f"{n >> 20}M f32",
        lambda example: example.dropout(x, p, seed, out=out),
        lambda: torch.nn.functional.dropout(x, p, training=True),
        lambda: torch.where(keep, x.double() / (1 - p), 0.0),
        1e-7,
        compare_rival=False,
    )


def _attention(dtype: str, tile: tuple[int, int], tolerance: float) -> Callable[[bool], Work]:
    def prepare(quick: bool) -> Work:
        import torch

        heads, sequence, dim = (1, 128, 64) if quick else (4, 2048, 64)
        kind = getattr(torch, dtype)
        q, k, v = (torch.randn(1, heads, sequence, dim).to(kind) for _ in range(3))
        out = torch.zeros_like(q)
        attend = torch.nn.functional.scaled_dot_product_attention
        return Work(
            f"{heads}×{sequence}×{dim} {_short(dtype)}",
            lambda example: example.attention(q, k, v, causal=True, out=out, tile=tile),
            lambda: attend(q, k, v, is_causal=True),
            lambda: attend(q.double(), k.double(), v.double(), is_causal=True),
            tolerance,
        )

    return prepare


def _short(dtype: str) -> str:
    return {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]


def philox_uniform(seed: int, n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The numbers that ``tl.rand(seed, 0..n-1)`` must give, computed on their own with numpy.

    Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011); the
    first word's distance from zero becomes a float32 in [0, 1).
    """
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    words = [np.arange(n, dtype=np.uint64), *(np.zeros(n, dtype=np.uint64) for _ in range(3))]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        words = [
            second >> high ^ words[1] ^ np.uint64(keys[0]), second & low,
            first >> high ^ words[3] ^ np.uint64(keys[1]), first & low,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    signed = words[0].astype(np.uint32).view(np.int32)
    return np.where(signed < 0, ~signed, signed).astype(np.float32) * np.float32(4.6566127342e-10)


CASES = (
    Case("vector add", "vector_add", _vector_add),
    Case("fused softmax", "softmax", _softmax),
    Case("layer norm", "layer_norm", _layer_norm),
    Case("matmul", "matmul", _matmul("float32", (128, 128, 64), 2e-6)),
    Case("matmul", "matmul", _matmul("bfloat16", (128, 128, 64), 8e-3)),
    Case("seeded dropout", "dropout", _dropout),
    Case("causal attention", "attention", _attention("float32", (64, 64), 1e-5)),
    Case("causal attention", "attention", _attention("bfloat16", (64, 64), 1e-2)),
)
