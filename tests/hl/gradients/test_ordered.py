"""Gradients by index where `torch.use_deterministic_algorithms` asks for one order: kept apart, summed by the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.hl.gradients.compare import check, gradients, leaves
from tests.hl.gradients.examples import CASES, Draw, Sizes, kernel
from tilewright import hl


@pytest.fixture(autouse=True)
def _in_order() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@hl.kernel(autotune_effort="none")
def of_batches(table, ids):
    out = torch.empty([*ids.size(), table.size(1)], dtype=table.dtype)
    for batch in hl.grid(ids.size(0)):
        for at, columns in hl.tile([ids.size(1), table.size(1)]):
            out[batch, at, columns] = torch.sin(table[ids[batch, at], columns])
    return out


@hl.kernel(autotune_effort="none")
def in_the_middle(x, ids):
    out = torch.empty([x.size(0), ids.size(0), x.size(2)], dtype=x.dtype)
    for at, rows in hl.tile([ids.size(0), x.size(0)]):
        out[rows, at, :] = torch.sin(x[rows, ids[at], :])
    return out


@hl.kernel(autotune_effort="none")
def one_by_one(table, ids):
    out = torch.empty([ids.size(0), table.size(1)], dtype=table.dtype)
    for at in hl.grid(ids.size(0)):
        out[at, :] = torch.sin(table[ids[at], :])
    return out


@hl.kernel(autotune_effort="none")
def of_pairs(table, ids, others):
    out = torch.empty([ids.size(0), table.size(1)], dtype=table.dtype)
    for at in hl.tile(ids.size(0)):
        out[at, :] = table[ids[at], :] * table[others[at], :]
    return out


@hl.kernel(autotune_effort="none")
def where_it_is_inside(table, ids):
    out = torch.empty([ids.size(0), table.size(1)], dtype=table.dtype)
    for at in hl.tile(ids.size(0)):
        index = ids[at]
        out[at, :] = torch.sin(hl.load(table, [index, slice(None)], extra_mask=(index >= 0)[:, None]))
    return out


@hl.kernel(autotune_effort="none", static_shapes=False)
def of_any_size(table, ids):
    out = torch.empty([ids.size(0), table.size(1)], dtype=table.dtype)
    for at in hl.tile(ids.size(0)):
        out[at, :] = torch.sin(table[ids[at], :])
    return out


@hl.kernel(autotune_effort="none")
def where_a_place_tells(table, ids):
    out = torch.empty([ids.size(0), table.size(1)], dtype=table.dtype)
    for at, columns in hl.tile([ids.size(0), table.size(1)], block_size=[None, 2]):
        out[at, columns] = torch.sin(table[ids[at] + columns.id % 2, columns])
    return out


def inside(table: Any, ids: Any) -> Any:
    return torch.where(ids[:, None] >= 0, torch.sin(table[ids.clamp(min=0)]), 0.0)


def moved(table: Any, ids: Any) -> Any:
    columns = torch.arange(table.size(1))
    return torch.sin(table[ids[:, None] + columns // 2 % 2, columns])


IDS = torch.tensor([3, 1, 3, 3, 0, 6, 1])
CALLS = [
    (of_batches, lambda t, i: torch.sin(t[i]), (Draw()(8, 5), torch.stack([IDS, IDS.flip(0)])), 1),
    (in_the_middle, lambda x, i: torch.sin(x[:, i]), (Draw()(4, 8, 5), IDS), 1),
    (one_by_one, lambda t, i: torch.sin(t[i]), (Draw()(8, 5), IDS), 1),
    (of_pairs, lambda t, i, j: t[i] * t[j], (Draw()(8, 5), IDS, IDS.flip(0)), 2),
    (where_it_is_inside, inside, (Draw()(8, 5), torch.tensor([3, -1, 3, 0, -1])), 1),
    (of_any_size, lambda t, i: torch.sin(t[i]), (Draw()(8, 5), IDS), 1),
]


@pytest.mark.parametrize(("function", "reference", "args", "count"), CALLS, ids=[call[0].name for call in CALLS])
def test_sums_in_order(function: hl.Kernel, reference: Any, args: Any, count: int) -> None:
    (plan,) = hl.grad(function).plan(args)
    assert [owner.form for owner in plan.owners] == ["sorted"]
    text = hl.grad(function).to_hl(args)
    assert "atomic" not in text and text.count(".index_add_(") == count
    check(function, reference, *args)


@pytest.mark.parametrize("name", ["gather.embedding", "gather.cross_entropy"])
def test_examples(name: str) -> None:
    where, example = CASES[name]
    for sizes in (Sizes(21, 37, 11), Sizes(5, 3, 2), Sizes(1, 1, 1)):
        check(kernel(where, wide=True), example.reference, *example.make(Draw(), sizes))


def test_an_index_that_differs_from_tile_to_tile_is_not_kept_once() -> None:
    args = Draw()(9, 6), IDS
    with pytest.raises(hl.exc.NotDifferentiable, match="its subscripts are data"):
        where_a_place_tells(*leaves(args))
    torch.use_deterministic_algorithms(False)
    check(where_a_place_tells, moved, *args)


def test_rows_of_different_lengths_are_refused() -> None:
    where, example = CASES["jagged.jagged_sum"]
    with pytest.raises(hl.exc.NotDifferentiable, match="summed atomically"):
        kernel(where, wide=True)(*leaves(example.make(Draw(), Sizes(9, 5, 3))))


def test_calls_that_ask_for_no_order_add_atomically() -> None:
    args = Draw()(8, 5), IDS
    made = hl.Kernel(one_by_one.fn, one_by_one.configs, one_by_one.settings)
    for asked, form in ((True, "sorted"), (False, "atomic"), (True, "sorted")):
        torch.use_deterministic_algorithms(asked)
        (plan,) = hl.grad(made).plan(args)
        assert [owner.form for owner in plan.owners] == [form]
        check(made, lambda t, i: torch.sin(t[i]), *args)


@pytest.mark.compiled
def test_runs_give_the_same_bits() -> None:
    ids = torch.randint(7, (400,), generator=torch.Generator().manual_seed(0))
    args = Draw(torch.float32)(8, 33), ids
    first, *others = (gradients(of_any_size, args) for _ in range(4))
    assert all(torch.equal(first[0], found[0]) for found in others)
    check(of_any_size, lambda t, i: torch.sin(t[i]), *args)
