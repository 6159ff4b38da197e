"""On a GPU all forms of the product have the plan of the plain one, but for what their meaning makes different."""

from __future__ import annotations

import re

import pytest

from tests.decisions.harness import golden_file
from tests.decisions.matmul import MATMUL

_OF_THE_PLAN = ("tensor cores", "wgmma", "ring buffer", "asynchronous dot")
_USUAL = next(s.signature for s in MATMUL if s.name == "plain")
# What a form decides otherwise, and why.
DIFFERENT = {
    "one_stage": ("num_stages is 1", "it asks for no ring"),
    "turned_over": ("64 rows x 64 columns", "the operands are exchanged: 128 rows by 64 columns"),
    "loaded_across": ("64 rows x 64 columns", "the operands are exchanged: 128 rows by 64 columns"),
    "relu_of_a": ("a from registers", "A is computed"),
    "ones_outside": ("a copy puts zeros where the mask is off", "what lies outside is one"),
    "under_a_condition": ("it stands under a condition", "some iterations neither load nor multiply"),
    "of_other_rows": ("it stands under a condition", "a branch chooses between two places"),
    "first_from_other_rows": ("the tile reaches no dot of the loop", "the first iteration loads another block"),
    "gathered_rows": ("by cp.async", "rows that lie anywhere are no box of a tensor"),
}
DIFFERENT |= dict.fromkeys(
    (
        "wide_indices",
        "masked_in_the_last_iteration",
        "multiplied_on_either_side",
        "loaded_ahead",
        "loaded_ahead_and_after",
        "in_two_loops",
        "in_blocks_of_k",
        "unrolled",
    ),
    ("by cp.async", "no box: places are computed with 64 bits, and no mask says that they fit 32"),
)


def _plans() -> dict[str, frozenset[str]]:
    """Of each kernel the decisions on its product, without the sizes of buffers."""
    text = golden_file("matmul", "cuda90").read_text()
    kinds = "|".join(_OF_THE_PLAN)
    found = {}
    for kernel in text.split("== ")[1:]:
        name, _, body = kernel.partition("\n")
        lines = re.findall(rf"^        (?:yes|no ) +(?:{kinds}): .*$", body, re.MULTILINE)
        found[name] = frozenset(re.sub(r"\d+ bytes| \(\d+ times\)| \(line \d+\)", "", line) for line in lines)
    return found


PLANS = _plans()


@pytest.mark.parametrize("name", [s.name for s in MATMUL if s.signature == _USUAL])
def test_the_plan_is_that_of_the_plain_form(name: str) -> None:
    if name not in DIFFERENT:
        assert PLANS[name] == PLANS["plain"]
        return
    assert any(DIFFERENT[name][0] in line for line in PLANS[name] - PLANS["plain"])
