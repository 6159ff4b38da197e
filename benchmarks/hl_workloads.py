"""The kernels of `examples/hl` with arguments of a size that is worth measuring, on a CPU or a GPU.

A GPU gets about sixteen times the work of a CPU, and products in bfloat16.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tilewright.tools.modules import load_file

_FOLDER = Path(__file__).resolve().parents[1] / "examples" / "hl"

Arguments = tuple[Any, ...]


class Maker:
    """Makes tensors of a device.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        self.device, self.gpu = device, device != "cpu"
        self.half = torch.bfloat16 if self.gpu else torch.float32
        self.rows = 8192 if self.gpu else 512

    def real(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers."""
        return torch.randn(shape, device=self.device).to(dtype)

    def whole(self, high: int, *shape: int) -> torch.Tensor:
        """Integers from 0 to `high`, which is left out."""
        return torch.randint(0, high, shape, device=self.device)

    def offsets(self, rows: int, longest: int) -> torch.Tensor:
        """Where rows of up to `longest` elements begin, and the end of the last."""
        lengths = torch.randint(0, longest, (rows,), generator=torch.Generator().manual_seed(0))
        return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(self.device)


def _jagged(make: Maker, width: int) -> Arguments:
    offsets = make.offsets(make.rows // 4, 200)
    return make.real(int(offsets[-1]), width), offsets


def _dense(make: Maker) -> Arguments:
    (x, offsets) = _jagged(make, 1)
    return x[:, 0].contiguous(), offsets, 200


def _groups(make: Maker) -> Arguments:
    offsets = make.offsets(16, make.rows // 8)
    x = make.real(int(offsets[-1]), 256, dtype=make.half)
    return x, make.real(16, 256, 256, dtype=make.half), offsets


def _experts(make: Maker) -> Arguments:
    x, weights, offsets = _groups(make)
    return x, weights, torch.randperm(len(x)).to(make.device), offsets


def _delta(make: Maker) -> Arguments:
    heads = 64 if make.gpu else 4
    q, k, v = (make.real(heads, 128, 32) for _ in range(3))
    rest = torch.rand(2, heads, 128, device=make.device)
    return q, torch.nn.functional.normalize(k, dim=-1), v, rest[0], 0.9 + 0.1 * rest[1]


def _matmul(make: Maker) -> Arguments:
    side = 4096 if make.gpu else 512
    return make.real(side, side, dtype=make.half), make.real(side, side, dtype=make.half)


def _deep(make: Maker) -> Arguments:
    depth = 1 << 16 if make.gpu else 1 << 13
    return make.real(256, depth, dtype=make.half), make.real(depth, 256, dtype=make.half)


def _attention(make: Maker) -> Arguments:
    heads, length = (64, 2048) if make.gpu else (4, 512)
    return tuple(make.real(1, heads, length, 64, dtype=make.half) for _ in range(3))


# "file.kernel" -> its arguments
WORKLOADS: dict[str, Callable[[Maker], Arguments]] = {
    "elementwise.add": lambda make: (make.real(make.rows << 11), make.real(make.rows << 11)),
    "elementwise.bias_gelu": lambda make: (make.real(make.rows, 1024), make.real(1024)),
    "elementwise.geglu": lambda make: (make.real(make.rows, 1024), make.real(make.rows, 1024)),
    "softmax.softmax": lambda make: (make.real(make.rows, 1000),),
    "softmax.softmax_by_hand": lambda make: (make.real(make.rows, 1000),),
    "softmax.softmax_online": lambda make: (make.real(make.rows, 1000),),
    "norms.layer_norm": lambda make: (make.real(make.rows, 1024), make.real(1024), make.real(1024), 1e-5),
    "norms.rms_norm": lambda make: (make.real(make.rows, 1024), make.real(1024), 1e-5),
    "norms.layer_norm_backward": lambda make: (*(make.real(make.rows, 1024) for _ in "gx"), make.real(1024), 1e-5),
    "norms.rms_norm_backward": lambda make: (*(make.real(make.rows, 1024) for _ in "gx"), make.real(1024), 1e-5),
    "gather.embedding": lambda make: (make.real(10000, 512), make.whole(10000, 8 * make.rows)),
    "gather.cross_entropy": lambda make: (make.real(make.rows, 4000), make.whole(4000, make.rows)),
    "gather.rope": lambda make: (make.real(make.rows // 32, 512, 128), *(make.real(512, 64) for _ in "cs")),
    "dropout.dropout": lambda make: (make.real(make.rows << 10), 0.25, 7),
    "dropout.dropout_backward": lambda make: (make.real(make.rows << 10), 0.25, 7),
    "matmul.matmul": _matmul,
    "matmul.bmm": lambda make: tuple(make.real(make.rows // 128, 512, 512, dtype=make.half) for _ in "xy"),
    "matmul.matmul_split_k": _deep,
    "matmul.matmul_in_two_stages": lambda make: (*_deep(make), 8),
    "attention.attention": lambda make: (*_attention(make), False),
    "attention.attention causal": lambda make: (*_attention(make), True),
    "int4.matmul_int4": lambda make: (
        make.real(make.rows // 4, 1024, dtype=make.half),
        make.whole(256, 512, 1024).to(torch.int8),
    ),
    "grouped.grouped_matmul": _groups,
    "grouped.mixture": _experts,
    "jagged.jagged_sum": lambda make: _jagged(make, 64),
    "jagged.jagged_mean": lambda make: _jagged(make, 64),
    "jagged.jagged_softmax": lambda make: _jagged(make, 64),
    "jagged.jagged_dense": lambda make: (*_jagged(make, 64), make.real(make.rows // 4, 64, 64)),
    "jagged.to_dense": _dense,
    "segments.segment_sum": lambda make: (
        make.real(4 * make.rows, 64),
        make.whole(make.rows, 4 * make.rows).sort()[0],
        make.rows,
    ),
    "delta.delta_rule": _delta,
}


@functools.cache
def _example(stem: str) -> ModuleType:
    if str(_FOLDER) not in sys.path:
        sys.path.insert(0, str(_FOLDER))
    return load_file(_FOLDER / f"{stem}.py", f"hl_workload_{stem}")


def workload(name: str, device: str) -> tuple[Any, Arguments]:
    """(kernel without a configuration of its own, its arguments) of a workload.

    Args:
        name: a key of `WORKLOADS`.
        device: "cpu" or "cuda".
    """
    from tilewright import hl

    stem, kernel = name.split()[0].split(".")
    torch.manual_seed(0)
    plain = getattr(_example(stem), kernel)
    return hl.kernel(plain.fn, autotune_log_level=0), WORKLOADS[name](Maker(device))
