"""Mistakes that type checkers must find: each line that ends in `# wrong` is an error, and no other line is."""

import numpy as np
import torch

import tilewright
import tilewright.language as tl
from tilewright import hl

x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)


@tilewright.jit
def helper(p, offset=0, BLOCK: tl.constexpr = 64):
    return p + offset + tl.arange(0, BLOCK)


@tilewright.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pass


@tilewright.jit(noinline=True)
def scale(x_ptr, y_ptr, n: tl.int32, factor: float = 2.0, BLOCK: tl.constexpr = 64):
    pass


@tilewright.jit
def nothing():
    pass


@tl.aggregate
class Interval:
    low: tl.tensor
    high: tl.tensor


@tl.constexpr_function
def half(n):
    return n // 2


@hl.kernel
def doubled(x: torch.Tensor, factor: float = 2.0) -> int:
    return 3


@hl.kernel(static_shapes=True)
def rows_of(x: torch.Tensor, n: hl.constexpr) -> str:
    return ""


@tilewright.jit
def body(p, m, B: tl.constexpr):
    tl.load(p, masq=m)  # wrong
    tl.load()  # wrong
    tl.load(p, mask=m, othr=0.0)  # wrong
    tl.load(p, m, 0.0, (), "", "", "", False, 3)  # wrong
    tl.load(p, evict="evict_last")  # wrong
    tl.store(p)  # wrong
    tl.store(p, m, masks=m)  # wrong
    tl.arange(0)  # wrong
    tl.arange(0, B, 1)  # wrong
    tl.arange(0, stop=B)  # wrong
    tl.zeros()  # wrong
    tl.zeros((B,), tl.float32, 0)  # wrong
    tl.zeros((B,), dtyp=tl.float32)  # wrong
    tl.full((B,))  # wrong
    tl.full((B,), 0, typ=tl.float32)  # wrong
    tl.dot(p)  # wrong
    tl.dot(p, p, precision="ieee")  # wrong
    tl.sum(p, axes=0)  # wrong
    tl.sum()  # wrong
    tl.sum(p, 0, False, None, 3)  # wrong
    tl.max(p, axis=0, return_index=True)  # wrong
    tl.min(p, keepdims=True)  # wrong
    tl.argmax(p, axes=0)  # wrong
    tl.softmax(p, axis=0)  # wrong
    tl.sum(p, axis="rows")  # wrong
    tl.max(p, keep_dims="yes")  # wrong
    tl.maximum(p, "1")  # wrong
    tl.where(p > 0, p, None)  # wrong
    tl.atomic_add(p, "1")  # wrong
    tl.histogram(p, 16.0)  # wrong
    tl.sigmoid([1.0, 2.0])  # wrong
    tl.cumsum(p, reversed=True)  # wrong
    tl.sort(p, descend=True)  # wrong
    tl.exp(p, p)  # wrong
    tl.exp(y=p)  # wrong
    tl.sqrt()  # wrong
    tl.where(p, p)  # wrong
    tl.where(condition=p, x=p, z=p)  # wrong
    tl.program_id(0, 1)  # wrong
    tl.program_id(dim=0)  # wrong
    tl.atomic_add(p)  # wrong
    tl.atomic_add(p, 1, semantics="relaxed")  # wrong
    tl.atomic_cas(p, 0)  # wrong
    tl.minimum(p)  # wrong
    tl.maximum(p, p, nan=True)  # wrong
    tl.reshape()  # wrong
    tl.rand(3)  # wrong
    tl.cdiv(3)  # wrong
    tl.lod(p)  # wrong
    tl.float33(p)  # wrong
    helper()  # wrong
    helper(p, 0, B, 3)  # wrong
    helper(p, BLOK=B)  # wrong
    Interval(p)  # wrong
    Interval(p, m, p)  # wrong
    Interval(low=p, hi=p)  # wrong
    half()  # wrong


add[(1,)](x, y, 64)  # wrong
add[(1,)](x, y, BLOCK=64)  # wrong
add[(1,)](x, y, 64, 64, 64)  # wrong
add[(1,)](x, y, 64, BLOK=64)  # wrong
add[(1,)](x, y, 64, block=64)  # wrong
add[(1,)](x, y, 64, BLOCK=64, num_warp=4)  # wrong
add[(1,)](x, y, 64, 64, BLOCK=64)  # wrong
add[(1,)]()  # wrong
add[(1,)](x, y, 64, BLOCK=64, num_warps="four")  # wrong
scale[(1,)](x, y)  # wrong
scale[(1,)](x, y, 64, "fast")  # wrong
scale[(1,)](x, y, 64, scale=3.0)  # wrong
nothing[(1,)](x)  # wrong
launch = add[(2,)]
launch(x, y)  # wrong
doubled()  # wrong
doubled(torch.zeros(3), 2.0, 3)  # wrong
doubled(torch.zeros(3), scale=2.0)  # wrong
doubled(torch.zeros(3), "2")  # wrong
text: str = doubled(torch.zeros(3))  # wrong
rows_of(torch.zeros(3))  # wrong
count: int = rows_of(torch.zeros(3), 3)  # wrong
add.lunch(x)  # wrong
