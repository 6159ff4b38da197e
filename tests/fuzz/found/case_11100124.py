"""Seed 11100124: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 11100124,
 'grid': (1,),
 'cpu': '',
 'options': {},
 'gpu': {},
 'params': [{'name': 'e70', 'kind': 'array', 'dtype': 'int64', 'size': 1, 'fill': 'ends 9223372036854775807'},
            {'name': 'out77', 'kind': 'array', 'dtype': 'uint32', 'size': 384, 'fill': 'sentinel'}]}


@tilewright.jit
def kernel(e70, out77):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid = pid0 + pid1 * tl.num_programs(0)
    v59 = tl.full((64,), 1, tl.int32)
    e71 = tl.load(e70)
    for k69 in range(2):
        if k69 <= e71:
            continue
        v59 += 1
    i76 = tl.arange(0, 64)
    tl.store(out77 + pid * 64 + i76, v59)
