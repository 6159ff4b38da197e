"""Seed 106: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 106,
    "grid": (2, 3),
    "cpu": "x86-64-v3",
    "options": {},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": 128},
        {"name": "n5", "kind": "scalar", "dtype": "int32", "value": 128},
        {"name": "p6", "kind": "array", "dtype": "int32", "size": 768, "fill": "ints"},
        {"name": "n27", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "K72", "kind": "constexpr", "value": -1},
        {"name": "n73", "kind": "scalar", "dtype": "int32", "value": 128},
        {"name": "out74", "kind": "array", "dtype": "int32", "size": 768, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def kernel(n2, n5, p6, n27, K72: tl.constexpr, n73, out74):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid = pid0 + pid1 * tl.num_programs(0)
    i1 = tl.arange(0, 1)[:, None, None]
    i3 = tl.arange(0, 128)[None, :, None]
    i4 = tl.arange(0, 1)[None, None, :]
    q7 = pid * n5 + i1 * n2 + i3 + i4 + p6
    v8 = tl.load(q7)
    v19 = tl.full((1, 128, 1), 1, tl.int32)
    v20 = v8 >> 0
    c26 = 0
    while c26 < n27:
        v20 = v19 - v20
    i69 = tl.arange(0, 1)[:, None, None]
    i70 = tl.arange(0, 128)[None, :, None]
    i71 = tl.arange(0, 1)[None, None, :]
    tl.store(out74 + pid * n73 + i69 + i70 + i71 * K72, v20)
