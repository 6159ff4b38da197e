"""Seed 941066: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 941066,
 'grid': (1,),
 'cpu': '',
 'options': {},
 'gpu': {},
 'params': [{'name': 'n8', 'kind': 'scalar', 'dtype': 'int32', 'value': 8},
            {'name': 'K51', 'kind': 'constexpr', 'value': 16},
            {'name': 'K52', 'kind': 'constexpr', 'value': 13},
            {'name': 'p54', 'kind': 'array', 'dtype': 'bfloat16', 'size': 208, 'fill': 'quarters'},
            {'name': 'n77', 'kind': 'scalar', 'dtype': 'int32', 'value': 64},
            {'name': 'n78', 'kind': 'scalar', 'dtype': 'int32', 'value': 1024},
            {'name': 'out79',
             'kind': 'array',
             'dtype': 'bfloat16',
             'size': 6144,
             'fill': 'sentinel',
             'aligned': False},
            {'name': 'n87', 'kind': 'scalar', 'dtype': 'int32', 'value': 64},
            {'name': 'out89',
             'kind': 'array',
             'dtype': 'float32',
             'size': 24576,
             'fill': 'sentinel',
             'aligned': False}]}


@tilewright.jit
def kernel(n8, K51: tl.constexpr, K52: tl.constexpr, p54, n77, n78, out79, n87, out89):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid2 = tl.program_id(2)
    pid = pid0 + pid1 * tl.num_programs(0) + pid2 * tl.num_programs(0) * tl.num_programs(1)
    i50 = tl.arange(0, 64)[:, None]
    i53 = tl.arange(0, 16)[None, :]
    q55 = p54 + i50 * K51 + i53
    v56 = tl.load(q55, mask=(tl.full((64, 16), True, tl.int1) & (i50 < K52)), other=0)
    v57 = tl.where(v56 > 0, v56, 0.0).to(tl.float16)
    v62 = tl.full((16, 64), 1, tl.float16)
    v63 = tl.dot(v57, v62)
    v73 = tl.ceil(v63)
    i75 = tl.arange(0, 64)[:, None]
    i76 = tl.arange(0, 16)[None, :]
    tl.store(out79 + pid * n78 + i75 + i76 * n77, v56)
    i86 = tl.arange(0, 64)[:, None]
    i88 = tl.arange(0, 64)[None, :]
    tl.store(out89 + pid * 4096 + i86 * n87 + i88, v73, mask=tl.full((64, 64), True, tl.int1))
