"""Every operation of the table against eager PyTorch, on whole rows and on tiles whose last one is cut."""

from __future__ import annotations

import pytest
import torch

from tests.hl.operations import CASES, Case
from tilewright import hl
from tilewright.hl.rows.files import RECIPES
from tilewright.hl.rows.files import ROWS as TABLE

ROWS, COLUMNS = 7, 21
OWN = {"sym", "compare", "mask_to", "product"}  # nodes of ours that no aten name stands for
# Rows that an operation of another name reaches, or that eager code cannot reach on its own.
ALIASES = {"_unsafe_view", "flatten", "unflatten", "_reshape_alias", "view_as"}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@hl.kernel(config=hl.Config(block_sizes=[4]))
def on_rows(operation, out, x, others):
    for rows in hl.tile(x.size(0)):
        operands = [other[rows, :] if other.size(0) == x.size(0) else other[:, :] for other in others]
        out[rows, ...] = operation(x[rows, :], *operands)


@hl.kernel(config=hl.Config(block_sizes=[4, 32]))
def on_tiles(operation, out, x, others):
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            operands = [other[rows, columns] if other.size(0) == x.size(0) else other[:, columns] for other in others]
            result = operation(x[rows, columns], *operands)
            if out.dim() == 1:
                out[rows] = result
            else:
                out[rows, columns] = result


def operand(shape: str, dtype: torch.dtype, domain: str, seed: int) -> torch.Tensor:
    """Random data for one operand of a case."""
    sizes = [{"m": ROWS, "n": COLUMNS, "1": 1}[letter] for letter in shape]
    noise = torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if domain == "positive":
        noise = noise.abs() + 0.5
    elif domain == "unit":
        noise = noise.tanh() * 0.9
    elif domain == "small":
        noise = noise.round()
    if dtype == torch.bool:
        return noise > 0
    if not dtype.is_floating_point:
        noise = (noise * (1 if domain == "small" else 9)).ceil()
        noise = noise.abs() if dtype == torch.uint8 else noise
    return noise.to(dtype)


def run_case(case: Case, dtype: torch.dtype, layout: str) -> None:
    """Compare a case with eager PyTorch."""
    x, *others = [operand(shape, dtype, case.domain, seed) for seed, shape in enumerate(case.shapes)]
    expected = case.function(x, *others)
    out = torch.full_like(expected, 77) if expected.dtype != torch.bool else torch.zeros_like(expected)
    (on_rows if layout == "rows" else on_tiles)(case.function, out, x, others)
    tolerance = TOLERANCE.get(expected.dtype, 0)
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("layout", ["rows", "tiles"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_operation(case, layout):
    if layout not in case.layouts:
        pytest.skip("the case has no such layout")
    for dtype in case.dtypes if layout == "rows" else case.dtypes[:1]:
        try:
            run_case(case, dtype, layout)
        except Exception as error:
            error.add_note(f"type: {dtype}")
            raise


def test_every_row_and_recipe_has_a_case():
    missing = (TABLE.keys() | RECIPES.keys()) - {case.name for case in CASES} - OWN - ALIASES
    assert not missing, f"add cases to tests/hl/operations.py: {sorted(missing)}"
