"""Kernels, and functions that launch them, for the tests of the PyTorch integration."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch

import tilewright
import tilewright.language as tl
import tilewright.torch as tt
from tilewright.devices.host_descriptor import TensorDescriptor


@tilewright.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@tilewright.jit
def increase(x, n, a, B: tl.constexpr = 64):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, i < n) + a, i < n)


@tilewright.autotune(configs=[tilewright.Config({"B": 64}), tilewright.Config({"B": 256})], key=["n"], warmup=1, rep=1)
@tilewright.jit
def doubled(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * 2, i < n)


@tilewright.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@tilewright.jit
def tripled(x, o, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(o + i, tl.load(x + i) * 3)
    else:
        tl.store(o + i, tl.load(x + i, i < n) * 3, i < n)


@tilewright.jit
def square(v):
    return v * v


@tilewright.jit
def cube(v):
    return v * v * v


@tilewright.jit
def mixed(x, outs, scale, n, D: tl.constexpr, F: tl.constexpr, on, also, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = F(tl.load(x + i, i < n).to(D)) * scale
    if on:
        v += outs[1]
    tl.store(outs[0] + i, v, i < n)
    if also is not None:
        tl.store(also + i, v, i < n)


@tilewright.jit
def shifted(d, o, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), d.load([4]))


@tilewright.jit
def told(x, B: tl.constexpr):
    tl.device_print("sum", tl.sum(tl.load(x + tl.arange(0, B))))


@tilewright.jit
def total(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), 0))


@tilewright.jit
def through_table(table, x):
    p = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(p, tl.load(x))


@tilewright.jit
def silent(x, n):
    tl.device_assert(n > 0)
    tl.load(x)


@tilewright.jit
def pick(x, at, o):
    tl.store(o, tl.load(x + tl.load(at)))


@tilewright.jit
def wrong(x, o, n):
    tl.store(o, tl.dot(tl.load(x), n))


# --- functions of two tensors of one size, and what they launch ----------------------------------------------------


def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    add[lambda meta: (tilewright.cdiv(n, meta["B"]),)](x, y, o, n, B=64)
    return o * 2


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n, z = x.numel(), x + 1
    increase[(tilewright.cdiv(n, 64),)](z, n, 2.0)
    increase[tilewright.cdiv(n, 64)](y, n, 1.5, num_warps=8)
    return z + y


def autotuned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    doubled[lambda meta: (tilewright.cdiv(n, meta["B"]),)](x, o, n)
    return o + y


def by_heuristics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    tripled[lambda meta: (tilewright.cdiv(n, meta["B"]),)](x, o, n, B=64)
    return o + y


def views(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    both, n = torch.zeros(2, x.numel(), device=x.device), x.numel()
    increase[(tilewright.cdiv(n, 64),)](both[0], n, 1.0)
    increase[(tilewright.cdiv(n, 64),)](both[1], n, 2.0)
    return both + y


def of_all_kinds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, p, n = torch.empty_like(x), torch.empty_like(x), x.numel()
    grid = (tilewright.cdiv(n, 64),)
    mixed.run(x, (o, 3), 2.0, n, tl.float32, square, True, None, 64, grid=grid, num_warps=8)
    mixed[grid](x, (y, 4.5), 0.5, n, D=tl.float64, F=cube, on=False, also=p, B=64)
    return o + p


def descriptor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o = torch.zeros(8, device=x.device)
    shifted[(1,)](TensorDescriptor.from_tensor(x, [8]), o, 8)
    return o + y[:8]


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A record that a kernel takes: two of its fields are known only at run time."""

    factor: float
    shift: torch.Tensor
    power: tl.constexpr

    def of(self, v):
        for _ in tl.static_range(self.power):
            v = v * self.factor
        return v + tl.load(self.shift)


class Rows(NamedTuple):
    """Where a kernel reads, and how much."""

    data: torch.Tensor
    size: int


@tilewright.jit
def scaled_rows(rows, scaling, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, scaling.of(tl.load(rows.data + i, i < rows.size)), i < rows.size)


@tilewright.jit
def bits(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) + 1, i < n)


def records(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    scaled_rows[(tilewright.cdiv(n, 64),)](Rows(x, n), Scaling(2.0, y, 3), o, B=64)
    return o + y


def reinterpreted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n, o = x.numel(), torch.empty_like(y)
    bits[(tilewright.cdiv(n, 64),)](tilewright.reinterpret(x, tl.int32), tilewright.reinterpret(o, tl.int32), n, B=64)
    return o + y


def block_of_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    add[(1,)](x, y, o, n, B=tilewright.next_power_of_2(n))
    return o


FUNCTIONS = [
    plain,
    in_place,
    autotuned,
    by_heuristics,
    views,
    of_all_kinds,
    descriptor,
    records,
    reinterpreted,
    block_of_size,
]


# --- operators --------------------------------------------------------------------------------------------------------


@tt.triton_op("twtest::add2", mutates_args=())
def add2(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o, n = torch.empty_like(x), x.numel()
    tt.wrap_triton(add)[lambda meta: (tilewright.cdiv(n, meta["B"]),)](x, y, o, n, B=64)
    return o * 2


add2.register_autograd(lambda ctx, grad: (grad * 2, grad * 2))


@tt.triton_op("twtest::raise_by", mutates_args={"x"})
def raise_by(x: torch.Tensor, a: float) -> None:
    increase[(tilewright.cdiv(x.numel(), 64),)](x, x.numel(), a)


@tt.triton_op("twtest::no_gradient", mutates_args=())
def no_gradient(x: torch.Tensor) -> torch.Tensor:
    o = x.clone()
    increase[(tilewright.cdiv(x.numel(), 64),)](o, o.numel(), 1.0)
    return o


def pair(n: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of n numbers, always the same."""
    made = torch.Generator().manual_seed(n)
    return torch.randn(n, generator=made), torch.randn(n, generator=made)
