"""Plain kernels whose sizes are arguments, in Triton's spelling, for `benchmarks.sizes_gpu`."""

# mypy: disable-error-code="no-untyped-def"

import tilewright as triton
import tilewright.language as tl


@triton.jit
def softmax(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Softmax of a few rows."""
    row, column = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    mask = (row < rows) & (column < columns)
    tile = tl.load(x + row * columns + column, mask, -float("inf"))
    e = tl.exp(tile - tl.max(tile, 1, keep_dims=True))
    tl.store(out + row * columns + column, e / tl.sum(e, 1, keep_dims=True), mask)


@triton.jit
def normed(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Rows without their mean, over their deviation."""
    row, column = tl.program_id(0), tl.arange(0, C)
    tile = tl.load(x + row * columns + column, column < columns, 0.0).to(tl.float32)
    apart = tl.where(column < columns, tile - tl.sum(tile) / columns, 0.0)
    scaled = apart * tl.rsqrt(tl.sum(apart * apart) / columns + 1e-5)
    tl.store(out + row * columns + column, scaled, column < columns)


@triton.jit
def running_sums(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Running sums of a row."""
    row, column = tl.program_id(0), tl.arange(0, C)
    tile = tl.load(x + row * columns + column, column < columns, 0.0)
    tl.store(out + row * columns + column, tl.cumsum(tile, 0), column < columns)


@triton.jit
def transposed(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """A tile, turned."""
    row, column = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask)
    tl.store(out + column[None, :] * rows + row[:, None], tile, mask)


@triton.jit
def gelu(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """GELU of a tile."""
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    column = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    mask = (row < rows) & (column < columns)
    tile = tl.load(x + row * columns + column, mask).to(tl.float32)
    tl.store(out + row * columns + column, 0.5 * tile * (1 + tl.erf(tile * 0.70710678)), mask)


@triton.jit
def stencil(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """The mean of four neighbours."""
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    column = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    mask = (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)
    at = x + row * columns + column
    beside = tl.load(at - 1, mask, 0.0) + tl.load(at + 1, mask, 0.0)
    tile = beside + tl.load(at - columns, mask, 0.0) + tl.load(at + columns, mask, 0.0)
    tl.store(out + row * columns + column, tile * 0.25, mask)


@triton.jit
def column_sums(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Sums of columns, in a loop over rows."""
    column, total = tl.program_id(0) * C + tl.arange(0, C), tl.zeros((C,), tl.float32)
    for start in range(0, rows, R):
        row = start + tl.arange(0, R)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask, 0.0).to(tl.float32), 0)
    tl.store(out + column, total, column < columns)


@triton.jit
def row_sums(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Sums of rows, in a loop over columns."""
    row, total = tl.program_id(0) * R + tl.arange(0, R), tl.zeros((R,), tl.float32)
    for start in range(0, columns, C):
        column = start + tl.arange(0, C)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask, 0.0).to(tl.float32), 1)
    tl.store(out + row, total, row < rows)


@triton.jit
def product(x, y, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACROSS: tl.constexpr):
    """A tile of x @ y, of x @ y.T if it lies across."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(x + m * K + k[None, :], (m < M) & (k[None, :] < K), 0.0)
        at = n * K + k[:, None] if ACROSS else k[:, None] * N + n
        acc = tl.dot(left, tl.load(y + at, (k[:, None] < K) & (n < N), 0.0), acc)
    tl.store(out + m * N + n, acc, (m < M) & (n < N))
