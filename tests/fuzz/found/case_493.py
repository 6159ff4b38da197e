"""Seed 493: cpu: InternalError in evaluator.py:scalar: the scalar <OpResult[i_] name_."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 493,
    "grid": (2,),
    "cpu": "",
    "options": {},
    "params": [{"name": "out103", "kind": "array", "dtype": "uint32", "size": 16, "fill": "sentinel"}],
}


@tilewright.jit
def smallest_pair(value1, index1, value2, index2):
    first = (value1 < value2) | ((value1 == value2) & (index1 < index2))
    return tl.where(first, value1, value2), tl.where(first, index1, index2)


@tilewright.jit
def kernel(out103):
    pid0 = tl.program_id(0)
    v9 = tl.full((4, 4), 1, tl.int32)
    v65, v66 = tl.split(tl.reshape(v9, (8, 2)))
    v68, v69 = tl.reduce((v66, v66), 0, smallest_pair)
    if pid0 % 2 == 0:
        v75 = tl.full((), 1, tl.int32)
        v68 ^= v75
        v66 += 1
    i102 = tl.arange(0, 8)
    tl.store(out103 + pid0 * 8 + i102, v66, mask=tl.full((8,), True, tl.int1))
