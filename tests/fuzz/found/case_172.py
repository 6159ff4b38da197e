"""Seed 172: crash: SIGSEGV."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 172,
    "grid": (2,),
    "cpu": "x86-64-v3",
    "options": {},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": -32},
        {"name": "n3", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "p5", "kind": "array", "dtype": "int32", "size": 34, "fill": "ints"},
        {"name": "at52", "kind": "array", "dtype": "int32", "size": 16, "fill": "ints"},
    ],
}


@tilewright.jit
def kernel(n2, n3, p5, at52):
    pid0 = tl.program_id(0)
    i1 = tl.arange(0, 1)[:, None]
    i4 = tl.arange(0, 32)[None, :]
    v6 = tl.load(pid0 * 17 + i1 * n2 + i4 + p5, mask=(i1 < n3) & (i4 < 17), other=0)
    v12 = tl.maximum(v6, v6)
    v26 = tl.maximum(pid0, v12)
    tl.atomic_min(at52 + (tl.arange(0, 1)[:, None] & 3) + tl.zeros((1, 32), tl.int32), v26)
