"""Reductions, scans and norms of rows: programs as Helion's users write them, against PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.hl.strangers import agree
from tilewright import hl


def test_nested_tiles_three():

    def k(x):
        out = torch.empty_like(x)
        for b in hl.tile(x.size(0)):
            for i in hl.tile(x.size(1)):
                m = hl.full([b, i], float("-inf"))
                for j in hl.tile(x.size(2)):
                    m = torch.maximum(m, x[b, i, j].amax(-1))
                for j in hl.tile(x.size(2)):
                    out[b, i, j] = x[b, i, j] - m[:, :, None]
        return out

    agree(k, lambda x: x - x.amax(-1, keepdim=True), (torch.randn(5, 7, 33),))


def test_argmax_loop():

    def k(x):
        val = torch.empty([x.size(0)], device=x.device)
        idx = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
        for i in hl.tile(x.size(0)):
            best = hl.full([i], float("-inf"))
            at = hl.zeros([i], dtype=torch.int64)
            for j in hl.tile(x.size(1)):
                v = x[i, j]
                m = torch.amax(v, 1)
                a = torch.argmax(v, 1) + j.begin
                better = m > best
                at = torch.where(better, a, at)
                best = torch.where(better, m, best)
            val[i] = best
            idx[i] = at
        return (val, idx)

    agree(k, lambda x: tuple(x.max(1)), (torch.randn(13, 101),))


def test_argmax_full():

    def k(x):
        idx = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
        mn = torch.empty_like(idx)
        for i in hl.tile(x.size(0)):
            idx[i] = x[i, :].argmax(-1)
            mn[i] = torch.argmin(x[i, :], dim=1)
        return (idx, mn)

    agree(k, lambda x: (x.argmax(1), x.argmin(1)), (torch.randn(13, 101),))


def test_two_outputs_reduction():

    def k(x):
        mean = torch.empty([x.size(0)], device=x.device)
        rstd = torch.empty_like(mean)
        for i in hl.tile(x.size(0)):
            v, m = torch.var_mean(x[i, :], dim=-1, correction=0)
            mean[i] = m
            rstd[i] = torch.rsqrt(v + 1e-05)
        return (mean, rstd)

    agree(k, lambda x: (x.mean(1), torch.rsqrt(x.var(1, correction=0) + 1e-05)), (torch.randn(9, 70),))


def test_welford():

    def k(x):
        out = torch.empty([x.size(0), 2], device=x.device)
        for i in hl.tile(x.size(0)):
            c = hl.zeros([i])
            mean = hl.zeros([i])
            m2 = hl.zeros([i])
            for j in hl.tile(x.size(1)):
                ch = x[i, j]
                tn = j.end - j.begin
                tm = ch.sum(-1) / tn
                tm2 = ((ch - tm[:, None]) * (ch - tm[:, None])).sum(-1)
                d = tm - mean
                nc = c + tn
                mean = mean + d * tn / nc
                m2 = m2 + tm2 + d * d * c * tn / nc
                c = nc
            out[i, 0] = mean
            out[i, 1] = m2 / c
        return out

    agree(k, lambda x: torch.stack([x.mean(1), x.var(1, correction=0)], 1), (torch.randn(9, 70),))


def test_reduce_tuple_argmax():

    def comb(av, ai, bv, bi):
        g = av > bv
        return (torch.where(g, av, bv), torch.where(g, ai, bi))

    def k(x):
        out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
        for i in hl.tile(x.size(0)):
            v = x[i, :]
            idx = hl.arange(x.size(1), dtype=torch.int64)[None, :].expand(v.size(0), x.size(1))
            _, a = hl.reduce(comb, (v, idx), dim=1, other=(float("-inf"), -1))
            out[i] = a
        return out

    agree(k, lambda x: x.argmax(1), (torch.randn(9, 70),))


def test_scan_reverse_loop():

    def k(x):
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            carry = hl.zeros([i])
            for j in hl.tile(x.size(1)):
                c = torch.cumsum(x[i, j], 1) + carry[:, None]
                out[i, j] = c
                carry = carry + x[i, j].sum(1)
        return out

    agree(k, lambda x: x.cumsum(1), (torch.randn(9, 75),))


def test_linear_recurrence_scan():

    def comb(l, r):
        return (l[0] * r[0], l[1] * r[0] + r[1])

    def k(a, b):
        out = torch.empty_like(a)
        for i in hl.tile(a.size(0)):
            _, h = hl.associative_scan(comb, (a[i, :], b[i, :]), dim=1)
            out[i, :] = h
        return out

    def e(a, b):
        h = torch.zeros(a.size(0))
        o = []
        for t in range(a.size(1)):
            h = a[:, t] * h + b[:, t]
            o.append(h)
        return torch.stack(o, 1)

    agree(k, e, (torch.rand(9, 40), torch.randn(9, 40)))


def test_mamba_state_loop():

    def k(x, A, B, Cc):
        b, l, d = x.size()
        n = A.size(1)
        out = torch.empty_like(x)
        for i, j in hl.tile([b, d]):
            h = hl.zeros([i, j, n])
            for t in hl.grid(l):
                h = h * A[j, :][None] + x[i, t, j][:, :, None] * B[i, t, :][:, None, :]
                out[i, t, j] = (h * Cc[i, t, :][:, None, :]).sum(-1)
        return out

    def e(x, A, B, Cc):
        h = torch.zeros(x.size(0), x.size(2), A.size(1))
        o = []
        for t in range(x.size(1)):
            h = h * A + x[:, t, :, None] * B[:, t, None, :]
            o.append((h * Cc[:, t, None, :]).sum(-1))
        return torch.stack(o, 1)

    agree(k, e, (torch.randn(3, 11, 20), torch.rand(20, 8), torch.randn(3, 11, 8), torch.randn(3, 11, 8)))


def test_topk_gate():

    def k(x, K: hl.constexpr):
        v = torch.empty([x.size(0), K], device=x.device)
        ix = torch.empty([x.size(0), K], dtype=torch.int64, device=x.device)
        for i in hl.tile(x.size(0)):
            a, b = torch.topk(x[i, :], K, dim=-1)
            v[i, :] = torch.softmax(a, -1)
            ix[i, :] = b
        return (v, ix)

    def e(x, K):
        a, b = x.topk(K)
        return (a.softmax(-1), b)

    agree(k, e, (torch.randn(9, 37), 4))


def test_sort_rows():

    def k(x):
        v = torch.empty_like(x)
        ix = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        for i in hl.tile(x.size(0)):
            v[i, :], ix[i, :] = torch.sort(x[i, :], dim=-1, descending=True)
        return (v, ix)

    agree(k, lambda x: tuple(x.sort(-1, descending=True)), (torch.randn(9, 37),))


def test_gather_dim():

    def k(x, idx):
        out = torch.empty(idx.shape, device=x.device)
        for i in hl.tile(x.size(0)):
            out[i, :] = torch.gather(x[i, :], 1, idx[i, :])
        return out

    agree(k, lambda x, i: x.gather(1, i), (torch.randn(9, 37), torch.randint(0, 37, (9, 12))))


def test_groupnorm2():

    def k(x, g: hl.constexpr):
        n, c, hw = x.size()
        v = x.view(n, g, c // g, hw)
        out = torch.empty_like(v)
        for b, q in hl.tile([n, g]):
            t = v[b, q, :, :].float()
            m = t.mean((-1, -2), keepdim=True)
            va = ((t - m) ** 2).mean((-1, -2), keepdim=True)
            out[b, q, :, :] = (t - m) * torch.rsqrt(va + 1e-05)
        return out.view(n, c, hw)

    agree(k, lambda x, g: F.group_norm(x, g), (torch.randn(3, 8, 19), 4), n=3)


def test_kl_div():

    def k(lp, t, red: str):
        out = torch.zeros([lp.size(0)], device=lp.device)
        for i in hl.tile(lp.size(0)):
            acc = hl.zeros([i])
            for j in hl.tile(lp.size(1)):
                tv = t[i, j]
                acc += torch.where(tv > 0, tv * (torch.log(torch.clamp(tv, min=1e-10)) - lp[i, j]), 0.0).sum(1)
            out[i] = acc
        if red == "batchmean":
            return out.sum() / lp.size(0)
        return out.sum()

    agree(
        k,
        lambda lp, t, r: F.kl_div(lp, t, reduction=r),
        (torch.randn(9, 50).log_softmax(1), torch.randn(9, 50).softmax(1), "batchmean"),
    )


def test_ln_backward():

    def k(w, x, gy, mean, rstd):
        mb = hl.register_block_size(x.size(0))
        wgrad = x.new_empty([hl.cdiv(x.size(0), mb), w.size(0)], dtype=torch.float32)
        gx = torch.empty_like(x)
        for c in hl.tile(x.size(0), block_size=mb):
            acc = w.new_zeros([w.size(0)], dtype=torch.float32)
            for i in hl.tile(c.begin, c.end):
                xx = x[i, :]
                dy = gy[i, :]
                h = (xx - mean[i][:, None]) * rstd[i][:, None]
                acc += torch.sum(dy * h, 0)
                wd = w[None, :] * dy
                c1 = torch.sum(h * wd, -1) / x.size(1)
                c2 = wd.sum(-1) / x.size(1)
                gx[i, :] = (wd - (h * c1[:, None] + c2[:, None])) * rstd[i][:, None]
            wgrad[c.id, :] = acc
        return (gx, wgrad.sum(0))

    def e(w, x, gy, mean, rstd):
        x = x.requires_grad_()
        w = w.requires_grad_()
        F.layer_norm(x, (x.size(1),), w).backward(gy)
        return (x.grad, w.grad)

    x = torch.randn(33, 40)
    agree(k, e, (torch.randn(40), x, torch.randn(33, 40), x.mean(1), torch.rsqrt(x.var(1, correction=0) + 1e-05)))


def test_batch_softmax3d():

    def k(x):
        out = torch.empty_like(x)
        for b, m in hl.tile([x.size(0), x.size(1)]):
            out[b, m, :] = F.softmax(x[b, m, :], dim=-1)
        return out

    agree(k, lambda x: x.softmax(-1), (torch.randn(3, 5, 70),))


def test_layernorm_nested_reduction_two_axes():

    def k(x):
        n = x.size(0)
        out = torch.empty_like(x)
        s = torch.empty([n, 2], device=x.device)
        for b in hl.tile(n):
            v = x[b, :, :]
            m = v.mean(dim=(1, 2))
            q = (v * v).mean(dim=[1, 2])
            s[b, 0] = m
            s[b, 1] = q
            out[b, :, :] = (v - m[:, None, None]) / torch.sqrt(q - m * m + 1e-05)[:, None, None]
        return (out, s)

    def e(x):
        m = x.mean((1, 2))
        q = (x * x).mean((1, 2))
        return ((x - m[:, None, None]) / torch.sqrt(q - m * m + 1e-05)[:, None, None], torch.stack([m, q], 1))

    agree(k, e, (torch.randn(5, 7, 11),))


def test_log_softmax_argmax_pair():

    def k(x):
        lp = torch.empty_like(x)
        best = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
        for i in hl.tile(x.size(0)):
            v = F.log_softmax(x[i, :], dim=1)
            lp[i, :] = v
            mx = v.max(dim=1)
            best[i] = mx.indices.to(torch.int32)
        return (lp, best)

    agree(k, lambda x: (x.log_softmax(1), x.argmax(1).int()), (torch.randn(9, 31),))


def test_prefix_blocks_barrier():

    def k(x, bs: hl.constexpr):
        n = x.size(0)
        nb = hl.cdiv(n, bs)
        part = torch.empty([nb], device=x.device)
        out = torch.empty_like(x)
        for t in hl.tile(n, block_size=bs):
            part[t.id] = x[t].sum()
        hl.barrier()
        for t in hl.tile(n, block_size=bs):
            base = torch.where(hl.arange(nb) < t.id, part[:], 0.0).sum()
            out[t] = torch.cumsum(x[t], 0) + base
        return out

    agree(k, lambda x, bs: x.cumsum(0), (torch.randn(100), 16))


def test_cumsum_over_columns_dim0():

    def k(x):
        out = torch.empty_like(x)
        for j in hl.tile(x.size(1)):
            c = hl.zeros([j])
            for i in hl.tile(x.size(0)):
                v = x[i, j]
                out[i, j] = torch.cumsum(v, dim=0) + c[None, :]
                c = c + v.sum(0)
        return out

    agree(k, lambda x: x.cumsum(0), (torch.randn(37, 13),))


def test_tile_dict_acc_multi():

    def k(x):
        out = torch.empty([x.size(0), 3], device=x.device)
        for i in hl.tile(x.size(0)):
            accs = [hl.zeros([i]) for _ in range(3)]
            for j in hl.tile(x.size(1)):
                for p in range(3):
                    accs[p] = accs[p] + (x[i, j] ** (p + 1)).sum(1)
            for p in range(3):
                out[i, p] = accs[p]
        return out

    agree(k, lambda x: torch.stack([(x**p).sum(1) for p in (1, 2, 3)], 1), (torch.randn(9, 20),))


def test_seq_scan_prev_tile():

    def k(x, w):
        out = torch.empty_like(x)
        for b in hl.tile(x.size(0)):
            h = hl.zeros([b, x.size(2)])
            for t in hl.grid(x.size(1)):
                h = torch.tanh(x[b, t, :] + torch.matmul(h, w[:, :]))
                out[b, t, :] = h
        return out

    def e(x, w):
        h = torch.zeros(x.size(0), x.size(2))
        o = []
        for t in range(x.size(1)):
            h = torch.tanh(x[:, t] + h @ w)
            o.append(h)
        return torch.stack(o, 1)

    agree(k, e, (torch.randn(3, 7, 16), torch.randn(16, 16) * 0.2))


def test_masked_fill_where_nan():

    def k(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            v = x[t]
            out[t] = torch.nan_to_num(torch.where(torch.isnan(v), float("inf"), v).clamp(-2, 2)).masked_fill(
                v == 0, -7.0
            )
        return out

    x = torch.randn(50)
    x[3] = float("nan")
    x[5] = 0
    agree(
        k,
        lambda v: torch.nan_to_num(torch.where(torch.isnan(v), float("inf"), v).clamp(-2, 2)).masked_fill(v == 0, -7.0),
        (x,),
    )


def test_float64_and_int64():

    def k(x, y):
        a = torch.empty_like(x)
        b = torch.empty_like(y)
        for t in hl.tile(x.size(0)):
            a[t] = torch.lgamma(x[t].abs() + 1) + x[t] ** 3
            b[t] = y[t] * y[t] // 7 - y[t] % 5
        return (a, b)

    agree(
        k,
        lambda x, y: (torch.lgamma(x.abs() + 1) + x**3, y * y // 7 - y % 5),
        (torch.randn(50, dtype=torch.float64), torch.randint(-(10**9), 10**9, (50,))),
        atol=1e-09,
        rtol=1e-09,
    )


def test_bool_tensors():

    def k(x, m):
        anyv = torch.empty([x.size(0)], dtype=torch.bool, device=x.device)
        cnt = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
        o = torch.empty_like(m)
        for i in hl.tile(x.size(0)):
            v = (x[i, :] > 1) & m[i, :]
            anyv[i] = v.any(-1)
            cnt[i] = v.sum(-1)
            o[i, :] = ~v ^ m[i, :]
        return (anyv, cnt, o)

    agree(
        k,
        lambda x, m: (((x > 1) & m).any(1), ((x > 1) & m).sum(1), ~((x > 1) & m) ^ m),
        (torch.randn(9, 31), torch.rand(9, 31) > 0.5),
    )


def test_atomic_scalar_sum():

    def k(x):
        s = torch.zeros([], device=x.device)
        for t in hl.tile(x.size(0)):
            hl.atomic_add(s, [], x[t].sum())
        return s

    agree(k, lambda x: x.sum(), (torch.randn(1000),))


def test_hosts_after():

    def k(x):
        s = x.new_empty([x.size(0), 3])
        for t in hl.tile(x.size(0)):
            s[t, 0] = x[t, :].sum(-1)
            s[t, 1] = x[t, :].amax(-1)
            s[t, 2] = x[t, :].amin(-1)
        a, b, c = s.unbind(1)
        return {"sum": a.sum(), "max": b.max().item(), "min": float(c.min())}

    agree(k, lambda x: {"sum": x.sum(), "max": x.max().item(), "min": x.min().item()}, (torch.randn(9, 20),))
