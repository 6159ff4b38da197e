"""Every operation of the table against eager PyTorch, in five forms.

    rows    whole rows, the rows themselves a tile that is cut; lanes as many as elements: no mask
    rolled  the same row in chunks, the last one cut: one visit per reduction
    padded  the same row with more lanes than elements, since its length is known only at the launch
    tiles   tiles of columns, the last one cut
    whole   tiles of columns that divide the row: no mask

Compiling costs more than running, so cases of one kind share a kernel; where that fails, each is run alone. Rows and
cut tiles are compiled; of the other forms it is the emitted text that differs, and the interpreter runs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tests.hl import operations_math, operations_nn, operations_rows
from tests.hl.operations import CASES, Case
from tilewright import hl
from tilewright.base.knobs import knobs
from tilewright.hl.rows.files import RECIPES
from tilewright.hl.rows.files import ROWS as TABLE

FILES = (operations_math, operations_nn, operations_rows)
ROWS, COLUMNS = 7, 18  # one whole vector and a rest: each form of code that is emitted once more costs time
OWN = {
    "sym",
    "sole",  # test_truths.py
    "select_backward",  # gradients/test_operations.py
    "slice_backward",
    "compare",
    "accumulate",
    "halves",
    "mask_to",
    "product",
    "lanes",
    "count_matches",  # test_matches.py
    "take_lanes",
    "sort_lanes",
    "largest",
    "reduce_fn",
    "scan_fn",
    "join_pair",
    "split_pair",
    "scaled_product",
    "draw_uniform",
    "draw_uniform4",
    "draw_normal",
    "draw_integers",
    "print",
    "assembly",
    "call",
}  # nodes of ours that no aten name stands for
# Rows that an operation of another name reaches, or that eager code cannot reach on its own.
ALIASES = {"_unsafe_view", "flatten", "unflatten", "_reshape_alias", "view_as", "unsafe_split"}
RANDOM = {"rand", "randn", "rand_like", "randn_like", "bernoulli", "empty", "empty_like", "new_empty"}  # test_random.py
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
TOGETHER = 12  # cases that share a kernel


@hl.kernel(config=hl.Config(block_sizes=[4]))
def on_rows(operations, outs, x, others):
    for rows in hl.tile(x.size(0)):
        operands = [other[rows, :] if other.size(0) == x.size(0) else other[:, :] for other in others]
        for operation, out in zip(operations, outs):
            out[rows, ...] = operation(x[rows, :], *operands)


@hl.kernel(config=hl.Config(block_sizes=[4, 32]))
def on_tiles(operations, outs, x, others):
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            operands = [other[rows, columns] if other.size(0) == x.size(0) else other[:, columns] for other in others]
            for operation, out in zip(operations, outs):
                result = operation(x[rows, columns], *operands)
                if out.dim() == 1:
                    out[rows] = result
                else:
                    out[rows, columns] = result


@hl.kernel(config=hl.Config(block_sizes=[4], reduction_loops=[16]))
def in_chunks(operations, outs, x, others):
    """As `on_rows`, with a reduction: where there is none, nothing is visited in chunks."""
    largest = torch.empty([x.size(0)], dtype=x.dtype)
    for rows in hl.tile(x.size(0)):
        operands = [other[rows, :] if other.size(0) == x.size(0) else other[:, :] for other in others]
        for operation, out in zip(operations, outs):
            out[rows, ...] = operation(x[rows, :], *operands)
        largest[rows] = x[rows, :].amax(-1)


@hl.kernel(config=hl.Config(block_sizes=[4]), static_shapes=False)
def of_any_length(operations, outs, x, others):
    """As `on_rows`; the host says which sizes are equal."""
    alike = [other.size(0) == x.size(0) for other in others]
    _ = [tensor.size(1) == x.size(1) for tensor in [*outs, *others] if tensor.dim() > 1]
    for rows in hl.tile(x.size(0)):
        operands = [other[rows, :] if same else other[:, :] for same, other in zip(alike, others)]
        for operation, out in zip(operations, outs):
            out[rows, ...] = operation(x[rows, :], *operands)


FORMS = {
    "rows": on_rows,
    "tiles": on_tiles,
    "rolled": in_chunks,
    "padded": of_any_length,
    "whole": hl.kernel(on_tiles.fn, config=hl.Config(block_sizes=[4, COLUMNS])),
}
INTERPRETED = {"rolled", "padded", "whole"}
SORTED = {"median"}  # along a tile, whose lanes have to be a power of two
# What needs a whole row at once has no chunks: products, scans, order, and what moves elements.
UNROLLED = """
addmm addmm-scaled baddbmm bmm cat constant_pad_nd cummax cummax-indices cummin cummin-indices cumprod
cumprod-integers cumsum cumsum-integers eye flip gather glu index_select kthvalue logcumsumexp median median-keepdim
mm mse_loss-mean nanmedian native_group_norm prod prod-integers repeat repeat-interleave roll select slice
slice-chunk slice-narrow sort sort-argsort sort-indices sort-nan split split_with_sizes stack topk topk-smallest tril
triu unbind
"""
# What needs an extent of 1 that is known: with `static_shapes=False` an error says so.
UNPADDED = "native_group_norm"


def forms_of(case: Case) -> list[str]:
    """The forms in which a case runs."""
    forms = list(case.layouts)
    if "rows" in forms:
        forms += ["rolled"] if str(case) not in UNROLLED.split() else []
        forms += ["padded"] if str(case) not in UNPADDED.split() else []
    return forms + (["whole"] if "tiles" in forms and case.name not in SORTED else [])


def operand(shape: str, dtype: torch.dtype, domain: str, seed: int) -> torch.Tensor:
    """Random data for one operand of a case."""
    sizes = [{"m": ROWS, "n": COLUMNS, "1": 1}[letter] for letter in shape]
    noise = torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if domain == "positive":
        noise = noise.abs() + 0.5
    elif domain == "unit":
        noise = noise.tanh() * 0.9
    elif domain == "probability":
        noise = noise.sigmoid()
    elif domain == "small":
        noise = noise.round()
    elif domain == "counts":
        noise = noise.round().abs().clamp_max(2)
    elif domain == "special":
        special = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0])
        noise = torch.where(
            noise.abs() < 0.4, special.to(noise)[torch.arange(noise.numel()).view(noise.shape) % 6], noise
        )
    if dtype == torch.bool:
        return noise > 0
    if not dtype.is_floating_point:
        noise = (noise * (1 if domain in ("small", "counts") else 9)).ceil()
        noise = noise.abs() if dtype == torch.uint8 else noise
    return noise.to(dtype)


@dataclass(frozen=True)
class Group:
    """Cases that share a kernel."""

    layout: str
    dtype: torch.dtype
    cases: tuple[Case, ...]

    def __str__(self) -> str:
        names = f"{self.cases[0]}..{self.cases[-1]}" if len(self.cases) > 1 else str(self.cases[0])
        return f"{self.layout}-{str(self.dtype).removeprefix('torch.')}-{names}"


def groups() -> list[Group]:
    """The table, cases of one shape, domain, form and type together."""
    kinds: dict[tuple[object, ...], list[Case]] = {}
    for case in CASES:
        for layout in forms_of(case):
            for dtype in case.dtypes[:1] if layout in ("tiles", "whole") else case.dtypes:
                kinds.setdefault((layout, dtype, case.shapes, case.domain), []).append(case)
    return [
        Group(layout, dtype, tuple(cases[at : at + TOGETHER]))
        for (layout, dtype, _, _), cases in kinds.items()
        for at in range(0, len(cases), TOGETHER)
    ]


def run(group: Group) -> list[str]:
    """Compare the cases of a group with eager PyTorch; the failures as text."""
    first = group.cases[0]
    x, *others = [operand(shape, group.dtype, first.domain, seed) for seed, shape in enumerate(first.shapes)]
    expected = [case.function(x, *others) for case in group.cases]
    outs = [torch.full_like(e, 77) if e.dtype != torch.bool else torch.zeros_like(e) for e in expected]
    functions = [case.function for case in group.cases]
    FORMS[group.layout](functions, outs, x, others)
    failures = []
    for case, out, want in zip(group.cases, outs, expected, strict=True):
        tolerance = TOLERANCE.get(want.dtype, 0) * case.slack
        try:
            torch.testing.assert_close(out, want, atol=tolerance, rtol=tolerance, equal_nan=True)
        except AssertionError as error:
            failures.append(f"{case}: {error}")
    return failures


@pytest.mark.parametrize("group", groups(), ids=str)
def test_operations(group, monkeypatch):
    monkeypatch.setattr(knobs.runtime, "interpret", group.layout in INTERPRETED)
    try:
        failures = run(group)
    except Exception:
        if len(group.cases) == 1:
            raise
        failures = []
        for case in group.cases:
            try:
                failures += run(Group(group.layout, group.dtype, (case,)))
            except Exception as error:
                failures.append(f"{case}: {type(error).__name__}: {error}")
        assert failures, "the cases fail together only"
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize(("form", "names"), [("rolled", UNROLLED), ("padded", UNPADDED)])
def test_forms_that_a_case_does_not_have_are_refused(form, names, caplog):
    """A case that comes to work, or that is no case any more, leaves the list.

    Where nothing can be visited in chunks the surplus entry is ignored, and said so.
    """
    cases = {str(case): case for case in CASES}
    for name in names.split():
        caplog.clear()
        try:
            run(Group(form, cases[name].dtypes[0], (cases[name],)))
        except hl.exc.Error:
            continue
        assert "reduction_loops has 1 entries, and the kernel has 0" in caplog.text, name


def test_every_row_and_recipe_has_a_case():
    missing = (TABLE.keys() | RECIPES.keys()) - {case.name for case in CASES} - OWN - ALIASES - RANDOM
    assert not missing, f"add cases to tests/hl/operations*.py: {sorted(missing)}"


@pytest.mark.parametrize(("form", "without"), [("rolled", UNROLLED), ("padded", UNPADDED)])
def test_every_row_and_recipe_runs_in_every_form(form, without):
    """Of each name a case has the form, unless all of its cases are in the list of those that cannot."""
    having = {case.name for case in CASES if form in forms_of(case)}
    lacking = {case.name for case in CASES if str(case) in without.split()}
    assert {case.name for case in CASES if "rows" in case.layouts} <= having | lacking
    assert (TABLE.keys() | RECIPES.keys()) - OWN - ALIASES - RANDOM <= having | lacking


def test_forms_are_what_they_are_called():
    x = torch.randn(ROWS, COLUMNS)
    arguments = [torch.exp], [torch.empty_like(x)], x, []
    codes = {
        form: kernel.bind(arguments).to_code(kernel.configs[0], output_origin_lines=False)
        for form, kernel in FORMS.items()
    }
    assert "mask_n" not in codes["rows"] and "for offset_n in tl.range(" in codes["rolled"]
    assert "tl.arange(0, LANES_" in codes["padded"]
    assert "mask_columns" in codes["tiles"] and "mask_columns" not in codes["whole"]
