"""Seed 50038: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 50038,
 'grid': (1,),
 'cpu': 'x86-64-v3',
 'options': {},
 'params': [{'name': 'K2', 'kind': 'constexpr', 'value': 512},
            {'name': 'p6', 'kind': 'array', 'dtype': 'float32', 'size': 4126, 'fill': 'reals'},
            {'name': 'n16', 'kind': 'scalar', 'dtype': 'int32', 'value': 128},
            {'name': 'K17', 'kind': 'constexpr', 'value': 6},
            {'name': 'K19', 'kind': 'constexpr', 'value': 6},
            {'name': 'n21', 'kind': 'scalar', 'dtype': 'int32', 'value': 16},
            {'name': 'K22', 'kind': 'constexpr', 'value': 4},
            {'name': 'n52', 'kind': 'scalar', 'dtype': 'int32', 'value': 6},
            {'name': 'n55', 'kind': 'scalar', 'dtype': 'int32', 'value': 3},
            {'name': 'out56',
             'kind': 'array',
             'dtype': 'float32',
             'size': 763,
             'fill': 'sentinel',
             'aligned': False}]}


@tilewright.jit
def kernel(K2: tl.constexpr, p6, n16, K17: tl.constexpr, K19: tl.constexpr, n21, K22: tl.constexpr, n52, n55, out56):
    i15 = tl.arange(0, 8)[:, None, None]
    i18 = tl.arange(0, 16)[None, :, None]
    i20 = tl.arange(0, 8)[None, None, :]
    v23 = tl.load(p6 + i15 * n16 + i18 + i20 * n21, mask=(i15 < K17) & (i18 < K19) & (i20 < K22), other=0)
    i51 = tl.arange(0, 8)[:, None, None]
    i53 = tl.arange(0, 16)[None, :, None]
    i54 = tl.arange(0, 8)[None, None, :]
    tl.store(out56 + i51 * 128 + i53 * 8 + i54, v23, mask=(i51 < n52) & (i54 < n55))
