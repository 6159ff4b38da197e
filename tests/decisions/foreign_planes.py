"""Sums over several dims as strangers write them: of planes, of all of a tile, of products with three vectors.

Written without a look at the rules. Nothing is pinned: `benchmarks/foreign_forms.py` has sizes and what torch does,
`benchmarks/forms.py` times them, and `test_foreign.py` asks for right results.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

PLANES: list[Spelling] = []
BLOCKS: list[Spelling] = []
FORMS: list[Spelling] = []


# --- sums of planes ---

_PLANES = "*fp32:16, *fp32:16, i32, i32, i32, 4, 8, 64"


@spelled(PLANES, _PLANES)
def planes_sum_of_sum(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    acc = tl.zeros((BB,), tl.float32)
    q = tl.arange(0, BQ)
    for p0 in range(0, P, BP):
        p = p0 + tl.arange(0, BP)
        at = b[:, None, None] * (P * Q) + p[None, :, None] * Q + q[None, None, :]
        ok = (b[:, None, None] < B) & (p[None, :, None] < P) & (q[None, None, :] < Q)
        x = tl.load(x_ptr + at, mask=ok, other=0.0)
        acc += tl.sum(tl.sum(x, 2), 1)
    tl.store(y_ptr + b, acc, mask=b < B)


@spelled(PLANES, _PLANES)
def planes_reshaped(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    acc = tl.zeros((BB,), tl.float32)
    q = tl.arange(0, BQ)
    for p0 in range(0, P, BP):
        p = p0 + tl.arange(0, BP)
        at = b[:, None, None] * (P * Q) + p[None, :, None] * Q + q[None, None, :]
        ok = (b[:, None, None] < B) & (p[None, :, None] < P) & (q[None, None, :] < Q)
        x = tl.load(x_ptr + at, mask=ok, other=0.0)
        acc += tl.sum(tl.reshape(x, (BB, BP * BQ)), 1)
    tl.store(y_ptr + b, acc, mask=b < B)


@spelled(PLANES, _PLANES)
def planes_one_by_one(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    for i in range(BB):
        b = tl.program_id(0) * BB + i
        if b < B:
            acc = 0.0
            for p0 in range(0, P, BP):
                p = p0 + tl.arange(0, BP)[:, None]
                q = tl.arange(0, BQ)[None, :]
                acc += tl.sum(tl.load(x_ptr + b * P * Q + p * Q + q, mask=(p < P) & (q < Q), other=0.0))
            tl.store(y_ptr + b, acc)


@spelled(PLANES, _PLANES)
def planes_flat(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    for i in range(BB):
        b = tl.program_id(0) * BB + i
        if b < B:
            acc = tl.zeros((BP * BQ,), tl.float32)
            for n in range(0, P * Q, BP * BQ):
                at = n + tl.arange(0, BP * BQ)
                acc += tl.load(x_ptr + b * P * Q + at, mask=at < P * Q, other=0.0)
            tl.store(y_ptr + b, tl.sum(acc))


@spelled(PLANES, _PLANES)
def planes_tile_at_end(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    q = tl.arange(0, BQ)
    p = tl.arange(0, BP)
    acc = tl.zeros((BB, BP, BQ), tl.float32)
    for p0 in range(0, P, BP):
        at = b[:, None, None] * (P * Q) + (p0 + p)[None, :, None] * Q + q[None, None, :]
        ok = (b[:, None, None] < B) & (p0 + p < P)[None, :, None] & (q[None, None, :] < Q)
        acc += tl.load(x_ptr + at, mask=ok, other=0.0)
    tl.store(y_ptr + b, tl.sum(tl.sum(acc, 1), 1), mask=b < B)


# --- sums of some planes, all their elements in one tile or not ---

_BLOCKS = "*fp32:16, *fp32:16, i32, i32, i32, 4, 32, 64"


@spelled(BLOCKS, _BLOCKS)
def block_sum_all(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    b = tl.program_id(0) * BB + tl.arange(0, BB)[:, None, None]
    p = tl.arange(0, BP)[None, :, None]
    q = tl.arange(0, BQ)[None, None, :]
    x = tl.load(x_ptr + b * (P * Q) + p * Q + q, mask=(b < B) & (p < P) & (q < Q), other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x))


@spelled(BLOCKS, _BLOCKS)
def block_sum_sum_sum(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    b = tl.program_id(0) * BB + tl.arange(0, BB)[:, None, None]
    p = tl.arange(0, BP)[None, :, None]
    q = tl.arange(0, BQ)[None, None, :]
    x = tl.load(x_ptr + b * (P * Q) + p * Q + q, mask=(b < B) & (p < P) & (q < Q), other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(tl.sum(tl.sum(x, axis=0), axis=0), axis=0))


@spelled(BLOCKS, _BLOCKS)
def block_loops(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    q = tl.arange(0, BQ)
    acc = tl.zeros((BQ,), tl.float32)
    for b in range(tl.program_id(0) * BB, min(tl.program_id(0) * BB + BB, B)):
        for p in range(P):
            acc += tl.load(x_ptr + (b * P + p) * Q + q, mask=q < Q, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(acc))


@spelled(BLOCKS, _BLOCKS)
def block_planes(x_ptr, y_ptr, B, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    p = tl.arange(0, BP)[:, None]
    q = tl.arange(0, BQ)[None, :]
    acc = 0.0
    for i in range(BB):
        b = tl.program_id(0) * BB + i
        x = tl.load(x_ptr + b * P * Q + p * Q + q, mask=(p < P) & (q < Q) & (b < B), other=0.0)
        acc += tl.sum(tl.sum(x, 1), 0)
    tl.store(y_ptr + tl.program_id(0), acc)


# --- sum over i, j, l of x[b, i] w[i, j, l] z[b, j] v[l] ---

_FORMS = "*fp32:16, *fp32:16, *fp32:16, *fp32:16, *fp32:16, i32, 16, 16, 64"


@spelled(FORMS, _FORMS)
def form_whole(x_ptr, w_ptr, z_ptr, v_ptr, y_ptr, B, I: tl.constexpr, J: tl.constexpr, L: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, I)
    j = tl.arange(0, J)
    m = tl.arange(0, L)
    x = tl.load(x_ptr + b * I + i)
    z = tl.load(z_ptr + b * J + j)
    v = tl.load(v_ptr + m)
    w = tl.load(w_ptr + i[:, None, None] * (J * L) + j[None, :, None] * L + m[None, None, :])
    t = w * x[:, None, None] * z[None, :, None] * v[None, None, :]
    tl.store(y_ptr + b, tl.sum(t))


@spelled(FORMS, _FORMS)
def form_step_by_step(x_ptr, w_ptr, z_ptr, v_ptr, y_ptr, B, I: tl.constexpr, J: tl.constexpr, L: tl.constexpr):
    b = tl.program_id(0)
    i = tl.arange(0, I)
    j = tl.arange(0, J)
    m = tl.arange(0, L)
    w = tl.load(w_ptr + i[:, None, None] * (J * L) + j[None, :, None] * L + m[None, None, :])
    wv = tl.sum(w * tl.load(v_ptr + m)[None, None, :], axis=2)
    wz = tl.sum(wv * tl.load(z_ptr + b * J + j)[None, :], axis=1)
    tl.store(y_ptr + b, tl.sum(wz * tl.load(x_ptr + b * I + i), axis=0))


@spelled(FORMS, _FORMS)
def form_rows(x_ptr, w_ptr, z_ptr, v_ptr, y_ptr, B, I: tl.constexpr, J: tl.constexpr, L: tl.constexpr):
    b = tl.program_id(0)
    j = tl.arange(0, J)[:, None]
    m = tl.arange(0, L)[None, :]
    zv = tl.load(z_ptr + b * J + j) * tl.load(v_ptr + m)
    total = 0.0
    for i in range(I):
        w = tl.load(w_ptr + i * J * L + j * L + m)
        total += tl.load(x_ptr + b * I + i) * tl.sum(w * zv)
    tl.store(y_ptr + b, total)
