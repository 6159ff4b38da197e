"""Seed 167: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 167,
    "grid": (1,),
    "cpu": "x86-64-v3",
    "options": {},
    "params": [
        {"name": "p10", "kind": "array", "dtype": "float32", "size": 256, "fill": "quarters", "aligned": False},
        {"name": "K14", "kind": "constexpr", "value": 32},
        {"name": "n15", "kind": "scalar", "dtype": "int32", "value": 3},
        {"name": "out36", "kind": "array", "dtype": "float32", "size": 128, "fill": "sentinel"},
    ],
}


@tilewright.jit
def kernel(p10, K14: tl.constexpr, n15, out36):
    i13 = tl.arange(0, 4)[:, None]
    i16 = tl.arange(0, 32)[None, :]
    v17 = tl.load(p10 + i13 * K14 + i16, mask=(i13 < n15) & (i16 < 3), other=0, cache_modifier=".cg")
    v23 = v17 + v17
    i34 = tl.arange(0, 4)[:, None]
    i35 = tl.arange(0, 32)[None, :]
    tl.store(out36 + i34 * 32 + i35, v23, mask=tl.full((4, 32), True, tl.int1))
