"""``python -m benchmarks.pointers_gpu``: products and attention through pointers, whose loads the copy engine makes.

The kernels are those of `examples/`, with masks of rows and columns and of all of K, and one without masks, each with
tensor maps, without (`tensor_maps=False`), and with a block for each program (`persistent_programs=False`), beside
descriptors and torch. Medians of calls in turns. Then what launches
cost the caller: with maps, with maps that change at each launch, without.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch

import tilewright
import tilewright.language as tl
from benchmarks.gpu import flavour, turns
from benchmarks.operands_gpu import by_descriptors
from tilewright.backends.nvidia.device.stub import HEADER, launch_stub
from tilewright.base.target import Placement
from tilewright.tools.tensor_descriptor import TensorDescriptor

Function = Callable[[], Any]
Tile = tuple[int, int, int, int, int]
_TF32: tuple[Tile, ...] = ((256, 128, 32, 8, 4), (128, 256, 32, 8, 4))
_HALF: tuple[Tile, ...] = ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3))


_WAYS: dict[str, dict[str, bool]] = {
    "": {},
    " without maps": {"tensor_maps": False},
    ", a block a program": {"persistent_programs": False},
}


@tilewright.jit
def unmasked(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """C = A @ B, contiguous, where blocks divide all sides."""
    pid, columns = tl.program_id(0), N // BN
    first = pid // (GROUP * columns) * GROUP
    m = (first + pid % (GROUP * columns) % GROUP) * BM + tl.arange(0, BM)
    n = pid % (GROUP * columns) // GROUP * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(left), tl.load(right), acc)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


@tilewright.jit
def tile_after_tile(a, b, c, N, K, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same by programs that stay, as many as there are multiprocessors."""
    columns = N // BN
    for pid in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = pid // (GROUP * columns) * GROUP
        m = (first + pid % (GROUP * columns) % GROUP) * BM + tl.arange(0, BM)
        n = pid % (GROUP * columns) // GROUP * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for at in range(0, K, BK):
            k = at + tl.arange(0, BK)
            left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
            acc = tl.dot(tl.load(left), tl.load(right), acc)
        tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


def product(name: str, m: int, n: int, k: int, dtype: torch.dtype, tiles: tuple[Tile, ...], rounds: int) -> None:
    """All forms of one product."""
    a, b = torch.randn(m, k, device="cuda").to(dtype), torch.randn(k, n, device="cuda").to(dtype)
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    torch.backends.cuda.matmul.allow_tf32 = True
    kernel = flavour("matmul", True).matmul_kernel
    functions: dict[str, Function] = {"torch": lambda: torch.mm(a, b, out=out)}
    for tile in tiles:
        functions |= {f"{form} {tile}": call for form, call in _forms(kernel, a, b, out, tile).items()}
    wanted = a[:256].double() @ b.double()
    for form, function in functions.items():
        out.zero_()
        function()
        error = ((out[:256].double() - wanted).norm() / wanted.norm()).item()
        if not error < 1e-2:
            print(f"{name} {form}: WRONG, error {error}")
    found = turns(functions, rounds)
    _tell(name, found, 2 * m * n * k)


def _forms(kernel: Any, a: Any, b: Any, out: Any, tile: Tile) -> dict[str, Function]:
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk, warps, stages = tile
    grid, options = (m // bm * (n // bn),), {"num_warps": warps, "num_stages": stages}
    of = TensorDescriptor.from_tensor
    staying = (min(grid[0], torch.cuda.get_device_properties(0).multi_processor_count),)
    tensors = of(a, [bm, bk]), of(b, [bk, bn]), of(out, [bm, bn])
    found: dict[str, Function] = {
        "descriptors" + said: lambda more=more: by_descriptors[grid](
            *tensors, m, n, k, bm, bn, bk, 8, **options, **more
        )
        for said, more in _WAYS.items()
        if "tensor_maps" not in more
    }
    for said, more in _WAYS.items():
        for even, masks in {True: "masks of rows", False: "all masks"}.items():
            found[masks + said] = lambda even=even, more=more: kernel[grid](
                a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk,
                GROUP_M=8, ACC_TYPE=tl.float32, PRECISION="tf32", EVEN_K=even, **options, **more,
            )  # fmt: skip
        found["pointers" + said] = lambda more=more: unmasked[grid](a, b, out, n, k, bm, bn, bk, 8, **options, **more)
        if "persistent_programs" not in more:
            found["pointers, tile after tile" + said] = lambda more=more: tile_after_tile[staying](
                a, b, out, n, k, grid[0], bm, bn, bk, 8, **options, **more
            )
    return found


def attention(width: int, length: int, causal: bool, rounds: int) -> None:
    """The example forward, f16."""
    heads = 16 * 4096 // length * (128 // width)
    q, k, v = (torch.randn(1, heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3))
    out, kernel = torch.empty_like(q), flavour("attention", True).attention_kernel
    strides = [s for x in (q, k, v, out) for s in (x.stride(1), x.stride(2))]
    functions: dict[str, Function] = {
        "torch": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    }
    for bm, bn, warps, stages in ((128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (256, 64, 16, 3)):
        for said, more in _WAYS.items():
            functions[f"pointers{said} {(bm, bn, warps, stages)}"] = (
                lambda more=more, bm=bm, bn=bn, warps=warps, stages=stages: kernel[(length // bm, heads)](
                    q, k, v, out, *strides, length, width**-0.5, BLOCK_M=bm, BLOCK_N=bn, HEAD_DIM=width, CAUSAL=causal,
                    EVEN=True, num_warps=warps, num_stages=stages, **more,
                )
            )  # fmt: skip
    wanted = functions["torch"]()
    for form, function in functions.items():
        function()
        if form != "torch" and not (out - wanted).abs().max() < 2e-2:
            print(f"attention {form}: WRONG")
    work = 4 * heads * length * length * width // (2 if causal else 1)
    _tell(f"attention f16 d={width} n={length}{' causal' if causal else ''}", turns(functions, rounds), work)


def _tell(name: str, found: dict[str, float], work: int) -> None:
    for form, seconds in sorted(found.items(), key=lambda row: row[1]):
        print(f"{name:28} {form:45} {work / seconds / 1e12:7.1f} T/s  {found['torch'] / seconds:5.2f} of torch")


def launches() -> None:
    """Microseconds that the caller spends on a launch."""
    a, other, b, out = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(4))
    kernel, turn = flavour("matmul", True).matmul_kernel, [0]
    tensors = [TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, out)]

    def call(left: Any, maps: bool) -> None:
        kernel[(1,)](
            left, b, out, 64, 64, 64, 64, 1, 64, 1, 64, 1, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8,
            ACC_TYPE=tl.float32, PRECISION="tf32", EVEN_K=True, num_warps=4, tensor_maps=maps,
        )  # fmt: skip

    empty = flavour("kernels", True, Path(__file__).parent).empty_kernel
    six = [torch.empty(16, device="cuda") for _ in range(6)]
    record = empty[(1,)](*six).launcher(Placement(0)).packing.record
    block, run = struct.pack(f"{HEADER}6Q", record, 0, 1, 1, 1, *(x.data_ptr() for x in six)), launch_stub()

    def changing() -> None:
        turn[0] ^= 1
        call(other if turn[0] else a, True)

    rows: dict[str, Function] = {
        "12 arguments, 2 maps of pointers": lambda: call(a, True),
        "the same, another tensor each time": changing,
        "the same without maps": lambda: call(a, False),
        "6 arguments, 3 descriptors": lambda: by_descriptors[(1,)](*tensors, 64, 64, 64, 64, 64, 64, 8, num_warps=4),
        "9 arguments, 2 maps of pointers": lambda: unmasked[(1,)](a, b, out, 64, 64, 64, 64, 64, 1, num_warps=4),
        "6 tensors, an empty kernel": lambda: empty[(1,)](*six),
        "the driver alone for that (by ctypes)": lambda: run(block),
        "torch.add(out=)": lambda: torch.add(a, b, out=out),
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(31):
        for name, row in rows.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                row()
            times[name] += [(time.perf_counter() - begin) / 200] if number else []
    for name, seconds in times.items():
        print(f"launch: {name:40} {median(seconds) * 1e6:6.2f} µs")


@click.command()
@click.option("--rounds", default=20, help="Timed calls of each function.")
def main(rounds: int) -> None:
    """Measure all rows."""
    print(torch.cuda.get_device_name())
    product("tf32 4096^3", 4096, 4096, 4096, torch.float32, _TF32, rounds)
    product("bf16 4096^3", 4096, 4096, 4096, torch.bfloat16, _HALF, rounds)
    product("f16 8192^2x512", 8192, 8192, 512, torch.float16, _HALF, rounds)
    for width, causal in ((128, False), (128, True), (64, False), (64, True)):
        attention(width, 4096, causal, rounds)
    launches()


if __name__ == "__main__":
    main()
