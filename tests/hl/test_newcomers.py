"""Small programs as somebody writes them who comes from PyTorch: control flow, arguments, results, views."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

from tilewright import hl


def eq(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_strings():
    @hl.kernel
    def act(x, name: str = "relu"):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t]
            if name == "relu":
                v = torch.relu(v)
            elif name in ("gelu", "gelu_tanh"):
                v = F.gelu(v, approximate="tanh" if name.endswith("tanh") else "none")
            elif name.startswith("leaky"):
                v = F.leaky_relu(v, float(name.split(":")[1]))
            else:
                raise ValueError(f"unknown {name!r}")
            out[t] = v
        return out

    x = torch.randn(37)
    eq(act(x), x.relu())
    eq(act(x, "gelu"), F.gelu(x))
    eq(act(x, name="gelu_tanh"), F.gelu(x, approximate="tanh"))
    eq(act(x, "leaky:0.3"), F.leaky_relu(x, 0.3))
    with pytest.raises(ValueError, match="unknown 'foo'"):
        act(x, "foo")


def test_conditional_expr():
    @hl.kernel
    def k(x, lo, hi):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            v = x[i]
            out[i] = v if lo < v < hi else (lo if v <= lo else hi)
        return out

    x = torch.randn(20)
    eq(k(x, -0.5, 0.5), x.clamp(-0.5, 0.5))


def test_bool_ops():
    @hl.kernel
    def k(x, n, flag: bool):
        out = torch.zeros_like(x)
        for t in hl.tile(x.size(0), block_size=4):
            if not flag and (t.begin == 0 or (t.begin >= n - 4 and n > 8)):
                out[t] = x[t] * 2
            else:
                out[t] = x[t]
        return out

    x = torch.randn(13)
    w = x.clone()
    w[:4] *= 2
    w[12:] *= 2
    eq(k(x, 13, False), w)
    eq(k(x, 13, True), x)


def test_dataclass_arg():
    @dataclasses.dataclass(frozen=True)
    class P:
        w: torch.Tensor
        b: torch.Tensor | None
        eps: float = 1e-5

    @hl.kernel
    def ln(x, p):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t, :]
            m = v.mean(-1, keepdim=True)
            s = v.var(-1, keepdim=True, unbiased=False)
            y = (v - m) * torch.rsqrt(s + p.eps) * p.w[None, :]
            if p.b is not None:
                y = y + p.b[None, :]
            out[t, :] = y
        return out

    x, w, b = torch.randn(10, 33), torch.randn(33), torch.randn(33)
    eq(ln(x, P(w, b)), F.layer_norm(x, (33,), w, b))
    eq(ln(x, P(w, None)), F.layer_norm(x, (33,), w))


def test_kwargs_defaults():
    @hl.kernel
    def k(x, y=None, scale: float = 1.0, bias: float = 0.0):
        out = torch.empty_like(x)
        for t in hl.tile(x.size()):
            v = x[t] * scale + bias
            if y is not None:
                v += y[t]
            out[t] = v
        return out

    x, y = torch.randn(5, 7), torch.randn(5, 7)
    eq(k(x), x)
    eq(k(x, bias=2.0), x + 2)
    eq(k(x, y, bias=1.0, scale=3.0), 3 * x + 1 + y)
    eq(k(y=y, x=x), x + y)


def test_outputs_tuple():
    class R(NamedTuple):
        m: torch.Tensor
        i: torch.Tensor

    @hl.kernel
    def k(x):
        m = torch.empty(x.size(0))
        i = torch.empty(x.size(0), dtype=torch.int64)
        for t in hl.tile(x.size(0)):
            v = x[t, :].max(1)
            m[t] = v.values
            i[t] = v.indices
        return R(m, i)

    x = torch.randn(9, 31)
    r = k(x)
    e = x.max(1)
    assert type(r) is R or isinstance(r, tuple)
    eq(r.m, e.values)
    eq(r.i, e.indices)


def test_outputs_dict():
    @hl.kernel
    def k(x):
        s = x.new_empty(x.size(0))
        q = torch.empty_like(s)
        for t in hl.tile(x.size(0)):
            s[t] = x[t, :].sum(-1)
            q[t] = (x[t, :] ** 2).sum(-1)
        return {"sum": s, "square": q, "rows": x.size(0)}

    x = torch.randn(9, 31)
    r = k(x)
    eq(r["sum"], x.sum(1))
    eq(r["square"], (x * x).sum(1))
    assert r["rows"] == 9


def test_closures():
    def make(a):
        shift = torch.arange(6.0)

        def f(v, t):
            return v * a + shift[t]

        return f

    @hl.kernel
    def k(x, f):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = f(x[t], t)
        return out

    x = torch.randn(6)
    eq(k(x, make(2.0)), x * 2 + torch.arange(6.0))
    eq(k(x, make(5.0)), x * 5 + torch.arange(6.0))


def test_several_loops():
    @hl.kernel
    def k(x):
        mean = x.new_empty(x.size(1))
        out = torch.empty_like(x)
        for c in hl.tile(x.size(1)):
            mean[c] = x[:, c].mean(0)
        for r, c in hl.tile(x.size()):
            out[r, c] = x[r, c] - mean[c][None, :]
        total = out.new_zeros(())
        for c in hl.tile(x.size(1)):
            hl.atomic_add(total, [], mean[c].sum())
        return out, total

    x = torch.randn(11, 19)
    o, s = k(x)
    eq(o, x - x.mean(0))
    eq(s, x.mean(0).sum())


def test_while_loop():
    @hl.kernel
    def collatz(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            n = x[i]
            steps = 0
            while n != 1:
                if n % 2 == 0:
                    n = n // 2
                else:
                    n = 3 * n + 1
                steps += 1
            out[i] = steps
        return out

    x = torch.tensor([1, 2, 3, 27, 97])
    eq(collatz(x), torch.tensor([0, 1, 7, 111, 118]))


def test_while_float():
    @hl.kernel
    def newton(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t]
            g = v * 0.5 + 0.5
            n = 0
            while (g * g - v).abs().max() > 1e-5 and n < 50:
                g = 0.5 * (g + v / g)
                n += 1
            out[t] = g
        return out

    x = torch.rand(40) + 0.1
    eq(newton(x), x.sqrt())


def test_view_reshape():
    @hl.kernel
    def k(x):
        b, n, d = x.shape
        h = 4
        q = x.view(b, n, h, d // h)
        out = torch.empty_like(q)
        for i, t in hl.tile([b, n]):
            v = q[i, t, :, :]
            out[i, t, :, :] = v / v.norm(dim=-1, keepdim=True)
        return out.reshape(b, n, d)

    x = torch.randn(3, 5, 32)
    eq(k(x), F.normalize(x.view(3, 5, 4, 8), dim=-1).reshape(3, 5, 32))


def test_tile_reshape():
    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t, :].reshape(-1, 4, 8)
            v = v - v.amax(2, keepdim=True)
            out[t, :] = v.transpose(1, 2).reshape(-1, 32)
        return out

    x = torch.randn(7, 32)
    v = x.view(7, 4, 8)
    eq(k(x), (v - v.amax(2, keepdim=True)).transpose(1, 2).reshape(7, 32))


def test_packed_int4():
    @hl.kernel
    def unpack(p):
        out = torch.empty([p.size(0), p.size(1) * 2], dtype=torch.int8)
        pairs = out.view(p.size(0), p.size(1), 2)
        for r, c in hl.tile([p.size(0), p.size(1)]):
            b = p[r, c].to(torch.int32)
            lo = (b << 28) >> 28
            hi = (b << 24) >> 28
            pairs[r, c, :] = torch.stack([lo, hi], -1).to(torch.int8)
        return out

    w = torch.randint(-8, 8, (5, 12), dtype=torch.int8)
    p = ((w[:, 0::2] & 15) | ((w[:, 1::2] & 15) << 4)).to(torch.int8)
    eq(unpack(p), w)


def test_device_functions():
    def gelu(v):
        return 0.5 * v * (1 + torch.erf(v / math.sqrt(2)))

    def stats(v):
        m = v.mean(-1, keepdim=True)
        return m, ((v - m) ** 2).mean(-1, keepdim=True)

    @hl.kernel
    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            m, s = stats(x[t, :])
            out[t, :] = gelu((x[t, :] - m) / torch.sqrt(s + 1e-5))
        return out

    x = torch.randn(6, 20)
    eq(k(x), F.gelu(F.layer_norm(x, (20,))))


def test_scans():
    @hl.kernel
    def k(x, d):
        out = torch.empty_like(x)
        s = torch.empty_like(x)

        def rec(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]

        for t in hl.tile(x.size(0)):
            s[t, :] = hl.cumsum(x[t, :], dim=1, reverse=True)
            _, v = hl.associative_scan(rec, (d[t, :], x[t, :]), dim=1)
            out[t, :] = v
        return out, s

    x, d = torch.randn(4, 9), torch.rand(4, 9)
    e = torch.zeros(4, 9)
    h = torch.zeros(4)
    for j in range(9):
        h = h * d[:, j] + x[:, j]
        e[:, j] = h
    o, s = k(x, d)
    eq(o, e)
    eq(s, x.flip(1).cumsum(1).flip(1))


def test_atomics():
    @hl.kernel
    def k(idx, w, n: int):
        out = torch.zeros(n)
        m = torch.full([n], -1, dtype=torch.int64)
        for t in hl.tile(idx.size(0)):
            hl.atomic_add(out, [idx[t]], w[t])
            hl.atomic_max(m, [idx[t]], t.index.to(torch.int64))
        return out, m

    i, w = torch.randint(0, 5, (50,)), torch.randn(50)
    o, m = k(i, w, 7)
    eq(o, torch.zeros(7).index_add(0, i, w))
    eq(m, torch.full((7,), -1).scatter_reduce(0, i, torch.arange(50), "amax"))


def test_jagged():
    @hl.kernel
    def k(v, off):
        b = off.size(0) - 1
        out = torch.zeros([b, v.size(1)])
        for t in hl.tile(b):
            s = off[t]
            n = off[t.index + 1] - s
            acc = hl.zeros([t, v.size(1)])
            for j in hl.jagged_tile(n):
                acc = acc + v[s[:, None] + j.index[None, :], :].sum(1)
            out[t, :] = acc / n.clamp(min=1)[:, None]
        return out

    n = [3, 0, 5, 1]
    off = torch.tensor([0, 3, 3, 8, 9])
    v = torch.randn(9, 6)
    eq(k(v, off), torch.stack([p.sum(0) / max(len(p), 1) for p in v.split(n)]))


def test_fstring_assert():
    @hl.kernel
    def k(x, y):
        assert x.shape == y.shape, f"shapes differ: {x.shape} {y.shape}"
        out = torch.empty_like(x)
        flat, a, b = out.view(-1), x.view(-1), y.view(-1)
        for t in hl.tile(x.numel()):
            flat[t] = a[t] + b[t]
        return out

    x = torch.randn(3, 4)
    eq(k(x, x), 2 * x)
    with pytest.raises(AssertionError, match="shapes differ"):
        k(x, x[:2])


def test_enum_arg():
    class M(enum.Enum):
        A = 1
        B = 2

    @hl.kernel
    def k(x, m):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            match m:
                case M.A:
                    out[t] = x[t] + 1
                case M.B:
                    out[t] = x[t] * 2
        return out

    x = torch.randn(5)
    eq(k(x, M.A), x + 1)
    eq(k(x, M.B), x * 2)
