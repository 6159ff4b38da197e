"""Seed 9970285: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 9970285,
    "grid": (1,),
    "cpu": "",
    "options": {},
    "gpu": {},
    "params": [
        {"name": "n5", "kind": "scalar", "dtype": "int32", "value": 12},
        {"name": "p50", "kind": "array", "dtype": "float32", "size": 192, "fill": "ints"},
        {"name": "n54", "kind": "scalar", "dtype": "int32", "value": 8},
        {"name": "n56", "kind": "scalar", "dtype": "int32", "value": 2},
        {"name": "n60", "kind": "scalar", "dtype": "int32", "value": 4},
        {"name": "out86", "kind": "array", "dtype": "float32", "size": 12, "fill": "sentinel"},
    ],
}


@tilewright.jit
def kernel(n5, p50, n54, n56, n60, out86):
    j53 = tl.arange(0, 12)[None, :]
    total51 = tl.zeros((8, 12), tl.float32)
    for t55 in range(n56):
        i52 = t55 * 8 + tl.arange(0, 8)[:, None]
        total51 += tl.load(p50 + i52 * 12 + j53, mask=(j53 < n54) & (i52 >= 0), other=0)
    v57 = tl.sum(total51, 0)
    s61 = tl.zeros_like(v57)
    s62 = tl.zeros_like(v57)
    for k59 in range(n60):
        s61 -= v57
        s62 = s62 * 0.5 + s61
    i85 = tl.arange(0, 12)
    tl.store(out86 + i85, s62)
