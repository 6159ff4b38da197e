"""Kernels written for Helion, at small shapes on the CPU, each against PyTorch; Helion itself is as it is installed.

    python -m tilewright.as_triton -m tests.triton_names.helion_kernels [names] [--device cuda]

Helion is no dependency of Tilewright: `make test-helion` installs it in an environment of its own. Every kernel runs
with Helion's default configuration, but for products in full precision. The last line is a summary in JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import helion
import helion.language as hl
import torch
import torch.nn.functional as F

CASES: dict[str, tuple[Any, Callable[..., Any], tuple[Any, ...]]] = {}
"""Name -> kernel, the same in PyTorch, shapes of the inputs (or functions that make one)."""


def case(expected: Callable[..., Any], *inputs: Any) -> Callable[[Any], Any]:
    """Enter a kernel with what it must give."""

    def enter(fn: Any) -> Any:
        CASES[fn.__name__] = helion.kernel(fn, autotune_effort="none", dot_precision="ieee"), expected, inputs
        return fn

    return enter


@case(lambda x, y: x + y, (100, 70), (100, 70))
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


@case(lambda x, y: x * y, (33,), (33,))
def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] * y[tile]
    return out


@case(torch.maximum, (40, 9), (40, 9))
def maximum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = torch.maximum(x[tile], y[tile])
    return out


@case(torch.exp, (500,))
def exp(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = torch.exp(x[tile])
    return out


@case(F.gelu, (31, 17))
def gelu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = F.gelu(x[tile])
    return out


@case(torch.relu, (5, 6, 7))
def relu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = torch.relu(x[tile])
    return out


@case(lambda x, y: F.silu(x) * y, (20, 30), (20, 30))
def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = F.silu(x[tile]) * y[tile]
    return out


@case(lambda x, y: torch.where(x > y, x, y - 1), (20, 30), (20, 30))
def where(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = torch.where(x[tile] > y[tile], x[tile], y[tile] - 1)
    return out


@case(lambda x: torch.rsqrt(x.abs() + 1), (64, 5))
def rsqrt_abs(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = torch.rsqrt(x[tile].abs() + 1)
    return out


@case(F.silu, (31, 17))
def silu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = F.silu(x[tile])
    return out


@case(torch.tanh, (31, 17))
def tanh(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = torch.tanh(x[tile])
    return out


@case(lambda x, w: x + w, (30, 40), (40,))
def bias(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i, j in hl.tile(x.size()):
        out[i, j] = x[i, j] + w[j]
    return out


@case(lambda x: x.t().contiguous(), (30, 50))
def transpose(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([n, m], dtype=x.dtype, device=x.device)
    for i, j in hl.tile([m, n]):
        out[j, i] = x[i, j].transpose(0, 1)
    return out


@case(lambda x: x.sum(-1), (30, 100))
def row_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.tile(x.size(0)):
        out[i] = x[i, :].sum(-1)
    return out


@case(lambda x: x.sum(-1), (30, 1000))
def row_sum_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for i in hl.tile(m):
        total = hl.zeros([i], dtype=torch.float32)
        for j in hl.tile(n):
            total += x[i, j].sum(-1)
        out[i] = total
    return out


@case(lambda x: x.amax(-1), (30, 100))
def row_max(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.tile(x.size(0)):
        out[i] = torch.amax(x[i, :], dim=-1)
    return out


@case(lambda x: x.mean(-1), (30, 100))
def row_mean(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.tile(x.size(0)):
        out[i] = torch.mean(x[i, :], dim=-1)
    return out


@case(lambda x: x.softmax(1), (30, 100))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i, :] = F.softmax(x[i, :], dim=1)
    return out


@case(lambda x: x.softmax(1), (30, 100))
def softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        row = x[i, :]
        shifted = torch.exp(row - torch.amax(row, dim=1, keepdim=True))
        out[i, :] = shifted / torch.sum(shifted, dim=1, keepdim=True)
    return out


@case(lambda x: x.softmax(1), (20, 300))
def softmax_online(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    for i in hl.tile(m):
        largest = hl.full([i], float("-inf"), dtype=torch.float32)
        total = hl.zeros([i], dtype=torch.float32)
        for j in hl.tile(n):
            values = x[i, j]
            new = torch.maximum(largest, torch.amax(values, dim=1))
            total = total * torch.exp(largest - new) + torch.exp(values - new[:, None]).sum(dim=1)
            largest = new
        for j in hl.tile(n):
            out[i, j] = torch.exp(x[i, j] - largest[:, None]) / total[:, None]
    return out


@case(lambda x, w: F.rms_norm(x, (64,), w), (30, 64), (64,))
def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        row = x[i, :]
        scale = torch.rsqrt(torch.mean(row * row, dim=-1) + 1.1920929e-07)
        out[i, :] = row * scale[:, None] * w[:][None, :]
    return out


@case(lambda x, w, b: F.layer_norm(x, (64,), w, b), (30, 64), (64,), (64,))
def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        row = x[i, :]
        centred = row - torch.mean(row, dim=-1)[:, None]
        scale = torch.rsqrt(torch.mean(centred * centred, dim=-1) + 1e-5)
        out[i, :] = centred * scale[:, None] * w[:][None, :] + b[:][None, :]
    return out


@case(lambda x: torch.logsumexp(x, 1), (30, 64))
def log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.tile(x.size(0)):
        row = x[i, :]
        largest = torch.amax(row, dim=-1)
        out[i] = largest + torch.log(torch.exp(row - largest[:, None]).sum(-1))
    return out


@case(lambda x, y: x @ y, (40, 50), (50, 30))
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = x.size(), y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for i, j in hl.tile([m, n]):
        total = hl.zeros([i, j], dtype=torch.float32)
        for t in hl.tile(k):
            total = torch.addmm(total, x[i, t], y[t, j])
        out[i, j] = total
    return out


@case(lambda x, y, b: torch.relu(x @ y + b), (40, 50), (50, 30), (30,))
def matmul_bias_relu(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = x.size(), y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for i, j in hl.tile([m, n]):
        total = hl.zeros([i, j], dtype=torch.float32)
        for t in hl.tile(k):
            total = torch.addmm(total, x[i, t], y[t, j])
        out[i, j] = torch.relu(total + b[j])
    return out


@case(lambda x, y: torch.bmm(x, y), (3, 20, 30), (3, 30, 25))
def batched_matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (b, m, k), (_, _, n) = x.size(), y.size()
    out = torch.empty([b, m, n], dtype=x.dtype, device=x.device)
    for g, i, j in hl.tile([b, m, n]):
        total = hl.zeros([g, i, j], dtype=torch.float32)
        for t in hl.tile(k):
            total = torch.baddbmm(total, x[g, i, t], y[g, t, j])
        out[g, i, j] = total
    return out


@case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (4, 48, 32), (4, 48, 32), (4, 48, 32))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads, m, dim = q.size()
    dim = hl.specialize(dim)
    out = torch.empty_like(q)
    keys = k.transpose(1, 2)
    for h, i in hl.tile([heads, m]):
        largest = hl.full([h, i], float("-inf"), dtype=torch.float32)
        total = hl.zeros([h, i], dtype=torch.float32)
        acc = hl.zeros([h, i, dim], dtype=torch.float32)
        rows = q[h, i, :] * (dim**-0.5)
        for j in hl.tile(k.size(1)):
            scores = torch.bmm(rows, keys[h, :, j])
            new = torch.maximum(largest, torch.amax(scores, -1))
            weights = torch.exp(scores - new[:, :, None])
            fade = torch.exp(largest - new)
            total = total * fade + torch.sum(weights, -1)
            acc = torch.baddbmm(acc * fade[:, :, None], weights, v[h, j, :])
            largest = new
        out[h, i, :] = acc / total[:, :, None]
    return out


@case(lambda w, i: w[i], (50, 16), lambda: torch.randint(0, 50, (40,)))
def embedding(w: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = torch.empty([index.size(0), w.size(1)], dtype=w.dtype, device=w.device)
    for i, j in hl.tile([index.size(0), w.size(1)]):
        out[i, j] = hl.load(w, [index[i], j])
    return out


@case(lambda x, t: F.cross_entropy(x, t, reduction="none"), (30, 64), lambda: torch.randint(0, 64, (30,)))
def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    n, classes = x.size()
    out = torch.empty([n], dtype=x.dtype, device=x.device)
    flat = x.view(-1)
    for i in hl.tile(n):
        row = x[i, :]
        largest = torch.amax(row, dim=-1)
        norm = torch.log(torch.exp(row - largest[:, None]).sum(-1)) + largest
        out[i] = norm - hl.load(flat, [i.index * classes + target[i]])
    return out


@case(lambda x, y: x @ y, (16, 256), (256, 16))
def split_k(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = x.size(), y.size()
    out = torch.zeros([m, n], dtype=x.dtype, device=x.device)
    for i, j, outer in hl.tile([m, n, k], block_size=[16, 16, 64]):
        total = hl.zeros([i, j], dtype=torch.float32)
        for t in hl.tile(outer.begin, outer.end):
            total = torch.addmm(total, x[i, t], y[t, j])
        hl.atomic_add(out, [i, j], total)
    return out


def main() -> None:
    """Run the kernels that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of kernels")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_default_device(asked.device)
    failures: dict[str, str] = {}
    chosen = {name: row for name, row in CASES.items() if not asked.names or name in asked.names}
    for name, (kernel, expected, wanted) in chosen.items():
        torch.manual_seed(0)
        inputs = [shape() if callable(shape) else torch.randn(shape) for shape in wanted]
        begin = time.perf_counter()
        try:
            torch.testing.assert_close(kernel(*inputs), expected(*inputs), atol=1e-4, rtol=1e-4)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"[:800]
        print(f"{name:20} {'FAILED' if name in failures else 'right'} {time.perf_counter() - begin:.1f} s", flush=True)
    print(json.dumps({"kernels": len(chosen), "failures": failures}))
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
