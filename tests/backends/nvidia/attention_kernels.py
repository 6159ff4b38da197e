"""Loops in which a second product needs the first: attention in several spellings, for roles and their rotation."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax_step(scores, most, weight):
    """(maxima, shares, factor of what was before, sums) with another block of scores (base 2)."""
    above = tl.maximum(most, tl.max(scores, 1))
    shrink = tl.exp2(most - above)
    share = tl.exp2(scores - above[:, None])
    return above, share, shrink, weight * shrink + tl.sum(share, 1)


@tw.jit
def attention(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), v.load([start, 0]), found * shrink[:, None])
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@tw.jit
def gated(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """What scores are read by last are 16-bit floats, booleans and a number."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    found, largest = tl.zeros([M_BLOCK, WIDTH], tl.float32), 0.0
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        largest = tl.maximum(largest, tl.max(tl.max(scores, 1), 0))
        share = tl.where(scores > 0, scores.to(tl.float16) * 2.0, 1.0).to(tl.float16)
        found = tl.dot(share, v.load([start, 0]), found)
    out.store([row, 0], (found + largest).to(out.dtype))


@tw.jit
def one_cache(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Square blocks are columns of keys and rows of values, and scores have a second part."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        keys = k.load([start, 0])
        scores = tl.dot(queries, v.load([start, 0]).T, tl.dot(queries, keys))
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), keys, found * shrink[:, None])
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@tw.jit
def staying(q, k, v, out, length, tiles, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Programs take one block of queries after another."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile * M_BLOCK
        queries = q.load([row, 0])
        most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
        found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
        for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
            scores = tl.dot(queries, k.load([start, 0]).T)
            most, share, shrink, weight = softmax_step(scores, most, weight)
            found = tl.dot(share.to(tl.float16), v.load([start, 0]), found * shrink[:, None])
        out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@tw.jit
def causal(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """A query sees the keys up to its own; every block is masked in the text."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    rows, columns = row + tl.arange(0, M_BLOCK), tl.arange(0, N_BLOCK)
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, tl.minimum(row + M_BLOCK, length), N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        scores = tl.where(rows[:, None] >= start + columns[None, :], scores, -float("inf"))
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), v.load([start, 0]), found * shrink[:, None])
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@tw.jit
def windowed(q, k, v, out, length, shift, limit, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Two bounds, of which one moves with the query."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    rows = row + tl.arange(0, M_BLOCK)
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        columns = start + tl.arange(0, N_BLOCK)
        scores = tl.dot(queries, k.load([start, 0]).T)
        seen = (columns[None, :] < rows[:, None] + shift) & (columns[None, :] < limit)
        scores = tl.where(seen, scores, -float("inf"))
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), v.load([start, 0]), found * shrink[:, None])
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@tw.jit
def by_pointers(
    q,
    k,
    v,
    out,
    length,
    M_BLOCK: tl.constexpr,
    N_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    SPECIAL: tl.constexpr = True,
):
    """Loads that read boxes of tensors, which the copy engine moves as well."""
    rows, columns, inner = tl.arange(0, M_BLOCK), tl.arange(0, N_BLOCK), tl.arange(0, WIDTH)
    rows += tl.program_id(0) * M_BLOCK
    queries = tl.load(q + rows[:, None] * WIDTH + inner)
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=SPECIAL):
        places = (start + columns)[:, None] * WIDTH + inner
        scores = tl.dot(queries, tl.load(k + places).T)
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), tl.load(v + places), found * shrink[:, None])
    tl.store(out + rows[:, None] * WIDTH + inner, (found / weight[:, None]).to(tl.float16))


# --- loops that follow each other -------------------------------------------------------------------------


@tw.jit
def attend(
    most, weight, found, queries, k, v, rows, begin, end, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """(maxima, sums, rows) with more keys; where it is masked a query sees keys up to its own."""
    columns, inner = tl.arange(0, N_BLOCK), tl.arange(0, WIDTH)
    for start in tl.range(begin, end, N_BLOCK, warp_specialize=True):
        places = (start + columns)[:, None] * WIDTH + inner
        scores = tl.dot(queries, tl.load(k + places).T)
        if MASKED:
            scores = tl.where(rows[:, None] >= start + columns[None, :], scores, -float("inf"))
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), tl.load(v + places), found * shrink[:, None])
    return most, weight, found


@tw.jit
def in_parts(
    q, k, v, out, length, first, second, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    BETWEEN: tl.constexpr = False,
):  # fmt: skip
    """Keys up to `first` with a mask, up to `second` without, and the rest with; `BETWEEN` halves what was found."""
    rows = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    queries = tl.load(q + rows[:, None] * WIDTH + tl.arange(0, WIDTH))
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    most, weight, found = attend(most, weight, found, queries, k, v, rows, 0, first, N_BLOCK, WIDTH, True)
    most, weight, found = attend(most, weight, found, queries, k, v, rows, first, second, N_BLOCK, WIDTH, False)
    if BETWEEN:
        weight, found = weight * 0.5, found * 0.5
    most, weight, found = attend(most, weight, found, queries, k, v, rows, second, length, N_BLOCK, WIDTH, True)
    tl.store(out + rows[:, None] * WIDTH + tl.arange(0, WIDTH), (found / weight[:, None]).to(tl.float16))


@tw.jit
def in_another_order(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """The last block of keys in a loop of its own, which carries what the first one does in another order."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length - N_BLOCK, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(tl.float16), v.load([start, 0]), found * shrink[:, None])
    total, largest, summed = found, most, weight
    for start in tl.range(length - N_BLOCK, length, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        above, share, shrink, more = softmax_step(scores, largest, summed)
        total = tl.dot(share.to(tl.float16), v.load([start, 0]), total * shrink[:, None])
        largest, summed = above, more
    out.store([row, 0], (total / summed[:, None]).to(out.dtype))


# --- what is not rotated --------------------------------------------------------------------------------


@tw.jit
def summed(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """The sum of the last product is looked at in each iteration."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    found, largest = tl.zeros([M_BLOCK, WIDTH], tl.float32), tl.full([M_BLOCK], -1000.0, tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        found = tl.dot(scores.to(tl.float16), v.load([start, 0]), found)
        largest = tl.maximum(largest, tl.max(found, 1))
    out.store([row, 0], (found + largest[:, None]).to(out.dtype))


@tw.jit
def widened(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Values pass through registers."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        most, share, shrink, weight = softmax_step(scores, most, weight)
        values = v.load([start, 0]).to(tl.float16)
        found = tl.dot(share.to(tl.float16), values, found * shrink[:, None])
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


# --- operands of 8 bits ---------------------------------------------------------------------------------


@tw.jit
def of_their_type(
    q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    SPECIAL: tl.constexpr = True,
):  # fmt: skip
    """Shares become what values are."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=SPECIAL):
        scores = tl.dot(queries, k.load([start, 0]).T)
        most, share, shrink, weight = softmax_step(scores, most, weight)
        values = v.load([start, 0])
        found = tl.dot(share.to(values.dtype), values, found * shrink[:, None])
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@tw.jit
def of_their_type_by_pointers(
    q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The same through pointers, for whoever finds roles worth it."""
    rows, columns, inner = tl.arange(0, M_BLOCK), tl.arange(0, N_BLOCK), tl.arange(0, WIDTH)
    rows += tl.program_id(0) * M_BLOCK
    queries = tl.load(q + rows[:, None] * WIDTH + inner)
    most, weight = tl.full([M_BLOCK], -1000.0, tl.float32), tl.zeros([M_BLOCK], tl.float32)
    found = tl.zeros([M_BLOCK, WIDTH], tl.float32)
    for start in range(0, length, N_BLOCK):
        places = (start + columns)[:, None] * WIDTH + inner
        scores = tl.dot(queries, tl.load(k + places).T)
        most, share, shrink, weight = softmax_step(scores, most, weight)
        found = tl.dot(share.to(v.dtype.element_ty), tl.load(v + places), found * shrink[:, None])
    tl.store(out + rows[:, None] * WIDTH + inner, (found / weight[:, None]).to(tl.float16))


@tw.jit
def squared(q, k, v, out, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Products of integers, of which the second one reads what is made of the first: nothing is rounded."""
    row = tl.program_id(0) * M_BLOCK
    queries = q.load([row, 0])
    found = tl.zeros([M_BLOCK, WIDTH], tl.int32)
    for start in tl.range(0, length, N_BLOCK, warp_specialize=True):
        scores = tl.dot(queries, k.load([start, 0]).T)
        found = tl.dot((scores & 15).to(tl.int8), v.load([start, 0]), found)
    out.store([row, 0], found)
