"""Seed 1066: crash: SIGSEGV."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 1066,
    "grid": (3,),
    "cpu": "x86-64-v3",
    "options": {},
    "params": [
        {"name": "n17", "kind": "scalar", "dtype": "int32", "value": 47},
        {"name": "n19", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "K20", "kind": "constexpr", "value": 2945},
        {"name": "p21", "kind": "array", "dtype": "int8", "size": 8835, "fill": "ints", "aligned": False},
        {"name": "out61", "kind": "array", "dtype": "uint32", "size": 48, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def kernel(n17, n19, K20: tl.constexpr, p21, out61):
    pid0 = tl.program_id(0)
    i16 = tl.arange(0, 64)[:, None]
    i18 = tl.arange(0, 64)[None, :]
    v22 = tl.load(p21 + pid0 * K20 + i16 * 64 + i18 * n19, mask=(i16 < n17) & (i18 < 48), other=0)
    v23 = tl.reshape(v22, (16, 256))
    v25 = tl.argmin(v23, 1)
    i60 = tl.arange(0, 16)
    tl.store(out61 + pid0 * 16 + i60, v25, mask=tl.full((16,), True, tl.int1))
