"""Seed 1845: cpu: InternalError in objectfile.py:process_symbol: compiled code needs __truncsfbf_, which this process does not have."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 1845,
    "grid": (1,),
    "cpu": "x86-64",
    "options": {},
    "params": [
        {"name": "p7", "kind": "array", "dtype": "bfloat16", "size": 1, "fill": "reals", "aligned": False},
        {"name": "out52", "kind": "array", "dtype": "bfloat16", "size": 64, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def take_larger(a, b):
    return tl.where(a > b, a, b)


@tilewright.jit
def kernel(p7, out52):
    i6 = tl.arange(0, 2)
    q8 = i6 + p7
    v9 = tl.load(q8, mask=(i6 < 1), other=0, eviction_policy="evict_last")
    v15 = v9
    v38 = tl.reduce(v15, 0, take_larger, keep_dims=True)
    v43 = tl.broadcast_to(v38, (64,))
    i51 = tl.arange(0, 64)
    tl.store(out52 + i51, v43)
