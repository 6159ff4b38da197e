"""What docs/fast_on_cpu.md claims, row by row: a computation in the form that the page recommends and in others.

    python -m benchmarks.advice [--only TEXT] [--threads N] [--seconds S]

Rows are those of `benchmarks.forms`: the time of the best form over that of each, torch's beside them.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import torch
from rich.console import Console

import tilewright
import tilewright.language as tl
from benchmarks.forms import Family, draw, measure
from tilewright.tools.timing import threads


@tilewright.jit
def scaled_rows(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The last dimension of the tile runs along a row, as memory does."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at, mask = i * columns + j, (i < rows) & (j < columns)
    tl.store(out + at, tl.load(x + at, mask) * 2 + 1, mask)


@tilewright.jit
def scaled_columns(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same elements; the last dimension of the tile runs along a column."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[None, :]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    at, mask = i * columns + j, (i < rows) & (j < columns)
    tl.store(out + at, tl.load(x + at, mask) * 2 + 1, mask)


@tilewright.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Two vectors, in blocks."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@tilewright.jit
def sum_of_elements(x, out, n, BLOCK: tl.constexpr):
    """A scalar at a time."""
    total = 0.0
    for i in range(n):
        total += tl.load(x + tl.program_id(0) * n + i)
    tl.store(out + tl.program_id(0), total)


@tilewright.jit
def sum_of_sums(x, out, n, BLOCK: tl.constexpr):
    """A reduction in every iteration."""
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + tl.program_id(0) * n + i, i < n, 0.0))
    tl.store(out + tl.program_id(0), total)


@tilewright.jit
def sum_of_tiles(x, out, n, BLOCK: tl.constexpr):
    """A tile is carried, and reduced once."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + tl.program_id(0) * n + i, i < n, 0.0)
    tl.store(out + tl.program_id(0), tl.sum(total))


@tilewright.jit
def product_of_strided_loads(x, y, out, n, BLOCK: tl.constexpr):
    """Numbers are pairs of real and imaginary part."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a, b = tl.load(x + 2 * i, mask), tl.load(x + 2 * i + 1, mask)
    c, d = tl.load(y + 2 * i, mask), tl.load(y + 2 * i + 1, mask)
    tl.store(out + 2 * i, a * c - b * d, mask)
    tl.store(out + 2 * i + 1, a * d + b * c, mask)


@tilewright.jit
def product_of_split_pairs(x, y, out, n, BLOCK: tl.constexpr):
    """Pairs are the last dimension of a tile."""
    pairs = tl.arange(0, BLOCK)[:, None] * 2 + tl.arange(0, 2)[None, :]
    at = tl.program_id(0) * BLOCK * 2 + pairs
    a, b = tl.split(tl.load(x + at, at < 2 * n))
    c, d = tl.split(tl.load(y + at, at < 2 * n))
    tl.store(out + at, tl.join(a * c - b * d, a * d + b * c), at < 2 * n)


@tilewright.jit
def product_of_flat_numbers(x, y, out, n, BLOCK: tl.constexpr):
    """An element of the result for each element of memory: stores are whole vectors, partners are gathered."""
    i = tl.program_id(0) * BLOCK * 2 + tl.arange(0, 2 * BLOCK)
    mask = i < 2 * n
    own, other = tl.load(x + i, mask), tl.load(x + (i ^ 1), mask)
    real, imaginary = tl.load(y + i - i % 2, mask), tl.load(y + i - i % 2 + 1, mask)
    tl.store(out + i, own * real + tl.where(i % 2 == 0, -other, other) * imaginary, mask)


@tilewright.jit
def every_fourth_by_stride(x, out, n, BLOCK: tl.constexpr):
    """A load with a stride."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + 4 * i, i < n), i < n)


@tilewright.jit
def every_fourth_of_lines(x, out, n, BLOCK: tl.constexpr):
    """Whole lines are loaded, and three of four elements left."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lines = tl.load(x + 4 * i[:, None] + tl.arange(0, 4)[None, :], (i < n)[:, None])
    tl.store(out + i, tl.sum(tl.where(tl.arange(0, 4)[None, :] == 0, lines, 0.0), 1), i < n)


@tilewright.jit
def counted_one_by_one(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """An atomic for each element."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, i < n, 0), 1, i < n, sem="relaxed")


@tilewright.jit
def counted_in_a_tile(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """A tile of counts for the block, then one atomic for each bin."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.arange(0, BINS), tl.histogram(tl.load(x + i, i < n, 0), BINS, i < n), sem="relaxed")


def _orientation(rows: int, columns: int) -> Family:
    x = torch.randn(rows, columns)
    out, tile = torch.zeros_like(x), (16, 256)
    grid = (-(-rows // tile[0]), -(-columns // tile[1]))
    forms: dict[str, Callable[[], object]] = {
        "rows along memory": lambda: scaled_rows[grid](x, out, rows, columns, *tile),
        "columns along memory": lambda: scaled_columns[grid](x, out, rows, columns, *tile),
    }
    return Family(f"orientation {rows}x{columns}", forms, out, lambda: x * 2 + 1)


def _blocks(n: int) -> Family:
    x, y, out = torch.randn(n), torch.randn(n), torch.zeros(n)
    forms: dict[str, Callable[[], object]] = {
        f"block of {block}": lambda block=block: add[(-(-n // block),)](x, y, out, n, block)  # type: ignore[misc]
        for block in (16, 100, 128, 1024, 16384, 262144)
    }
    return Family(f"blocks {n}", forms, out, lambda: x + y)


def _sums(rows: int, columns: int) -> Family:
    x, out = torch.randn(rows, columns), torch.zeros(rows)
    kernels = (sum_of_elements, sum_of_sums, sum_of_tiles)
    forms: dict[str, Callable[[], object]] = {
        kernel.__name__: lambda kernel=kernel: kernel[(rows,)](x, out, columns, 256)  # type: ignore[misc]
        for kernel in kernels
    }
    return Family(f"sums {rows}x{columns}", forms, out, lambda: x.sum(1), tolerance=1e-4)


def _complex(n: int) -> Family:
    x, y = torch.randn(n, dtype=torch.complex64), torch.randn(n, dtype=torch.complex64)
    a, b, out = torch.view_as_real(x), torch.view_as_real(y), torch.zeros(n, 2)
    kernels = (product_of_strided_loads, product_of_split_pairs, product_of_flat_numbers)
    forms: dict[str, Callable[[], object]] = {
        kernel.__name__: lambda kernel=kernel: kernel[(-(-n // 4096),)](a, b, out, n, 4096)  # type: ignore[misc]
        for kernel in kernels
    }
    return Family(f"complex {n}", forms, out, lambda: torch.view_as_real(x * y), tolerance=1e-5)


def _fourth(n: int) -> Family:
    x, out = torch.randn(4 * n), torch.zeros(n)
    kernels = (every_fourth_by_stride, every_fourth_of_lines)
    forms: dict[str, Callable[[], object]] = {
        kernel.__name__: lambda kernel=kernel: kernel[(-(-n // 1024),)](x, out, n, 1024)  # type: ignore[misc]
        for kernel in kernels
    }
    return Family(f"every fourth of {4 * n}", forms, out, lambda: x[::4].clone())


def _counts(n: int, bins: int) -> Family:
    x, out = torch.randint(0, bins, (n,), dtype=torch.int32), torch.zeros(bins, dtype=torch.int32)
    forms: dict[str, Callable[[], object]] = {}
    for kernel in (counted_one_by_one, counted_in_a_tile):
        for block in (256, 16384):
            name = f"{kernel.__name__}, block of {block}"
            call = lambda kernel=kernel, block=block: kernel[(-(-n // block),)](x, out, n, bins, block)  # noqa: E731
            forms[name] = call
    rival = lambda: torch.bincount(x, minlength=bins)  # noqa: E731
    return Family(f"counts of {bins} in {n}", forms, out, rival, out.zero_, 0.0)


FAMILIES = (
    lambda: _orientation(2048, 2048), lambda: _blocks(1 << 20), lambda: _sums(512, 4000), lambda: _complex(1 << 20),
    lambda: _fourth(1 << 19), lambda: _counts(1 << 20, 256),
)  # fmt: skip


@click.command()
@click.option("--only", default="", metavar="TEXT", help="Only families whose name contains TEXT.")
@click.option("--threads", "count", type=int, default=1, help="Threads, for torch too.")
@click.option("--seconds", default=0.3, help="Time of a form.")
def main(only: str, count: int, seconds: float) -> None:
    """Time the forms that the page speaks of."""
    console = Console(width=140)
    with threads(count):
        for make in FAMILIES:
            family = make()
            if only in family.name:
                draw(console, list(measure(family, count, seconds)))


if __name__ == "__main__":
    main()
