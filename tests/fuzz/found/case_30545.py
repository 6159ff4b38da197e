"""Seed 30545: crash: SIGSEGV (AVX-512: LLVM stored the only lane as wide as before its narrowing)."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 30545,
    "grid": (1,),
    "cpu": "",
    "options": {},
    "params": [
        {"name": "p46", "kind": "array", "dtype": "uint64", "size": 2, "fill": "ints", "aligned": False},
        {"name": "out52", "kind": "array", "dtype": "int16", "size": 1, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def kernel(p46, out52):
    i45 = tl.arange(0, 2)
    v47 = tl.load(p46 + i45)
    i51 = tl.arange(0, 2)
    tl.store(out52 + i51, v47, mask=(i51 < 1))
