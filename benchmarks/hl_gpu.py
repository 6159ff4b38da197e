"""``python -m benchmarks.hl_gpu``: hl on an NVIDIA GPU against `tl` by hand, Helion with Triton, and PyTorch.

Each row has one text and one configuration; the kernel by hand is that of `examples/` with the same blocks. Helion
takes part where it can be imported (`--helion FOLDER` adds a folder to the path). All take turns, the cache of the GPU
cleared before each call; medians count. Results go to benchmarks/results/ as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import hl_gpu_kernels
from benchmarks.device_turns import in_turns
from tilewright import hl
from tilewright.tools import examples
from tilewright.tools.modules import load_file

RESULTS = Path(__file__).resolve().parent / "results"
OF_HELION, OF_HAND = 0.95, 0.97
Function = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A race.

    Args:
        name: what is computed.
        function: of `hl_gpu_kernels`.
        args: its arguments.
        config: the configuration of all sides.
        torch: PyTorch's way.
        hand: the kernel of `examples/`, if one is the same.
        tolerance: largest difference from PyTorch's result.
    """

    name: str
    function: str
    args: tuple[Any, ...]
    config: dict[str, Any]
    torch: Function
    hand: Function | None = None
    tolerance: float = 1e-2

    def entries(self, theirs: ModuleType | None) -> dict[str, Function]:
        """The sides of the race by name; `theirs` are the kernels for Helion."""
        kernel = hl.kernel(getattr(hl_gpu_kernels, self.function))
        run = kernel.bind(self.args).compile_config(hl.Config(**self.config))
        found: dict[str, Function] = {"hl": lambda: run(*self.args), "default": lambda: kernel(*self.args)}
        found["torch"] = self.torch
        if self.hand is not None:
            found["tl"] = self.hand
        if theirs is not None:
            import helion

            other = helion.kernel(
                getattr(theirs, self.function), config=helion.Config(**self.config), static_shapes=True
            )
            found["helion"] = lambda: other(*self.args)
        return found


@dataclass
class Result:
    """What a row gave: seconds by side, and why a side took no part."""

    row: Row
    seconds: dict[str, float] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)

    def over(self, side: str) -> float:
        """The time of a side over ours."""
        return self.seconds.get(side, math.nan) / self.seconds.get("hl", math.nan)

    def line(self) -> str:
        """As text."""
        floors = {"helion": OF_HELION, "tl": OF_HAND}
        ratios = {side: self.over(side) for side in floors if side in self.seconds}
        said = [f"of {side} {ratio:.3f}{'' if ratio >= floors[side] else ' MISS'}" for side, ratio in ratios.items()]
        times = [f"{side} {1e6 * seconds:.1f}" for side, seconds in self.seconds.items()]
        out = [f"{side} is out: {why}" for side, why in self.out.items()]
        return "; ".join([f"{self.row.name}: {', '.join(said)}", f"microseconds: {', '.join(times)}", *out])

    def document(self) -> dict[str, Any]:
        """As JSON."""
        ratios = {side: round(self.over(side), 3) for side in self.seconds if side != "hl"}
        microseconds = {side: round(1e6 * seconds, 2) for side, seconds in self.seconds.items()}
        made = {"row": self.row.name, "config": self.row.config, "microseconds": microseconds, "over_hl": ratios}
        return {**made, "out": self.out}


def _norms() -> Iterator[Row]:
    x, weight, bias = (torch.randn(shape, device="cuda") for shape in ((8192, 4096), (4096,), (4096,)))
    soft, norm = examples.load("softmax"), examples.load("layer_norm")
    for warps in (4, 8):
        config = {"block_sizes": [1], "num_warps": warps}
        yield Row(
            f"softmax 8192 x 4096 f32, {warps} warps", "softmax", (x,), config, lambda: torch.softmax(x, -1),
            lambda warps=warps: _softmax_by_hand(soft, x, warps),
        )  # fmt: skip
        yield Row(
            f"layer norm 8192 x 4096 f32, {warps} warps", "layer_norm", (x, weight, bias), config,
            lambda: F.layer_norm(x, [4096], weight, bias),
            lambda warps=warps: _norm_by_hand(norm, x, weight, bias, warps),
        )  # fmt: skip


def _softmax_by_hand(soft: ModuleType, x: torch.Tensor, warps: int) -> torch.Tensor:
    out, (rows, columns) = torch.empty_like(x), x.shape
    soft.softmax_kernel[(rows,)](out, x, x.stride(0), out.stride(0), columns, BLOCK=columns, num_warps=warps)
    return out


def _norm_by_hand(norm: ModuleType, x: torch.Tensor, weight: Any, bias: Any, warps: int) -> torch.Tensor:
    out, (rows, columns) = torch.empty_like(x), x.shape
    norm.layer_norm_kernel[(rows,)](x, out, weight, bias, x.stride(0), columns, 1e-5, BLOCK=columns, num_warps=warps)
    return out


def _products() -> Iterator[Row]:
    module = examples.load("matmul")
    cases = [(n, (128, 256, 64), 8) for n in (1024, 2048, 4096)] + [(4096, (128, 128, 64), warps) for warps in (8, 4)]
    for n, (m, columns, depth), warps in cases:
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in "ab")
        config = {"block_sizes": [m, columns, depth], "num_warps": warps, "num_stages": 4, "l2_groupings": [8]}
        yield Row(
            f"matmul {n}, bf16, {m} x {columns} x {depth}, {warps} warps", "matmul", (a, b), config,
            lambda a=a, b=b: a @ b,
            lambda a=a, b=b, config=config: _product_by_hand(module, a, b, config), tolerance=1.0,
        )  # fmt: skip


# rows, columns, depth -> blocks of a pipeline of four steps, beside which the default is to be seen
FEW = {
    (1024, 1024, 1024): (128, 64, 64),
    (64, 4096, 4096): (64, 32, 64),
    (16, 4096, 4096): (16, 64, 64),
    (512, 512, 512): (64, 32, 64),
    (256, 256, 4096): (64, 16, 64),
}


def _few_programs() -> Iterator[Row]:
    """Products whose programs have a processor each."""
    for (m, n, k), blocks in FEW.items():
        a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (k, n)))
        config = {"block_sizes": list(blocks), "num_warps": 4, "num_stages": 4}
        title = f"few programs: {m} x {n} x {k}, bf16, {' x '.join(map(str, blocks))}"
        yield Row(title, "matmul", (a, b), config, lambda a=a, b=b: a @ b, tolerance=1.0)


def _product_by_hand(module: ModuleType, a: torch.Tensor, b: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    n, (rows, columns, depth) = len(a), config["block_sizes"]
    out = torch.empty_like(a)
    module.matmul_kernel[(-(-n // rows) * -(-n // columns),)](
        a, b, out, n, n, n, *a.stride(), *b.stride(), *out.stride(), BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=depth,
        GROUP_M=8, ACC_TYPE=module.tl.float32, PRECISION="ieee", EVEN_K=True,
        num_warps=config["num_warps"], num_stages=4,
    )  # fmt: skip
    return out


def _attention() -> Iterator[Row]:
    module = examples.load("attention")
    for name, dtype in (("f16", torch.float16), ("f32", torch.float32)):
        q, k, v = (torch.randn(64, 2048, 64, device="cuda").to(dtype) for _ in "qkv")
        for rows in (64, 128):
            config = {"block_sizes": [1, rows, 64], "num_warps": 4, "num_stages": 3}
            eager: Function = lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0]  # noqa: E731
            hand: Function = lambda q=q, k=k, v=v, rows=rows: _attention_by_hand(module, q, k, v, rows)  # noqa: E731
            title = f"attention 64 x 2048 x 64 {name}, {rows} x 64, 4 warps"
            if dtype == torch.float16:
                yield Row(title, "attention", (q, k, v), config, eager)
            yield Row(f"{title}, float32 scores", "attention_wide", (q, k, v), config, eager, hand)


def _attention_by_hand(module: ModuleType, q: Any, k: Any, v: Any, rows: int) -> torch.Tensor:
    found: torch.Tensor = module.attention(q[None], k[None], v[None], tile=(rows, 64))[0]
    return found


def race(row: Row, theirs: ModuleType | None) -> Result:
    """Compare the sides with PyTorch's result, and time those that are right."""
    result, expected = Result(row), row.torch().float()
    entries = row.entries(theirs)
    for side in list(entries):
        try:
            torch.testing.assert_close(entries[side]().float(), expected, atol=row.tolerance, rtol=row.tolerance)
        except Exception as error:
            result.out[side] = f"{type(error).__name__}: {error}"[:500]
            del entries[side]
    result.seconds = in_turns(entries)
    return result


def kernels_for_helion() -> ModuleType | None:
    """The functions with Helion's names in place of ours; None where Helion cannot be imported."""
    try:
        # the tuner of Helion 1.5.1 imports the name of an error of Intel's GPUs, which PyTorch 2.11 does not have
        compat: Any = importlib.import_module("torch._inductor.runtime.triton_compat")
        if not hasattr(compat, "IntelGPUError"):
            compat.IntelGPUError = type("IntelGPUError", (Exception,), {})
        importlib.import_module("helion")
    except Exception as error:
        print(f"without Helion: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None
    text = Path(hl_gpu_kernels.__file__).read_text()
    path = Path(tempfile.mkdtemp(prefix="tilewright-bench-")) / "hl_gpu_kernels_of_helion.py"
    path.write_text(text.replace("from tilewright import hl\n", "import helion.language as hl\n"))
    return load_file(path, register=True)


def main() -> None:
    """Print a line a row and write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--helion", metavar="FOLDER", help="where Helion is, if not installed")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.helion:
        sys.path.append(given.helion)
    theirs = kernels_for_helion()
    torch.manual_seed(0)
    gpu, found = torch.cuda.get_device_name(), []
    for row in (row for rows in (_norms(), _products(), _few_programs(), _attention()) for row in rows):
        if given.only in row.name:
            found.append(race(row, theirs))
            print(found[-1].line(), flush=True)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if theirs is not None:
        import triton

        versions |= {"triton": triton.__version__, "helion": getattr(sys.modules["helion"], "__version__", "")}
    document = {"command": "python -m benchmarks.hl_gpu", "machine": gpu, "versions": versions}
    path = given.out or RESULTS / f"{gpu.lower().replace(' ', '-')}-hl.json"
    path.write_text(json.dumps({**document, "rows": [result.document() for result in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
