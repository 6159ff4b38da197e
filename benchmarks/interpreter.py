"""Time of one program in interpreter mode, beside Triton's interpreter: `python -m benchmarks.interpreter`.

Both run the kernels of `examples/` in one process, in turns, with 1 and with `PROGRAMS` programs; the difference is the
time of a program without that of a launch. Triton is no dependency: `--triton FOLDER` says where it is unpacked, for
instance by `pip install --no-deps --target FOLDER triton==3.9.0`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tilewright.base.knobs import knobs
from tilewright.tools import examples
from tilewright.tools.modules import load_file
from tilewright.tools.timing import compare, duration

PROGRAMS = 65
_OURS = "import tilewright as triton\nimport tilewright.language as tl\n"
_THEIRS = "import triton\nimport triton.language as tl\n"
Launch = Callable[[int], Any]


def _of_triton(name: str, folder: Path) -> ModuleType:
    """An example as it is, with Triton in the place of Tilewright."""
    text = (examples.folder() / f"{name}.py").read_text(encoding="utf-8")
    assert _OURS in text
    path = folder / f"triton_{name}.py"
    path.write_text(text.replace(_OURS, _THEIRS), encoding="utf-8")
    return load_file(path)


def _vector_add(example: ModuleType) -> Launch:
    x, y, out = (torch.rand(1024 * PROGRAMS) for _ in range(3))
    return lambda programs: example.add_kernel[(programs,)](x, y, out, x.numel(), BLOCK=1024)


def _softmax(example: ModuleType) -> Launch:
    x, out = torch.randn(PROGRAMS, 1000), torch.zeros(PROGRAMS, 1000)
    return lambda programs: example.softmax_kernel[(programs,)](out, x, 1000, 1000, 1000, BLOCK=1024)


def _layer_norm(example: ModuleType) -> Launch:
    x, out, w = torch.randn(PROGRAMS, 1000), torch.zeros(PROGRAMS, 1000), torch.rand(1000)
    return lambda programs: example.layer_norm_kernel[(programs,)](x, out, w, w, 1000, 1000, 1e-5, BLOCK=1024)


def _dropout(example: ModuleType) -> Launch:
    x, out = torch.rand(1024 * PROGRAMS), torch.zeros(1024 * PROGRAMS)
    return lambda programs: example.dropout_kernel[(programs,)](x, out, x.numel(), 0.3, 7, BLOCK=1024)


def _matmul(example: ModuleType) -> Launch:
    n = 64 * PROGRAMS
    a, b, c = torch.randn(n, 64), torch.randn(64, 64), torch.zeros(n, 64)
    tail = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 1, "EVEN_K": True, "PRECISION": "ieee"}
    accumulator = example.tl.float32
    return lambda programs: example.matmul_kernel[(programs,)](
        a, b, c, n, 64, 64, 64, 1, 64, 1, 64, 1, ACC_TYPE=accumulator, **tail
    )


CASES: dict[str, tuple[str, Callable[[ModuleType], Launch]]] = {
    "vector add, 1024 elements": ("vector_add", _vector_add),
    "softmax, 1000 columns": ("softmax", _softmax),
    "layer norm, 1000 columns": ("layer_norm", _layer_norm),
    "dropout, 1024 elements": ("dropout", _dropout),
    "matmul, 64×64×64": ("matmul", _matmul),
}


def measure(case: str, folder: Path | None, seconds: float) -> dict[str, float]:
    """Seconds of a program and of a launch, ours and (with the folder for its sources) Triton's."""
    name, prepare = CASES[case]
    launches = {"tilewright": prepare(examples.load(name))}
    if folder is not None:
        launches["triton"] = prepare(_of_triton(name, folder))
    candidates: dict[str, Callable[[], object]] = {}
    for who, launch in launches.items():
        candidates[f"{who} 1"] = lambda launch=launch: launch(1)  # type: ignore[misc]
        candidates[f"{who} many"] = lambda launch=launch: launch(PROGRAMS)  # type: ignore[misc]
    samples = compare(candidates, seconds=seconds)
    result = {}
    for who in launches:
        one, many = samples[f"{who} 1"].times, samples[f"{who} many"].times
        result[who] = statistics.median((b - a) / (PROGRAMS - 1) for a, b in zip(one, many, strict=True))
        result[f"{who} launch"] = statistics.median(one)
    return result


def main() -> None:
    """Print a row per kernel, or with `--json` one object."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--triton", metavar="FOLDER", help="where Triton is unpacked")
    parser.add_argument("--seconds", type=float, default=4.0, help="time of one row")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    knobs.runtime.interpret = True
    os.environ["TRITON_INTERPRET"] = "1"
    if options.triton:
        sys.path.append(options.triton)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            row = found[case] = measure(case, Path(folder) if options.triton else None, options.seconds)
            if not options.json:
                theirs = f"  Triton {duration(row['triton']):>9}  {row['triton'] / row['tilewright']:5.1f} ×"
                print(f"{case:<28} {duration(row['tilewright']):>9}{theirs if options.triton else ''}", flush=True)
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
