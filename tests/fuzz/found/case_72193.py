"""Seed 72193: cpu differs."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 72193,
    "grid": (1,),
    "cpu": "",
    "options": {},
    "gpu": {},
    "params": [
        {"name": "K6", "kind": "constexpr", "value": 24},
        {"name": "p8", "kind": "array", "dtype": "int1", "size": 176, "fill": "ints"},
        {"name": "n29", "kind": "scalar", "dtype": "int32", "value": 48},
        {"name": "out30", "kind": "array", "dtype": "int1", "size": 384, "fill": "sentinel"},
        {"name": "K32", "kind": "constexpr", "value": 48},
        {"name": "K34", "kind": "constexpr", "value": 8},
        {"name": "out36", "kind": "array", "dtype": "int1", "size": 384, "fill": "sentinel", "aligned": False},
    ],
}


@tilewright.jit
def kernel(K6: tl.constexpr, p8, n29, out30, K32: tl.constexpr, K34: tl.constexpr, out36):
    i5 = tl.arange(0, 8)[:, None]
    i7 = tl.arange(0, 8)[None, :]
    v9 = tl.load(i5 * K6 + i7 + p8, eviction_policy="evict_last")
    v11 = v9[:, :, None]
    v12 = tl.permute(v11, (0, 2, 1))
    v13 = tl.broadcast_to(v12, (8, 6, 8))
    i26 = tl.arange(0, 8)[:, None, None]
    i27 = tl.arange(0, 6)[None, :, None]
    i28 = tl.arange(0, 8)[None, None, :]
    tl.store(out30 + i26 + i27 * 8 + i28 * n29, v13)
    i31 = tl.arange(0, 8)[:, None, None]
    i33 = tl.arange(0, 6)[None, :, None]
    i35 = tl.arange(0, 8)[None, None, :]
    tl.store(out36 + i31 * K32 + i33 * K34 + i35, v13, mask=v13)
