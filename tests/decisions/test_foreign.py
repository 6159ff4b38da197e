"""Spellings that were written without a look at the rules give what torch gives, and many of them one nest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from benchmarks import foreign_forms as forms  # noqa: E402
from benchmarks.form_family import Family  # noqa: E402
from tests.decisions import foreign_rows as rows  # noqa: E402

_SIZES = (13, 70, 16)  # rows, columns, columns of a piece
FAMILIES: dict[str, Callable[[], Family]] = {
    "products": lambda: forms.products(45, 68, 76, "cpu"),
    "layers": lambda: forms.layers(64, 128, 256, "cpu"),
    "bytes": lambda: forms.bytes_(45, 70, 150, "cpu"),
    "batches": lambda: forms.batches(4, 64, "cpu"),
    "vectors": lambda: forms.vectors(13, 70, 4, 16, "cpu"),
    "vectors_of_whole_tiles": lambda: forms.vectors(16, 64, 4, 16, "cpu"),
    "across": lambda: forms.across(70, 29, 16, 8, "cpu"),
    "halves": lambda: forms.halves(13, 70, 4, 16, "cpu"),
    "variances": lambda: forms.of_rows(rows.VARIANCES, "", lambda x: x.var(1, correction=0), _SIZES, "cpu"),
    "moments": lambda: forms.of_rows(rows.MOMENTS, "", lambda x: x.var(1, correction=0), _SIZES, "cpu"),
    "logarithms": lambda: forms.of_rows(rows.LOGARITHMS, "", lambda x: x.logsumexp(1), _SIZES, "cpu"),
    "places": lambda: forms.of_rows(rows.PLACES, "", lambda x: x.argmax(1), _SIZES, "cpu", tolerance=0.0),
    "lengths": lambda: forms.of_rows(rows.LENGTHS, "", lambda x: x.norm(dim=1), _SIZES, "cpu"),
    "counts": lambda: forms.of_rows(rows.COUNTS, "", lambda x: (x != 0).sum(1), _SIZES, "cpu", tolerance=0.0),
    "columns": lambda: forms.columns(37, 72, "cpu"),
    "planes": lambda: forms.planes(8, 11, 13, "cpu"),
    "blocks": lambda: forms.blocks(8, 7, 13, "cpu"),
    "trilinear": lambda: forms.forms_(3, "cpu"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_results(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]()
    expected = family.rival().double()
    for form, call in family.forms.items():
        family.out.fill_(7)
        call()
        off = (family.out.double() - expected).abs().max() / expected.abs().max()
        assert off <= family.tolerance, form


# Families of one nest, and spellings of others that are one.
ONE = {
    "vectors": {"vector_row_each_step", "vector_row_at_end"},  # a loop through rows has a store for each
    "across": set[str](),
    "moments": {"variance_squares"},
    "columns": {"columns_descriptor"},  # rows of a multiple of four
    "counts": {"count_cast", "count_where"},
}


@pytest.mark.parametrize("name", ONE)
def test_one_nest(name: str) -> None:
    """All of a family but those named."""
    texts = set()
    for form, call in FAMILIES[name]().forms.items():
        if form not in ONE[name]:
            nest = call.kernel.warmup(*call.arguments, grid=call.grid).asm["nest"]  # type: ignore[attr-defined]
            texts.add("\n".join(nest.splitlines()[1:]))
    assert len(texts) == 1, texts
