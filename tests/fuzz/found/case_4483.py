"""Seed 4483: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 4483,
 'grid': (2, 3),
 'cpu': 'x86-64-v3',
 'options': {'enable_fp_fusion': False},
 'params': [{'name': 'n2', 'kind': 'scalar', 'dtype': 'int32', 'value': 16},
            {'name': 'p4', 'kind': 'array', 'dtype': 'float32', 'size': 2048, 'fill': 'quarters'},
            {'name': 'p7', 'kind': 'array', 'dtype': 'uint64', 'size': 1, 'fill': 'ints', 'aligned': False},
            {'name': 'K10', 'kind': 'constexpr', 'value': 512},
            {'name': 'n12', 'kind': 'scalar', 'dtype': 'int32', 'value': 128},
            {'name': 'p14', 'kind': 'array', 'dtype': 'int32', 'size': 1360, 'fill': 'ints'},
            {'name': 'K21', 'kind': 'constexpr', 'value': 3},
            {'name': 'K23', 'kind': 'constexpr', 'value': 5},
            {'name': 'n30', 'kind': 'scalar', 'dtype': 'int32', 'value': 2175},
            {'name': 'out31', 'kind': 'array', 'dtype': 'float32', 'size': 13050, 'fill': 'sentinel'},
            {'name': 'out34', 'kind': 'array', 'dtype': 'float32', 'size': 12288, 'fill': 'sentinel'},
            {'name': 'n36', 'kind': 'scalar', 'dtype': 'int32', 'value': 16},
            {'name': 'K37', 'kind': 'constexpr', 'value': 51},
            {'name': 'n39', 'kind': 'scalar', 'dtype': 'int32', 'value': 816},
            {'name': 'out40',
             'kind': 'array',
             'dtype': 'float32',
             'size': 4896,
             'fill': 'sentinel',
             'aligned': False}]}


@tilewright.jit
def kernel(n2, p4, p7, K10: tl.constexpr, n12, p14, K21: tl.constexpr, K23: tl.constexpr, n30, out31, out34, n36, K37: tl.constexpr, n39, out40):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid = pid0 + pid1 * tl.num_programs(0)
    i1 = tl.arange(0, 128)[:, None]
    i3 = tl.arange(0, 16)[None, :]
    v5 = tl.load(p4 + i1 * n2 + i3)
    i6 = tl.arange(0, 4)
    v8 = tl.load(p7 + i6, mask=(i6 < 1), other=0)
    i9 = tl.arange(0, 4)[:, None, None]
    i11 = tl.arange(0, 4)[None, :, None]
    i13 = tl.arange(0, 128)[None, None, :]
    q15 = p14 + pid * 16 + i9 * K10 + i11 * n12 + i13
    v16 = tl.load(q15, mask=(i9 < 3) & (i11 < 2), other=0, eviction_policy="evict_last")
    v17 = tl.ceil(v5)
    v18 = pid0 - v16
    v19 = v18 < 4
    i20 = tl.arange(0, 128)[:, None]
    i22 = tl.arange(0, 16)[None, :]
    q24 = p4 + pid * 1 + i20 * K21 + i22
    v25 = tl.load(q24, mask=(i20 < 31) & (i22 < K23), other=0)
    v26 = tl.fma(v17, v5, v25)
    v27 = tl.min(v26)
    i28 = tl.arange(0, 128)[:, None]
    i29 = tl.arange(0, 16)[None, :]
    tl.store(out31 + pid * n30 + i28 * 17 + i29, v26, mask=tl.full((128, 16), True, tl.int1))
    i32 = tl.arange(0, 128)[:, None]
    i33 = tl.arange(0, 16)[None, :]
    tl.store(out34 + pid * 2048 + i32 * 16 + i33, v25)
    i35 = tl.arange(0, 128)[:, None]
    i38 = tl.arange(0, 16)[None, :]
    tl.store(out40 + pid * n39 + i35 * n36 + i38, v25, mask=(i35 < K37) & tl.full((128, 16), True, tl.int1))
