"""Seed 31747: crash: SIGSEGV."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 31747,
 'grid': (1,),
 'cpu': 'x86-64-v3',
 'options': {},
 'params': [{'name': 'n3', 'kind': 'scalar', 'dtype': 'int32', 'value': 21},
            {'name': 'n30', 'kind': 'scalar', 'dtype': 'int32', 'value': 19},
            {'name': 'n31', 'kind': 'scalar', 'dtype': 'int32', 'value': 7},
            {'name': 'p32', 'kind': 'array', 'dtype': 'float32', 'size': 121, 'fill': 'reals'},
            {'name': 'out38',
             'kind': 'array',
             'dtype': 'bfloat16',
             'size': 256,
             'fill': 'sentinel',
             'aligned': False},
            {'name': 'K41', 'kind': 'constexpr', 'value': 16},
            {'name': 'n42', 'kind': 'scalar', 'dtype': 'int32', 'value': 6},
            {'name': 'out43', 'kind': 'array', 'dtype': 'int1', 'size': 96, 'fill': 'sentinel'}]}


@tilewright.jit
def kernel(n3, n30, n31, p32, out38, K41: tl.constexpr, n42, out43):
    v26 = tl.full((16, 32), 1, tl.float32)
    i28 = tl.arange(0, 16)[:, None]
    i29 = tl.arange(0, 32)[None, :]
    v33 = tl.load(p32 + i28 + i29 * n30, mask=(i28 < 7) & (i29 < n31), other=0)
    v34 = v26 != v33
    v35, v36 = tl.split(tl.reshape(v33, (256, 2)))
    i37 = tl.arange(0, 256)
    tl.store(out38 + i37, v35)
    i39 = tl.arange(0, 16)[:, None]
    i40 = tl.arange(0, 32)[None, :]
    tl.store(out43 + i39 + i40 * K41, v34, mask=(i40 < n42))
