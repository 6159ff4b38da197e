"""The table of operations that are tested against eager PyTorch: at least one case per row and recipe of `hl`.

A case is a function on tensors. The runner (`test_operations.py`) calls it in a kernel on whole rows for each of its
types, and on tiles with a partial last tile for the first. The files `operations_*.py` hold more cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
BOOL = (torch.bool,)
NUMBERS = FLOATS + INTEGERS


@dataclass(frozen=True)
class Case:
    """An operation in one use.

    Args:
        name: aten name of the row or recipe that it covers.
        function: what is computed.
        shapes: shapes of the operands; "m" rows and "n" columns, 1 where they broadcast.
        dtypes: types of the first operand (the others have the same).
        domain: values: "real", "positive", "unit" (in (-1, 1)), "probability" (in (0, 1)), "small" (integers near 0),
            "special" (some NaN, infinities and zeros) or "counts" (0, 1, 2).
        layouts: "rows" and "tiles" (see the runner).
        tag: tells cases of one name apart.
        slack: factor of the tolerance, for functions whose eager value is itself that inexact.
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[str, ...] = ("mn",)
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    domain: str = "real"
    layouts: tuple[str, ...] = ("rows", "tiles")
    tag: str = ""
    slack: float = 1

    def __str__(self) -> str:
        return f"{self.name}-{self.tag}" if self.tag else self.name


def case(*args: Any, **kwargs: Any) -> None:
    """Put a case into the table."""
    CASES.append(Case(*args, **kwargs))


CASES: list[Case] = []
TWO = ("mn", "mn")

# --- element by element ------------------------------------------------------------------------------

for _name, _function in {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}.items():
    case(_name, _function, TWO, NUMBERS)
case("add", lambda x, y: torch.add(x, y, alpha=3), TWO, (torch.float32, torch.int32), tag="alpha")
case("add", lambda x, y: x + y, ("mn", "1n"), (torch.float32,), tag="broadcast")
case("rsub", lambda x: 3 - x, dtypes=(*FLOATS, torch.int32))
case("div", lambda x, y: x / y, TWO, NUMBERS, domain="positive")
case("neg", lambda x: -x, dtypes=NUMBERS)
case("abs", torch.abs, dtypes=(*FLOATS, torch.int32, torch.int64))
case("clamp_min", lambda x: x.clamp_min(0.25), dtypes=FLOATS)
case("clamp_max", lambda x: x.clamp_max(0.25), dtypes=FLOATS)
case("relu", torch.relu, dtypes=(*FLOATS, torch.int32))
for _name in ("exp", "exp2", "sigmoid", "sin", "cos", "erf", "tanh", "expm1"):
    case(_name, getattr(torch, _name), dtypes=FLOATS)
for _name in ("log", "log2", "sqrt", "rsqrt", "log1p", "reciprocal"):
    case(_name, getattr(torch, _name), dtypes=FLOATS, domain="positive")
case("exp", torch.exp, dtypes=(torch.int32,), domain="small", tag="integers")
for _name in ("gt", "ge", "lt", "le", "eq", "ne"):
    case(_name, getattr(torch, _name), TWO, (*FLOATS, torch.int32, torch.uint8), domain="small")
case("gt", lambda x: x > 0.5, dtypes=(torch.int32, torch.float16), domain="small", tag="number")
case("isnan", torch.isnan, dtypes=FLOATS)
for _name, _function in {
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
}.items():
    case(_name, _function, TWO, (*INTEGERS, *BOOL))
case("bitwise_not", lambda x: ~x, dtypes=(*INTEGERS, *BOOL))
case("where", lambda x, y: torch.where(x > y, x, y), TWO, NUMBERS)
case("where", lambda x: torch.where(x > 0, x, 0.5), tag="number")

# --- created -----------------------------------------------------------------------------------------

case("zeros_like", lambda x: x + torch.zeros_like(x), dtypes=NUMBERS)
case("ones_like", lambda x: x + torch.ones_like(x), dtypes=NUMBERS)
case("full_like", lambda x: x * torch.full_like(x, 2), dtypes=NUMBERS)
for _name in ("zeros", "ones"):
    case(_name, lambda x, make=getattr(torch, _name): x + make(x.shape), dtypes=(torch.float32, torch.int32))
    case(f"new_{_name}", lambda x, name=f"new_{_name}": x + getattr(x, name)(x.shape), dtypes=(torch.float32,))
case("full", lambda x: x + torch.full(x.shape, 2.5))
case("new_full", lambda x: x + x.new_full(x.shape, 2.5))
case("scalar_tensor", lambda x: torch.where(x > 0, 1.5, x))
case("_to_copy", lambda x: x.to(torch.int32), dtypes=(torch.float32, torch.int64, torch.bool))
case("_to_copy", lambda x: x.to(torch.bfloat16), dtypes=(torch.float32, torch.int32), tag="narrow")

# --- shapes --------------------------------------------------------------------------------------------

case("unsqueeze", lambda x: (x.unsqueeze(1) + x.unsqueeze(-2)).sum(1))
case("squeeze", lambda x: x.unsqueeze(1).squeeze(1))
case("view", lambda x: x.view(x.size(0), 1, x.size(1)).sum(1))
case("expand", lambda x, y: y.expand(x.shape) + x, ("mn", "1n"))
case("permute", lambda x: (x.permute(1, 0) * 2).permute(1, 0))
case("transpose", lambda x: (x.transpose(0, 1) * 2).transpose(-1, -2))
case("t", lambda x: (x.t() * 2).T)
case("slice", lambda x: x[:, :] + x[0:])

# --- reductions and what is made of them ---------------------------------------------------------------

case("sum", lambda x: x.sum(-1), dtypes=NUMBERS + BOOL)
case("sum", lambda x: x - x.sum(1, keepdim=True), tag="keepdim")
case("amax", lambda x: x.amax(-1), dtypes=NUMBERS)
case("amin", lambda x: x.amin(-1), dtypes=NUMBERS)
case("amax", lambda x: torch.exp(x - x.amax(1, keepdim=True)), tag="keepdim")
case("mean", lambda x: x.mean(-1), dtypes=FLOATS)
case("_softmax", lambda x: torch.softmax(x, -1), dtypes=FLOATS)
case("_log_softmax", lambda x: torch.log_softmax(x, 1), dtypes=FLOATS)
case("native_layer_norm", lambda x: F.layer_norm(x, [x.size(1)]), dtypes=FLOATS)
case(
    "native_layer_norm",
    lambda x, w, b: F.layer_norm(x, [x.size(1)], w.squeeze(0), b.squeeze(0), 1e-3),
    ("mn", "1n", "1n"),
    layouts=("rows",),
    tag="affine",
)

# --- products ----------------------------------------------------------------------------------------------

_WITH = {"layouts": ("rows",)}
case("mm", lambda x, y: x @ y, ("mn", "nn"), FLOATS, **_WITH)
case("addmm", lambda x, y, c: torch.addmm(c, x, y), ("mn", "nn", "mn"), FLOATS, **_WITH)
case("addmm", lambda x, y, c: torch.addmm(c, x, y, beta=2, alpha=3), ("mn", "nn", "mn"), tag="scaled", **_WITH)
case("bmm", lambda x, y: torch.bmm(x[None], y[None]).squeeze(0), ("mn", "nn"), **_WITH)
case("baddbmm", lambda x, y, c: torch.baddbmm(c[None], x[None], y[None]).squeeze(0), ("mn", "nn", "mn"), **_WITH)
case("mv", lambda x, y: torch.mv(x, y.squeeze(0)), ("mn", "1n"), **_WITH)
case("dot", lambda x, y: x + torch.dot(y.squeeze(0), y.squeeze(0)), ("mn", "1n"))

case("gelu", F.gelu, dtypes=FLOATS)
case("gelu", lambda x: F.gelu(x, approximate="tanh"), dtypes=FLOATS, tag="tanh")
case("silu", F.silu, dtypes=FLOATS)
