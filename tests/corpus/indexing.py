"""Gathers, scatters, segments, scans across programs, sorts and layouts."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves

F = torch.nn.functional


@triton.jit
def embedding_kernel(ids, table, out, D, scale: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(ids + i).to(tl.int64)
    v = tl.load(table + token * D + j, mask=(j < D) & (token != PAD), other=0.0)
    tl.store(out + i.to(tl.int64) * D + j, v * scale, mask=j < D)


@triton.jit
def embedding_backward_kernel(ids, dout, dtable, D, scale: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(ids + i)
    if token != PAD:
        tl.atomic_add(dtable + token * D + j, tl.load(dout + i * D + j, mask=j < D) * scale, mask=j < D)


@case({"n": 20, "v": 7, "d": 10}, {"n": 8192, "v": 1000, "d": 500}, 1e-4)
def embedding_with_padding(new, n, v, d) -> Pairs:
    ids, table, dout = new.integers(v, n), new.normal(v, d), new.normal(n, d)
    out, dtable = new.empty(n, d), new.zeros(v, d)
    grid = (n, triton.cdiv(d, 8))
    embedding_kernel[grid](ids, table, out, d, 2.0, PAD=0, BLOCK=8)
    embedding_backward_kernel[grid](ids, dout, dtable, d, 2.0, PAD=0, BLOCK=8)
    (a,) = leaves(table)
    want = torch.where((ids == 0)[:, None], 0.0, a[ids]) * 2
    return [(out, want), (dtable, *gradients(want, dout, a))]


@triton.jit
def segment_kernel(x, starts, out, D, MEAN: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr):
    s = tl.program_id(0)
    c = tl.program_id(1) * BD + tl.arange(0, BD)
    begin, end = tl.load(starts + s), tl.load(starts + s + 1)
    acc = tl.zeros((BD,), tl.float32)
    for r in range(begin, end, BR):
        rows = r + tl.arange(0, BR)
        keep = (rows < end)[:, None] & (c < D)[None, :]
        acc += tl.sum(tl.load(x + rows[:, None] * D + c[None, :], mask=keep, other=0.0), 0)
    if MEAN:
        acc /= tl.maximum(end - begin, 1)
    tl.store(out + s * D + c, acc, mask=c < D)


@triton.jit
def segment_backward_kernel(dout, starts, dx, D, BR: tl.constexpr, BD: tl.constexpr):
    s = tl.program_id(0)
    c = tl.program_id(1) * BD + tl.arange(0, BD)
    begin, end = tl.load(starts + s), tl.load(starts + s + 1)
    d = tl.load(dout + s * D + c, mask=c < D, other=0.0) / tl.maximum(end - begin, 1)
    for r in range(begin, end, BR):
        rows = r + tl.arange(0, BR)
        keep = (rows < end)[:, None] & (c < D)[None, :]
        tl.store(dx + rows[:, None] * D + c[None, :], tl.broadcast_to(d[None, :], (BR, BD)), mask=keep)


@case({"lengths": (3, 0, 12, 1), "d": 10}, {"lengths": (1000, 3, 0, 5000, 17), "d": 300}, 1e-4)
def means_of_segments(new, lengths, d) -> Pairs:
    x, starts, out = new.normal(sum(lengths), d), new.offsets(list(lengths)), new.empty(len(lengths), d)
    segment_kernel[(len(lengths), triton.cdiv(d, 8))](x, starts, out, d, MEAN=True, BR=4, BD=8)
    dout, dx = new.normal(len(lengths), d), new.empty(sum(lengths), d)
    segment_backward_kernel[(len(lengths), triton.cdiv(d, 8))](dout, starts, dx, d, BR=4, BD=8)
    (a,) = leaves(x)
    want = torch.stack([p.sum(0) / max(len(p), 1) for p in a.split(list(lengths))])
    return [(out, want), (dx, *gradients(want, dout, a))]


@triton.jit
def cumsum_blocks_kernel(x, y, totals, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.cumsum(tl.load(x + o, mask=o < n, other=0), 0)
    tl.store(y + o, s, mask=o < n)
    tl.store(totals + tl.program_id(0), tl.max(tl.where(tl.arange(0, BLOCK) == BLOCK - 1, s, -(2**31)), 0))


@triton.jit
def add_before_kernel(y, totals, n, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    pid = tl.program_id(0)
    b = tl.arange(0, BLOCKS)
    before = tl.sum(tl.load(totals + b, mask=b < pid, other=0))
    o = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(y + o, mask=o < n) + before, mask=o < n)


@case({"n": 300}, {"n": 100000})
def running_sums_over_programs(new, n) -> Pairs:
    block = 32 if n < 1000 else 1024
    blocks = triton.cdiv(n, block)
    x, y = new.integers(100, n, low=-50, dtype=torch.int32), new.empty(n, dtype=torch.int32)
    totals = new.empty(blocks, dtype=torch.int32)
    cumsum_blocks_kernel[(blocks,)](x, y, totals, n, BLOCK=block)
    add_before_kernel[(blocks,)](y, totals, n, BLOCK=block, BLOCKS=triton.next_power_of_2(blocks))
    return [(y, x.cumsum(0).to(torch.int32))]


@triton.jit
def transpose_kernel(x, y, M, N, B: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    m, n = pm * B + tl.arange(0, B), pn * B + tl.arange(0, B)
    v = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N))
    tl.store(y + n[:, None] * M + m[None, :], tl.trans(v), mask=(n[:, None] < N) & (m[None, :] < M))


@case({"m": 19, "n": 35}, {"m": 3000, "n": 2001})
def transposition_of_tiles(new, m, n) -> Pairs:
    pairs = []
    for dtype in (torch.float32, torch.int8, torch.float16):
        x, y = (new.normal(m, n) * 20).to(dtype), new.empty(n, m, dtype=dtype)
        transpose_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 16))](x, y, m, n, B=16)
        pairs.append((y, x.T.contiguous()))
    dy, dx = new.normal(n, m), new.empty(m, n)
    transpose_kernel[(triton.cdiv(n, 16), triton.cdiv(m, 16))](dy, dx, n, m, B=16)
    (a,) = leaves(x)
    return [*pairs, (dx, *gradients(a.T, dy, a))]


@triton.jit
def scatter_reduce_kernel(x, index, out, n, WHICH: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = o < n
    i, v = tl.load(index + o, mask=ok, other=0), tl.load(x + o, mask=ok, other=0)
    if WHICH == "max":
        tl.atomic_max(out + i, v, mask=ok)
    elif WHICH == "min":
        tl.atomic_min(out + i, v, mask=ok)
    else:
        tl.atomic_add(out + i, v, mask=ok)


@triton.jit
def scatter_reduce_backward_kernel(x, index, out, dout, dx, n, EXTREMUM: tl.constexpr, BLOCK: tl.constexpr):
    """A sum hands its gradient to all that it took, an extremum to the number that it is."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = o < n
    i = tl.load(index + o, mask=ok, other=0)
    d = tl.load(dout + i, mask=ok, other=0.0)
    if EXTREMUM:
        d = tl.where(tl.load(x + o, mask=ok) == tl.load(out + i, mask=ok), d, 0.0)
    tl.store(dx + o, d, mask=ok)


@case({"n": 100, "size": 9}, {"n": 100000, "size": 500}, 1e-4)
def scattered_sums_and_extrema(new, n, size) -> Pairs:
    index, pairs = new.integers(size, n), []
    for which, name, dtype in (
        ("max", "amax", torch.float32),
        ("min", "amin", torch.int32),
        ("add", "sum", torch.float32),
    ):
        x = (new.normal(n) * 100).to(dtype)
        out = new.zeros(size, dtype=dtype)
        want = torch.zeros_like(out).scatter_reduce_(0, index, x, name)
        scatter_reduce_kernel[(triton.cdiv(n, 64),)](x, index, out, n, WHICH=which, BLOCK=64)
        pairs.append((out, want))
        if dtype.is_floating_point:
            dout, dx = new.normal(size), new.empty(n)
            scatter_reduce_backward_kernel[(triton.cdiv(n, 64),)](
                x, index, out, dout, dx, n, EXTREMUM=which == "max", BLOCK=64
            )
            (a,) = leaves(x)
            reduced = torch.zeros_like(a[:size].detach()).scatter_reduce(0, index, a, name)
            pairs.append((dx, *gradients(reduced, dout, a)))
    return pairs


@triton.jit
def sort_pairs_kernel(keys, order, V, BLOCK: tl.constexpr):
    """Keys and their places, packed into one integer for the sort."""
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    k = tl.load(keys + row * V + o, mask=o < V, other=2**31 - 1)
    packed = (k.to(tl.int64) << 32) | o.to(tl.int64)
    s = tl.sort(packed)
    tl.store(keys + row * V + o, (s >> 32).to(tl.int32), mask=o < V)
    tl.store(order + row * V + o, s & 0xFFFFFFFF, mask=o < V)


@case({"m": 3, "v": 25}, {"m": 100, "v": 1000})
def stable_sort_of_keys_with_places(new, m, v) -> Pairs:
    keys, order = new.integers(9, m, v, low=-9, dtype=torch.int32), new.empty(m, v, dtype=torch.int64)
    want, places = keys.sort(dim=-1, stable=True)
    sort_pairs_kernel[(m,)](keys, order, v, BLOCK=triton.next_power_of_2(v))
    return [(keys, want), (order, places)]


@triton.jit
def roll_pad_kernel(x, y, M, N, shift, left, width, value, BLOCK: tl.constexpr):
    """Rows rolled, then padded on both sides."""
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = c - left
    inside = (source >= 0) & (source < N)
    source = (source + shift) % N
    v = tl.load(x + row * N + source, mask=inside, other=0.0)
    tl.store(y + row * width + c, tl.where(inside, v, value), mask=c < width)


@triton.jit
def roll_pad_backward_kernel(dy, dx, N, shift, left, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dx + row * N + c, tl.load(dy + row * width + left + (c + N - shift) % N, mask=c < N), mask=c < N)


@case({"m": 3, "n": 11}, {"m": 1000, "n": 3001})
def rolled_and_padded_rows(new, m, n) -> Pairs:
    x, y = new.normal(m, n), new.empty(m, n + 7)
    roll_pad_kernel[(m, triton.cdiv(n + 7, 16))](x, y, m, n, 4, 2, n + 7, -1.5, BLOCK=16)
    dy, dx = new.normal(m, n + 7), new.empty(m, n)
    roll_pad_backward_kernel[(m, triton.cdiv(n, 16))](dy, dx, n, 4, 2, n + 7, BLOCK=16)
    (a,) = leaves(x)
    want = F.pad(a.roll(-4, 1), (2, 5), value=-1.5)
    return [(y, want), (dx, *gradients(want, dy, a))]


@triton.jit
def relaxation_kernel(a, b, steps, N, BLOCK: tl.constexpr):
    """Steps of a ring, from one buffer to the other; the pointers change places."""
    i = tl.arange(0, BLOCK)
    source, target = a, b
    for _ in range(steps):
        left = tl.load(source + (i + N - 1) % N, mask=i < N)
        right = tl.load(source + (i + 1) % N, mask=i < N)
        tl.store(target + i, (left + right) * 0.5 + 1, mask=i < N)
        source, target = target, source


@case({"n": 50, "steps": 5}, {"n": 5000, "steps": 64}, 1e-4)
def buffers_that_change_places(new, n, steps) -> Pairs:
    a, b = new.normal(n), new.zeros(n)
    x, y = a.clone(), b.clone()
    relaxation_kernel[(1,)](a, b, steps, n, BLOCK=triton.next_power_of_2(n))
    for _ in range(steps):
        x, y = (x.roll(1) + x.roll(-1)) * 0.5 + 1, x
    return [(a, y), (b, x)] if steps % 2 else [(a, x), (b, y)]


@triton.jit
def bytes_of_words_kernel(words, out, N, BLOCK: tl.constexpr):
    """Words stored, changed byte by byte through another type of pointer, and read again."""
    i, j = tl.arange(0, BLOCK), tl.arange(0, 4 * BLOCK)
    octets = words.to(tl.pointer_type(tl.uint8), bitcast=True)
    tl.store(words + i, i * 0x01020304, mask=i < N)
    tl.store(octets + j, tl.load(octets + j, mask=j < 4 * N) + 1, mask=j < 4 * N)
    tl.store(out + i, tl.load(words + i, mask=i < N), mask=i < N)


@case({"n": 30}, {"n": 10_000})
def bytes_of_words(new, n) -> Pairs:
    words, out = new.empty(n, dtype=torch.int32), new.empty(n, dtype=torch.int32)
    bytes_of_words_kernel[(1,)](words, out, n, BLOCK=triton.next_power_of_2(n))
    numbers = torch.arange(n, dtype=torch.int32, device=out.device) * 0x01020304
    return [(out, (numbers.view(torch.uint8) + 1).view(torch.int32))]
