"""Seed 82156: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 82156,
    "grid": (3, 1, 2),
    "cpu": "",
    "options": {},
    "gpu": {},
    "params": [
        {"name": "K11", "kind": "constexpr", "value": 6},
        {"name": "p13", "kind": "array", "dtype": "float32", "size": 116, "fill": "quarters"},
        {"name": "out50", "kind": "array", "dtype": "float32", "size": 6, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def take_larger(a, b):
    return tl.where(a > b, a, b)


@tilewright.jit
def kernel(K11: tl.constexpr, p13, out50):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid2 = tl.program_id(2)
    pid = pid0 + pid1 * tl.num_programs(0) + pid2 * tl.num_programs(0) * tl.num_programs(1)
    i10 = tl.arange(0, 6)[:, None]
    i12 = tl.arange(0, 6)[None, :]
    v14 = tl.load(p13 + pid * 16 + i10 * K11 + i12)
    v26, v27 = tl.split(tl.reshape(v14, (18, 2)))
    v28 = tl.cumsum(v27, 0)
    v46 = tl.reduce(v28, 0, take_larger, keep_dims=True)
    i49 = tl.arange(0, 1)
    tl.store(out50 + pid * 1 + i49, v46)
