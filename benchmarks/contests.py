"""The rows of the speed table that race against torch: data, variants of ours, the rival, the target.

A contest may offer several variants (tile sizes); a short trial picks the fastest, and only that one
is timed in turns with torch. Every variant is checked against the rival's result first, because the
speed of a wrong kernel means nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.tools import examples
from tilewright.tools.timing import Sample, compare, threads

Function = Callable[[], Any]
Tile = tuple[int, ...]


@dataclass(frozen=True)
class Contest:
    """A row of the table.

    Args:
        subject: which kernel; case: shapes and types.
        target: the ratio to torch that must be reached.
        prepare: makes the data; returns variants of ours by name, and the rival.
        tolerance: largest allowed difference from the rival's result over its largest value.
    """

    subject: str
    case: str
    target: float
    prepare: Callable[[], tuple[dict[str, Function], Function]]
    tolerance: float


@dataclass(frozen=True)
class Outcome:
    """A contest decided with a number of threads; times in seconds per call."""

    contest: Contest
    threads: int
    variant: str
    ours: Sample
    rival: Sample
    error: float

    @property
    def ratio(self) -> float:
        """Torch's time over ours, the median of the paired rounds."""
        return self.ours.ratio_to(self.rival)

    @property
    def passed(self) -> bool:
        """Whether the target ratio is reached with a correct result."""
        return self.ratio >= self.contest.target and self.error <= self.contest.tolerance


def decide(contest: Contest, counts: tuple[int, ...], seconds: float) -> Iterator[Outcome]:
    """Race a contest with each number of threads; with one, processor time counts, which other programs spoil less.

    Args:
        counts: numbers of threads, for torch and Tilewright alike.
        seconds: time for one race.
    """
    torch.manual_seed(0)
    variants, rival = contest.prepare()
    expected = rival().double()
    errors = {name: _difference(function(), expected) for name, function in variants.items()}
    for count in counts:
        with threads(count):
            variant = _fastest(variants, seconds / 2)
            clock = time.thread_time if count == 1 else time.perf_counter
            samples = compare({"ours": variants[variant], "torch": rival}, seconds=seconds, clock=clock)
            yield Outcome(contest, count, variant, samples["ours"], samples["torch"], errors[variant])


def _fastest(variants: dict[str, Function], seconds: float) -> str:
    if len(variants) == 1:
        return next(iter(variants))
    samples = compare(variants, seconds=seconds, min_rounds=3)
    return min(samples, key=lambda name: samples[name].median)


def _difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    error = (result.double() - expected).abs().max() / expected.abs().max()
    return float("inf") if error.isnan() else float(error)


def _add() -> tuple[dict[str, Function], Function]:
    example, n = examples.load("vector_add"), 1 << 24
    x, y, out, theirs = torch.rand(n), torch.rand(n), torch.zeros(n), torch.zeros(n)
    return {"": lambda: example.add(x, y, out=out)}, lambda: torch.add(x, y, out=theirs)


def _softmax(rows: int, cols: int) -> Callable[[], tuple[dict[str, Function], Function]]:
    def prepare() -> tuple[dict[str, Function], Function]:
        example = examples.load("softmax")
        x, out, theirs = torch.randn(rows, cols), torch.zeros(rows, cols), torch.zeros(rows, cols)
        ours = {"a row per program": lambda: example.softmax(x, out=out)}
        return ours, lambda: torch.softmax(x, dim=1, out=theirs)

    return prepare


def _layer_norm(dtype: torch.dtype, rows: int, cols: int) -> Callable[[], tuple[dict[str, Function], Function]]:
    def prepare() -> tuple[dict[str, Function], Function]:
        example = examples.load("layer_norm")
        x, weight, bias = torch.randn(rows, cols).to(dtype), torch.rand(cols).to(dtype), torch.rand(cols).to(dtype)
        out = torch.zeros_like(x)
        return (
            {"": lambda: example.layer_norm(x, weight, bias, out=out)},
            lambda: torch.nn.functional.layer_norm(x, (cols,), weight, bias),
        )

    return prepare


def _matmul(
    dtype: torch.dtype, n: int, tiles: tuple[Tile, ...], precision: str = "ieee"
) -> Callable[[], tuple[dict[str, Function], Function]]:
    def prepare() -> tuple[dict[str, Function], Function]:
        example = examples.load("matmul")
        if dtype == torch.int8:
            a, b = (torch.randint(-128, 128, (n, n), dtype=dtype) for _ in range(2))
            out = torch.zeros(n, n, dtype=torch.int32)
        else:
            a, b = (torch.randn(n, n).to(dtype) for _ in range(2))
            out = torch.zeros_like(a)
        theirs = torch.zeros_like(out)

        def ours(tile: Tile) -> Function:
            return lambda: example.matmul(a, b, out=out, tile=tile[:3], precision=precision, group=(*tile, 8)[3])

        rival = (lambda: torch._int_mm(a, b)) if dtype == torch.int8 else (lambda: torch.mm(a, b, out=theirs))
        return {"×".join(map(str, tile)): ours(tile) for tile in tiles}, rival

    return prepare


def _attention(
    dtype: torch.dtype, causal: bool, tiles: tuple[Tile, ...]
) -> Callable[[], tuple[dict[str, Function], Function]]:
    def prepare() -> tuple[dict[str, Function], Function]:
        example = examples.load("attention")
        q, k, v = (torch.randn(1, 4, 2048, 64).to(dtype) for _ in range(3))
        out = torch.zeros_like(q)

        def ours(tile: Tile) -> Function:
            return lambda: example.attention(q, k, v, causal=causal, out=out, tile=tile)

        rival = torch.nn.functional.scaled_dot_product_attention
        return {"×".join(map(str, tile)): ours(tile) for tile in tiles}, lambda: rival(q, k, v, is_causal=causal)

    return prepare


# (BLOCK_M, BLOCK_N, BLOCK_K), then GROUP_M if it is not 8
_F32_TILES = ((128, 128, 64), (128, 128, 128), (128, 256, 64), (64, 64, 64, 16), (128, 128, 256))
_WIDE_TILES = (
    (128, 128, 64),
    (128, 128, 256),
    (128, 256, 128),
    (128, 256, 512, 16),
    (128, 256, 512, 4),
    (256, 256, 256),
)
_INT8_TILES = (
    (128, 128, 256),
    (128, 256, 512, 16),
    (128, 256, 512, 4),
    (256, 256, 512),
    (128, 512, 512, 16),
    (64, 64, 64),
)
_ATTENTION_TILES = ((64, 64), (128, 64), (128, 128), (256, 128))
_F32, _F16, _BF16, _I8 = torch.float32, torch.float16, torch.bfloat16, torch.int8


def _contests() -> Iterator[Contest]:
    yield Contest("vector add", "f32 16M", 1.0, _add, 1e-6)
    for rows, cols, target in ((4096, 1024, 1.4), (1024, 4096, 1.2), (256, 1024, 1.9)):
        yield Contest("softmax", f"f32 {rows}×{cols}", target, _softmax(rows, cols), 1e-5)
    for dtype, name in ((_F16, "f16"), (_BF16, "bf16")):
        for rows, cols in ((4096, 1024), (1024, 4096)):
            yield Contest("layer norm", f"{name} {rows}×{cols}", 1.8, _layer_norm(dtype, rows, cols), 1e-2)
    for name, dtype, target, tolerance, tiles, precision in (
        ("f32", _F32, 0.88, 1e-5, _F32_TILES, "ieee"),
        ("bf16", _BF16, 0.95, 1e-2, _WIDE_TILES, "ieee"),
        ("int8", _I8, 1.2, 0.0, _INT8_TILES, "ieee"),
        ("f16", _F16, 1.5, 2e-3, _WIDE_TILES, "ieee"),
        ("tf32", _F32, 1.4, 1e-3, _WIDE_TILES, "tf32"),
    ):
        for n in (1024, 2048):
            yield Contest("matmul", f"{name} {n}³", target, _matmul(dtype, n, tiles, precision), tolerance)
    for name, dtype, target, tolerance in (("f32", _F32, 1.0, 1e-5), ("bf16", _BF16, 1.2, 2e-2)):
        for causal in (False, True):
            case = f"{name} 4×2048×64 {'causal' if causal else 'full'}"
            yield Contest("attention", case, target, _attention(dtype, causal, _ATTENTION_TILES), tolerance)


CONTESTS = tuple(_contests())
