"""Seed 9940515: cpu: AssertionError in wraps.py:part: ."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 9940515,
    "grid": (1,),
    "cpu": "haswell",
    "options": {},
    "gpu": {},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": 256},
        {"name": "p8", "kind": "array", "dtype": "float32", "size": 640, "fill": "ints"},
        {"name": "n11", "kind": "scalar", "dtype": "int32", "value": 388},
        {"name": "n21", "kind": "scalar", "dtype": "int32", "value": 128},
        {"name": "out22", "kind": "array", "dtype": "float32", "size": 1075, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def kernel(n2, p8, n11, n21, out22):
    pid0 = tl.program_id(0)
    i9 = (pid0) * 128 + tl.arange(0, 128)
    at10 = (i9 // 16 * 16 + i9 % 4 * 4 + i9 // 4 % 4) % 640
    v12 = tl.load(p8 + at10, mask=(at10 < n11), other=0)
    v17 = tl.join(v12, v12)
    v18 = tl.permute(v17, (0, 1))
    i19 = tl.arange(0, 128)[:, None]
    i20 = tl.arange(0, 2)[None, :]
    tl.store(out22 + pid0 * 215 + i19 + i20 * n21, v18, mask=(tl.full((128, 2), True, tl.int1) & (i19 < 87)))
