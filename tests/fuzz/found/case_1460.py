"""Seed 1460: crash: SIGABRT."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 1460,
    "grid": (2, 3),
    "cpu": "x86-64-v3",
    "options": {},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": 256},
        {"name": "n4", "kind": "scalar", "dtype": "int32", "value": 16},
        {"name": "K5", "kind": "constexpr", "value": 10},
        {"name": "K7", "kind": "constexpr", "value": 8},
        {"name": "n8", "kind": "scalar", "dtype": "int32", "value": 16},
        {"name": "p9", "kind": "array", "dtype": "float32", "size": 4072, "fill": "special"},
        {"name": "n46", "kind": "scalar", "dtype": "int32", "value": 32},
        {"name": "out48", "kind": "array", "dtype": "int32", "size": 3072, "fill": "sentinel", "aligned": False},
        {"name": "n50", "kind": "scalar", "dtype": "int32", "value": 256},
        {"name": "n51", "kind": "scalar", "dtype": "int32", "value": 7},
        {"name": "n53", "kind": "scalar", "dtype": "int32", "value": 16},
        {"name": "n55", "kind": "scalar", "dtype": "int32", "value": 1792},
        {"name": "out56", "kind": "array", "dtype": "float32", "size": 10752, "fill": "sentinel"},
    ],
}


@tilewright.jit
def kernel(n2, n4, K5: tl.constexpr, K7: tl.constexpr, n8, p9, n46, out48, n50, n51, n53, n55, out56):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid = pid0 + pid1 * tl.num_programs(0)
    i1 = tl.arange(0, 16)[:, None, None]
    i3 = tl.arange(0, 16)[None, :, None]
    i6 = tl.arange(0, 16)[None, None, :]
    v10 = tl.load(p9 + pid * n8 + i1 * n2 + i3 * n4 + i6, mask=(i3 < K5) & (i6 < K7), other=0)
    v35 = tl.full((16, 32), 1, tl.int32)
    i45 = tl.arange(0, 16)[:, None]
    i47 = tl.arange(0, 32)[None, :]
    tl.store(out48 + pid * 512 + i45 * n46 + i47, v35)
    i49 = tl.arange(0, 16)[:, None, None]
    i52 = tl.arange(0, 16)[None, :, None]
    i54 = tl.arange(0, 16)[None, None, :]
    tl.store(
        out56 + pid * n55 + i49 * n50 + i52 * n53 + i54, v10, mask=(i49 < n51) & tl.full((16, 16, 16), True, tl.int1)
    )
