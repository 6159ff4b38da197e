"""Products through tensor descriptors of the host, for `benchmarks.sustained`; the text serves Triton as well."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def tile_of(tile, M, N, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile; groups of rows share columns of B in the cache."""
    across = tl.cdiv(N, N_BLOCK)
    first = tile // (GROUP * across) * GROUP
    rows = min(tl.cdiv(M, M_BLOCK) - first, GROUP)
    return (first + tile % (GROUP * across) % rows) * M_BLOCK, tile % (GROUP * across) // rows * N_BLOCK


@triton.jit
def one_tile(
    a, b, c, M, N, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, GROUP: tl.constexpr,
    SPECIAL: tl.constexpr,
):  # fmt: skip
    """A program makes a tile."""
    row, column = tile_of(tl.program_id(0), M, N, M_BLOCK, N_BLOCK, GROUP)
    total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=SPECIAL):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def persistent(
    a, b, c, M, N, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, GROUP: tl.constexpr,
    SPECIAL: tl.constexpr,
):  # fmt: skip
    """Programs stay, and take a tile after the other."""
    tiles = tl.cdiv(M, M_BLOCK) * tl.cdiv(N, N_BLOCK)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True, warp_specialize=SPECIAL):
        row, column = tile_of(tile, M, N, M_BLOCK, N_BLOCK, GROUP)
        total = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
        for k in range(0, K, K_BLOCK):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        c.store([row, column], total.to(c.dtype))


@triton.jit
def attention(
    q, k, v, out, length, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SPECIAL: tl.constexpr,
):  # fmt: skip
    """Softmax attention of a head: queries of a program against all keys; rows of heads follow each other."""
    first = tl.program_id(1) * length
    row = first + tl.program_id(0) * QUERIES
    queries = q.load([row, 0])
    most = tl.full([QUERIES], -float("inf"), tl.float32)
    weight = tl.zeros([QUERIES], tl.float32)
    found = tl.zeros([QUERIES, WIDTH], tl.float32)
    for start in tl.range(0, length, KEYS, warp_specialize=SPECIAL):
        scores = tl.dot(queries, k.load([first + start, 0]).T)
        above = tl.maximum(most, tl.max(scores, 1) * scale)
        shrink = tl.exp2(most - above)
        share = tl.exp2(scores * scale - above[:, None])
        weight = weight * shrink + tl.sum(share, 1)
        found = found * shrink[:, None]
        values = v.load([first + start, 0])
        found = tl.dot(share.to(values.dtype), values, found)
        most = above
    out.store([row, 0], (found / weight[:, None]).to(out.dtype))


@triton.jit
def causal_attention(
    q, k, v, out, length, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SPECIAL: tl.constexpr,
):  # fmt: skip
    """The same, where a query sees the keys up to its own; the text masks every block."""
    first = tl.program_id(1) * length
    row = tl.program_id(0) * QUERIES
    queries = q.load([first + row, 0])
    rows, columns = row + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    most = tl.full([QUERIES], -float("inf"), tl.float32)
    weight = tl.zeros([QUERIES], tl.float32)
    found = tl.zeros([QUERIES, WIDTH], tl.float32)
    for start in tl.range(0, row + QUERIES, KEYS, warp_specialize=SPECIAL):
        scores = tl.dot(queries, k.load([first + start, 0]).T)
        scores = tl.where(rows[:, None] >= start + columns[None, :], scores, -float("inf"))
        above = tl.maximum(most, tl.max(scores, 1) * scale)
        shrink = tl.exp2(most - above)
        share = tl.exp2(scores * scale - above[:, None])
        weight = weight * shrink + tl.sum(share, 1)
        found = found * shrink[:, None]
        values = v.load([first + start, 0])
        found = tl.dot(share.to(values.dtype), values, found)
        most = above
    out.store([first + row, 0], (found / weight[:, None]).to(out.dtype))
