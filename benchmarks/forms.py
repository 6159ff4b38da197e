"""One computation written in many ways, each timed as the ratio to the best of them; `make bench` runs it too.

    python -m benchmarks.forms [--cuda [--triton]] [--only TEXT] [--threads N] [--out FILE]

Speed should not depend on the spelling: a row far below 1 is a form that a planner does not understand. torch runs
beside them, and with `--triton` each form once more by Triton; every form is checked against torch's result first. The
spellings are those of `tests/decisions`, where the plans of each are pinned.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import foreign_forms, forms_of_strangers, report
from benchmarks.form_family import Family, Function, elsewhere_in_pages, kernels_of, launch, launched
from benchmarks.peers import Launch
from tests.decisions import further, generated, others
from tests.decisions import rows as less_usual
from tests.decisions.harness import Spelling
from tests.decisions.matmul import MATMUL
from tests.decisions.softmax import SOFTMAX
from tilewright.tools.timing import compare, duration, threads

FLOOR = 0.9  # of the best form: what every form should reach
_UNWRITTEN = 7  # what a result holds before
_BY_TRITON = "triton: "


@dataclass(frozen=True)
class Row:
    """A form that was timed; seconds of a call, and the ratios of the best form's time, torch's and Triton's to it."""

    family: str
    form: str
    threads: int
    seconds: float
    of_best: float
    of_torch: float
    failure: str = ""
    of_triton: float = math.nan


# Spellings of the product that load something else than the others, or leave a part of it out.
_OTHER_PRODUCTS = {
    "relu_of_a",
    "ones_outside",
    "transposed_operand",
    "under_a_condition",
    "of_other_rows",
    "first_from_other_rows",
    "of_every_other_pair",
    "two_products",
    "store_in_the_loop",
}
_USUAL = next(s.signature for s in MATMUL if s.name == "plain")
_ROW = next(s.signature for s in SOFTMAX if s.name == "plain")


def _product(dtype: torch.dtype, m: int, n: int, k: int, device: str) -> Family:
    tile = (64, 128, 64)
    # Most forms mask no rows: those of the last blocks lie behind the operands, and nobody stores what becomes of them.
    a = torch.randn(m + tile[0], k, device=device).to(dtype)[:m]
    b = torch.randn(k + 1, n, device=device).to(dtype)[:k]
    out = torch.zeros(m, n, device=device)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    others = set(_OTHER_PRODUCTS)
    others |= {"unrolled"} if k != 512 else set()  # which ends there
    others |= {"in_two_loops"} if k % (2 * tile[2]) else set()  # which takes two blocks at a time
    kernels = {name: fn for name, fn in kernels_of(MATMUL, _USUAL).items() if name not in others}
    forms = {name: launch(fn, grid, a, b, out, m, n, k, *tile) for name, fn in kernels.items()}
    return Family(f"product {str(dtype)[6:]} {m}x{n}x{k}", forms, out, lambda: torch.mm(a, b))


def _softmax(rows: int, columns: int, device: str) -> Family:
    x = torch.randn(rows, columns, device=device)
    out, block = torch.zeros_like(x), 1 << (columns - 1).bit_length()
    kernels = {name: fn for name, fn in kernels_of(SOFTMAX, _ROW).items() if name != "of_many_rows"}
    forms = {name: launch(fn, (rows,), x, out, columns, columns, block) for name, fn in kernels.items()}
    return Family(f"softmax {rows}x{columns}", forms, out, lambda: torch.softmax(x, 1), tolerance=1e-5)


def _blocks(name: str, rows: int, columns: int, blocks: Sequence[int], device: str) -> Family:
    """One form of softmax, with blocks of several sizes."""
    x = torch.randn(rows, columns, device=device)
    out, kernel = torch.zeros_like(x), next(s.fn for s in SOFTMAX if s.name == name.split()[0])
    forms = {f"block of {b}": launch(kernel, (rows,), x, out, columns, columns, b) for b in blocks}
    return Family(f"{name} {rows}x{columns}", forms, out, lambda: torch.softmax(x, 1), tolerance=1e-5)


def _gather(rows: int, columns: int, device: str) -> Family:
    table, ids = torch.randn(4096, columns, device=device), torch.randint(0, 4096, (rows,), device=device)
    out = torch.zeros(rows, columns, device=device)
    arguments, grid = (table, ids, out, rows, columns), (-(-rows // 64),)
    forms = {name: launch(fn, grid, *arguments) for name, fn in kernels_of(others.GATHERS).items()}
    return Family(f"gather of rows {rows}x{columns}", forms, out, lambda: torch.nn.functional.embedding(ids, table))


def _columns(rows: int, columns: int, device: str) -> Family:
    x, out = torch.randn(rows, columns, device=device), torch.zeros(columns, device=device)
    arguments, grid = (x, out, rows, columns, 128), (-(-columns // 128),)
    forms = {name: launch(fn, grid, *arguments) for name, fn in kernels_of(others.COLUMN_SUMS).items()}
    return Family(f"sum of columns {rows}x{columns}", forms, out, lambda: torch.sum(x, 0))


def _stencil(rows: int, columns: int, device: str) -> Family:
    """All forms with tiles of one width, and one form with others; on a GPU extents are powers of two."""
    x = torch.randn(rows, columns, device=device)
    out, forms = elsewhere_in_pages(x), {}
    for name, kernel in kernels_of(others.STENCILS).items():
        for width in (64, 56, 48) if device == "cpu" and name == "shifted_loads" else (64,):
            grid = (-(-columns // width), -(-rows // 16))
            forms[f"{name}, width {width}"] = launch(kernel, grid, x, out, rows, columns, width)

    def rival() -> torch.Tensor:
        result = torch.full_like(x, _UNWRITTEN)
        result[1:-1, 1:-1] = x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]
        return result

    return Family(f"stencil {rows}x{columns}", forms, out, rival)


def _histogram(n: int, bins: int, device: str) -> Family:
    x, out = torch.randint(0, bins, (n,), device=device, dtype=torch.int32), torch.zeros(bins, device=device).int()
    names = kernels_of(others.HISTOGRAMS).items()
    forms = {name: launch(fn, (-(-n // 4096),), x, out, n, bins, 4096) for name, fn in names}
    rival = lambda: torch.bincount(x, minlength=bins)  # noqa: E731
    return Family(f"histogram {n} of {bins}", forms, out, rival, out.zero_, 0.0)


def _segments(n: int, segments: int, device: str) -> Family:
    x, ids = torch.randn(n, device=device), torch.randint(0, segments, (n,), device=device, dtype=torch.int32)
    out = torch.zeros(segments, device=device)
    forms = {
        name: launch(fn, (-(-n // 4096),), x, ids, out, n, 4096) for name, fn in kernels_of(others.SEGMENTS).items()
    }
    rival = lambda: torch.zeros_like(out).index_add_(0, ids, x)  # noqa: E731
    return Family(f"sums of {segments} segments of {n}", forms, out, rival, out.zero_)


def _running(rows: int, columns: int, dtype: torch.dtype, device: str) -> Family:
    x = (torch.rand(rows, columns, device=device) * 0.02 + 0.99).to(dtype)
    out, block = torch.zeros_like(x), 1 << (columns - 1).bit_length()
    names = kernels_of(others.RUNNING_PRODUCTS).items()
    forms = {name: launch(fn, (rows,), x, out, columns, block) for name, fn in names}
    return Family(f"running product {str(dtype)[6:]} {rows}x{columns}", forms, out, lambda: torch.cumprod(x, 1))


def _small(batch: int, m: int, n: int, k: int, device: str) -> Family:
    a, b = torch.randn(batch, m, k, device=device), torch.randn(batch, k, n, device=device)
    out = torch.zeros(batch, m, n, device=device)
    tile = tuple(max(16, 1 << (extent - 1).bit_length()) for extent in (m, n, k))
    names = kernels_of(others.SMALL_PRODUCTS).items()
    forms = {name: launch(fn, (batch,), a, b, out, m, n, k, *tile) for name, fn in names}
    if device == "cpu":  # tiles of any size
        forms["exact"] = launch(kernels_of(others.SMALL_PRODUCTS)["padded"], (batch,), a, b, out, m, n, k, m, n, k)
    return Family(f"small products {batch} of {m}x{n}x{k}", forms, out, lambda: torch.bmm(a, b))


def _one_row(n: int, k: int, device: str) -> Iterator[Family]:
    """One row times weights of bf16, as they lie in a product and as a linear layer keeps them, and of 4 bits."""
    x, w = torch.randn(k, device=device).bfloat16(), (torch.randn(k, n, device=device) / 8).bfloat16()
    out, tile = torch.zeros(n, device=device), (128, 64)
    grid, turned = (-(-n // tile[0]),), w.t().contiguous()
    forms = {name: launch(fn, grid, x, w, out, n, k, *tile) for name, fn in kernels_of(further.ONE_ROW).items()}
    yield Family(f"one row {n}x{k}", forms, out, lambda: x @ w)
    names = kernels_of(further.ONE_ROW_OF_LINEAR).items()
    forms = {name: launch(fn, grid, x, turned, out, n, k, *tile) for name, fn in names}
    yield Family(f"one row of linear {n}x{k}", forms, out, lambda: turned @ x)
    numbers, scales = torch.randint(-8, 8, (k, n), device=device), torch.rand(n, device=device)
    packed = ((numbers[0::2] & 15) | (numbers[1::2] << 4)).to(torch.int8)
    names, whole = kernels_of(further.ONE_ROW_OF_INT4).items(), (numbers * scales).bfloat16()
    forms = {name: launch(fn, grid, x, packed, scales, out, n, k, *tile) for name, fn in names}
    yield Family(f"one row of int4 {n}x{k}", forms, out, lambda: x @ whole)


def _bytes(m: int, n: int, k: int, device: str) -> Family:
    a, b = (torch.randint(-128, 128, shape, device=device, dtype=torch.int8) for shape in ((m, k), (k, n)))
    out, tile = torch.zeros(m, n, device=device, dtype=torch.int32), (64, 64, 64)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    forms = {name: launch(fn, grid, a, b, out, m, n, k, *tile) for name, fn in kernels_of(further.INT8).items()}
    return Family(f"product int8 {m}x{n}x{k}", forms, out, lambda: torch._int_mm(a, b), tolerance=0.0)


def _epilogue(m: int, n: int, k: int, device: str) -> Family:
    a, b = (torch.randn(*shape, device=device).bfloat16() for shape in ((m, k), (k, n)))
    bias, out, tile = torch.randn(n, device=device), torch.zeros(m, n, device=device), (64, 64, 64)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    forms = {
        name: launch(fn, grid, a, b, bias, out, m, n, k, *tile) for name, fn in kernels_of(further.EPILOGUES).items()
    }
    rival = lambda: torch.relu(torch.mm(a, b).float() * 0.5 + bias)  # noqa: E731
    return Family(f"product bf16, bias and relu {m}x{n}x{k}", forms, out, rival)


def _converted(m: int, n: int, k: int, device: str) -> Family:
    """Weights of int8 that are converted in the loop."""
    a, b = torch.randn(m, k, device=device).bfloat16(), torch.randint(-128, 128, (k, n), device=device).char()
    scales, out, tile = torch.rand(n, device=device), torch.zeros(m, n, device=device), (64, 128, 64)
    grid, whole = (-(-m // tile[0]), -(-n // tile[1])), (b.float() * scales).bfloat16()
    names = kernels_of(further.CONVERTED).items()
    forms = {name: launch(fn, grid, a, b, scales, out, m, n, k, *tile) for name, fn in names}
    return Family(f"product bf16 x int8 {m}x{n}x{k}", forms, out, lambda: torch.mm(a, whole))


def _sums_of_rows(device: str) -> Family:
    x, out = torch.randn(2048, 1000, device=device), torch.zeros(2048, device=device)
    forms = launched(less_usual.ROW_SUMS, (128,), x, out, 2048, 1000, 1024)
    return Family("sums of rows 2048x1000", forms, out, lambda: torch.sum(x, 1))


def _tops_of_rows(device: str) -> Family:
    x, out = torch.randn(2048, 1000, device=device), torch.zeros(2048, device=device).int()
    forms = launched(less_usual.ROW_TOPS, (128,), x, out, 2048, 1000, 1024)
    return Family("places of largest 2048x1000", forms, out, lambda: torch.argmax(x, 1), tolerance=0.0)


def _norms_of_rows(device: str) -> Family:
    x, out = torch.randn(1024, 1024, device=device), torch.zeros(1024, 1024, device=device)
    forms = launched(less_usual.ROW_NORMS, (1024,), x, out, 1024, 1024, 1e-5, 1024)
    rival = lambda: torch.nn.functional.rms_norm(x, (1024,), eps=1e-5)  # noqa: E731
    return Family("root mean square norm 1024x1024", forms, out, rival)


def _running_sums(device: str) -> Family:
    x, out = torch.randn(1024, 1024, device=device), torch.zeros(1024, 1024, device=device)
    forms = launched(less_usual.RUNNING_SUMS, (1024,), x, out, 1024, 1024)
    return Family("running sums 1024x1024", forms, out, lambda: torch.cumsum(x, 1))


def _row_added_to_rows(device: str) -> Family:
    x, y, out = torch.randn(1024, 1024, device=device), torch.randn(1024, device=device), torch.zeros(1024, 1024)
    out = out.to(device)
    forms = launched(less_usual.MIXES, (1024,), x, y, out, 1024, 1024, 1024)
    return Family("row added to rows 1024x1024", forms, out, lambda: torch.add(x, y))


def _windows(n: int, device: str) -> Family:
    x, w, out = torch.randn(n, device=device), torch.randn(5, device=device), torch.zeros(n, device=device)
    forms = launched(less_usual.WINDOWS, (-(-n // 4096),), x, w, out, n, 4096)
    rival = lambda: torch.nn.functional.conv1d(x[None, None], w[None, None], padding=2)[0, 0]  # noqa: E731
    return Family(f"windows of 5 of {n}", forms, out, rival)


def _picked(rows: int, columns: int, device: str) -> Family:
    table, ids = torch.randn(4096, columns, device=device), torch.randint(-4096, 4096, (rows,), device=device).int()
    out = torch.zeros(rows, columns, device=device)
    forms = launched(less_usual.PICKED, (-(-rows // 64),), table, ids, out, rows, 4096, columns)
    return Family(f"rows from both ends {rows}x{columns}", forms, out, lambda: table[ids.long()], tolerance=0.0)


def _counts(n: int, bins: int, device: str) -> Family:
    x, out = torch.randint(0, bins, (n,), device=device).int(), torch.zeros(bins, device=device).int()
    forms = launched(less_usual.COUNTS, (-(-n // 4096),), x, out, n, bins, 4096)
    return Family(f"counts {n} of {bins}", forms, out, lambda: torch.bincount(x, minlength=bins), out.zero_, 0.0)


def _as_compilers_write(device: str) -> Iterator[Callable[[], Family]]:
    """Kernels as compilers of graphs write them, and products of narrow types and in parts; sizes are a GPU's."""
    yield lambda: _tiled_softmax(8192, 4096, device)
    yield lambda: _tiled_norm(8192, 8192, device)
    yield lambda: _cross_entropy(4096, 32000, device)
    yield lambda: _turned(8192, 8192, device)
    yield lambda: _attention(32, 4096, 128, device)
    yield lambda: _narrow(4096, device, scaled=False)
    yield lambda: _narrow(4096, device, scaled=True)
    yield lambda: _split(1024, 1024, 8192, device)


def _tiled_softmax(rows: int, columns: int, device: str) -> Family:
    x = torch.randn(rows, columns, device=device)
    out = torch.zeros_like(x)
    forms = {s.name: _own(s, (rows,), x, out, rows, columns, 1, _last(s)) for s in generated.TILED_SOFTMAX}
    return Family(f"tiled softmax {rows}x{columns}", forms, out, lambda: torch.softmax(x, 1), tolerance=1e-5)


def _tiled_norm(rows: int, columns: int, device: str) -> Family:
    x = torch.randn(rows, columns, device=device).half()
    weight, bias, out = torch.randn(columns, device=device), torch.randn(columns, device=device), torch.zeros_like(x)
    arguments = (x, weight, bias, out, rows, columns, 1)
    forms = {s.name: _own(s, (rows,), *arguments, _last(s)) for s in generated.TILED_NORM}
    rival = lambda: torch.nn.functional.layer_norm(x, (columns,), weight.half(), bias.half())  # noqa: E731
    return Family(f"tiled layer norm f16 {rows}x{columns}", forms, out, rival)


def _cross_entropy(rows: int, columns: int, device: str) -> Family:
    x, labels = torch.randn(rows, columns, device=device), torch.randint(0, columns, (rows,), device=device)
    out = torch.zeros(rows, device=device)
    forms = {s.name: _own(s, (rows,), x, labels, out, rows, columns, 1, _last(s)) for s in generated.CROSS_ENTROPY}
    rival = lambda: torch.nn.functional.cross_entropy(x, labels, reduction="none")  # noqa: E731
    return Family(f"cross entropy {rows}x{columns}", forms, out, rival)


def _turned(rows: int, columns: int, device: str) -> Family:
    x, out = torch.randn(rows, columns, device=device), torch.zeros(columns, rows, device=device)
    grid = (-(-columns // 64), -(-rows // 64))
    forms = {s.name: _own(s, grid, x, out, rows, columns, 64, 64) for s in generated.TURNED}
    return Family(f"transpose {rows}x{columns}", forms, out, lambda: x.t().contiguous(), tolerance=0.0)


def _attention(heads: int, n: int, depth: int, device: str) -> Family:
    q, k, v = (torch.randn(heads, n, depth, device=device).bfloat16() for _ in range(3))
    out, scale = torch.zeros_like(q), 0.125 * math.log(2)  # the kernels take powers of two
    arguments = (q, k, v, out, n, depth, 128, 128)
    forms = {s.name: _own(s, (n // 128, heads), *arguments) for s in generated.BATCHED_ATTENTION}
    rival = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)  # noqa: E731
    return Family(f"attention {heads}x{n}x{depth}", forms, out, rival, tolerance=3e-2)


def _narrow(n: int, device: str, *, scaled: bool) -> Family:
    """Products of 8-bit floats; scaled ones against torch's product of what they stand for in bfloat16."""
    a, b = (torch.randn(n, n, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    u, v = (torch.randint(125, 129, (n, n // 32), device=device).to(torch.uint8) for _ in range(2))
    out, grid, one = torch.zeros(n, n, device=device), (n // 128, n // 128), torch.ones((), device=device)
    if not scaled:
        forms = {s.name: _own(s, grid, a, b, out, n, n, n, 128, 128, 128) for s in generated.NARROW}
        rival = lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)  # noqa: E731
        return Family(f"product fp8 {n}x{n}x{n}", forms, out, rival)
    forms = {s.name: _own(s, grid, a, u, b, v, out, n, n, n, 128, 128, 128) for s in generated.SCALED}
    x, y = ((m.float() * torch.exp2(s.float() - 127).repeat_interleave(32, 1)).bfloat16() for m, s in ((a, u), (b, v)))
    return Family(f"product of scaled fp8 {n}x{n}x{n}", forms, out, lambda: torch.mm(x, y.t()))


def _split(m: int, n: int, k: int, device: str) -> Family:
    a, b = torch.randn(m, k, device=device).half(), torch.randn(k, n, device=device).half()
    out, grid = torch.zeros(m, n, device=device), (m // 128, n // 128, 4)
    forms = {s.name: _own(s, grid, a, b, out, m, n, k, 128, 128, 64, 4) for s in generated.SPLIT}
    return Family(f"product f16 in 4 parts {m}x{n}x{k}", forms, out, lambda: torch.mm(a, b), out.zero_)


def _own(spelling: Spelling, grid: tuple[int, ...], *arguments: Any) -> Launch:
    """A launch with the options of the spelling."""
    return Launch(spelling.fn, grid, arguments, spelling.options)


def _last(spelling: Spelling) -> int:
    """The size of block that a spelling is written for, the last of its constants."""
    assert isinstance(spelling.signature, str)
    return int(spelling.signature.rpartition(",")[2])


def families(device: str) -> Iterator[Callable[[], Family]]:
    """All families, made when they are wanted; sizes are a GPU's or a CPU's."""
    cuda = device == "cuda"
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for size in ((4096, 4096, 4096), (4000, 4000, 4032)) if cuda else ((512, 512, 512), (500, 500, 512)):
            yield partial(_product, dtype, *size, device)
    scale = 16 if cuda else 1
    yield lambda: _softmax(512 * scale, 1000, device)
    yield lambda: _blocks("online softmax", 64 * scale, 50257, (256, 2048, 8192, 65536), device)
    if not cuda:
        yield lambda: _blocks("plain softmax", 256, 5120, (5120, 8192, 16384), device)
        yield lambda: forms_of_strangers.one_row(16384, device)
        yield lambda: forms_of_strangers.activation(65536, device)
    yield lambda: _gather(4096 * scale, 256, device)
    yield lambda: _columns(4096 * scale, 1024, device)
    yield lambda: _stencil(1026 * (4 if cuda else 1), 1026, device)
    yield lambda: _histogram((1 << 20) * scale, 256, device)
    for segments in (64, 8192, 262144):
        yield lambda segments=segments: _segments((1 << 20) * scale, segments, device)  # type: ignore[misc]
    yield lambda: _running(500 * scale, 4000, torch.float32, device)
    yield lambda: _running(500 * scale, 4000, torch.float64, device)
    for number in range(3):
        yield lambda number=number: list(_one_row(2048, 2048, device))[number]  # type: ignore[misc]
    for size in (512, 4096) if cuda else (512,):
        yield partial(_bytes, size, size, size, device)
        yield partial(_epilogue, size, size, size, device)
        yield partial(_converted, size, size, size, device)
    for sizes in ((17, 13, 29), (33, 31, 47), (63, 65, 70)):
        yield partial(_small, 500 * scale, *sizes, device)
    for make in (_sums_of_rows, _tops_of_rows, _norms_of_rows, _running_sums, _row_added_to_rows):
        yield partial(make, device)
    yield lambda: _windows(1 << 20, device)
    yield lambda: _picked(4096, 256, device)
    yield lambda: _counts(1 << 20, 16, device)
    yield lambda: forms_of_strangers.added_products(512 * scale, 512, 512, device)
    yield lambda: forms_of_strangers.by_few_programs(512 * (8 if cuda else 1), 512, 512, device)
    yield lambda: forms_of_strangers.scaled_blocks(512 * (8 if cuda else 1), 512, 512, device)
    yield lambda: forms_of_strangers.convolution(28 * (4 if cuda else 1), 64, device)
    yield lambda: forms_of_strangers.weight_gradient(1024 * scale, 1000, device)
    for columns in (256, 200):
        yield partial(forms_of_strangers.sums_of_table_rows, 1024 * scale, columns, device)
    yield lambda: forms_of_strangers.rotation(1024 * scale, 8, 64, device)
    yield lambda: forms_of_strangers.nibbles(512 * scale, 4096, device)
    yield lambda: forms_of_strangers.sampling(8, 256, 500, 500, device)
    yield lambda: forms_of_strangers.columns_of_a_picture(2000, 221, 225, device)
    yield lambda: forms_of_strangers.picture_backwards(2000, 225, device)
    for dtype in (torch.float32, torch.bfloat16):
        yield partial(forms_of_strangers.products_held_out, dtype, 4096 if cuda else 512, device)
    yield partial(forms_of_strangers.vectors_held_out, 2048 * scale, 2048, device)
    yield partial(forms_of_strangers.ending_held_out, 1000 * scale, 1000, device)
    yield partial(forms_of_strangers.rows_held_out, 2048 * scale, 1024, device)
    yield partial(forms_of_strangers.magnitudes_held_out, 2048 * scale, 1000, device)
    yield partial(forms_of_strangers.neighbours_held_out, 1024 * scale, 1000, device)
    yield partial(forms_of_strangers.running_held_out, 1024 * scale, 1024, device)
    yield from foreign_forms.families(device, 8 if cuda else 1)
    if cuda:
        yield from _as_compilers_write(device)


def measure(family: Family, count: int, seconds: float, *, triton: bool = False) -> Iterator[Row]:
    """Check every form against torch, then time all that are right in turns, by Triton too if it is asked for."""
    expected = family.rival().double()
    right: dict[str, Function] = {}
    for name, call in family.forms.items():
        failure = _failure(family, call, expected)
        if failure:
            yield Row(family.name, name, count, math.nan, math.nan, math.nan, failure)
        else:
            right[name] = call
    raced = {**right, **(_by_triton(family, right, expected) if triton else {}), "torch": family.rival}
    times = _gpu_times(raced) if family.out.is_cuda else _cpu_times(right, family.rival, seconds, count)
    best = min((times[name] for name in right), default=math.nan)
    for name in right:
        its = times.get(_BY_TRITON + name, math.nan)
        ratios = (best / times[name], times["torch"] / times[name])
        yield Row(family.name, name, count, times[name], *ratios, of_triton=its / times[name])


def least(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of several runs of the same forms as one: of each form, and of torch, the least time counts."""
    families: dict[tuple[str, int], list[Row]] = {}
    for row in itertools.chain(*runs):
        families.setdefault((row.family, row.threads), []).append(row)
    found = list[Row]()
    for of_one in zip(*runs, strict=True):
        row = min(of_one, key=lambda row: (bool(row.failure), row.seconds))
        rows = [other for other in families[row.family, row.threads] if not other.failure]
        best = min((other.seconds for other in rows), default=math.nan)
        rival = min((other.seconds * other.of_torch for other in rows), default=math.nan)
        found.append(replace(row, of_best=best / row.seconds, of_torch=rival / row.seconds))
    return found


def _by_triton(family: Family, right: Mapping[str, Function], expected: torch.Tensor) -> dict[str, Function]:
    """The forms that Triton gets right too."""
    peers = {_BY_TRITON + name: call.by_triton() for name, call in right.items() if isinstance(call, Launch)}
    return {name: call for name, call in peers.items() if not _failure(family, call, expected)}


def _failure(family: Family, call: Function, expected: torch.Tensor) -> str:
    """What is wrong with a form, if anything is."""
    family.out.fill_(_UNWRITTEN)
    if family.reset is not None:
        family.reset()
    try:
        call()
    except Exception as error:  # a form that does not run is a row that says so
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    off = (family.out.double() - expected).abs().max() / expected.abs().max()
    return "" if off <= family.tolerance else f"wrong by {float(off):.1e} of the largest element"


def _cpu_times(forms: Mapping[str, Function], rival: Function, seconds: float, count: int) -> dict[str, float]:
    """Times in turns; of the processor where one thread does all work, as others may be at work on the machine."""
    clock = time.thread_time if count == 1 else time.perf_counter
    samples = compare({**forms, "torch": rival}, seconds=seconds * (len(forms) + 1), clock=clock)
    return {name: _quick(sample.times) for name, sample in samples.items()}


def _quick(times: Sequence[float]) -> float:
    """The first quartile: with many forms in a race, half of the rounds of one may fall into somebody else's work."""
    return statistics.quantiles(times, n=4)[0] if len(times) > 1 else times[0]


def _gpu_times(forms: dict[str, Function]) -> dict[str, float]:
    from benchmarks.gpu import turns

    return turns(forms, 30)


def draw(console: Console, rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title="Forms: the best form's time over this form's", title_justify="left", header_style="bold")
    for name in ("computation", "form", "threads", "time", "of best", "of torch", "of Triton", ""):
        table.add_column(name, justify="left" if name in ("computation", "form", "") else "right", no_wrap=True)
    for row in rows:
        verdict = row.failure or ("" if row.of_best >= FLOOR else "low")
        its = "" if math.isnan(row.of_triton) else f"{row.of_triton:.2f}"
        times = [f"{row.of_best:.2f}", f"{row.of_torch:.2f}", its]
        table.add_row(row.family, row.form, str(row.threads), duration(row.seconds), *times, verdict)
    console.print(table)


def run(device: str, only: str, counts: tuple[int, ...], seconds: float, *, triton: bool = False) -> list[Row]:
    """Measure the families whose name contains `only`, by Triton too if it is asked for."""
    torch.manual_seed(0)
    rows: list[Row] = []
    for make in families(device):
        family = make()
        if only not in family.name:
            continue
        for count in counts:
            with threads(count):
                rows += measure(family, count, seconds, triton=triton)
    return rows


@click.command()
@click.option("--cuda", is_flag=True, help="On the GPU; otherwise on the CPU.")
@click.option("--triton", is_flag=True, help="Each form by Triton too, on the GPU.")
@click.option("--only", default="", metavar="TEXT", help="Just the computations whose name contains TEXT.")
@click.option("--threads", "counts", multiple=True, type=int, default=(1,), help="Numbers of threads on the CPU.")
@click.option("--seconds", default=0.3, help="Time for each form.")
@click.option("--runs", default=1, help="Runs of all, of which the least time of each form counts.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.")
def main(
    cuda: bool, triton: bool, only: str, counts: tuple[int, ...], seconds: float, runs: int, out: Path | None
) -> None:
    """Time all spellings of all computations."""
    console, counts = Console(width=150), (1,) if cuda else counts
    rows = least([run("cuda" if cuda else "cpu", only, counts, seconds, triton=triton) for _ in range(runs)])
    draw(console, rows)
    low = [row for row in rows if row.failure or row.of_best < FLOOR]
    console.print(f"{len(low)} of {len(rows)} forms are below {FLOOR} of the best form or fail")
    if triton:
        raced = [row for row in rows if not math.isnan(row.of_triton)]
        slower = [row for row in raced if row.of_triton < 1]
        console.print(f"{len(slower)} of {len(raced)} forms that Triton runs are slower than by Triton")
    if out is not None:
        gpu = {"gpu": torch.cuda.get_device_name()} if cuda else {}
        document = {**report.where(), **gpu, "torch": torch.__version__, "forms": [vars(row) for row in rows]}
        out.write_text(json.dumps(document, indent=1).replace("NaN", "null") + "\n")


if __name__ == "__main__":
    main()
