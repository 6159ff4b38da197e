"""``python -m benchmarks.sizes_gpu``: plain kernels at round and odd sizes against Triton, on an NVIDIA GPU.

Rows of 4001 elements start at no multiple of more than an element's bytes, so that nothing is loaded as a vector; rows
of 4000 do, but end within blocks. The kernels, launches and sizes are the same for both sides, which take turns.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean
from types import ModuleType
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu import flavour, turns
from tilewright import cdiv, next_power_of_2

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
Launch = tuple[str, str, tuple[int, ...], tuple[Any, ...], dict[str, int], torch.Tensor]


def launches(size: int, dtype: torch.dtype) -> Iterator[Launch]:
    """Name, kernel, grid, arguments, options and result of each launch."""
    x, y = torch.randn(2, size, size, device="cuda").to(dtype)
    out, sums = torch.empty_like(x), torch.empty(size, device="cuda")
    whole = next_power_of_2(size)
    for name, rows, columns, grid, result, options in (
        ("softmax", 4, whole, (cdiv(size, 4),), out, {"num_warps": 8}),
        ("normed", 1, whole, (size,), out, {}),
        ("running_sums", 1, whole, (size,), out, {}),
        ("transposed", 64, 64, (cdiv(size, 64), cdiv(size, 64)), out, {}),
        ("gelu", 16, 128, (cdiv(size, 16), cdiv(size, 128)), out, {}),
        ("stencil", 16, 64, (cdiv(size, 16), cdiv(size, 64)), out, {}),
        ("column_sums", 32, 128, (cdiv(size, 128),), sums, {}),
        ("row_sums", 8, 128, (cdiv(size, 8),), sums, {}),
    ):
        yield name, name, grid, (x, result, size, size, rows, columns), options, result
    few = torch.empty(16, size, device="cuda")
    for name, m, n, k, across, warps in (
        ("16 rows", 16, 64, 64, False, 4),
        ("16 rows, B by columns", 16, 64, 64, True, 4),
        ("32 rows, B by columns", 32, 128, 64, True, 8),
        ("16 rows, narrow", 16, 32, 128, False, 4),
    ):
        arguments = (x, y, few, 16, size, size, m, n, k, across)
        yield name, "product", (1, cdiv(size, n)), arguments, {"num_warps": warps}, few


@functools.cache
def _kernels(ours: bool) -> ModuleType:
    return flavour("size_kernels", ours, Path(__file__).parent)


def race(launch: Launch, rounds: int) -> tuple[float, float, float]:
    """Seconds of ours and of Triton, and the largest difference over the largest value."""
    _, kernel, grid, arguments, options, result = launch
    sides = {ours: getattr(_kernels(ours), kernel)[grid] for ours in (True, False)}
    results = {}
    for ours, run in sides.items():
        result.zero_()
        run(*arguments, **options)
        results[ours] = result.double()
    error = (results[True] - results[False]).abs().max() / results[False].abs().max()
    functions = {str(ours): lambda run=run: run(*arguments, **options) for ours, run in sides.items()}
    found = turns(functions, rounds)
    return found["True"], found["False"], error.item()


@click.command()
@click.option("--rounds", default=15, help="Timed calls of each side.")
@click.option("--sizes", default="4096,4000,4001", help="Rows and columns, comma-separated.")
@click.option("--types", default="f32,bf16", help="f32, f16, bf16, comma-separated.")
@click.option("--only", default="", help="Rows whose name contains this.")
def main(rounds: int, sizes: str, types: str, only: str) -> None:
    """Measure all rows."""
    torch.manual_seed(0)
    table = Table("kernel", "type", "size", "ours [µs]", "Triton [µs]", "ratio", "difference")
    ratios = []
    for name in types.split(","):
        for size in map(int, sizes.split(",")):
            for launch in launches(size, TYPES[name]):
                if only in launch[0]:
                    ours, triton, error = race(launch, rounds)
                    ratios.append(triton / ours)
                    figures = f"{ours * 1e6:.1f}", f"{triton * 1e6:.1f}", f"{triton / ours:.2f}", f"{error:.0e}"
                    table.add_row(launch[0], name, str(size), *figures)
    console = Console(width=110)
    console.print(table)
    console.print(f"{torch.cuda.get_device_name()}: mean ratio {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
