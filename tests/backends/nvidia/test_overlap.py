"""Products of an iteration that run beside others and what is computed: meaning, and code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.nvidia import gradient_kernels as kernels
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.test_turned_chains import Case

KEYS, QUERIES = kernels.of_keys, kernels.of_queries


def starts_and_waits(case: Case) -> list[str]:
    """Products that are started and how many may be left under way where one is waited for, in the loop."""
    (loop,) = ops(case.whole.whole.module, "scf.for")
    found = [op for op in loop.walk() if op.name in ("ttng.warp_group_dot", "ttng.warp_group_dot_wait")]
    return [str(op.properties["pendings"].value.data) if "pendings" in op.properties else "dot" for op in found]


@pytest.mark.parametrize(("fn", "length"), [(KEYS, 0), (KEYS, 64), (KEYS, 192), (QUERIES, 0), (QUERIES, 192)])
@pytest.mark.parametrize("boxes", [True, False])
def test_meaning(fn: Any, length: int, boxes: bool) -> None:
    Case(fn, length, width=128, tensor_maps=boxes).check()


@pytest.mark.parametrize("fn", [KEYS, QUERIES])
def test_two_loops(fn: Any) -> None:
    case = Case(fn, 192, causal=True, width=128, tensor_maps=True)
    assert case.count("scf.for") == 2
    case.check()


def test_where_products_start_and_are_waited_for() -> None:
    """Scores under the product beside them, both sums under what is computed and into the next iteration."""
    assert starts_and_waits(Case(KEYS, 192, width=128, tensor_maps=True)) == ["dot", "dot", "1", "dot", "1", "dot", "1"]
    assert starts_and_waits(Case(QUERIES, 192, width=128, tensor_maps=True)) == ["dot", "dot", "1", "0", "dot"]


def test_many_warps_hide_each_others_waits() -> None:
    """At width 64 three blocks share a multiprocessor: each product is waited for where it starts."""
    assert set(starts_and_waits(Case(KEYS, 192, tensor_maps=True))) == {"dot"}


def test_rows_of_numbers_that_are_added_come_by_the_copy_engine() -> None:
    """One that scores are compared with, one that a product is added to."""
    case = Case(KEYS, 192, width=128, tensor_maps=True)
    (loop,) = ops(case.whole.whole.module, "scf.for")
    names = [op.name for op in loop.walk()]
    assert names.count("ttng.async_tma_copy_global_to_local") == 4 and "ttg.async_copy_global_to_local" not in names
