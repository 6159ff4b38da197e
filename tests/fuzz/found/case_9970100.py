"""Seed 9970100: crash: SIGSEGV."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 9970100,
    "grid": (1,),
    "cpu": "",
    "options": {},
    "gpu": {},
    "params": [
        {"name": "p9", "kind": "array", "dtype": "int32", "size": 3, "fill": "ints"},
        {"name": "n49", "kind": "scalar", "dtype": "int32", "value": 7},
        {"name": "K50", "kind": "constexpr", "value": 7},
        {"name": "out51", "kind": "array", "dtype": "int32", "size": 21, "fill": "sentinel"},
    ],
}


@tilewright.jit
def kernel(p9, n49, K50: tl.constexpr, out51):
    pid0 = tl.program_id(0)
    i8 = tl.arange(0, 3)
    v10 = tl.load(p9 + i8)
    v17 = tl.interleave(v10, v10)
    v18 = tl.histogram(v17 & 15, 16)
    i48 = tl.arange(0, 16)
    tl.store(out51 + pid0 * K50 + i48, v18, mask=((i48 >= n49) == 0))
