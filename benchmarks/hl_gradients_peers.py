"""Contests of `benchmarks.hl_gradients` with libraries of Triton kernels: liger-kernel and flash-linear-attention.

Each library is asked to agree with PyTorch before it is timed, and so are we. One that is not installed is left out,
and said.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import hl_gradients_recurrences as own
from benchmarks.hl_gradients_kernels import linear_cross_entropy

Call = Callable[[], Any]
Function = Callable[..., Any]
TOLERANCE = 0.03
"""Of the largest element of a result, in bfloat16."""


def contests(backward: Callable[..., Call]) -> dict[str, Callable[[], dict[str, Call]]]:
    """By name: what makes the derived backward pass and those of the libraries, on a GPU.

    Args:
        backward: gives the backward pass of a call.
    """

    def recurrence(kernel: Function, reference: Function, make: Function, **peer: tuple[str, str]) -> Any:
        sides = {"derived": kernel, **_library("fla", peer)}
        few, many = make(128), make(2048)
        for name, side in sides.items():
            check(name, side, reference, few)
        return {name: backward(side, *many) for name, side in sides.items()}

    delta, deltas = (own.delta_rule, own.delta_rule_reference, _heads), "fla.ops.delta_rule"
    scan, scans = (own.selective_scan, own.selective_scan_reference, _heads_that_forget), "fla.ops.simple_gla"
    gated = own.gated_recurrence, own.gated_recurrence_reference, _rows
    return {
        "delta rule": lambda: recurrence(*delta, fla=(deltas, "fused_recurrent_delta_rule")),
        "gated recurrence": lambda: recurrence(*gated, fla=("fla.ops.hgrn", "fused_recurrent_hgrn")),
        "selective scan": lambda: recurrence(*scan, fla=(scans, "fused_recurrent_simple_gla")),
        "loss over 131072 words, forward too": _loss,
        "delta rule, fla in chunks": lambda: recurrence(*delta, fla=(deltas, "chunk_delta_rule")),
        "selective scan, fla in chunks": lambda: recurrence(*scan, fla=(scans, "chunk_simple_gla")),
    }


def results(function: Function, args: list[Any]) -> list[Any]:
    """The result of a function, and the gradients of its arguments."""
    given = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
    out = function(*given)
    torch.manual_seed(1)
    up = torch.randn(out.shape, device=out.device).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, [a for a in given if a.requires_grad], up)]


def check(name: str, function: Function, reference: Function, args: list[Any]) -> None:
    """Compare results and gradients with PyTorch's.

    Raises:
        AssertionError: they differ.
    """
    for at, (one, other) in enumerate(zip(results(function, args), results(reference, args), strict=True)):
        most = float(other.float().abs().max())
        wrong = float((one.float() - other.float()).abs().max()) / max(most, 1e-6)
        assert wrong <= TOLERANCE, f"{name}: {wrong:.3g} of the largest element of {at}"


_LOSS = "liger_kernel.ops.fused_linear_cross_entropy"


def _library(name: str, functions: dict[str, tuple[str, str]]) -> dict[str, Function]:
    """Functions of a library, each of (module, name); none where it is not installed."""
    if any(importlib.util.find_spec(one) is None for one in ("triton", name)):
        print(f"{name} is left out: it, or Triton, is not installed here")
        return {}
    found = {who: getattr(importlib.import_module(module), what) for who, (module, what) in functions.items()}
    return {who: functools.partial(_first, one.apply if isinstance(one, type) else one) for who, one in found.items()}


def _first(function: Function, *args: Any) -> Any:
    """The first result of a function of a library, of queries that are scaled already."""
    scaled = {"scale": 1.0} if len(args) == 4 else {}
    return function(*args, **scaled)[0]


def _heads(steps: int) -> list[Any]:
    """Queries, normalised keys, values and rates: 4 sequences, 8 heads, width 64."""
    q, k, v = (torch.randn(4, steps, 8, 64) for _ in range(3))
    rates = torch.rand(4, steps, 8)
    return [one.to(torch.bfloat16) for one in (0.125 * q, F.normalize(k, dim=-1), v, rates)]


def _heads_that_forget(steps: int) -> list[Any]:
    *rest, rates = _heads(steps)
    return [*rest, F.logsigmoid(8 * rates.float()).to(torch.bfloat16)]


def _rows(steps: int) -> list[Any]:
    x, gates = torch.randn(4, steps, 2048), F.logsigmoid(torch.randn(4, steps, 2048) + 2)
    return [x.to(torch.bfloat16), gates.to(torch.bfloat16)]


def _loss() -> dict[str, Call]:
    """Of 4096 rows of width 512. Liger's backward pass is a part of its forward pass: both are timed, of all."""

    def make(rows: int, words: int) -> list[Any]:
        x, table = torch.randn(rows, 512), torch.randn(words, 512) / 16
        return [x.to(torch.bfloat16), table.to(torch.bfloat16), torch.randint(0, words, (rows,))]

    def plain(x: Any, table: Any, labels: Any) -> Any:
        return F.cross_entropy((x @ table.t()).float(), labels)

    peer = _library("liger_kernel", {"liger": (_LOSS, "LigerFusedLinearCrossEntropyFunction")})
    sides: dict[str, Function] = {"derived": lambda *args: linear_cross_entropy(*args).mean()}
    sides |= peer
    few, many = make(256, 4096), make(4096, 131072)
    for name, side in sides.items():
        check(name, side, plain, few)
    return {name: functools.partial(results, side, many) for name, side in {**sides, "eager": plain}.items()}
