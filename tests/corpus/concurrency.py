"""Programs that meet, and odd ways: locks, tickets, split products, persistent loops, clusters, loops left early."""

from __future__ import annotations

from typing import Any

import torch

import tilewright as tw
import tilewright.language as tl
from tests.corpus.case import New, Pairs, case, gradients, leaves
from tilewright.tools.tensor_descriptor import TensorDescriptor


@tw.jit
def first_above(x_ptr, where_ptr, sum_ptr, columns, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if tl.load(x_ptr + row * columns) < 0:
        tl.store(where_ptr + row, -1)
        return
    total = 0.0
    found = columns
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        total += tl.sum(x, axis=0)
        above = tl.min(tl.where(x > limit, at, columns), axis=0)
        if above < columns:
            found = above
            break
    tl.store(where_ptr + row, found)
    tl.store(sum_ptr + row, total)


@case({"rows": 9, "columns": 70}, {"rows": 4096, "columns": 5000}, tolerance=1e-4)
def search_until_found(new: New, rows: int, columns: int) -> Pairs:
    """Rows that are given up at once, and loops left in the middle."""
    x = new.uniform(rows, columns, high=0.99)
    x[torch.arange(rows), new.integers(columns, rows).cpu()] = 2.0
    x[1, 0], x[2] = -1.0, 0.5
    where, sums = new.zeros(rows, dtype=torch.int32), new.zeros(rows)
    block = 16 if columns < 100 else 512
    first_above[(rows,)](x, where, sums, columns, 1.0, BLOCK=block)
    want = (x > 1.0).int().argmax(1)
    want[~(x > 1.0).any(1)] = columns
    read = ((want // block + 1) * block).clamp(max=columns)
    counted = torch.arange(columns, device=x.device)[None, :] < read[:, None]
    total = (x.double() * counted).sum(1)
    refused = x[:, 0] < 0
    return [(where, torch.where(refused, -1, want)), (sums, torch.where(refused, 0.0, total))]


@tw.jit
def add_by_key(key_ptr, value_ptr, count_ptr, sum_ptr, ticket_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    key = tl.load(key_ptr + at, mask=inside, other=0)
    tl.atomic_add(sum_ptr + key, tl.load(value_ptr + at, mask=inside), mask=inside)
    ticket = tl.atomic_add(count_ptr + key, 1, mask=inside, sem="relaxed")
    tl.store(ticket_ptr + at, ticket, mask=inside)


@case({"n": 300, "keys": 5}, {"n": 1_000_003, "keys": 17}, tolerance=1e-5)
def tickets_of_few_keys(new: New, n: int, keys: int) -> Pairs:
    """Many lanes add to one address; each gets a number of its own."""
    key, value = new.integers(keys, n), new.integers(9, n, low=-8).float()
    counts, sums, tickets = new.zeros(keys, dtype=torch.int32), new.zeros(keys), new.empty(n, dtype=torch.int32)
    add_by_key[(tw.cdiv(n, 128),)](key, value, counts, sums, tickets, n, BLOCK=128)
    places = key * (n + 1) + tickets
    starts = [torch.arange(int(c)) + k * (n + 1) for k, c in enumerate(torch.bincount(key, minlength=keys))]
    return [
        (counts, torch.bincount(key, minlength=keys)),
        (sums, torch.zeros(keys, device=key.device).index_add_(0, key, value)),
        (places.sort().values, torch.cat(starts).to(key.device)),
    ]


@tw.jit
def add_rows(row_ptr, x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=inside)
    tl.atomic_add(out_ptr + tl.load(row_ptr + tl.program_id(0)) * columns + at, x, mask=inside)


@tw.jit
def take_rows(row_ptr, x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + tl.load(row_ptr + tl.program_id(0)) * columns + at, mask=inside)
    tl.store(out_ptr + tl.program_id(0) * columns + at, x, mask=inside)


@case({"rows": 11, "columns": 37, "into": 3}, {"rows": 5000, "columns": 1001, "into": 400}, tolerance=0)
def scattered_rows_of_small_floats(new: New, rows: int, columns: int, into: int) -> Pairs:
    """Sums in f16 and bf16 at addresses of odd alignment; whole numbers, so that no order rounds."""
    pairs = []
    row, grid, block = new.integers(into, rows), (rows,), tw.next_power_of_2(columns)
    for dtype in (torch.float16, torch.bfloat16):
        x = new.integers(3, rows, columns, low=-2).to(dtype)
        out = new.zeros(into, columns, dtype=dtype)
        add_rows[grid](row, x, out, columns, BLOCK=block)
        dout, dx = new.integers(3, into, columns, low=-2).to(dtype), new.empty(rows, columns, dtype=dtype)
        take_rows[grid](row, dout, dx, columns, BLOCK=block)
        (a,) = leaves(x)
        want = torch.zeros(into, columns, device=x.device, dtype=a.dtype).index_add(0, row, a)
        pairs += [(out, want.to(dtype)), (dx, *gradients(want, dout, a))]
    return pairs


@tw.jit
def merge_under_lock(x_ptr, lock_ptr, state_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf"))
    high = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - high), axis=0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    old_high, old_total = tl.load(state_ptr), tl.load(state_ptr + 1)
    new_high = tl.maximum(high, old_high)
    tl.store(state_ptr, new_high)
    tl.store(state_ptr + 1, total * tl.exp(high - new_high) + old_total * tl.exp(old_high - new_high))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@tw.jit
def softmax_of_merged(x_ptr, state_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(dx_ptr + at, tl.exp(x - tl.load(state_ptr)) / tl.load(state_ptr + 1), mask=at < n)


@case({"n": 1000}, {"n": 300_001})
def log_sum_exp_under_a_lock(new: New, n: int) -> Pairs:
    """Two numbers that belong together, merged by one program at a time."""
    x, lock = new.normal(n), new.zeros(1, dtype=torch.int32)
    state = torch.tensor([-1e30, 0.0], device=x.device)
    merge_under_lock[(tw.cdiv(n, 256),)](x, lock, state, n, BLOCK=256)
    dx = new.empty(n)
    softmax_of_merged[(tw.cdiv(n, 256),)](x, state, dx, n, BLOCK=256)
    (a,) = leaves(x)
    want = a.logsumexp(0)
    return [
        (state[0] + state[1].log(), want), (lock, torch.zeros_like(lock)),
        (dx, *gradients(want, torch.ones_like(want), a)),
    ]  # fmt: skip


@tw.jit
def part_of_product(
    a_ptr, b_ptr, c_ptr, part_ptr, arrived_ptr, M, N, K, PARTS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr
):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2)
    sum = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(part * STEP, K, PARTS * STEP):
        k = start + tl.arange(0, STEP)
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + column[None, :], mask=(k[:, None] < K) & (column[None, :] < N), other=0.0)
        sum = tl.dot(a, b, sum)
    inside = (row[:, None] < M) & (column[None, :] < N)
    places = row[:, None] * N + column[None, :]
    tl.store(part_ptr + part * M * N + places, sum, mask=inside)
    tl.debug_barrier()
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    if tl.atomic_add(arrived_ptr + tile, 1, sem="acq_rel") == PARTS - 1:
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for other in range(PARTS):
            total += tl.load(part_ptr + other * M * N + places, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(c_ptr + places, total, mask=inside)


@case({"m": 20, "n": 33, "k": 100}, {"m": 1000, "n": 1030, "k": 4100}, tolerance=2e-3)
def product_split_along_k(new: New, m: int, n: int, k: int) -> Pairs:
    """Whoever comes last adds up what the others left: stores that an atomic publishes."""
    a, b = new.normal(m, k, dtype=torch.float16), new.normal(k, n, dtype=torch.float16)
    block = 16 if m < 100 else 64
    dc, results = new.normal(m, n, dtype=torch.float16), []
    for x, y in ((a, b), (dc, b.T.contiguous()), (a.T.contiguous(), dc)):
        (rows, inner), columns = x.shape, y.shape[1]
        grid = (tw.cdiv(rows, block), tw.cdiv(columns, block), 3)
        c, parts = new.empty(rows, columns), new.empty(3, rows, columns)
        arrived = new.zeros(grid[0] * grid[1], dtype=torch.int32)
        part_of_product[grid](x, y, c, parts, arrived, rows, columns, inner, PARTS=3, BLOCK=block, STEP=32)
        results.append(c)
    p, q = leaves(a, b)
    want = p @ q
    return [
        (results[0], want), *zip(results[1:], gradients(want, dc, p, q), strict=True),
        (arrived, torch.full_like(arrived, 3)),
    ]  # fmt: skip


@tw.jit
def product_of_many_tiles(a, b, c, tiles, columns, steps, STAGES: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        y, x = tile // columns * a.block_shape[0], tile % columns * b.block_shape[1]
        sum = tl.zeros((a.block_shape[0], b.block_shape[1]), tl.float32)
        for k in tl.range(steps, num_stages=STAGES):
            at = k * a.block_shape[1]
            sum = tl.dot(a.load([y, at]), b.load([at, x]), sum)
        c.store([y, x], sum.to(c.dtype))


@case({"m": 72, "n": 72, "k": 64}, {"m": 2000, "n": 1000, "k": 264}, tolerance=2e-3)
def persistent_product(new: New, m: int, n: int, k: int) -> Pairs:
    """A ring of buffers that is filled again for the next tile, and more stages than steps."""
    a, b = new.normal(m, k, dtype=torch.float16), new.normal(k, n, dtype=torch.float16)
    dc = new.normal(m, n, dtype=torch.float16)
    x, y = leaves(a, b)
    want = x @ y
    da, db = gradients(want, dc, x, y)
    pairs: list[Any] = []
    for left, right, result, programs, stages in (
        (a, b, want, 3, 3), (a, b, want, 2, 4), (dc, b.T.contiguous(), da, 2, 3), (a.T.contiguous(), dc, db, 3, 3),
    ):  # fmt: skip
        c = new.zeros(*result.shape, dtype=torch.float16)
        shapes = ((left, (64, 32)), (right, (32, 64)), (c, (64, 64)))
        blocks = [TensorDescriptor.from_tensor(t, list(s)) for t, s in shapes]
        down, across = tw.cdiv(c.shape[0], 64), tw.cdiv(c.shape[1], 64)
        steps = tw.cdiv(left.shape[1], 32)
        product_of_many_tiles[(programs,)](*blocks, down * across, across, steps, STAGES=stages)
        pairs.append((c, result))
    return pairs


@tw.jit
def scores_of_rows(x_ptr, w_ptr, out_ptr, columns, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BLOCK)
    inside = (at < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + at[None, :], mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    p = e / tl.sum(e, axis=1)[:, None]
    w = tl.load(w_ptr + at[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], mask=(at < columns)[:, None], other=0.0)
    y = tl.dot(p.to(w.dtype), w)
    tl.store(out_ptr + row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], tl.cumsum(y, axis=1))


@tw.jit
def scores_of_rows_backward(x_ptr, w_ptr, dout_ptr, dx_ptr, columns, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BLOCK)
    inside = (at < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + at[None, :], mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    p = e / tl.sum(e, axis=1)[:, None]
    dout = tl.load(dout_ptr + row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :])
    w = tl.load(w_ptr + at[None, :] * WIDTH + tl.arange(0, WIDTH)[:, None], mask=inside, other=0.0)
    dp = tl.dot(tl.cumsum(dout, axis=1, reverse=True).to(w.dtype), w)
    tl.store(dx_ptr + row[:, None] * columns + at[None, :], p * (dp - tl.sum(p * dp, axis=1)[:, None]), mask=inside)


@case({"columns": 50, "groups": 1}, {"columns": 500, "groups": 200}, tolerance=2e-3)
def rows_with_options_of_clusters(new: New, columns: int, groups: int) -> Pairs:
    """Reductions, a product and a scan with `num_ctas`, and with many and few warps."""
    x, w = new.normal(16 * groups, columns), new.normal(columns, 32, dtype=torch.float16)
    (a,), dout = leaves(x), new.normal(16 * groups, 32)
    want = (a.softmax(1) @ w.double()).cumsum(1)
    pairs: list[Any] = []
    for warps, ctas in ((4, 2), (8, 1), (1, 4)):
        out = new.empty(16 * groups, 32)
        scores_of_rows[(groups,)](
            x, w, out, columns, BLOCK=tw.next_power_of_2(columns), WIDTH=32, num_warps=warps, num_ctas=ctas
        )
        pairs.append((out, want))
    dx = new.empty(16 * groups, columns)
    scores_of_rows_backward[(groups,)](
        x, w, dout, dx, columns, BLOCK=tw.next_power_of_2(columns), WIDTH=32, num_warps=4, num_ctas=2
    )
    return [*pairs, (dx, *gradients(want, dout, a))]
