"""Products of matrices and attention: programs as Helion's users write them, against PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.hl.strangers import agree, close
from tilewright import hl


def test_split_k_atomic():

    def k(x, y):
        m, kk = x.size()
        n = y.size(1)
        out = torch.zeros([m, n], dtype=torch.float32, device=x.device)
        split = hl.register_tunable("split_k", hl.autotuner.PowerOfTwoFragment(1, 8, 4))
        kb = hl.next_power_of_2(hl.cdiv(kk, split))
        for i, j, o in hl.tile([m, n, kk], block_size=[None, None, kb]):
            acc = hl.zeros([i, j])
            for t in hl.tile(o.begin, o.end):
                acc = torch.addmm(acc, x[i, t], y[t, j])
            hl.atomic_add(out, [i, j], acc)
        return out

    agree(k, lambda x, y: x @ y, (torch.randn(33, 100), torch.randn(100, 20)))


def test_split_k_barrier():

    def k(x, y, parts: hl.constexpr):
        m, kk = x.size()
        n = y.size(1)
        part = torch.empty([parts, m, n], dtype=torch.float32, device=x.device)
        out = torch.empty([m, n], dtype=x.dtype, device=x.device)
        kb = hl.cdiv(kk, parts)
        for s, i, j in hl.tile([parts, m, n], block_size=[1, None, None]):
            acc = hl.zeros([i, j])
            for t in hl.tile(s.begin * kb, min((s.begin + 1) * kb, kk)):
                acc = torch.addmm(acc, x[i, t], y[t, j])
            part[s.begin, i, j] = acc
        hl.barrier()
        for i, j in hl.tile([m, n]):
            out[i, j] = part[:, i, j].sum(0).to(x.dtype)
        return out

    agree(k, lambda x, y, p: x @ y, (torch.randn(33, 100), torch.randn(100, 20), 3))


def test_epilogue_closures():
    bias = torch.randn(20)
    scale = 0.5

    def k(x, y, epi):
        m, kk = x.size()
        n = y.size(1)
        out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j])
            for t in hl.tile(kk):
                acc = torch.addmm(acc, x[i, t], y[t, j])
            out[i, j] = epi(acc, (i, j))
        return out

    x, y = (torch.randn(33, 50), torch.randn(50, 20))
    kk = hl.kernel(k)
    for f, g in (
        (lambda acc, t: acc, lambda z: z),
        (lambda acc, t: torch.relu(acc + bias[t[1]]) * scale, lambda z: torch.relu(z + bias) * scale),
        (lambda acc, t: acc + bias[t[1]][None, :].to(acc.dtype), lambda z: z + bias),
    ):
        close(kk(x, y, f), g(x @ y), atol=0.001, rtol=0.001)
    res = torch.randn(33, 20)
    close(kk(x, y, lambda acc, t: acc + res[t[0], t[1]]), x @ y + res, atol=0.001, rtol=0.001)
    close(kk(x, y, lambda acc, t: acc + res[t]), x @ y + res, atol=0.001, rtol=0.001)


def test_int4_gemm():

    def k(a, b):
        m, kk = a.size()
        n = b.size(1)
        out = torch.zeros([m, n], dtype=torch.float32, device=a.device)
        bk = hl.register_block_size(kk // 2)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j])
            for t in hl.tile(kk // 2, block_size=bk):
                av = a[i, t.begin * 2 : t.begin * 2 + t.block_size * 2]
                p = b[t, j]
                lo = (p << 4).to(torch.int8) >> 4
                hi = p >> 4
                w = torch.stack([lo.to(torch.float32), hi.to(torch.float32)], dim=1).reshape(
                    t.block_size * 2, j.block_size
                )
                acc = acc + torch.matmul(av.to(torch.float32), w)
            out[i, j] = acc
        return out

    def e(a, b):
        lo = ((b << 4).to(torch.int8) >> 4).float()
        hi = (b >> 4).float()
        w = torch.stack([lo, hi], 1).reshape(-1, b.size(1))
        return a.float() @ w

    agree(k, e, (torch.randn(12, 64), torch.randint(-128, 127, (32, 20), dtype=torch.int8)), atol=0.01)


def test_int4_gemm_join():

    def k(a, b):
        m, kk = a.size()
        n = b.size(1)
        out = torch.zeros([m, n], dtype=torch.float32, device=a.device)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j])
            for t in hl.tile(kk // 2):
                a0 = a[i, t.index * 2]
                a1 = a[i, t.index * 2 + 1]
                p = b[t, j]
                lo = (p << 4 >> 4).to(torch.float32)
                hi = (p >> 4).to(torch.float32)
                acc = acc + hl.dot(a0, lo) + hl.dot(a1, hi)
            out[i, j] = acc
        return out

    def e(a, b):
        lo = (b << 4 >> 4).float()
        hi = (b >> 4).float()
        w = torch.stack([lo, hi], 1).reshape(-1, b.size(1))
        return a.float() @ w

    agree(k, e, (torch.randn(12, 64), torch.randint(-128, 127, (32, 20), dtype=torch.int8)), atol=0.01)


def test_fp8_gemm():

    def k(a, b, sa, sb):
        m, kk = a.size()
        n = b.size(1)
        out = torch.empty([m, n], dtype=torch.bfloat16, device=a.device)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j])
            for t in hl.tile(kk):
                acc = hl.dot(a[i, t], b[t, j], acc=acc)
            out[i, j] = (acc * sa[i][:, None] * sb[j][None, :]).to(torch.bfloat16)
        return out

    a = torch.randn(20, 64).to(torch.float8_e4m3fn)
    b = torch.randn(64, 24).to(torch.float8_e4m3fn)
    agree(
        k,
        lambda a, b, sa, sb: (a.float() @ b.float() * sa[:, None] * sb[None]).bfloat16(),
        (a, b, torch.rand(20), torch.rand(24)),
        atol=0.02,
        rtol=0.02,
    )


def test_fp8_quant():

    def k(x):
        q = torch.empty(x.size(), dtype=torch.float8_e4m3fn, device=x.device)
        s = torch.empty([x.size(0)], device=x.device)
        for i in hl.tile(x.size(0)):
            v = x[i, :].to(torch.float32)
            am = torch.clamp(v.abs().amax(-1), min=1e-12)
            sc = am / 448.0
            q[i, :] = (v / sc[:, None]).to(torch.float8_e4m3fn)
            s[i] = sc
        return (q.to(torch.float32), s)

    agree(
        k,
        lambda x: (
            (x / (x.abs().amax(-1, keepdim=True) / 448)).to(torch.float8_e4m3fn).float(),
            x.abs().amax(-1) / 448,
        ),
        (torch.randn(9, 70),),
        rtol=0.07,
        atol=0.001,
    )


def test_flash_attention():

    def k(q, kk, v):
        m = q.size(-2)
        n = kk.size(-2)
        d = hl.specialize(q.size(-1))
        qv = q.reshape(-1, m, d)
        kv = kk.reshape(-1, n, d).transpose(1, 2)
        vv = v.reshape(-1, n, d)
        out = torch.empty_like(qv)
        sc = 1 / math.sqrt(d) * 1.44269504
        for b, i in hl.tile([qv.size(0), m]):
            mi = hl.full([b, i], float("-inf"))
            li = torch.full_like(mi, 1.0)
            acc = hl.zeros([b, i, d])
            qq = qv[b, i, :]
            for j in hl.tile(n):
                s = torch.bmm(qq, kv[b, :, j])
                s = torch.where((i.index[:, None] >= j.index[None, :])[None], s, float("-inf"))
                mn = torch.maximum(mi, torch.amax(s, -1) * sc)
                p = torch.exp2(s * sc - mn[:, :, None])
                al = torch.exp2(mi - mn)
                li = li * al + p.sum(-1)
                acc = torch.baddbmm(acc * al[:, :, None], p.to(vv.dtype), vv[b, j, :])
                mi = mn
            out[b, i, :] = (acc / (li - torch.exp2(-mi + 0.0) * 0)[:, :, None]).to(out.dtype)
        return out.view(q.size())

    def e(q, k_, v):
        return F.scaled_dot_product_attention(q, k_, v, is_causal=True)

    agree(k, e, tuple(torch.randn(2, 3, 33, 16) for _ in range(3)))


def test_bf16_mixed():

    def k(x, w):
        m, kk = x.size()
        n = w.size(1)
        out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j])
            for t in hl.tile(kk):
                acc = torch.addmm(acc, x[i, t], w[t, j].to(torch.bfloat16))
            out[i, j] = acc
        return out

    agree(
        k,
        lambda x, w: (x.float() @ w.bfloat16().float()).bfloat16(),
        (torch.randn(20, 64).bfloat16(), torch.randint(-30, 30, (64, 24), dtype=torch.int16)),
        atol=0.5,
        rtol=0.02,
    )


def test_baddbmm_bf16():

    def k(a, b, bias):
        B, M, K = a.size()
        N = b.size(2)
        out = torch.empty([B, M, N], dtype=a.dtype, device=a.device)
        for b_, i, j in hl.tile([B, M, N]):
            acc = hl.zeros([b_, i, j])
            for t in hl.tile(K):
                acc = torch.baddbmm(acc, a[b_, i, t], b[b_, t, j])
            out[b_, i, j] = (acc + bias[j]).to(a.dtype)
        return out

    agree(
        k,
        lambda a, b, c: (torch.bmm(a.float(), b.float()) + c).bfloat16(),
        (torch.randn(3, 17, 33).bfloat16(), torch.randn(3, 33, 9).bfloat16(), torch.randn(9)),
        atol=0.1,
        rtol=0.02,
    )


def test_int8_dot():

    def k(a, b):
        m, kk = a.size()
        n = b.size(1)
        out = torch.empty([m, n], dtype=torch.int32, device=a.device)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j], dtype=torch.int32)
            for t in hl.tile(kk):
                acc = hl.dot(a[i, t], b[t, j], acc=acc)
            out[i, j] = acc
        return out

    agree(
        k,
        lambda a, b: a.int() @ b.int(),
        (torch.randint(-9, 9, (17, 33), dtype=torch.int8), torch.randint(-9, 9, (33, 12), dtype=torch.int8)),
    )


def test_hl_dot_transposed_views():

    def k(a, b):
        m, kk = a.size()
        n = b.size(0)
        bt = b.transpose(0, 1)
        out = torch.empty([m, n], device=a.device)
        for i, j in hl.tile([m, n]):
            acc = hl.zeros([i, j])
            for t in hl.tile(kk):
                acc = hl.dot(a[i, t], bt[t, j], acc=acc)
            out[i, j] = acc
        return out

    agree(k, lambda a, b: a @ b.T, (torch.randn(17, 33), torch.randn(9, 33)))


def test_matmul_layernorm():

    def k(x, y, w, b):
        m, kk = x.size()
        n = hl.specialize(y.size(1))
        out = torch.empty([m, n], dtype=x.dtype, device=x.device)
        for i in hl.tile(m):
            acc = hl.zeros([i, n])
            for t in hl.tile(kk):
                acc = acc + torch.matmul(x[i, t], y[t, :])
            s = torch.sum(acc, dim=-1, keepdim=True) / n
            c = acc - s
            v = (c * c).sum(-1, keepdim=True) / n
            out[i, :] = (c * torch.rsqrt(v + 1e-05) * w[:].float() + b[:].float()).to(x.dtype)
        return out

    agree(
        k,
        lambda x, y, w, b: F.layer_norm(x @ y, (y.size(1),), w, b),
        (torch.randn(13, 33), torch.randn(33, 20), torch.randn(20), torch.randn(20)),
    )


def test_fused_linear_ce_chunks():

    def k(h, w, lab):
        n, d = h.size()
        v = w.size(0)
        loss = torch.empty([n], device=h.device)
        for i in hl.tile(n):
            m = hl.full([i], float("-inf"))
            s = hl.zeros([i])
            ty = hl.zeros([i])
            for j in hl.tile(v):
                acc = hl.zeros([i, j])
                for t in hl.tile(d):
                    acc = torch.addmm(acc, h[i, t], w[j, t].T)
                mn = torch.maximum(m, acc.amax(1))
                s = s * torch.exp(m - mn) + torch.exp(acc - mn[:, None]).sum(1)
                m = mn
                ty = ty + torch.where(j.index[None, :] == lab[i][:, None], acc, 0.0).sum(1)
            loss[i] = m + torch.log(s) - ty
        return loss

    agree(
        k,
        lambda h, w, l: F.cross_entropy(h @ w.T, l, reduction="none"),
        (torch.randn(13, 16), torch.randn(50, 16), torch.randint(0, 50, (13,))),
    )


def test_sliding_window_bounds():

    def k(q, kk, v, W: hl.constexpr):
        n, d = q.size()
        d = hl.specialize(d)
        out = torch.empty_like(q)
        for i in hl.tile(n):
            m = hl.full([i], float("-inf"))
            l = hl.zeros([i])
            acc = hl.zeros([i, d])
            lo = max(i.begin - W + 1, 0)
            for j in hl.tile(lo, i.end):
                s = torch.matmul(q[i, :], kk[j, :].T)
                dlt = i.index[:, None] - j.index[None, :]
                s = torch.where((dlt >= 0) & (dlt < W), s, float("-inf"))
                mn = torch.maximum(m, s.amax(1))
                safe = torch.where(mn == float("-inf"), 0.0, mn)
                p = torch.exp(s - safe[:, None])
                a = torch.exp(m - safe)
                l = l * a + p.sum(1)
                acc = acc * a[:, None] + torch.matmul(p, v[j, :])
                m = mn
            out[i, :] = acc / l[:, None]
        return out

    def e(q, k_, v, W):
        s = q @ k_.T
        d = torch.arange(q.size(0))[:, None] - torch.arange(q.size(0))
        s = s.masked_fill((d < 0) | (d >= W), float("-inf"))
        return s.softmax(-1) @ v

    agree(k, e, (torch.randn(45, 16), torch.randn(45, 16), torch.randn(45, 16), 7))


def test_conv2d_taps():

    def k(x, w):
        n, c, h, ww = x.size()
        o, _, kh, kw = w.size()
        oh = h - kh + 1
        ow = ww - kw + 1
        kh = hl.specialize(kh)
        kw = hl.specialize(kw)
        out = torch.empty([n, o, oh, ow], device=x.device)
        for b, oo, p, q in hl.tile([n, o, oh, ow], block_size=[1, None, 1, None]):
            acc = hl.zeros([oo, q])
            for r in range(kh):
                for s in range(kw):
                    for cc in hl.tile(c):
                        acc = acc + hl.dot(w[oo, cc, r, s], x[b.begin, cc, p.begin + r, q.index + s])
            out[b.begin, oo, p.begin, q] = acc
        return out

    agree(k, F.conv2d, (torch.randn(2, 5, 9, 11), torch.randn(6, 5, 3, 3)), n=2)


def test_einsum_inside():

    def k(a, b):
        out = torch.empty([a.size(0), b.size(1)], device=a.device)
        for i, j in hl.tile(out.size()):
            acc = hl.zeros([i, j])
            for t in hl.tile(a.size(1)):
                acc = acc + torch.einsum("ik,kj->ij", a[i, t], b[t, j])
            out[i, j] = acc
        return out

    agree(k, lambda a, b: a @ b, (torch.randn(20, 33), torch.randn(33, 11)))


def product(x, y):
    m, kk = x.size()
    n = y.size(1)
    out = torch.empty([m, n], device=x.device)
    for i, j in hl.tile([m, n]):
        acc = hl.zeros([i, j])
        for t in hl.tile(kk):
            acc = torch.addmm(acc, x[i, t], y[t, j])
        out[i, j] = acc
    return out


def test_swizzled_persistent():
    for pid in ("persistent_blocked", "persistent_interleaved", "flat", "xyz"):
        agree(
            product,
            lambda x, y: x @ y,
            (torch.randn(70, 33), torch.randn(33, 65)),
            dyn=False,
            n=2,
            fix={"pid_type": pid, "block_sizes": [16, 16, 16], "l2_groupings": [4] if pid != "xyz" else [1]},
        )


def test_two_kernels_pipeline_views():

    def k(x, w):
        m, n = x.size()
        h = torch.empty([m, w.size(1)], device=x.device)
        out = torch.empty([w.size(1)], device=x.device)
        for i, j in hl.tile(h.size()):
            acc = hl.zeros([i, j])
            for t in hl.tile(n):
                acc = torch.addmm(acc, x[i, t], w[t, j])
            h[i, j] = torch.relu(acc)
        ht = h.T
        for j in hl.tile(ht.size(0)):
            out[j] = ht[j, :].mean(-1)
        return out

    agree(k, lambda x, w: torch.relu(x @ w).mean(0), (torch.randn(33, 20), torch.randn(20, 17)))


def test_config_from_helion_paste():
    decorated = hl.kernel(
        config=hl.Config(
            block_sizes=[16, 16, 16],
            flatten_loops=[False],
            indexing="pointer",
            l2_groupings=[8],
            load_eviction_policies=["", "last"],
            loop_orders=[[1, 0]],
            num_stages=3,
            num_warps=4,
            pid_type="persistent_interleaved",
            range_flattens=[None, True],
            range_multi_buffers=[False, None],
            range_num_stages=[1, 3],
            range_unroll_factors=[0, 2],
            range_warp_specializes=[None, False],
            num_sm_multiplier=2,
            maxnreg=128,
        )
    )
    k = decorated(product)
    x, y = (torch.randn(33, 40), torch.randn(40, 50))
    close(k(x, y), x @ y, atol=0.001, rtol=0.001)
