"""Programs of hl as a new user writes them, in their default configuration, against eager PyTorch.

    python -m benchmarks.hl_programs [--only TEXT] [--threads 1] [--threads 2] [--seconds S] [--out FILE]

Every result is compared with PyTorch's first. Calls are made in turns; a ratio is PyTorch's time over that of hl, the
median of paired rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.contests import Contest, Function, decide
from benchmarks.hand_written_gradients import softmax as softmax_backward
from tilewright import hl


@hl.kernel
def group_norm(x, weight, bias, groups: int, eps: float):  # type: ignore[no-untyped-def]
    """Group norm of images: two whole dimensions are one group."""
    n, channels, length = x.size()
    width = channels // groups
    y = x.view(n * groups, width, length)
    w, b = weight.view(groups, width), bias.view(groups, width)
    out = torch.empty_like(y)
    for t in hl.tile(n * groups):
        values = y[t, :, :]
        mean = values.mean([1, 2], keepdim=True)
        centred = values - mean
        scale = torch.rsqrt((centred * centred).mean([1, 2], keepdim=True) + eps)
        group = t.index % groups
        out[t, :, :] = centred * scale * w[group, :][:, :, None] + b[group, :][:, :, None]
    return out.view(n, channels, length)


@hl.kernel
def group_norm_of_torch(x, weight, bias, groups: hl.constexpr, eps: float):  # type: ignore[no-untyped-def]
    """Group norm by PyTorch's own function, image by image."""
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :, :] = F.group_norm(x[t, :, :], groups, weight[:], bias[:], eps)
    return out


@hl.kernel
def group_norm_of_sums(x, weight, bias, groups: int, eps: float):  # type: ignore[no-untyped-def]
    """Group norm from the sums of numbers and squares, a range for each of images and groups."""
    n, channels, length = x.size()
    width = channels // groups
    y, w, b = x.view(n, groups, width, length), weight.view(groups, width), bias.view(groups, width)
    out = torch.empty_like(y)
    for t_n, t_g in hl.tile([n, groups]):
        values = y[t_n, t_g, :, :]
        mean = values.sum((-2, -1)) / (width * length)
        var = (values * values).sum((-2, -1)) / (width * length) - mean * mean
        scale = torch.rsqrt(var + eps)[:, :, None, None]
        shifted = (values - mean[:, :, None, None]) * scale
        out[t_n, t_g, :, :] = shifted * w[t_g, :][None, :, :, None] + b[t_g, :][None, :, :, None]
    return out.view(n, channels, length)


@hl.kernel
def group_norm_of_moments(x, weight, bias, groups: int, eps: float):  # type: ignore[no-untyped-def]
    """Group norm by `var_mean`, a group for each index of the grid."""
    n, channels, length = x.size()
    width = channels // groups
    y, w, b = x.view(n, groups, width, length), weight.view(groups, width), bias.view(groups, width)
    out = torch.empty_like(y)
    for image, group in hl.grid([n, groups]):
        values = y[image, group, :, :]
        var, mean = torch.var_mean(values, correction=0)
        out[image, group, :, :] = (values - mean) * torch.rsqrt(var + eps) * w[group, :, None] + b[group, :, None]
    return out.view(n, channels, length)


@hl.kernel
def group_norm_in_place_of_view(x, weight, bias, groups: hl.constexpr, eps: float):  # type: ignore[no-untyped-def]
    """Group norm of tiles that are given the shape of groups in the loop."""
    n, channels, length = x.size()
    width = channels // groups
    out = torch.empty_like(x)
    for t in hl.tile(n):
        values = x[t, :, :].reshape(-1, groups, width, length)
        var, mean = torch.var_mean(values, (2, 3), correction=0, keepdim=True)
        normal = ((values - mean) * torch.rsqrt(var + eps)).reshape(-1, channels, length)
        out[t, :, :] = normal * weight[None, :, None] + bias[None, :, None]
    return out


@hl.kernel
def histogram(x, bins: int):  # type: ignore[no-untyped-def]
    """Counts by atomic sums."""
    counts = torch.zeros([bins], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        hl.atomic_add(counts, [x[t]], torch.ones_like(x[t], dtype=torch.int64))
    return counts


@hl.kernel
def histogram_one_hot(x, bins: int):  # type: ignore[no-untyped-def]
    """Counts by comparisons with every bin."""
    counts = torch.zeros([bins], dtype=torch.int64)
    for t in hl.tile(x.size(0)):
        hot = (x[t][:, None] == hl.arange(bins)[None, :]).to(torch.int64)
        hl.atomic_add(counts, [hl.arange(bins)], hot.sum(0))
    return counts


@hl.kernel
def conv2d(x, weight):  # type: ignore[no-untyped-def]
    """Convolution as a sum over taps of products; `weight` is [kh, kw, out, in], the image is padded."""
    n, channels, height, width = x.size()
    kh, kw, outs, _ = weight.size()
    out = torch.empty([n, outs, height - kh + 1, width - kw + 1])
    for image, row, t_o, t_w in hl.tile([n, height - kh + 1, outs, width - kw + 1], block_size=[1, 1, None, None]):
        acc = hl.zeros([t_o, t_w])
        for i in range(kh):
            for j in range(kw):
                for t_c in hl.tile(channels):
                    acc = torch.addmm(acc, weight[i, j, t_o, t_c], x[image.begin, t_c, row.begin + i, t_w.index + j])
        out[image.begin, t_o, row.begin, t_w] = acc
    return out


@hl.kernel
def conv1d(x, weight):  # type: ignore[no-untyped-def]
    """Depthwise convolution of rows that are padded in front; `weight` is [channels, taps]."""
    n, channels, length = x.size()
    taps = weight.size(1)
    out = torch.empty([n, channels, length - taps + 1])
    for t_n, t_c, t_l in hl.tile([n, channels, length - taps + 1]):
        acc = hl.zeros([t_n, t_c, t_l])
        for tap in range(taps):
            acc = acc + x[t_n, t_c, t_l.index + tap] * weight[t_c, tap][None, :, None]
        out[t_n, t_c, t_l] = acc
    return out


@hl.kernel
def rope_attention(q, k, v, cos, sin):  # type: ignore[no-untyped-def]
    """Causal attention of rotated queries and keys; several heads of queries share one of keys."""
    n, heads, length, depth = q.size()
    shared, half = heads // k.size(1), q.size(3) // 2
    out = torch.empty_like(q)
    for image, head, rows in hl.tile([n, heads, length], block_size=[1, 1, None]):
        b, h = image.begin, head.begin
        c, s = cos[rows, :], sin[rows, :]
        q1, q2 = q[b, h, rows, :half], q[b, h, rows, half:]
        qr = torch.cat([q1 * c - q2 * s, q2 * c + q1 * s], -1) * depth**-0.5
        most = hl.full([rows], float("-inf"))
        total, acc = hl.zeros([rows]), hl.zeros([rows, depth])
        for cols in hl.tile(0, rows.end):
            ck, sk = cos[cols, :], sin[cols, :]
            k1, k2 = k[b, h // shared, cols, :half], k[b, h // shared, cols, half:]
            kr = torch.cat([k1 * ck - k2 * sk, k2 * ck + k1 * sk], -1)
            scores = qr @ kr.T
            scores = torch.where(rows.index[:, None] >= cols.index[None, :], scores, float("-inf"))
            new = torch.maximum(most, scores.amax(-1))
            p = torch.exp(scores - new[:, None])
            old = torch.exp(most - new)
            total = total * old + p.sum(-1)
            acc = acc * old[:, None] + p @ v[b, h // shared, cols, :]
            most = new
        out[b, h, rows, :] = acc / total[:, None]
    return out


@hl.kernel
def int8_linear(x, weight, scale):  # type: ignore[no-untyped-def]
    """Product with weights of 8 bits, [out, in], and a scale for each output."""
    m, outs = x.size(0), weight.size(0)
    out = torch.empty([m, outs], dtype=x.dtype)
    for t_m, t_n in hl.tile([m, outs]):
        acc = hl.zeros([t_m, t_n])
        for t_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[t_m, t_k], weight[t_n, t_k].to(x.dtype).T)
        out[t_m, t_n] = acc * scale[t_n][None, :]
    return out


@hl.kernel
def softmax_gradient(grad, y):  # type: ignore[no-untyped-def]
    """Gradient of a softmax of which the result was kept."""
    made = torch.empty_like(y)
    for rows in hl.tile(y.size(0)):
        p, g = y[rows, :], grad[rows, :]
        made[rows, :] = p * (g - (g * p).sum(-1, keepdim=True))
    return made


@hl.kernel
def top_k_gate(x, weight, k: hl.constexpr):  # type: ignore[no-untyped-def]
    """The probabilities of the k best experts."""
    out = torch.empty([x.size(0), k])
    for rows in hl.tile(x.size(0)):
        acc = hl.zeros([rows, weight.size(1)])
        for inner in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[rows, inner], weight[inner, :])
        out[rows, :] = torch.softmax(torch.topk(acc, k, -1).values, -1)
    return out


@hl.kernel
def added(x, y):  # type: ignore[no-untyped-def]
    """The smallest kernel."""
    out = torch.empty_like(x)
    for m, n in hl.tile(x.size()):
        out[m, n] = x[m, n] + y[m, n]
    return out


@hl.kernel
def scaled_sum(x, y, factor: float):  # type: ignore[no-untyped-def]
    """With a number."""
    out = torch.empty_like(x)
    for m, n in hl.tile(x.size()):
        out[m, n] = x[m, n] + factor * y[m, n]
    return out


@hl.kernel
def row_norm(x, weight, bias, eps: float):  # type: ignore[no-untyped-def]
    """Layer norm by PyTorch's function."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = F.layer_norm(x[rows, :], [x.size(1)], weight[:], bias[:], eps)
    return out


@hl.kernel
def row_softmax(x):  # type: ignore[no-untyped-def]
    """Softmax by PyTorch's function."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], -1)
    return out


@hl.kernel
def small_product(x, y):  # type: ignore[no-untyped-def]
    """A product of matrices."""
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for m, n in hl.tile(out.size()):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[m, k], y[k, n])
        out[m, n] = acc
    return out


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Halves of the last dimension, turned by an angle for each row."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


Cases = dict[str, tuple[Callable[..., Any], tuple[Any, ...], Function]]


_GROUP_NORMS = (
    group_norm,
    group_norm_of_torch,
    group_norm_of_sums,
    group_norm_of_moments,
    group_norm_in_place_of_view,
)


def _norms() -> Cases:
    found: Cases = {}
    for n, channels, length, groups in ((8, 64, 1000, 8), (8, 64, 1024, 8), (4, 128, 196, 32), (16, 32, 49, 8)):
        x, w, b = torch.randn(n, channels, length), torch.rand(channels), torch.randn(channels)
        for kernel in _GROUP_NORMS:
            spelling = kernel.fn.__name__.removeprefix("group_norm").replace("_", " ")
            found[f"group norm{spelling} {n}x{channels}x{length} of {groups}"] = (
                kernel,
                (x, w, b, groups, 1e-5),
                lambda x=x, w=w, b=b, g=groups: F.group_norm(x, g, w, b),
            )
    for rows, columns in ((2048, 1024), (256, 1000), (128, 64)):
        g, x = torch.randn(rows, columns), torch.randn(rows, columns)
        y, size = torch.softmax(x, -1), f"{rows}x{columns}"
        made: Function = lambda g=g, y=y: torch._softmax_backward_data(g, y, -1, torch.float32)  # noqa: E731
        found[f"softmax gradient {size}"] = softmax_gradient, (g, y), made
        again: Function = lambda g=g, x=x: torch._softmax_backward_data(g, x.softmax(-1), -1, torch.float32)  # noqa: E731
        found[f"softmax gradient computed again {size}"] = softmax_backward, (g, x), again
    return found


def _calls() -> Cases:
    """Work of a microsecond or less: what is compared is what a call costs."""
    x, y, w, b = torch.randn(16, 64), torch.randn(16, 64), torch.rand(64), torch.randn(64)
    square = torch.randn(64, 64)
    return {
        "call of an addition": (added, (x, y), lambda: x + y),
        "call of a scaled sum": (scaled_sum, (x, y, 0.5), lambda: torch.add(x, y, alpha=0.5)),
        "call of a layer norm": (row_norm, (x, w, b, 1e-5), lambda: F.layer_norm(x, [64], w, b)),
        "call of a softmax": (row_softmax, (x,), lambda: torch.softmax(x, -1)),
        "call of a product": (small_product, (x, square), lambda: x @ square),
    }


def _products() -> Cases:
    x, w = torch.randn(4, 32, 58, 58), torch.randn(64, 32, 3, 3)
    taps = w.permute(2, 3, 0, 1).contiguous()
    rows, per_channel = torch.randn(8, 64, 1027), torch.randn(64, 4)
    q, k, v = torch.randn(1, 8, 512, 64), torch.randn(1, 2, 512, 64), torch.randn(1, 2, 512, 64)
    angle = torch.randn(512, 32)
    cos, sin = angle.cos(), angle.sin()

    def attended() -> torch.Tensor:
        turned = rotated(q, cos, sin), rotated(k, cos, sin), v
        return F.scaled_dot_product_attention(*turned, is_causal=True, enable_gqa=True)

    found: Cases = {
        "conv2d by taps": (conv2d, (x, taps), lambda: F.conv2d(x, w)),
        "conv1d of each channel": (
            conv1d,
            (rows, per_channel),
            lambda: F.conv1d(rows, per_channel[:, None, :], groups=64),
        ),
        "rope and grouped attention": (rope_attention, (q, k, v, cos, sin), attended),
    }
    for m, outs, inner in ((64, 512, 512), (256, 1024, 1024), (1, 1024, 1024)):
        a, codes, scale = (
            torch.randn(m, inner),
            torch.randint(-127, 128, (outs, inner)).to(torch.int8),
            torch.rand(outs),
        )
        found[f"int8 weights {m}x{outs}x{inner}"] = (
            int8_linear,
            (a, codes, scale),
            lambda a=a, c=codes, s=scale: F.linear(a, c.float()) * s,
        )
    a, gate = torch.randn(1024, 256), torch.randn(256, 16)
    found["top-k gate"] = top_k_gate, (a, gate, 2), lambda: torch.softmax(torch.topk(a @ gate, 2, -1).values, -1)
    return found


def _counts() -> Cases:
    found: Cases = {}
    for n in (1 << 16, 1 << 20):
        x = torch.randint(0, 256, (n,))
        for kernel in (histogram, histogram_one_hot):
            count: Function = lambda x=x: torch.bincount(x, minlength=256)  # noqa: E731
            found[f"{kernel.fn.__name__.replace('_', ' ')} {n}"] = kernel, (x, 256), count
    return found


def contests(only: str) -> Iterator[Contest]:
    """The rows whose name has `only` in it."""
    torch.manual_seed(0)
    for cases in (_norms(), _products(), _counts(), _calls()):
        for name, (kernel, args, rival) in cases.items():
            if only in name:

                def prepare(kernel: Any = kernel, args: Any = args, rival: Any = rival) -> tuple[dict[str, Any], Any]:
                    return {"default": lambda: kernel(*args)}, rival

                yield Contest(name, "f32", 1.0, prepare, 1e-4)


def main() -> None:
    """Print a line a program and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for contest in contests(given.only):
        try:
            outcomes = list(decide(contest, tuple(given.threads or (1, 2)), given.seconds))
        except hl.exc.Error as error:
            print(f"! {contest.subject}: {error}")
            continue
        for outcome in outcomes:
            mark = " " if outcome.passed else "*"
            ours, theirs = 1e3 * outcome.ours.median, 1e3 * outcome.rival.median
            print(
                f"{mark} {contest.subject:<46} {outcome.threads} threads  {outcome.ratio:.2f}  {ours:.3f} ms"
                f"  eager {theirs:.3f} ms  error {outcome.error:.0e}",
                flush=True,
            )
            rows.append({"name": contest.subject, "threads": outcome.threads, "ratio": outcome.ratio, "ms": ours})
    if given.out:
        machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
        given.out.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
