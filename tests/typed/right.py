"""Programs that type checkers must accept: no line of this file is an error."""

from typing import NamedTuple

import numpy as np
import torch

import tilewright
import tilewright.language as tl
from tilewright import hl
from tilewright.language import constexpr

x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
WIDTH = tl.constexpr(4)
DEPTH: tl.constexpr = tl.constexpr(8)


class Pair(NamedTuple):
    first: tl.tensor
    second: tl.tensor


@tl.aggregate
class Interval:
    low: tl.tensor
    high: tl.tensor
    step: tl.constexpr = 1

    @tilewright.jit
    def length(self):
        return (self.high - self.low) // self.step


@tl.constexpr_function
def half(n):
    return n // 2


@tilewright.jit
def shifted(p, offset=0, BLOCK: tl.constexpr = 64):
    return p + offset + tl.arange(0, BLOCK)


@tilewright.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) + tl.load(y_ptr + i, i < n), mask=i < n)


@tilewright.jit(noinline=True)
def scale(x_ptr: tl.const, y_ptr, n: tl.int32, factor: float = 2.0, BLOCK: constexpr = 64):
    tl.store(shifted(y_ptr), tl.load(shifted(x_ptr, BLOCK=BLOCK)) * factor)


@tilewright.jit
def nothing():
    pass


@tilewright.autotune(configs=[tilewright.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
@tilewright.jit
def tuned(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pass


@tilewright.heuristics({"BLOCK": lambda given: 64})
@tilewright.jit
def by_rule(x_ptr, n, BLOCK: tl.constexpr):
    pass


@tilewright.jit
def body(x_ptr, y_ptr, stride, n, desc, B: tl.constexpr, FAST: tl.constexpr, DTYPE: tl.constexpr):
    i = tl.arange(0, B)
    m = (i < n) & (i >= 0) | ~(i == 3)
    v = tl.load(x_ptr + i, mask=m, other=-float("inf"), eviction_policy="evict_last")
    w = tl.load(x_ptr + i[:, None] * stride + i[None, :], m[:, None], cache_modifier=".ca")
    k: tl.constexpr = B // 2
    acc = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, n, B):
        acc = tl.dot(w, w.T, acc, input_precision="ieee")
        acc += tl.dot(w.to(tl.bfloat16), tl.trans(w).to(tl.bfloat16), out_dtype=tl.float32) * start
    for step in tl.range(0, n, B, num_stages=2):
        acc *= step
    for step in tl.static_range(WIDTH):
        acc = acc - step
    if FAST and k > 3:
        acc = tl.exp2(acc) + tl.exp(x=acc)
    elif DTYPE == tl.float16:
        acc = acc.to(DTYPE).to(tl.float32, bitcast=False)
    while tl.max(acc, axis=1, keep_dims=True).sum() > 0:
        acc = -acc
    top, where = tl.max(v, axis=0, return_indices=True)
    total = tl.sum(v, 0) + v.sum(axis=0) + tl.sum(v)
    first, second = tl.split(tl.join(v, v))
    both = Pair(first, second)
    interval = Interval(v, v + 1, step=2)
    ends = Interval(low=v, high=total)
    total += both.first + both[1] + interval.length() + ends.high
    r = tl.where(v > top, v, 0.0) if FAST else v
    tl.store(y_ptr + i, r.reshape(B), m)
    tl.atomic_add(y_ptr + where, total, mask=None, sem="relaxed", scope="gpu")
    block = desc.load([0, 0])
    desc.store([0, 0], block * 2)
    tl.device_assert(total == total, "not a number")
    tl.device_print("total", total)
    tl.static_assert(B % 16 == 0, "a multiple of 16")
    s = tl.cumsum(v, axis=0, reverse=True) + tl.softmax(w, dim=1)[0] + tl.sigmoid(v) + tl.flip(v, 0)
    s = tl.sort(s, descending=True) + tl.rand(3, i) + tl.randn(seed=3, offset=i)
    t = tl.full([B], 1, tl.int32) + tl.full((B,), value=WIDTH, dtype=tl.int32) + half(B)
    t = tl.cast(t, tl.float32) + tl.float32(3) + (t << 2) + (t >> 1) + t % 5 + t**2
    u = tl.minimum(t, 3) + tl.maximum(t, s, propagate_nan=tl.PropagateNan.ALL) + tl.clamp(t, 0.0, 1.0)
    u = tl.fma(u, u, u) + tl.math.rsqrt(u) + tl.abs(u) + abs(u) + tl.cdiv(n, B) + tl.associative_scan(u, 0, shifted)
    u = tl.reduce((u, u), 0, shifted)[0] + tl.expand_dims(u, 0) + tl.broadcast_to(u, [B, B]) + tl.permute(w, (1, 0))
    u += (
        tl.exp(2.0)
        + tl.maximum(1, True)
        + tl.where(m, 1, 0.0)
        + tl.sum(v, constexpr(0), keep_dims=FAST)
        + tl.cdiv(n, WIDTH)
    )
    u += (
        tl.max(v, None)
        + tl.atomic_max(x_ptr, n, mask=True)
        + tl.histogram(i, WIDTH)
        + tl.dot(w, w, None, out_dtype=DTYPE)
    )
    a, b = tl.program_id(axis=0), tl.num_programs(1)
    return u, a + b, tl.multiple_of(i, 16), tl.max_contiguous(i, [16]), tl.inline_asm_elementwise


@hl.kernel
def doubled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * factor
    return out


@hl.kernel(config=hl.Config(block_sizes=[64]), static_shapes=True)
def rows_of(x: torch.Tensor, n: hl.constexpr) -> tuple[torch.Tensor, int]:
    return x, n


# --- launches and calls ----------------------------------------------------------------------------------------------

add[(1,)](x, y, 64, BLOCK=64)
add[(1,)](x, y, 64, 64)
add[1,](x, y, n=64, BLOCK=64)
add[(1, 1, 1)](x_ptr=x, y_ptr=y, n=64, BLOCK=64)
add[lambda meta: (tilewright.cdiv(64, meta["BLOCK"]),)](x, y, 64, BLOCK=64)
add[(1,)](x, y, 64, BLOCK=tilewright.next_power_of_2(60))
add[(1,)](*(x, y), 64, BLOCK=64)
add[(1,)](x, y, 64, **{"BLOCK": 64})
add[(1,)](x, y, 64, BLOCK=tl.constexpr(64))
add[(1,)](torch.zeros(3), torch.zeros(3), 3, BLOCK=64)
add[(1,)](x, y, 64, BLOCK=64, num_warps=4)
add[(1,)](x, y, 64, BLOCK=64, num_warps=4, num_stages=2)
add[(1,)](x, y, 64, BLOCK=64, num_threads=1)
add[(1,)](x, y, 64, BLOCK=64, debug=True)
add[(1,)](x, y, 64, BLOCK=64, maxnreg=64, num_ctas=1)
add[(1,)](x, y, 64, BLOCK=64, enable_fp_fusion=False)
scale[(1,)](x, y, 64)
scale[(1,)](x, y, 64, 3.0)
scale[(1,)](x, y, 64, 3)
scale[(1,)](x, y, 64, factor=3.0, BLOCK=32)
scale[(1,)](x, y, n=64, BLOCK=32)
nothing[(1,)]()
nothing[(4, 2)](num_warps=1)
tuned[(1,)](x, y, 64)
tuned[lambda meta: (meta["BLOCK"],)](x, y, n=64)
by_rule[(1,)](x, 64)
launch = add[(2,)]
launch(x, y, 128, BLOCK=64)
add.warmup(x, y, 64, BLOCK=64, grid=(1,))
add.run(x, y, 64, BLOCK=64, grid=(1,), warmup=False)
add.clear()
name: str = add.fn.__name__
scaled: torch.Tensor = doubled(torch.zeros(3, 3))
scaled = doubled(torch.zeros(3, 3), 3.0)
scaled = doubled(x=torch.zeros(3, 3), factor=1)
also, count = rows_of(torch.zeros(3, 3), 3)
number: int = half(8) + 1
