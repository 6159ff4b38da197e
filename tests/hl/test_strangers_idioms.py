"""Tiles, arguments, text and control flow: programs as Helion's users write them, against PyTorch."""

from __future__ import annotations

import dataclasses
import typing

import torch
import torch.nn.functional as F

from tests.hl.strangers import agree, close
from tilewright import hl


def test_static_range_conv1d():

    def k(x, w, K: hl.constexpr):
        n = x.size(0) - K + 1
        out = torch.empty([n], device=x.device)
        for t in hl.tile(n):
            acc = hl.zeros([t])
            for i in hl.static_range(K):
                acc = acc + x[t.index + i] * w[i]
            out[t] = acc
        return out

    agree(k, lambda x, w, K: F.conv1d(x[None, None], w[None, None])[0, 0], (torch.randn(101), torch.randn(5), 5))


def test_tile_offset_stencil():

    def k(x):
        n = x.size(0)
        out = torch.empty_like(x)
        for t in hl.tile(n):
            l = hl.load(x, [t.index - 1], extra_mask=t.index > 0)
            r = hl.load(x, [t + 1], extra_mask=t.index < n - 1)
            out[t] = l + r - 2 * x[t]
        return out

    def e(x):
        p = F.pad(x, (1, 1))
        return p[:-2] + p[2:] - 2 * x

    agree(k, e, (torch.randn(77),))


def test_two_d_stencil_tile_plus():

    def k(x):
        h, w = x.size()
        out = torch.zeros_like(x)
        for i, j in hl.tile([h - 2, w - 2]):
            acc = hl.zeros([i, j])
            for a in hl.static_range(3):
                for b in hl.static_range(3):
                    acc = acc + x[i + a, j + b]
            out[i + 1, j + 1] = acc / 9
        return out

    def e(x):
        o = torch.zeros_like(x)
        o[1:-1, 1:-1] = F.avg_pool2d(x[None, None], 3, 1)[0, 0]
        return o

    agree(k, e, (torch.randn(17, 23),))


def test_inline_triton_expr():

    def k(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t]
            w = y[t]
            out[t] = hl.inline_triton(
                "tmp = {lhs} + {rhs}\ntl.where(tmp > 0, tmp, 0.1 * tmp)",
                args={"lhs": v, "rhs": w},
                output_like=v,
            )
        return out

    agree(k, lambda x, y: F.leaky_relu(x + y, 0.1), (torch.randn(100), torch.randn(100)), ref=False)


def test_inline_triton_two():

    def k(x):
        a = torch.empty_like(x)
        b = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t]
            s, d = hl.inline_triton(
                "\n                m = {0} * 2\n                m, m + {1}\n            ",
                args=(v, 3.0),
                output_like=(v, v),
            )
            a[t] = s
            b[t] = d
        return (a, b)

    agree(k, lambda x: (x * 2, x * 2 + 3), (torch.randn(100),), ref=False)


def test_triton_kernel_fn():
    import tilewright

    @tilewright.jit
    def addmul(a, b, s):
        return (a + b) * s

    @hl.kernel
    def k(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = hl.triton_kernel(addmul, args=(x[t], y[t], 2.0), output_like=x[t])
        return out

    x, y = (torch.randn(50), torch.randn(50))
    close(k(x, y), (x + y) * 2)


def test_graph_module_mod():
    m = torch.fx.symbolic_trace(lambda s: torch.relu(s) * 2 + 1)

    @hl.kernel
    def k(x, f):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = f(x[t])
        return out

    x = torch.randn(50)
    close(k(x, m), x.relu() * 2 + 1)


def test_dynamic_many():

    @hl.kernel(static_shapes=False)
    def k(x, y):
        m, n = x.size()
        out = torch.empty([n, m], dtype=x.dtype, device=x.device)
        for i, j in hl.tile([m, n]):
            out[j, i] = (x[i, j] + y[j]).T
        return out

    for m, n in ((3, 5), (1, 7), (64, 1), (100, 33), (0, 4), (2, 2)):
        x, y = (torch.randn(m, n), torch.randn(n))
        close(k(x, y), (x + y).T)


def test_dynamic_rows():

    @hl.kernel(static_shapes=False)
    def k(x):
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            v = x[i, :]
            out[i, :] = (v - v.mean(-1, keepdim=True)) * torch.rsqrt(v.var(-1, keepdim=True, correction=0) + 1e-05)
        return out

    for m, n in ((3, 5), (1, 7), (64, 2), (100, 33), (7, 1000)):
        x = torch.randn(m, n)
        close(k(x), F.layer_norm(x, (n,)), atol=0.0001, rtol=0.0001)


def test_tile_fields():

    def k(x):
        n = x.size(0)
        out = torch.empty([n, 5], dtype=torch.int64, device=x.device)
        for t in hl.tile(n):
            out[t, 0] = t.index
            out[t, 1] = t.index - t.begin
            out[t, 2] = t.end - t.begin
            out[t, 3] = t.id * t.block_size - t.begin
            out[t, 4] = t.count * t.block_size >= n
        return (out[:, 0], out[:, 3], out[:, 4])

    agree(
        k,
        lambda x: (torch.arange(37), torch.zeros(37, dtype=torch.long), torch.ones(37, dtype=torch.long)),
        (torch.randn(37),),
    )


def test_dropout_hlrand():

    @hl.kernel
    def k(p: float, x, seed: int):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            keep = hl.rand([t], seed=seed) > p
            out[t] = torch.where(keep, x[t] / (1 - p), 0.0)
        return out

    x = torch.ones(10000)
    o = k(0.25, x, 7)
    assert abs((o == 0).float().mean().item() - 0.25) < 0.02
    close(o, k(0.25, x, 7))


def test_rope_halves():

    def k(x, cos, sin):
        out = torch.empty_like(x)
        h = x.size(-1) // 2
        for b, s in hl.tile([x.size(0), x.size(1)]):
            x1 = x[b, s, :h]
            x2 = x[b, s, h:]
            c = cos[s, :]
            d = sin[s, :]
            out[b, s, :h] = x1 * c[None] - x2 * d[None]
            out[b, s, h:] = x2 * c[None] + x1 * d[None]
        return out

    def e(x, c, s):
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    agree(k, e, (torch.randn(3, 7, 16), torch.randn(7, 8), torch.randn(7, 8)))


@dataclasses.dataclass
class P:
    w: torch.Tensor
    b: torch.Tensor
    eps: float = 1e-05


class NT(typing.NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def test_structs():

    def k(x, p, nt, d):
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            v = x[i, :]
            v = (v - v.mean(-1, keepdim=True)) * torch.rsqrt(v.var(-1, keepdim=True, unbiased=False) + p.eps)
            out[i, :] = v * p.w[None, :] + p.b[:] + nt.x[i][:, None] * d["s"] - nt.y[i, :]
        return out

    kk = hl.kernel(k)
    x = torch.randn(7, 20)
    p = P(torch.randn(20), torch.randn(20))
    nt = NT(torch.randn(7), torch.randn(7, 20))
    close(
        kk(x, p, nt, {"s": 2.5}),
        F.layer_norm(x, (20,), p.w, p.b) + nt.x[:, None] * 2.5 - nt.y,
        atol=0.0001,
        rtol=0.0001,
    )


def test_list_of_tensors_sum():

    def k(xs: list):
        out = torch.zeros_like(xs[0])
        for t in hl.tile(out.size(0)):
            for z in xs:
                out[t] += z[t]
        return out

    kk = hl.kernel(k)
    xs = [torch.randn(50) for _ in range(4)]
    close(kk(xs), sum(xs))


def test_optional_bias():

    def k(x, b):
        out = torch.empty_like(x)
        for i, j in hl.tile(x.size()):
            v = x[i, j]
            if b is not None:
                v = v + b[j]
            out[i, j] = v
        return out

    agree(k, lambda x, b: x if b is None else x + b, (torch.randn(9, 20), torch.randn(20)), (torch.randn(9, 20), None))


def test_int_args_loops():

    def k(x, lo: int, hi: int, step: int):
        out = torch.zeros_like(x)
        for i in hl.tile(x.size(0)):
            acc = hl.zeros([i])
            for c in hl.grid(lo, hi, step=step):
                acc = acc + x[i, c]
            out[i, 0] = acc
        return out

    def e(x, lo, hi, step):
        o = torch.zeros_like(x)
        o[:, 0] = x[:, lo:hi:step].sum(1)
        return o

    agree(k, e, (torch.randn(9, 20), 3, 18, 4), (torch.randn(9, 20), 0, 20, 1), (torch.randn(9, 20), 5, 5, 2))


def test_uint8_packed_bits():

    def k(bits, n: hl.constexpr):
        out = torch.empty([bits.size(0), 8], dtype=torch.float32, device=bits.device)
        for i in hl.tile(bits.size(0)):
            sh = hl.arange(8)
            out[i, :] = (bits[i].to(torch.int32)[:, None] >> sh[None, :] & 1).to(torch.float32)
        return out

    agree(
        k,
        lambda b, n: (b.int()[:, None] >> torch.arange(8) & 1).float(),
        (torch.randint(0, 255, (33,), dtype=torch.uint8), 8),
    )


def test_chunk_unbind():

    def k(x):
        h = x.size(1) // 2
        out = torch.empty([x.size(0), h], device=x.device)
        for i in hl.tile(x.size(0)):
            a, b = torch.chunk(x[i, :], 2, dim=-1)
            out[i, :] = F.silu(a) * b
        return out

    agree(k, lambda x: F.silu(x[:, :20]) * x[:, 20:], (torch.randn(9, 40),))


def test_int_div_mod_indices():

    def k(x):
        n, m = x.size()
        flat = x.view(-1)
        out = torch.empty_like(flat)
        for t in hl.tile(n * m):
            r = t.index // m
            c = t.index % m
            out[t] = flat[r * m + c] * 2 + r - c
        return out.view(n, m)

    agree(k, lambda x: x * 2 + torch.arange(x.size(0))[:, None] - torch.arange(x.size(1)), (torch.randn(9, 13),))


def test_triangular():

    def k(x):
        out = torch.zeros_like(x)
        for i in hl.tile(x.size(0)):
            for j in hl.tile(0, i.end):
                m = i.index[:, None] >= j.index[None, :]
                out[i, j] = torch.where(m, x[i, j], 0.0)
        return out

    agree(k, torch.tril, (torch.randn(37, 37),))


def test_out_of_two_dtypes():

    def k(x):
        a = torch.empty_like(x, dtype=torch.float16)
        b = torch.empty(x.shape, dtype=torch.int32, device=x.device)
        c = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        for i, j in hl.tile(x.shape):
            a[i, j] = x[i, j]
            b[i, j] = (x[i, j] * 10).to(torch.int32)
            c[i, j] = x[i, j] > 0
        return (a, b, c)

    agree(k, lambda x: (x.half(), (x * 10).int(), x > 0), (torch.randn(9, 17),))


def test_noncontig_inputs():

    def k(x, y):
        out = torch.empty(x.shape, device=x.device)
        for i, j in hl.tile(x.shape):
            out[i, j] = x[i, j] * y[j, i].T
        return out

    agree(k, lambda x, y: x * y.T, (torch.randn(20, 9).T, torch.randn(40, 18)[::2, ::2]))


def test_expand_stride0():

    def k(x, y):
        x, y = torch.broadcast_tensors(x, y)
        out = torch.empty(x.shape, device=x.device)
        for t in hl.tile(out.size()):
            out[t] = x[t] + y[t]
        return out

    agree(k, torch.add, (torch.randn(9, 1), torch.randn(13)))


def test_nested_fn_default_args():

    def act(v, slope=0.1, *, bias=1.0):
        return F.leaky_relu(v, slope) + bias

    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = act(x[t], bias=2.0)
        return out

    agree(k, lambda x: F.leaky_relu(x, 0.1) + 2, (torch.randn(50),))


def test_early_exit_while():

    def k(x, tol: float):
        out = torch.empty_like(x)
        it = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
        for i in hl.grid(x.size(0)):
            v = x[i, :]
            n = 0
            while (v.abs().amax() > tol) & (n < 10):
                v = v * 0.5
                n = n + 1
            out[i, :] = v
            it[i] = n
        return (out, it)

    def e(x, tol):
        o = []
        c = []
        for v in x:
            n = 0
            while v.abs().max() > tol and n < 10:
                v = v * 0.5
                n += 1
            o.append(v)
            c.append(n)
        return (torch.stack(o), torch.tensor(c, dtype=torch.int32))

    agree(k, e, (torch.randn(6, 20) * 10, 0.7))


def test_while_and_python():

    def k(x, tol: float):
        it = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
        for i in hl.grid(x.size(0)):
            v = x[i]
            n = 0
            while v.abs() > tol and n < 10:
                v = v * 0.5
                n += 1
            it[i] = n
        return it

    def e(x, tol):
        c = []
        for v in x:
            n = 0
            while v.abs() > tol and n < 10:
                v = v * 0.5
                n += 1
            c.append(n)
        return torch.tensor(c, dtype=torch.int32)

    agree(k, e, (torch.randn(6) * 10, 0.7))


def test_while_newton():

    def k(x):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            v = x[i]
            g = v
            while torch.abs(g * g - v) > 1e-05:
                g = 0.5 * (g + v / g)
            out[i] = g
        return out

    agree(k, torch.sqrt, (torch.rand(20) + 0.5,))


def test_register_tunable_unroll():

    def k(x):
        u = hl.register_tunable("u", hl.autotuner.EnumFragment((1, 2, 4)))
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            acc = hl.zeros([i])
            for a in hl.static_range(4):
                acc = acc + x[i] * a
            out[i] = acc * u / u
        return out

    agree(k, lambda x: x * 6, (torch.randn(33),))


def test_randint_and_rand4x():

    @hl.kernel
    def k(x, seed: int):
        a = torch.empty(x.shape, dtype=torch.int32, device=x.device)
        b = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            a[t] = hl.randint([t], low=3, high=9, seed=seed)
            r = hl.rand4x(seed, t.index)
            b[t] = (r[0] + r[1] + r[2] + r[3]) / 4
        return (a, b)

    a, b = k(torch.empty(5000), 3)
    assert a.min() == 3 and a.max() == 8 and (abs(b.mean() - 0.5) < 0.02)


def test_specialize_tuple():

    @hl.kernel(static_shapes=False)
    def k(x):
        a, b = hl.specialize((x.size(0), x.size(1)))
        out = torch.empty_like(x)
        for i in hl.tile(a):
            out[i, :] = x[i, :].reshape(-1, b // 2, 2).flip(2).reshape(-1, b)
        return out

    for s in ((4, 6), (9, 8)):
        x = torch.randn(s)
        close(k(x), x.view(s[0], -1, 2).flip(2).reshape(s))


def test_aliased_out_inplace():

    def k(x, y):
        for t in hl.tile(x.size(0)):
            x[t] += y[t]
            y[t] *= 2
        return (x, y)

    agree(k, lambda x, y: (x + y, y * 2), (torch.randn(50), torch.randn(50)))
