"""Kernels over tensor descriptors of the host whose block shapes the hooks of their configurations set, as programs for
GPUs with a copy engine are written. Each function runs one on a device and gives (found, expected)."""

from __future__ import annotations

from typing import Any

import torch

import tilewright
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor

Config = tilewright.Config
QUICK = {"warmup": 0.1, "rep": 0.5}


def whole(tensor: torch.Tensor) -> TensorDescriptor:
    """A descriptor that does not know its blocks yet."""
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1] * tensor.dim())


# --- a product with a sum -----------------------------------------------------------------------------------


def set_tiles(args: dict[str, Any]) -> None:
    args["A"].block_shape = args["C"].block_shape = [args["BM"], args["BN"]]


TILES = [Config({"BM": rows, "BN": columns}, pre_hook=set_tiles) for rows in (16, 32) for columns in (16, 32)]


@tilewright.jit
def add_up_in_place(A, C, BM: tl.constexpr, BN: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(2):
        total += A.load([row, column])
    C.store([row, column], total + C.load([row, column]))


def tiles(device: str, **options: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """What is tuned, and C + 2 A by tiles."""
    a, c = torch.randn(64, 96, device=device), torch.randn(64, 96, device=device)
    expected = c + 2 * a
    options = {"key": [], "restore_value": ["C"], **QUICK, **options}
    tuned = tilewright.autotune(TILES, **options)(add_up_in_place)
    tuned[lambda meta: (64 // meta["BM"], 96 // meta["BN"])](whole(a), whole(c))
    return tuned, c, expected


# --- attention ----------------------------------------------------------------------------------------------


def set_heads(args: dict[str, Any]) -> None:
    width, queries, keys = args["WIDTH"], args["QUERIES"], args["KEYS"]
    args["q"].block_shape = args["o"].block_shape = [queries, width]
    args["k"].block_shape = args["v"].block_shape = [keys, width]


ATTENTION = [
    Config({"QUERIES": queries, "KEYS": keys, "warp_specialize": special}, 4, 2, pre_hook=set_heads)
    for queries, keys, special in ((16, 16, False), (32, 16, False), (32, 32, True))
]


@tilewright.jit
def attend(
    q, k, v, o, scale, length, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    warp_specialize: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(1) * length
    row = first + tl.program_id(0) * QUERIES
    queries = q.load([row, 0])
    most = tl.full([QUERIES], -float("inf"), tl.float32)
    weight = tl.zeros([QUERIES], tl.float32)
    found = tl.zeros([QUERIES, WIDTH], tl.float32)
    for start in tl.range(0, length, KEYS, warp_specialize=warp_specialize):
        scores = tl.dot(queries, k.load([first + start, 0]).T) * (scale * 1.44269504)
        above = tl.maximum(most, tl.max(scores, 1))
        shrink, share = tl.exp2(most - above), tl.exp2(scores - above[:, None])
        weight = weight * shrink + tl.sum(share, 1)
        values = v.load([first + start, 0])
        found = tl.dot(share.to(values.dtype), values, found * shrink[:, None])
        most = above
    o.store([row, 0], (found / weight[:, None]).to(o.dtype))


def attention(device: str, **options: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Softmax attention of two heads."""
    heads, length, width = 2, 64, 32
    q, k, v = (torch.randn(heads, length, width, device=device).half() for _ in "qkv")
    o = torch.empty_like(q)
    tuned = tilewright.autotune(ATTENTION, **{"key": ["length"], **QUICK, **options})(attend)
    flat = [whole(x.view(heads * length, width)) for x in (q, k, v, o)]
    tuned[lambda meta: (length // meta["QUERIES"], heads)](*flat, width**-0.5, length, WIDTH=width)
    weights = torch.softmax(q.float() @ k.float().transpose(1, 2) * width**-0.5, -1)
    return tuned, o.float(), weights @ v.float()


# --- a persistent product -------------------------------------------------------------------------------------


def set_product(args: dict[str, Any]) -> None:
    rows, columns, depth = (args["BLOCKS"][name] for name in "mnk")
    args["a"].block_shape, args["b"].block_shape = [rows, depth], [columns, depth]
    args["c"].block_shape = [rows, columns // 2 if args["HALVES"] else columns]


PRODUCT = [
    Config({"BM": 32, "BN": columns, "BK": 16, "HALVES": halves, "WARPS_APART": halves}, stages, 2, pre_hook=hook)
    for hook in [lambda args: set_product({**args, "BLOCKS": {"m": args["BM"], "n": args["BN"], "k": args["BK"]}})]
    for columns, halves, stages in ((32, False, 4), (32, True, 4), (64, True, 8))
]


@tilewright.jit
def multiply(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HALVES: tl.constexpr,
    WARPS_APART: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS, flatten=True, warp_specialize=WARPS_APART
    ):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(a.load([row, step * BK]), b.load([column, step * BK]).T, total)
        if HALVES:
            left, right = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))
            c.store([row, column], left.to(tl.float16))
            c.store([row, column + BN // 2], right.to(tl.float16))
        else:
            c.store([row, column], total.to(tl.float16))


def product(device: str, **options: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A product whose programs take several tiles each; sizes are no multiples of the blocks."""
    a, b = torch.randn(72, 40, device=device).half(), torch.randn(80, 40, device=device).half()
    c = torch.zeros(72, 80, device=device).half()
    tuned = tilewright.autotune(PRODUCT, **{"key": ["M", "N", "K"], **QUICK, **options})(multiply)
    tuned[(3,)](whole(a), whole(b), whole(c), 72, 80, 40, PROGRAMS=3)
    return tuned, c.float(), a.float() @ b.float().T


# --- parts of a sum ---------------------------------------------------------------------------------------------


def clear(args: dict[str, Any]) -> None:
    args["x"].block_shape = [args["ROWS"], 32]
    args["out"].zero_()


PARTS = [Config({"ROWS": rows}, pre_hook=clear) for rows in (4, 8, 16)]


@tilewright.jit
def add_columns(x, out, ROWS: tl.constexpr):
    part = tl.sum(x.load([tl.program_id(0) * ROWS, 0]), 0)
    tl.atomic_add(out + tl.arange(0, 32), part)


def parts(device: str, **options: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Sums that programs add up in memory which the hook clears."""
    x, out = torch.randint(-9, 9, (64, 32), device=device).float(), torch.full((32,), 7.0, device=device)
    tuned = tilewright.autotune(PARTS, **{"key": [], **QUICK, **options})(add_columns)
    tuned[lambda meta: (64 // meta["ROWS"],)](whole(x), out)
    return tuned, out, x.sum(0)


PROGRAMS = {made.__name__: made for made in (tiles, attention, product, parts)}
