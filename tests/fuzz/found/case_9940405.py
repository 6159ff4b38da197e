"""Seed 9940405: passes: AssertionError in rewriting.py:insert_before: ."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 9940405,
    "grid": (1,),
    "cpu": "",
    "options": {},
    "gpu": {},
    "params": [{"name": "n74", "kind": "scalar", "dtype": "int32", "value": 3}],
}


@tilewright.jit
def kernel(n74):
    c73 = n74 - n74
    while c73 < n74:
        v75 = c73 - c73
        c73 += 2
