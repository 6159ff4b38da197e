"""Random kernel of seed 543."""

import tilewright
import tilewright.language as tl

CASE = {
    "seed": 543,
    "grid": (3, 1, 2),
    "cpu": "x86-64",
    "options": {"enable_fp_fusion": False},
    "params": [
        {"name": "n2", "kind": "scalar", "dtype": "int32", "value": 2},
        {"name": "p4", "kind": "array", "dtype": "float32", "size": 7, "fill": "quarters"},
        {"name": "K8", "kind": "constexpr", "value": 16},
        {"name": "p9", "kind": "array", "dtype": "float64", "size": 2148, "fill": "ints"},
        {"name": "K12", "kind": "constexpr", "value": 4},
        {"name": "K14", "kind": "constexpr", "value": 0},
        {"name": "p15", "kind": "array", "dtype": "uint8", "size": 1, "fill": "ints"},
        {"name": "p23", "kind": "array", "dtype": "int64", "size": 48, "fill": "ints", "aligned": False},
        {"name": "out24", "kind": "array", "dtype": "int64", "size": 48, "fill": "sentinel"},
        {"name": "K28", "kind": "constexpr", "value": 64},
        {"name": "p30", "kind": "array", "dtype": "bfloat16", "size": 2048, "fill": "quarters", "aligned": False},
        {"name": "K34", "kind": "constexpr", "value": 16},
        {"name": "n35", "kind": "scalar", "dtype": "int32", "value": 28},
        {"name": "n37", "kind": "scalar", "dtype": "int32", "value": 5},
        {"name": "p38", "kind": "array", "dtype": "bfloat16", "size": 437, "fill": "quarters", "aligned": False},
        {"name": "K43", "kind": "constexpr", "value": 5},
        {"name": "p44", "kind": "array", "dtype": "uint16", "size": 64, "fill": "ints"},
        {"name": "K48", "kind": "constexpr", "value": 48},
        {"name": "n50", "kind": "scalar", "dtype": "int32", "value": 16},
        {"name": "n54", "kind": "scalar", "dtype": "int32", "value": 22},
        {"name": "n56", "kind": "scalar", "dtype": "int32", "value": 0},
        {"name": "K57", "kind": "constexpr", "value": 358},
        {"name": "at60", "kind": "array", "dtype": "int32", "size": 4, "fill": "ints", "aligned": False},
        {"name": "p64", "kind": "array", "dtype": "int32", "size": 64, "fill": "ints"},
        {"name": "n71", "kind": "scalar", "dtype": "int32", "value": 64},
        {"name": "at72", "kind": "array", "dtype": "int32", "size": 384, "fill": "ints", "aligned": False},
        {"name": "n77", "kind": "scalar", "dtype": "int32", "value": 8},
        {"name": "n83", "kind": "scalar", "dtype": "int32", "value": 2048},
        {"name": "out84", "kind": "array", "dtype": "bfloat16", "size": 12288, "fill": "sentinel", "aligned": False},
        {"name": "out87", "kind": "array", "dtype": "uint32", "size": 384, "fill": "sentinel", "aligned": False},
        {"name": "out90", "kind": "array", "dtype": "float64", "size": 6, "fill": "sentinel"},
    ],
}


@tilewright.jit
def take_larger(a, b):
    return tl.where(a > b, a, b)


@tilewright.jit
def kernel(
    n2,
    p4,
    K8: tl.constexpr,
    p9,
    K12: tl.constexpr,
    K14: tl.constexpr,
    p15,
    p23,
    out24,
    K28: tl.constexpr,
    p30,
    K34: tl.constexpr,
    n35,
    n37,
    p38,
    K43: tl.constexpr,
    p44,
    K48: tl.constexpr,
    n50,
    n54,
    n56,
    K57: tl.constexpr,
    at60,
    p64,
    n71,
    at72,
    n77,
    n83,
    out84,
    out87,
    out90,
):
    pid0 = tl.program_id(0)
    pid1 = tl.program_id(1)
    pid2 = tl.program_id(2)
    pid = pid0 + pid1 * tl.num_programs(0) + pid2 * tl.num_programs(0) * tl.num_programs(1)
    i1 = tl.arange(0, 4)[:, None]
    i3 = tl.arange(0, 2)[None, :]
    v5 = tl.load(p4 + i1 * n2 + i3, mask=(i3 < 0), other=0)
    i6 = tl.arange(0, 4)[:, None]
    i7 = tl.arange(0, 8)[None, :]
    v10 = tl.load(p9 + pid * K8 + i6 * 8 + i7)
    i11 = tl.arange(0, 4)[:, None]
    i13 = tl.arange(0, 4)[None, :]
    q16 = i11 * K12 + i13 + p15
    v17 = tl.load(q16, mask=(i11 < 1) & (i13 < K14), other=0)
    v18, v19 = tl.min(v17, 0, return_indices=True)
    v20 = pid2.to(tl.uint64)
    i21 = tl.arange(0, 2)[:, None]
    i22 = tl.arange(0, 4)[None, :]
    w25 = pid * 8 + i21 * 4 + i22
    tl.store(out24 + w25, tl.load(p23 + w25, mask=tl.full((2, 4), True, tl.int1)), mask=tl.full((2, 4), True, tl.int1))
    v26 = tl.ceil(v10)
    i27 = tl.arange(0, 32)[:, None]
    i29 = tl.arange(0, 64)[None, :]
    v31 = tl.load(p30 + i27 * K28 + i29)
    v32 = tl.trans(v31)
    i33 = tl.arange(0, 32)[:, None]
    i36 = tl.arange(0, 16)[None, :]
    q39 = p38 + i33 * K34 + i36
    v40 = tl.load(q39, mask=(i33 < n35) & (i36 < n37), other=0)
    v41 = tl.dot(v32, v40)
    q45 = p44 + tl.arange(0, 8)[:, None] * 4 + tl.arange(0, 4)[None, :] * 1
    for k42 in range(K43, 7):
        v46 = tl.load(q45)
        i47 = tl.arange(0, 2)[:, None]
        i49 = tl.arange(0, 32)[None, :]
        q51 = p9 + i47 * K48 + i49
        v52 = tl.load(q51, mask=(i49 < n50) & tl.full((2, 32), True, tl.int1), other=0)
        i53 = tl.arange(0, 32)[:, None]
        i55 = tl.arange(0, 1)[None, :]
        v58 = tl.load(pid * K57 + i53 * 17 + i55 + p9, mask=(i53 < n54) & (i55 < n56), other=0)
        v59 = tl.dot(v52, v58)
        tl.atomic_add(at60 + pid % 4, pid + 5)
        v61 = v58.reshape(1, 32)
        v62 = v41[None, :, :]
        v19 = v19
        v46 ^= v46
        q45 += 32
    v63 = tl.broadcast_to(pid0, (8, 8))
    v65 = tl.load(p64 + (v63 & 63))
    v66 = tl.reduce(v40, None, take_larger, keep_dims=True)
    v67 = tl.cumprod(v65, 0)
    v68 = v66.to(tl.float64)
    i69 = tl.arange(0, 8)[:, None]
    i70 = tl.arange(0, 8)[None, :]
    v73 = tl.atomic_xchg(at72 + pid * n71 + i69 * 8 + i70, v67)
    v74 = tl.reshape(v63, (16, 4))
    v75 = tl.flip(v32, 0)
    i76 = tl.arange(0, 8)[:, None]
    i78 = tl.arange(0, 8)[None, :]
    v79 = tl.load(p64 + i76 * n77 + i78, mask=(i76 < 3) & (i78 < 3), other=0, cache_modifier=".cg")
    v80 = v65 >> v79
    i81 = tl.arange(0, 64)[:, None]
    i82 = tl.arange(0, 32)[None, :]
    tl.store(out84 + pid * n83 + i81 * 32 + i82, v32)
    i85 = tl.arange(0, 8)[:, None]
    i86 = tl.arange(0, 8)[None, :]
    tl.store(out87 + pid * 64 + i85 * 8 + i86, v79)
    i88 = tl.arange(0, 1)[:, None]
    i89 = tl.arange(0, 1)[None, :]
    tl.store(out90 + pid * 1 + i88 + i89, v68)
