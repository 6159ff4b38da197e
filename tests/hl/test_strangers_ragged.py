"""Rows of different lengths, groups, pages: programs as Helion's users write them, against PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.hl.strangers import agree, close
from tilewright import hl


def test_jagged_softmax():

    def k(vals, offs):
        out = torch.zeros_like(vals)
        B = offs.size(0) - 1
        for b in hl.tile(B):
            s = offs[b]
            e = offs[b.index + 1]
            n = e - s
            mx = n.amax()
            m = hl.full([b], float("-inf"))
            d = hl.zeros([b])
            for t in hl.tile(0, mx):
                idx = s[:, None] + t.index[None, :]
                mask = t.index[None, :] < n[:, None]
                v = hl.load(vals, [idx], extra_mask=mask)
                v = torch.where(mask, v, float("-inf"))
                nm = torch.maximum(m, v.amax(1))
                safe = torch.where(nm == float("-inf"), 0.0, nm)
                d = d * torch.exp(m - safe) + torch.where(mask, torch.exp(v - safe[:, None]), 0.0).sum(1)
                m = nm
            for t in hl.tile(0, mx):
                idx = s[:, None] + t.index[None, :]
                mask = t.index[None, :] < n[:, None]
                v = hl.load(vals, [idx], extra_mask=mask)
                hl.store(out, [idx], torch.exp(v - m[:, None]) / d[:, None], extra_mask=mask)
        return out

    def e(vals, offs):
        o = torch.zeros_like(vals)
        for i in range(len(offs) - 1):
            a, b = (offs[i], offs[i + 1])
            if b > a:
                o[a:b] = torch.softmax(vals[a:b], 0)
        return o

    lens = torch.tensor([3, 0, 17, 1, 40, 5])
    offs = torch.cat([torch.zeros(1, dtype=torch.long), lens.cumsum(0)])
    agree(k, e, (torch.randn(int(lens.sum())), offs))


def test_jagged_tile_dense_add():

    def k(vals, offs, dense):
        out = torch.empty_like(dense)
        for b in hl.tile(dense.size(0)):
            s = offs[b]
            n = offs[b.index + 1] - s
            for j in hl.tile(dense.size(1)):
                mask = j.index[None, :] < n[:, None]
                v = hl.load(vals, [s[:, None] + j.index[None, :]], extra_mask=mask)
                out[b, j] = dense[b, j] + v
        return out

    def e(vals, offs, dense):
        o = dense.clone()
        for i in range(len(offs) - 1):
            n = min(int(offs[i + 1] - offs[i]), dense.size(1))
            o[i, :n] += vals[offs[i] : offs[i] + n]
        return o

    lens = torch.tensor([3, 0, 17, 1, 30, 5])
    offs = torch.cat([torch.zeros(1, dtype=torch.long), lens.cumsum(0)])
    agree(k, e, (torch.randn(int(lens.sum())), offs, torch.randn(6, 33)))


def test_hl_jagged_tile_mean():

    def k(x, offs):
        B = offs.size(0) - 1
        D = x.size(1)
        out = torch.empty([B, D], dtype=x.dtype, device=x.device)
        for b in hl.tile(B):
            s = offs[b]
            n = offs[b.index + 1] - s
            for d in hl.tile(D):
                acc = hl.zeros([b, d])
                for j in hl.jagged_tile(n):
                    acc = acc + x[s[:, None] + j.index[None, :], d].sum(1)
                out[b, d] = acc / torch.maximum(n, torch.ones_like(n))[:, None]
        return out

    def e(x, offs):
        return torch.stack(
            [
                x[offs[i] : offs[i + 1]].mean(0) if offs[i + 1] > offs[i] else torch.zeros(x.size(1))
                for i in range(len(offs) - 1)
            ]
        )

    lens = torch.tensor([3, 0, 17, 1, 9])
    offs = torch.cat([torch.zeros(1, dtype=torch.long), lens.cumsum(0)])
    agree(k, e, (torch.randn(int(lens.sum()), 19), offs))


def test_grouped_gemm():

    def k(A, B, offs):
        K, N = B.size()
        T = A.size(0)
        G = offs.size(0) - 1
        out = torch.empty([T, N], dtype=torch.float32, device=A.device)
        for g in hl.grid(G):
            s = offs[g]
            e = offs[g + 1]
            for i in hl.tile(s, e):
                for j in hl.tile(N):
                    acc = hl.zeros([i, j])
                    for t in hl.tile(K):
                        acc = torch.addmm(acc, A[i, t], B[t, j])
                    out[i, j] = acc
        return out

    offs = torch.tensor([0, 3, 3, 40, 50])
    agree(k, lambda A, B, o: A @ B, (torch.randn(50, 33), torch.randn(33, 20), offs))


def test_persistent_grouped():

    def k(A, B, sizes):
        G, K, N = B.size()
        out = torch.zeros([A.size(0), N], device=A.device)
        M = A.size(0)
        for j in hl.tile(N):
            start = 0
            for g in hl.grid(G):
                n = sizes[g]
                if n > 0:
                    for i in hl.tile(0, n):
                        acc = hl.zeros([i, j])
                        for t in hl.tile(K):
                            acc = acc + hl.dot(A[i.index + start, t], B[g, t, j])
                        out[i.index + start, j] = acc
                start = start + n
        return out

    sizes = torch.tensor([5, 0, 9, 4])

    def e(A, B, s):
        o = []
        p = 0
        for g, n in enumerate(s.tolist()):
            o.append(A[p : p + n] @ B[g])
            p += n
        return torch.cat(o)

    agree(k, e, (torch.randn(18, 16), torch.randn(4, 16, 20), sizes))


def test_embedding_bag():

    def k(ids, w, offs):
        out = torch.zeros([offs.size(0) - 1, w.size(1)], device=w.device)
        for b in hl.grid(offs.size(0) - 1):
            for d in hl.tile(w.size(1)):
                acc = hl.zeros([d])
                for t in hl.tile(offs[b], offs[b + 1]):
                    acc = acc + w[ids[t], d].sum(0)
                out[b, d] = acc
        return out

    offs = torch.tensor([0, 3, 3, 20, 31])
    agree(
        k,
        lambda i, w, o: F.embedding_bag(i, w, o[:-1], mode="sum"),
        (torch.randint(0, 50, (31,)), torch.randn(50, 13), offs),
    )


def test_paged_decode():

    def k(q, kc, vc, table, lens):
        B, H, D = q.size()
        P = kc.size(1)
        out = torch.empty_like(q)
        for b in hl.grid(B):
            for h in hl.tile(H):
                m = hl.full([h], float("-inf"))
                l = hl.zeros([h])
                acc = hl.zeros([h, D])
                for p in hl.grid((lens[b] + P - 1) // P):
                    blk = table[b, p]
                    s = torch.matmul(q[b, h, :], kc[blk, :, :].T) * D ** (-0.5)
                    pos = p * P + hl.arange(P)
                    s = torch.where(pos[None, :] < lens[b], s, float("-inf"))
                    mn = torch.maximum(m, s.amax(1))
                    e = torch.exp(s - mn[:, None])
                    a = torch.exp(m - mn)
                    l = l * a + e.sum(1)
                    acc = acc * a[:, None] + torch.matmul(e, vc[blk, :, :])
                    m = mn
                out[b, h, :] = acc / l[:, None]
        return out

    def e(q, kc, vc, t, lens):
        o = []
        for b, n in enumerate(lens.tolist()):
            kk = kc[t[b]].reshape(-1, q.size(2))[:n]
            vv = vc[t[b]].reshape(-1, q.size(2))[:n]
            o.append(torch.softmax(q[b] @ kk.T * q.size(2) ** (-0.5), -1) @ vv)
        return torch.stack(o)

    agree(
        k,
        e,
        (
            torch.randn(3, 4, 16),
            torch.randn(20, 8, 16),
            torch.randn(20, 8, 16),
            torch.randperm(20)[:12].view(3, 4),
            torch.tensor([5, 32, 17]),
        ),
    )


def test_moe_scatter():

    def k(x, w, idx, cnt):
        T, K = x.size()
        E, _, N = w.size()
        out = torch.zeros([T, N], device=x.device)
        M = idx.size(1)
        for e in hl.grid(E):
            n = cnt[e]
            for i, j in hl.tile([M, N]):
                if i.begin < n:
                    rows = hl.load(idx, [e, i.index], extra_mask=i.index < n)
                    acc = hl.zeros([i, j])
                    for t in hl.tile(K):
                        acc = acc + hl.dot(x[rows, t], w[e, t, j])
                    hl.store(out, [rows, j], acc, extra_mask=(i.index < n)[:, None])
        return out

    T, E = (20, 4)
    perm = torch.randperm(T)
    cnt = torch.tensor([5, 0, 9, 6])
    idx = torch.zeros(E, T, dtype=torch.long)
    p = 0
    for e_ in range(E):
        idx[e_, : cnt[e_]] = perm[p : p + cnt[e_]]
        p += int(cnt[e_])

    def e(x, w, idx, cnt):
        o = torch.zeros(x.size(0), w.size(2))
        for q in range(w.size(0)):
            r = idx[q, : cnt[q]]
            o[r] = x[r] @ w[q]
        return o

    agree(k, e, (torch.randn(T, 33), torch.randn(E, 33, 18), idx, cnt))


def test_scan_segments():

    def comb(lv, li, rv, ri):
        return (torch.where(li == ri, lv + rv, rv), ri)

    def k(idx, x, n: hl.constexpr):
        out = torch.zeros([n, x.size(1)], device=x.device)
        for e, f in hl.tile([x.size(0), x.size(1)]):
            v = x[e, f]
            cur = idx[e]
            nxt = hl.load(idx, [e.index + 1], extra_mask=e.index < x.size(0) - 1)
            s, _ = hl.associative_scan(comb, (v, cur.float().unsqueeze(1).expand_as(v)), dim=0)
            last = (cur != nxt) | (e.index % e.block_size == e.block_size - 1) | (e.index == x.size(0) - 1)
            hl.atomic_add(out, [cur, f], torch.where(last.unsqueeze(1), s, 0.0))
        return out

    idx = torch.sort(torch.randint(0, 11, (100,)))[0]
    agree(k, lambda i, x, n: torch.zeros(n, x.size(1)).index_add(0, i, x), (idx, torch.randn(100, 13), 11))


def test_extra_masks():

    def k(x, valid):
        out = torch.full_like(x, -1.0)
        for i, j in hl.tile([x.size(0), x.size(1)]):
            m = (valid[i][:, None] != 0) & (j.index[None, :] % 3 != 1)
            v = hl.load(x, [i, j], extra_mask=m)
            hl.store(out, [i, j], v * 2, extra_mask=m)
        return out

    def e(x, v):
        m = (v != 0)[:, None] & (torch.arange(x.size(1)) % 3 != 1)[None]
        return torch.where(m, x * 2, -1.0)

    agree(k, e, (torch.randn(13, 21), torch.randint(0, 2, (13,))))


def test_concat_masks():

    def k(x, y):
        n1 = x.size(1)
        out = torch.empty([x.size(0), n1 + y.size(1)], dtype=x.dtype, device=x.device)
        for i, j in hl.tile(out.size()):
            a = hl.load(x, [i, j], extra_mask=(j.index < n1)[None, :])
            b = hl.load(y, [i, j.index - n1], extra_mask=(j.index >= n1)[None, :])
            out[i, j] = torch.where(j.index[None, :] < n1, a, b)
        return out

    agree(k, lambda x, y: torch.cat([x, y], 1), (torch.randn(9, 13), torch.randn(9, 22)))


def test_atomic_prev_compact():

    @hl.kernel
    def k(x):
        out = torch.zeros_like(x)
        n = torch.zeros([1], dtype=torch.int32, device=x.device)
        for t in hl.tile(x.size(0)):
            v = x[t]
            keep = v > 0
            pos = torch.cumsum(keep.to(torch.int32), 0) - 1
            base = hl.atomic_add(n, [0], keep.to(torch.int32).sum())
            hl.store(out, [base + pos], v, extra_mask=keep)
        return (out, n)

    x = torch.randn(1000)
    o, n = k(x)
    w = x[x > 0]
    assert n.item() == len(w)
    close(o[: len(w)].sort()[0], w.sort()[0])


def test_wait_by_atomics():

    @hl.kernel(config=hl.Config(block_sizes=[1]))
    def k(x, sig):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            if t.begin > 0:
                while hl.atomic_add(sig, [t.begin - 1], 0, sem="acquire") == 0:
                    pass
                out[t] = out[t.begin - 1] + x[t]
            else:
                out[t] = x[t]
            hl.atomic_xchg(sig, [t.begin], 1, sem="release")
        return out

    x = torch.randn(20)
    close(k(x, torch.zeros(20, dtype=torch.int32)), x.cumsum(0), atol=0.0001, rtol=0.0001)


def test_stack_tensors():

    @hl.kernel
    def k(ptrs, like):
        out = torch.empty([ptrs.size(0), like.size(0)], device=like.device)
        for t in hl.tile(like.size(0)):
            p = ptrs[:]
            s = hl.stacktensor_like(like, p)
            out[:, t] = s[t] * 2
        return out

    ts = [torch.randn(37) for _ in range(4)]
    p = torch.tensor([t.data_ptr() for t in ts], dtype=torch.uint64)
    close(k(p, ts[0]), torch.stack(ts) * 2)


def test_stack_tensors_int64():

    @hl.kernel
    def k(ptrs, like):
        out = torch.empty([ptrs.size(0), like.size(0)], device=like.device)
        for i, t in hl.tile([ptrs.size(0), like.size(0)]):
            s = hl.stacktensor_like(like, ptrs[i])
            out[i, t] = s[t] * 2
        return out

    ts = [torch.randn(37) for _ in range(4)]
    p = torch.tensor([t.data_ptr() for t in ts], dtype=torch.uint64)
    close(k(p, ts[0]), torch.stack(ts) * 2)


def test_histogram_atomics():

    def k(x, bins: hl.constexpr):
        out = torch.zeros([bins], dtype=torch.int32, device=x.device)
        for t in hl.tile(x.size(0)):
            hl.atomic_add(out, [x[t]], 1)
        return out

    agree(k, lambda x, b: torch.bincount(x, minlength=b), (torch.randint(0, 17, (1000,)), 17))


def test_atomics_all():

    def k(x, i, mx, mn, ad, orr, an, xo):
        for t in hl.tile(x.size(0)):
            at = i[t]
            hl.atomic_max(mx, [at], x[t])
            hl.atomic_min(mn, [at], x[t])
            hl.atomic_add(ad, [at], x[t], sem="acq_rel")
            hl.atomic_or(orr, [at], x[t])
            hl.atomic_and(an, [at], x[t])
            hl.atomic_xor(xo, [at], x[t])
        return (mx, mn, ad, orr, an, xo)

    def e(x, i, mx, mn, ad, orr, an, xo):
        for a, b in zip(x.tolist(), i.tolist()):
            mx[b] = max(mx[b], a)
            mn[b] = min(mn[b], a)
            ad[b] += a
            orr[b] |= a
            an[b] &= a
            xo[b] ^= a
        return (mx, mn, ad, orr, an, xo)

    z = lambda v: torch.full((7,), v, dtype=torch.int32)
    agree(
        k,
        e,
        (
            torch.randint(0, 1000, (60,), dtype=torch.int32),
            torch.randint(0, 7, (60,)),
            z(-5),
            z(5000),
            z(0),
            z(0),
            z(-1),
            z(0),
        ),
    )


def test_cross_entropy_gather():

    def k(logits, labels):
        n, v = logits.shape
        losses = torch.zeros([n], device=logits.device)
        flat = logits.view(-1)
        for i in hl.tile(n):
            at = i.index * v + labels[i]
            y = hl.load(flat, [at])
            row = logits[i, :]
            m = torch.amax(row, dim=-1, keepdim=True)
            lse = m.squeeze(-1) + torch.log(torch.sum(torch.exp(row - m), -1))
            losses[i] = lse - y
        return losses.mean()

    agree(k, F.cross_entropy, (torch.randn(17, 100), torch.randint(0, 100, (17,))))


def test_grid_per_row_branch():

    def k(x, kind):
        out = torch.empty_like(x)
        for i in hl.grid(x.size(0)):
            if kind[i] == 0:
                out[i, :] = x[i, :].softmax(-1)
            elif kind[i] == 1:
                out[i, :] = x[i, :] / x[i, :].norm()
            else:
                out[i, :] = 0
        return out

    def e(x, k_):
        return torch.stack(
            [
                r.softmax(-1) if a == 0 else r / r.norm() if a == 1 else torch.zeros_like(r)
                for r, a in zip(x, k_.tolist())
            ]
        )

    agree(k, e, (torch.randn(6, 20), torch.tensor([0, 1, 2, 0, 1, 5])))
