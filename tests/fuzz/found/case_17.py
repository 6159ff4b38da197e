"""Seed 17: cpu: InternalError in objectfile.py:process_symbol."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 17,
    "grid": (5,),
    "cpu": "x86-64-v4",
    "options": {},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": 16},
        {"name": "K4", "kind": "constexpr", "value": 4},
        {"name": "p6", "kind": "array", "dtype": "int8", "size": 64, "fill": "ints"},
        {"name": "n9", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "n86", "kind": "scalar", "dtype": "int32", "value": 16},
        {"name": "n87", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "n89", "kind": "scalar", "dtype": "int32", "value": 4},
        {"name": "n90", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "out92", "kind": "array", "dtype": "uint8", "size": 10, "fill": "sentinel"},
        {"name": "n96", "kind": "scalar", "dtype": "int32", "value": 64},
        {"name": "out97", "kind": "array", "dtype": "bfloat16", "size": 320, "fill": "sentinel"},
    ],
}


@tilewright.jit
def kernel(n2, K4: tl.constexpr, p6, n9, n86, n87, n89, n90, out92, n96, out97):
    pid0 = tl.program_id(0)
    i1 = tl.arange(0, 4)[:, None, None]
    i3 = tl.arange(0, 4)[None, :, None]
    i5 = tl.arange(0, 4)[None, None, :]
    v7 = tl.load(i1 * n2 + i3 * K4 + i5 + p6)
    v14 = v7.to(tl.int1)
    v17 = v14.to(tl.bfloat16)
    v18 = tl.full((4, 4, 4), 1, tl.bfloat16)
    v51 = tl.fma(v17, v18, v18)
    v67 = v51 - v51
    v68 = tl.full((4, 4, 4), 1, tl.uint8)
    i85 = tl.arange(0, 4)[:, None, None]
    i88 = tl.arange(0, 4)[None, :, None]
    i91 = tl.arange(0, 4)[None, None, :]
    tl.store(out92 + pid0 * 2 + i85 * n86 + i88 * n89 + i91, v68, mask=(i85 < n87) & (i88 < n90) & (i91 < 2))
    i93 = tl.arange(0, 4)[:, None, None]
    i94 = tl.arange(0, 4)[None, :, None]
    i95 = tl.arange(0, 4)[None, None, :]
    tl.store(out97 + pid0 * n96 + i93 * 16 + i94 * 4 + i95, v67)
