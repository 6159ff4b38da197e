"""Seed 785: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 785,
 'grid': (5,),
 'cpu': '',
 'options': {},
 'gpu': {},
 'params': [{'name': 'n2', 'kind': 'scalar', 'dtype': 'int32', 'value': 0},
            {'name': 'n5', 'kind': 'scalar', 'dtype': 'int32', 'value': 16},
            {'name': 'p6', 'kind': 'array', 'dtype': 'int32', 'size': 65, 'fill': 'ints'},
            {'name': 'n43', 'kind': 'scalar', 'dtype': 'int32', 'value': 2},
            {'name': 'out72', 'kind': 'array', 'dtype': 'uint8', 'size': 5, 'fill': 'sentinel'}]}


@tilewright.jit
def smallest_pair(value1, index1, value2, index2):
    first = (value1 < value2) | ((value1 == value2) & (index1 < index2))
    return tl.where(first, value1, value2), tl.where(first, index1, index2)


@tilewright.jit
def kernel(n2, n5, p6, n43, out72):
    pid0 = tl.program_id(0)
    i1 = tl.arange(0, 1)[:, None, None]
    i3 = tl.arange(0, 1)[None, :, None]
    i4 = tl.arange(0, 1)[None, None, :]
    q7 = p6 + pid0 * n5 + i1 * n2 + i3 + i4
    v8 = tl.load(q7)
    v40, v41 = tl.reduce((v8, v8), 1, smallest_pair)
    c42 = pid0 * 0
    while c42 < n43:
        v40 += 1
        c42 += 2
    v56 = tl.trans(v40)
    i70 = tl.arange(0, 1)[:, None]
    i71 = tl.arange(0, 1)[None, :]
    tl.store(out72 + pid0 * 1 + i70 + i71, v56)
