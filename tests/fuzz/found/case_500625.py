"""Seed 500625: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 500625,
 'grid': (1,),
 'cpu': 'x86-64-v3',
 'options': {},
 'gpu': {},
 'params': [{'name': 'K4', 'kind': 'constexpr', 'value': 16},
            {'name': 'n34', 'kind': 'scalar', 'dtype': 'int32', 'value': 3},
            {'name': 'K36', 'kind': 'constexpr', 'value': 10},
            {'name': 'io37',
             'kind': 'array',
             'dtype': 'uint64',
             'size': 3200,
             'fill': 'ints',
             'aligned': False},
            {'name': 'n40', 'kind': 'scalar', 'dtype': 'int32', 'value': 35},
            {'name': 'n42', 'kind': 'scalar', 'dtype': 'int32', 'value': 2},
            {'name': 'K47', 'kind': 'constexpr', 'value': 4},
            {'name': 'n50', 'kind': 'scalar', 'dtype': 'int32', 'value': 256},
            {'name': 'K51', 'kind': 'constexpr', 'value': 5},
            {'name': 'n52', 'kind': 'scalar', 'dtype': 'int32', 'value': 1277},
            {'name': 'out53', 'kind': 'array', 'dtype': 'uint64', 'size': 6385, 'fill': 'sentinel'}]}


@tilewright.jit
def kernel(K4: tl.constexpr, n34, K36: tl.constexpr, io37, n40, n42, K47: tl.constexpr, n50, K51: tl.constexpr, n52, out53):
    pid0 = tl.program_id(0)
    i32 = tl.arange(0, 16)[None, None, :]
    i33 = tl.arange(0, 4)[None, :, None]
    i35 = tl.arange(0, 64)[:, None, None]
    o38 = pid0 * 640 + (i32 * 0) * 0 + i33 * n34 + i35 * K36 + tl.zeros((64, 4, 16), tl.int32)
    i39 = tl.arange(0, 64)[:, None, None]
    i41 = tl.arange(0, 4)[None, :, None]
    v43 = tl.full((64, 4, 16), 1, tl.uint64)
    v44 = tl.full((64, 4, 16), 1, tl.uint64)
    tl.store(io37 + o38, v44, mask=((i41.to(tl.int64) < n42) & (i39 < n40)))
    i46 = tl.arange(0, 64)[:, None, None]
    i48 = tl.arange(0, 4)[None, :, None]
    i49 = tl.arange(0, 16)[None, None, :]
    tl.store(out53 + pid0 * n52 + i46 * K47 + i48 + i49 * n50, v43, mask=((i49 < K51) & (i48 * 2 < 1 * 2)))
