"""Seed 9940189: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 9940189,
    "grid": (1,),
    "cpu": "",
    "options": {},
    "gpu": {},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "p3", "kind": "array", "dtype": "float32", "size": 1, "fill": "quarters"},
        {"name": "n16", "kind": "scalar", "dtype": "int32", "value": 2},
        {"name": "K40", "kind": "constexpr", "value": 8},
        {"name": "n41", "kind": "scalar", "dtype": "int32", "value": 8},
        {
            "name": "out42",
            "kind": "array",
            "dtype": "float32",
            "size": 16,
            "fill": "sentinel",
            "tolerance": 7.62939453125e-06,
        },
    ],
}


@tilewright.jit
def kernel(n2, p3, n16, K40: tl.constexpr, n41, out42):
    pid0 = tl.program_id(0)
    i1 = tl.arange(0, 2)
    v4 = tl.load(p3 + i1, mask=tl.where(i1 < n2, True, False), other=0)
    s17 = tl.zeros_like(v4)
    for k15 in range(n16):
        s17 -= v4
    v26 = tl.full((8, 1), 1, tl.float32)
    v28 = tl.sum(s17, axis=0)
    v32 = v26 / v28
    i38 = tl.arange(0, 8)[:, None]
    i39 = tl.arange(0, 1)[None, :]
    tl.store(out42 + pid0 * n41 + i38 + i39 * K40, v32)
