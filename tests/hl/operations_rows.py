"""Cases of the operation table: reductions, scans, shapes, order."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.hl.operations import BOOL, TWO, case

ROWS_ONLY = {"layouts": ("rows",)}
TYPES = (torch.float32, torch.bfloat16, torch.int32)
FLOATS = (torch.float32, torch.float16)
F32 = (torch.float32,)

# --- reductions ------------------------------------------------------------------------------------------------

for _name in ("any", "all"):
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), dtypes=(*F32, torch.int32, *BOOL), domain="small")
    case(_name, lambda x, f=getattr(torch, _name): x * f(x > 5).to(x.dtype), tag="over all", **ROWS_ONLY)
case("prod", lambda x: x.prod(1), dtypes=FLOATS)
case("prod", lambda x: x.prod(1), dtypes=(torch.int32, torch.int64), domain="counts", tag="integers")
for _name in ("amax", "amin"):
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), domain="special", tag="nan")
for _name in ("argmax", "argmin"):
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), dtypes=(*TYPES, torch.float64), domain="small")
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), domain="special", tag="nan")
for _name in ("max", "min"):
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1).values, dtypes=TYPES)
    case(_name, lambda x, f=getattr(torch, _name): f(x, dim=1)[1], dtypes=F32, tag="indices")
    case(_name, lambda x, f=getattr(torch, _name): x - f(x, 1, keepdim=True)[0], tag="keepdim")
case("max", lambda x, y: torch.max(x, y), TWO, tag="two")
case("min", lambda x, y: torch.min(x, y), TWO, tag="two")
case("aminmax", lambda x: torch.aminmax(x, dim=1).max - x.aminmax(dim=1).min)
for _name in ("var", "std"):
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), dtypes=FLOATS)
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1, correction=0, keepdim=True) + x, tag="biased")
for _name in ("var_mean", "std_mean"):
    case(_name, lambda x, f=getattr(torch, _name): sum(f(x, 1)), dtypes=FLOATS)
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1, unbiased=False)[0], tag="biased")
case("logsumexp", lambda x: x.logsumexp(1), dtypes=FLOATS)
case("logsumexp", lambda x: torch.logsumexp(x, -1, keepdim=True) + x, tag="keepdim")
for _order in (0, 1, 2, 3, float("inf"), float("-inf")):
    case("linalg_vector_norm", lambda x, p=_order: torch.linalg.vector_norm(x, p, 1), dtypes=F32, tag=str(_order))
case("norm", lambda x: torch.ops.aten.norm(x, 2, [1], False))
case("linalg_vector_norm", lambda x: F.normalize(x, dim=1), tag="normalize")
case("linalg_vector_norm", lambda x, y: F.cosine_similarity(x, y, 1), TWO, tag="cosine")
case("dist", lambda x, y: torch.dist(x[:, None], x[:, None] + 1e30 * 0) + y, TWO, **ROWS_ONLY)
case("count_nonzero", lambda x: x.count_nonzero(1), dtypes=(*F32, torch.int32), domain="small")
case("nansum", lambda x: x.nansum(1))
case("sum", lambda x: x[:, None, :].expand(-1, 3, -1).sum((1, 2)), tag="two dims")
for _name in ("cumsum", "cumprod"):
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), dtypes=(torch.float32, torch.float64), slack=4)
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1), dtypes=(torch.int32,), domain="counts", tag="integers")
for _name in ("cummax", "cummin"):
    case(
        _name,
        lambda x, f=getattr(torch, _name): f(x, 1).values,
        dtypes=(*F32, torch.int32),
        domain="small",
        **ROWS_ONLY,
    )
    case(_name, lambda x, f=getattr(torch, _name): f(x, 1)[1], domain="small", tag="indices", **ROWS_ONLY)
case("logcumsumexp", lambda x: x.logcumsumexp(1), **ROWS_ONLY)
case("trace", lambda x: x + torch.trace(torch.ones(4, 4)), **ROWS_ONLY)

# --- shapes -----------------------------------------------------------------------------------------------------

for _tag, _function in {
    "select": lambda x: x[:, 2] + x.select(1, -1),
    "slice": lambda x: x[:, 3:17:2],
    "split": lambda x: x.split(6, 1)[1] - x.split(6, 1)[2],
    "split_with_sizes": lambda x: torch.split(x, [5, 6, 7], 1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "cat": lambda x: torch.cat([x, x[:, :3] * 2], 1),
    "stack": lambda x: torch.stack([x, x * 2], 1).sum(1),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(3, 1) - x.roll(-2, 1),
    "repeat": lambda x: x.repeat(1, 2),
    "constant_pad_nd": lambda x: F.pad(x, (1, 2), value=5),
    "index_select": lambda x: x.index_select(1, torch.arange(5) * 2),
    "gather": lambda x: x.gather(1, (x * 0).to(torch.int64) + torch.arange(18)),
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(3, 1)[0],
    "kthvalue": lambda x: x.kthvalue(4, 1)[0],  # this and the next sort as `sort` does, which has all types
    "median": lambda x: x.median(1).values,
    "eye": lambda x: x[:, :3] + torch.eye(3)[1],
}.items():
    case(_tag, _function, dtypes=TYPES if _tag not in ("eye", "kthvalue", "median") else F32, **ROWS_ONLY)
case("slice", lambda x: x.narrow(1, 4, 8), tag="narrow", **ROWS_ONLY)
case("slice", lambda x: x.chunk(3, 1)[2], tag="chunk", **ROWS_ONLY)
case("repeat", lambda x: x.repeat_interleave(2, 1), tag="interleave", **ROWS_ONLY)
case(
    "sort", lambda x: torch.sort(x, dim=1, descending=True, stable=True)[1], domain="small", tag="indices", **ROWS_ONLY
)
case("sort", lambda x: torch.argsort(x, dim=1, stable=True), domain="small", tag="argsort", **ROWS_ONLY)
case("sort", lambda x: x.sort(1, descending=True)[0], domain="special", tag="nan", **ROWS_ONLY)
case("topk", lambda x: x.topk(4, 1, largest=False).indices, tag="smallest", **ROWS_ONLY)
case("median", lambda x: x.median(1, keepdim=True)[0] + x, tag="keepdim")
case("nanmedian", lambda x: x.nanmedian(1).values, domain="special", **ROWS_ONLY)
case("view", lambda x: x.view(torch.int32) + 1, tag="bits")
case("tril", lambda x: x[:, None, :].expand(-1, 18, -1).tril().sum(1), **ROWS_ONLY)
case("triu", lambda x: x[:, None, :].expand(-1, 18, -1).triu(2).sum(1), **ROWS_ONLY)
case("arange", lambda x: x + torch.arange(18) * torch.arange(3, 39, 2), **ROWS_ONLY)
case("linspace", lambda x: x + torch.linspace(0, 2, 18), **ROWS_ONLY)
