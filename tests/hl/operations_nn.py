"""Cases of the operation table: activations, norms, losses and derivatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.hl.operations import TWO, case

FLOATS = (torch.float32, torch.bfloat16)
ROWS_ONLY = {"layouts": ("rows",)}
ATEN = torch.ops.aten

for _tag, _function in {
    "elu": lambda x: F.elu(x, 0.5),
    "celu": lambda x: F.celu(x, 2.0),
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "softplus": F.softplus,
    "mish": F.mish,
    "leaky_relu": F.leaky_relu,
    "_prelu_kernel": lambda x: F.prelu(x, torch.full((1,), 0.25, dtype=x.dtype)),
    "threshold": lambda x: F.threshold(x, 0.1, 5.0),
    "log_sigmoid_forward": F.logsigmoid,
}.items():
    case(_tag, _function, dtypes=FLOATS, **ROWS_ONLY)
case("elu", F.selu, tag="selu", **ROWS_ONLY)
case("hardtanh", F.relu6, tag="relu6", **ROWS_ONLY)
case("div", F.softsign, tag="softsign", **ROWS_ONLY)
case("glu", lambda x: F.glu(x[:, :16], 1), dtypes=FLOATS, **ROWS_ONLY)
case("_softmax", lambda x: F.softmin(x, 1), tag="softmin")
case("_safe_softmax", lambda x: ATEN._safe_softmax(torch.where(x > 0.5, x, float("-inf")), 1))
case("lift_fresh", lambda x: x * torch.tensor(2.0) + torch.tensor([1.0, -1.0, 3.0, 0.5])[2:3])
for _name in ("sigmoid_backward", "tanh_backward", "silu_backward", "gelu_backward"):
    case(_name, getattr(ATEN, _name), TWO, FLOATS, **ROWS_ONLY)
case("gelu_backward", lambda x, y: ATEN.gelu_backward(x, y, approximate="tanh"), TWO, tag="tanh", **ROWS_ONLY)
case("threshold_backward", lambda x, y: ATEN.threshold_backward(x, y, 0), TWO, FLOATS, **ROWS_ONLY)
for _name in ("_softmax_backward_data", "_log_softmax_backward_data"):
    case(_name, lambda x, y, f=getattr(ATEN, _name): f(x, y, 1, x.dtype), TWO)
case("native_group_norm", lambda x: F.group_norm(x, 3), dtypes=FLOATS, **ROWS_ONLY)
case("rsqrt", lambda x: F.rms_norm(x, [x.size(1)]), dtypes=FLOATS, tag="rms_norm", **ROWS_ONLY)
for _name in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
    case(_name, lambda x, y, f=getattr(F, _name): f(x, y, reduction="none"), TWO, FLOATS, **ROWS_ONLY)
case("mse_loss", lambda x, y: x * 0 + F.mse_loss(x[:, :1] * 0 + 1, y[:, :1] * 0), TWO, tag="mean", **ROWS_ONLY)
for _name in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
    _loss = lambda x, y, f=getattr(F, _name): f(x, y, reduction="none")
    case(_name, _loss, TWO, FLOATS, domain="probability", **ROWS_ONLY)
case("xlogy", lambda x, y: F.kl_div(x, y, reduction="none"), TWO, domain="probability", tag="kl_div", **ROWS_ONLY)
case(
    "nll_loss_forward",
    lambda x: F.nll_loss(x, x.argmax(1), reduction="none") + F.cross_entropy(x, x.argmin(1), reduction="none"),
    **ROWS_ONLY,
)
