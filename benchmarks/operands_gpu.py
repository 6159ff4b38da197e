"""Products whose operand B lies by rows or along K, by pointers and descriptors: `python -m benchmarks.operands_gpu`.

tf32 beside cuBLAS and Triton, with the error of each against float64; 8 bits beside the same product along K.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

import tilewright
import tilewright.language as tl
from benchmarks.gpu import flavour, turns
from tilewright.tools.tensor_descriptor import TensorDescriptor

_SIZE = 4096
_TF32_TILES = ((256, 128, 32, 8, 4), (256, 128, 32, 8, 3), (128, 256, 32, 8, 4))
_TRITON_TILES = ((256, 128, 32, 8, 3), (128, 128, 32, 4, 3))
_NARROW_TILES = ((256, 128, 128, 8, 3), (128, 256, 128, 8, 3), (128, 128, 128, 4, 3))
Tile = tuple[int, int, int, int, int]


@tilewright.jit
def by_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """C = A @ B in groups of GROUP rows of blocks."""
    pid, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    count = min(rows - first, GROUP)
    m = first + pid % (GROUP * columns) % count
    n = pid % (GROUP * columns) // count
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(a.load([m * BM, k * BK]), b.load([k * BK, n * BN]), acc, input_precision="tf32")
    c.store([m * BM, n * BN], acc)


def by_pointers(module: ModuleType, a: Any, b: Any, out: Any, tile: Tile) -> Callable[[], Any]:
    """A launch of the example, which masks rows and columns."""
    m, n, k, warps, stages = tile
    acc = module.tl.int32 if a.dtype == torch.int8 else module.tl.float32
    return lambda: module.matmul_kernel[(_SIZE // m * (_SIZE // n),)](
        a, b, out, _SIZE, _SIZE, _SIZE, *a.stride(), *b.stride(), *out.stride(), BLOCK_M=m, BLOCK_N=n, BLOCK_K=k,
        GROUP_M=8, ACC_TYPE=acc, PRECISION="tf32", EVEN_K=True, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def described(a: Any, b: Any, out: Any, tile: Tile) -> Callable[[], Any]:
    """A launch by descriptors."""
    m, n, k, warps, stages = tile
    of = TensorDescriptor.from_tensor
    tensors = of(a, [m, k]), of(b, [k, n]), of(out, [m, n])
    grid = (_SIZE // m * (_SIZE // n),)
    return lambda: by_descriptors[grid](*tensors, _SIZE, _SIZE, _SIZE, m, n, k, 8, num_warps=warps, num_stages=stages)


def tell(functions: dict[str, Callable[[], Any]], errors: dict[str, float]) -> None:
    """Run in turns and print."""
    for name, seconds in sorted(turns(functions, 20).items(), key=lambda item: item[1]):
        error = f"  error {errors[name]:.2e} of the result (root of mean squares)" if name in errors else ""
        print(f"{name:45} {2 * _SIZE**3 / seconds / 1e12:7.1f} T/s{error}")


def tf32() -> None:
    """B by rows."""
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = (torch.randn(_SIZE, _SIZE, device="cuda") for _ in range(2))
    out, exact = torch.empty_like(a), a[:512].double() @ b.double()
    ours, triton = flavour("matmul", True), flavour("matmul", False)
    functions: dict[str, Callable[[], Any]] = {"cuBLAS tf32": lambda: torch.mm(a, b, out=out)}
    for tile in _TF32_TILES:
        functions[f"pointers tf32 {tile}"] = by_pointers(ours, a, b, out, tile)
        functions[f"descriptors tf32 {tile}"] = described(a, b, out, tile)
    functions |= {f"Triton tf32 {tile}": by_pointers(triton, a, b, out, tile) for tile in _TRITON_TILES}
    errors = {}
    for name, function in functions.items():
        function()
        errors[name] = ((out[:512].double() - exact).norm() / exact.norm()).item()
    tell(functions, errors)


def narrow(dtype: torch.dtype, name: str) -> None:
    """B by rows and along K."""
    make = torch.randint if dtype == torch.int8 else None
    shape = (_SIZE, _SIZE)
    a, b = (make(-128, 128, shape, device="cuda") if make else torch.randn(shape, device="cuda") for _ in range(2))
    a, b = a.to(dtype), b.to(dtype)
    out = torch.empty(shape, device="cuda", dtype=torch.int32 if dtype == torch.int8 else torch.float16)
    ours, forms = flavour("matmul", True), {"by rows": b, "along K": b.T.contiguous().T}
    tell(
        {f"{name} {form} {t}": by_pointers(ours, a, x, out, t) for form, x in forms.items() for t in _NARROW_TILES}, {}
    )


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    tf32()
    narrow(torch.float8_e4m3fn, "fp8")
    narrow(torch.int8, "int8")
