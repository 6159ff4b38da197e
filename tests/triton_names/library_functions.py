"""Functions of libraries of Triton kernels on CPU tensors, forward and backward, each against plain PyTorch.

    python -m tilewright.as_triton -m tests.triton_names.library_functions [names, with their library's]
    ... --device cuda liger fla flag_gems conch              on a GPU, where no library is told anything

`make test-libraries` installs the libraries in an environment of its own; they are as they are installed. The last line
is a summary in JSON. What each must be told on a machine without a GPU is said, and done, in the function of its name.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.triton_names import quantizing_libraries
from tests.triton_names.library_cases import CASES, Tensor, case


def labels(count: int, high: int) -> Callable[[], Tensor]:
    """Random classes, as a function."""
    return lambda: torch.randint(0, high, (count,))


def distribution(*shape: int, log: bool = False) -> Callable[[], Tensor]:
    """Rows that sum to one, as a function."""
    return lambda: (torch.log_softmax if log else torch.softmax)(torch.randn(shape), -1).requires_grad_()


# --- liger-kernel ---------------------------------------------------------------------------------------------------


def liger() -> None:
    """One function counts multiprocessors of the devices that it knows: it is told of one without torch's help."""
    from liger_kernel.ops import dyt, geglu, relu_squared, rope, softmax, sparsemax, swiglu

    if torch.get_default_device().type == "cpu":
        dyt.infer_device = lambda: "npu"
    rows, ends = (30, 96), (96,)
    gelu = functools.partial(F.gelu, approximate="tanh")
    case("liger geglu", geglu.LigerGELUMulFunction.apply, lambda x, y: gelu(x) * y, rows, rows)
    case("liger swiglu", swiglu.LigerSiLUMulFunction.apply, lambda x, y: F.silu(x) * y, rows, rows)
    case("liger relu_squared", relu_squared.LigerReLUSquaredFunction.apply, lambda x: torch.relu(x) ** 2, rows)
    case("liger softmax", softmax.LigerSoftmaxFunction.apply, lambda x: x.softmax(-1), rows)
    case("liger sparsemax", lambda x: sparsemax.LigerSparsemaxFunction.apply(x, -1), plain_sparsemax, (12, 40))
    tanh = lambda x, a, g, b: g * torch.tanh(a * x) + b
    case("liger dyt", dyt.LigerDyTFunction.apply, tanh, rows, (1,), ends, ends)
    turns = (lambda: angles().cos(), lambda: angles().sin())
    case("liger rope", rope.LigerRopeFunction.apply, plain_rope, (2, 4, 12, 32), (2, 2, 12, 32), *turns)
    liger_norms(rows, ends)
    liger_losses()


def liger_norms(rows: tuple[int, ...], ends: tuple[int, ...]) -> None:
    """Its norms."""
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.group_norm import LigerGroupNormFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    rms = lambda x, w: F.rms_norm(x, ends, w, 1e-6)
    case("liger rms_norm", lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6), rms, rows, ends)
    fused = lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6)
    case("liger fused_add_rms_norm", fused, lambda x, r, w: (rms(x + r, w), x + r), rows, rows, ends)
    layer = lambda x, w, b: F.layer_norm(x, ends, w, b, 1e-6)
    case("liger layer_norm", lambda *x: LigerLayerNormFunction.apply(*x, 1e-6), layer, rows, ends, ends)
    group = lambda x, w, b: F.group_norm(x, 3, w, b)
    case("liger group_norm", lambda *x: LigerGroupNormFunction.apply(*x, 6, 3, 1e-5), group, (4, 6, 40), (6,), (6,))


def liger_losses() -> None:
    """Its losses."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as Entropy
    from liger_kernel.ops.jsd import LigerJSDFunction
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction
    from liger_kernel.ops.tvd import LigerTVDLossFunction

    classes = ((40, 100), labels(40, 100))
    case("liger cross_entropy", lambda x, t: Entropy.apply(x, t, None)[0], F.cross_entropy, *classes)
    smooth = functools.partial(F.cross_entropy, ignore_index=3, label_smoothing=0.1)
    case("liger cross_entropy smoothed", lambda x, t: Entropy.apply(x, t, None, 3, 0.0, 0.1)[0], smooth, *classes)
    target, log_target = (lambda log=log: distribution(20, 64, log=log)().detach() for log in (False, True))
    kl_div = functools.partial(F.kl_div, reduction="batchmean")
    case("liger kl_div", LigerKLDivLossFunction.apply, kl_div, distribution(20, 64, log=True), target)
    case("liger jsd", LigerJSDFunction.apply, plain_jsd, distribution(20, 64, log=True), log_target)
    case("liger tvd", LigerTVDLossFunction.apply, lambda p, q: (p - q).abs().sum() / 40, distribution(20, 64), target)


def angles() -> Tensor:
    """Of rotary embeddings: twelve positions, 32 features, both halves alike."""
    half = torch.arange(12.0)[:, None] / 100 ** (torch.arange(16.0) / 16)
    return torch.cat([half, half], -1)[None]


def plain_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotation of pairs that lie half a head apart."""
    turned = [torch.cat([-x[..., 16:], x[..., :16]], -1) for x in (q, k)]
    return q * cos + turned[0] * sin, k * cos + turned[1] * sin


def plain_sparsemax(x: Tensor) -> Tensor:
    """Projection of rows to the simplex."""
    ordered = x.sort(-1, descending=True).values
    sums = ordered.cumsum(-1) - 1
    count = (ordered * torch.arange(1, x.shape[-1] + 1) > sums).sum(-1, keepdim=True)
    return torch.relu(x - sums.gather(-1, count - 1) / count)


def plain_jsd(p: Tensor, q: Tensor) -> Tensor:
    """Divergence of Jensen and Shannon of logarithms of distributions."""
    middle = torch.log((p.exp() + q.exp()) / 2)
    both = [F.kl_div(middle, x, reduction="sum", log_target=True) for x in (p, q)]
    return (both[0] + both[1]) / 2 / p.shape[0]


# --- flash-linear-attention -----------------------------------------------------------------------------------------


def fla() -> None:
    """Nothing: it asks the active driver for the device, which is "cpu"."""
    from fla.modules.activations import logsigmoid, sqrelu, swiglu, swish
    from fla.modules.norm.l2norm import l2_norm
    from fla.modules.norm.layernorm import layer_norm, rms_norm
    from fla.ops.gla import fused_recurrent_gla
    from fla.ops.hgrn import fused_recurrent_hgrn
    from fla.ops.linear_attn import fused_recurrent_linear_attn
    from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla
    from fla.ops.utils import chunk_global_cumsum, chunk_local_cumsum

    case("fla swish", swish, F.silu, (30, 96))
    case("fla logsigmoid", logsigmoid, F.logsigmoid, (30, 96))
    case("fla sqrelu", sqrelu, lambda x: torch.relu(x) ** 2, (30, 96))
    case("fla swiglu", swiglu, lambda x, y: F.silu(x) * y, (30, 96), (30, 96))
    case("fla l2_norm", l2_norm, lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6), (30, 96))
    case("fla layer_norm", layer_norm, lambda x, w, b: F.layer_norm(x, (96,), w, b), (30, 96), (96,), (96,))
    case("fla rms_norm", lambda x, w: rms_norm(x, w, None), lambda x, w: F.rms_norm(x, (96,), w, 1e-5), (30, 96), (96,))
    case(
        "fla chunk_local_cumsum",
        lambda g: chunk_local_cumsum(g.detach(), 16),
        lambda g: g.detach().view(2, 4, 16, 3).cumsum(2).view(2, 64, 3),
        (2, 64, 3),
    )
    case(
        "fla chunk_global_cumsum", lambda g: chunk_global_cumsum(g.detach()), lambda g: g.detach().cumsum(1), (2, 64, 3)
    )
    case(
        "fla fused_recurrent_hgrn",
        lambda x, g: fused_recurrent_hgrn(x, F.logsigmoid(g))[0],
        plain_hgrn,
        (2, 24, 32),
        (2, 24, 32),
    )
    heads = [(2, 24, 3, 32)] * 3
    case(
        "fla fused_recurrent_linear_attn",
        lambda q, k, v: fused_recurrent_linear_attn(q, k, v, normalize=False)[0],
        lambda q, k, v: plain_gla(q, k, v, torch.zeros_like(q)),
        *heads,
    )
    case(
        "fla fused_recurrent_gla",
        lambda q, k, v, g: fused_recurrent_gla(q, k, v, F.logsigmoid(g))[0],
        lambda q, k, v, g: plain_gla(q, k, v, F.logsigmoid(g)),
        *heads,
        (2, 24, 3, 32),
    )
    decay = lambda g: F.logsigmoid(g)[..., None].expand(-1, -1, -1, 32)
    for name, fn in (("fused_recurrent", fused_recurrent_simple_gla), ("chunk", chunk_simple_gla)):
        case(
            f"fla {name}_simple_gla",
            lambda q, k, v, g, fn=fn: fn(q, k, v, F.logsigmoid(g))[0],
            lambda q, k, v, g: plain_gla(q, k, v, decay(g)),
            *heads,
            (2, 24, 3),
        )
    fla_chunked()


def fla_chunked() -> None:
    """Rules that a chunk of 64 steps makes products of, over a chunk and a part of one."""
    from fla.ops.attn import parallel_attn
    from fla.ops.forgetting_attn import parallel_forgetting_attn
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.gla import chunk_gla
    from fla.ops.kda import chunk_kda

    heads, gates = [(1, 72, 2, 32)] * 3, (1, 72, 2)
    unit = functools.partial(F.normalize, dim=-1)
    fade = lambda g: F.logsigmoid(g + 2)
    case(
        "fla chunk_gla",
        lambda q, k, v, g: chunk_gla(q, k, v, fade(g))[0],
        lambda q, k, v, g: plain_gla(q, k, v, fade(g)),
        *heads,
        (1, 72, 2, 32),
    )
    for name, fn, shape in (("gated_delta_rule", chunk_gated_delta_rule, gates), ("kda", chunk_kda, (1, 72, 2, 32))):
        case(
            f"fla chunk_{name}",
            lambda q, k, v, g, b, fn=fn: fn(q, unit(k), v, fade(g), b.sigmoid())[0],
            lambda q, k, v, g, b: plain_delta(q, unit(k), v, fade(g), b.sigmoid()),
            *heads,
            shape,
            gates,
        )
    case(
        "fla parallel_forgetting_attn",
        lambda q, k, v, g: parallel_forgetting_attn(q, k, v, fade(g)),
        lambda q, k, v, g: plain_attention(q, k, v, fade(g), 72),
        *heads,
        gates,
    )
    case(
        "fla parallel_attn of a window",
        lambda q, k, v: parallel_attn(q, k, v, window_size=16),
        lambda q, k, v: plain_attention(q, k, v, torch.zeros(gates), 16),
        *heads,
    )


def plain_delta(q: Tensor, k: Tensor, v: Tensor, fade: Tensor, beta: Tensor) -> Tensor:
    """A matrix a head that fades by `exp(fade)` (a head, or a key) and then learns, by `beta`, what `k` should give."""
    state, out = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        state = state * fade[:, t].exp().reshape(*q.shape[:1], q.shape[2], -1, 1)
        missing = v[:, t] - (k[:, t][..., None] * state).sum(-2)
        state = state + k[:, t][..., None] * (beta[:, t][..., None] * missing)[..., None, :]
        out.append((q[:, t][..., None] * state).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(out, 1)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, fade: Tensor, window: int) -> Tensor:
    """Causal attention to the last `window` keys, whose scores fade by the sum of `fade` since."""
    steps, total = torch.arange(q.shape[1]), fade.cumsum(1).transpose(1, 2)
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5 + total[..., None] - total[..., None, :]
    apart = steps[:, None] - steps
    scores = scores.masked_fill((apart < 0) | (apart >= window), -torch.inf)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def plain_hgrn(x: Tensor, g: Tensor) -> Tensor:
    """A state that fades by `sigmoid(g)` and gains `x`, step by step."""
    state, states = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = torch.sigmoid(g[:, t]) * state + x[:, t]
        states.append(state)
    return torch.stack(states, 1)


def plain_gla(q: Tensor, k: Tensor, v: Tensor, fade: Tensor) -> Tensor:
    """Attention as a recurrence: a matrix a head fades by `exp(fade)` a key and gains the product of key and value."""
    state, out = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        state = state * fade[:, t].exp()[..., None] + k[:, t][..., None] * v[:, t][..., None, :]
        out.append((q[:, t][..., None] * state).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(out, 1)


# --- FlagGems -------------------------------------------------------------------------------------------------------


def tell_flag_gems() -> None:
    """Its list of vendors lacks the CPU's, whose folder it has, and `torch.cpu` has no devices that are numbered."""
    folder = Path(importlib.util.find_spec("flag_gems").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("flag_gems.runtime.common", folder / "runtime" / "common.py")
    assert spec is not None and spec.loader is not None
    common = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(common)
    known = common.vendors.get_all_vendors()
    common.vendors.get_all_vendors = classmethod(lambda cls: {**known, "arm": "arm"})
    os.environ["GEMS_VENDOR"] = "arm"
    torch.cpu.device, torch.cpu.current_device = contextlib.nullcontext, lambda: 0


def flag_gems() -> None:
    """Fourteen of its operators."""
    if torch.get_default_device().type == "cpu":
        tell_flag_gems()
    import flag_gems

    ops = flag_gems.ops
    plain: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
        "add": (ops.add, torch.add, ((30, 96), (30, 96))),
        "mul": (ops.mul, torch.mul, ((30, 96), (96,))),
        "exp": (ops.exp, torch.exp, ((30, 96),)),
        "silu": (ops.silu, F.silu, ((30, 96),)),
        "gelu": (ops.gelu, F.gelu, ((30, 96),)),
        "maximum": (ops.maximum, torch.maximum, ((30, 96), (30, 96))),
        "sum": (ops.sum, torch.sum, ((30, 96),)),
        "mean of rows": (lambda x: ops.mean_dim(x, [1]), lambda x: x.mean(1), ((30, 96),)),
        "amax": (lambda x: ops.amax(x, [1]), lambda x: x.amax(1), ((30, 96),)),
        "softmax": (lambda x: ops.softmax(x, -1), lambda x: x.softmax(-1), ((30, 96),)),
        "layer_norm": (
            lambda x, w, b: ops.layer_norm(x, (96,), w, b)[0],
            lambda x, w, b: F.layer_norm(x, (96,), w, b),
            ((30, 96), (96,), (96,)),
        ),
        "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), ((30, 96),)),
        "mm": (ops.mm, torch.mm, ((30, 96), (96, 40))),
        "embedding": (
            lambda w: ops.embedding(w, torch.arange(12) % 5), lambda w: w[torch.arange(12) % 5], ((5, 40),)
        ),
    }  # fmt: skip
    for name, (fn, expected, inputs) in plain.items():
        case(f"flag_gems {name}", lambda *x, fn=fn: fn(*(t.detach() for t in x)),
             lambda *x, fn=expected: fn(*(t.detach() for t in x)), *inputs)  # fmt: skip


LIBRARIES = (liger, fla, flag_gems, *quantizing_libraries.LIBRARIES)


# --- checking ---------------------------------------------------------------------------------------------------------


def results(fn: Callable[..., Any], inputs: list[Any]) -> list[Tensor]:
    """Outputs, and gradients of a weighted sum of them; on copies, as some functions work in place."""
    copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    found = fn(*[x * 1 if x.requires_grad else x for x in copies])
    outputs = [x for x in (found if isinstance(found, tuple) else (found,)) if isinstance(x, Tensor)]
    kept = [x.detach().clone() for x in outputs]
    if any(x.requires_grad for x in outputs):
        torch.manual_seed(1)
        sum((x * torch.randn(x.shape)).sum() for x in outputs if x.requires_grad).backward()
    return kept + [x.grad for x in copies if x.grad is not None]


def main() -> None:
    """Run the functions that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="libraries, or parts of names with their library's")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_default_device(asked.device)
    names: list[str] = asked.words
    failures: dict[str, str] = {}
    for library in LIBRARIES:
        if names and not any(library.__name__ in name for name in names):
            continue
        begin = time.perf_counter()
        library()
        print(f"{library.__name__} imported in {time.perf_counter() - begin:.1f} s", flush=True)
    chosen = {name: row for name, row in CASES.items() if not names or any(word in name for word in names)}
    for name, (fn, expected, wanted) in chosen.items():
        torch.manual_seed(0)
        inputs = [x() if callable(x) else torch.randn(x, requires_grad=True) for x in wanted]
        begin = time.perf_counter()
        try:
            for _ in range(2):  # libraries keep what they have compiled and chosen, and launch it in other ways
                torch.testing.assert_close(results(fn, inputs), results(expected, inputs), atol=2e-4, rtol=2e-4)
        except Exception:
            failures[name] = traceback.format_exc()[-2000:]
        print(f"{name:34} {'FAILED' if name in failures else 'right'} {time.perf_counter() - begin:.1f} s", flush=True)
    print(*failures.values(), sep="\n", file=sys.stderr)
    print(json.dumps({"functions": len(chosen), "failures": failures}))
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
