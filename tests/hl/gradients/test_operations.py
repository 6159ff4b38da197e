"""Every operation of the table: its gradient is eager PyTorch's, or there is an error. Nothing is silently wrong.

One case of four runs here; `TILEWRIGHT_STRESS=1` runs all.
"""

from __future__ import annotations

import os

import pytest
import torch

from tests.hl.test_operations import CASES, on_rows, on_tiles, operand
from tilewright import hl

KERNELS = {"rows": on_rows, "tiles": on_tiles}
REFUSED = frozenset[str]()
"""What has no gradient on whole rows."""
OF_PYTORCH = {"ldexp", "sort-nan"}
"""PyTorch's derivative for integer exponents is not the function's, and its order of NaNs is not stable."""
EVERY = "TILEWRIGHT_STRESS" in os.environ
DRAWN = [
    (case, layout)
    for at, case in enumerate(CASES)
    for layout in case.layouts
    if layout in KERNELS and (EVERY or at % 4 == 0 or str(case) in REFUSED) and str(case) not in OF_PYTORCH
]


def expected(case, operands, up):
    """PyTorch's gradients; None where it has none, or the result is no tensor of floats."""
    try:
        result = case.function(*operands)
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return None
        if not result.requires_grad:
            return [torch.zeros_like(one) for one in operands]
        found = torch.autograd.grad(result, operands, up(result), allow_unused=True)
    except RuntimeError:
        return None
    return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(operands, found, strict=True)]


@pytest.mark.parametrize(("case", "layout"), DRAWN, ids=str)
def test_the_gradient_is_right_or_refused(case, layout):
    dtype = next((one for one in (torch.float64, torch.float32) if one in case.dtypes), None)
    if dtype is None:
        pytest.skip("no type of it has a gradient")
    data = [operand(shape, dtype, case.domain, seed) for seed, shape in enumerate(case.shapes)]

    def up(like):
        return torch.randn(like.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(like.dtype)

    theirs = expected(case, [one.clone().requires_grad_() for one in data], up)
    if theirs is None:
        pytest.skip("PyTorch has no gradient of it")
    mine = [one.clone().requires_grad_() for one in data]
    out = torch.empty_like(case.function(*data))
    try:
        KERNELS[layout]([case.function], [out], mine[0], mine[1:])
    except hl.exc.NotDifferentiable as error:
        assert error.location is not None
        cut = "has no gradient in PyTorch" in error.message and not any(one.any() for one in theirs)
        assert cut or str(case) in REFUSED or layout == "tiles", error
        return
    if not out.requires_grad:
        assert not any(one.any() for one in theirs)
        return
    found = torch.autograd.grad(out, mine, up(out), allow_unused=True)
    for one, grad, want in zip(mine, found, theirs, strict=True):
        torch.testing.assert_close(
            torch.zeros_like(one) if grad is None else grad, want, rtol=1e-4, atol=1e-5, equal_nan=True
        )
    assert str(case) not in REFUSED, "it has a gradient now: take it off the list"


def test_what_is_refused_is_in_the_table():
    assert {str(case) for case in CASES} >= REFUSED | OF_PYTORCH
