"""Seed 72582: frontend: CompilationError in entry.py:build_module: no function definition at line _ of _ for topk."""

import tilewright
import tilewright.language as tl

CASE = {'seed': 72582, 'grid': (1,), 'cpu': '', 'options': {}, 'gpu': {}, 'params': []}


@tilewright.jit
def kernel():
    v16 = tl.full((8, 8), 1, tl.int32)
    v17 = tl.topk(v16, 2)
