"""What checks are made of: corners instead of elements, a loop of their own in front of a loop, nothing for atomics."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import tilewright
import tilewright.language as tl
from benchmarks.sanitize import cases, histogram, product
from tests.sanitize.test_faults import faults
from tilewright.base.checks import BOUNDS, OVERFLOW, RACES, Checks
from tilewright.launch import checked
from tilewright.sanitize import checking

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def compiled(kernel: Any, wanted: Checks, *arguments: Any, **constants: int) -> Any:
    call = kernel.request(*arguments, **constants)[1]
    return checked.compile_checked(kernel, call.specialization, wanted, {}, shared=False)


# --- loops ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [(BOUNDS,), (BOUNDS, OVERFLOW), (BOUNDS, RACES)])
def test_a_product_is_planned_as_without_checks(wanted: Checks) -> None:
    _, _, arguments, constants = cases()["product, 256"]
    made = compiled(product, wanted, *arguments, **constants)
    assert "up to 16 iterations as one dot" in {decision.text for decision in made.decisions if decision.taken}


@tilewright.jit
def sum_by_pieces(x, out, n, stride, BLOCK: tl.constexpr, BOUND: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    pointers = x + tl.program_id(0) * stride + tl.arange(0, BLOCK)
    for first in range(0, n, BLOCK):
        inside = first + tl.arange(0, BLOCK) < n
        total += tl.load(pointers, inside, other=0.0) if BOUND else tl.load(pointers)
        pointers += BLOCK
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def test_what_a_loop_reads_is_checked_in_front_of_it() -> None:
    x, out = torch.ones(3 * 100), torch.zeros(3)
    assert not faults(lambda: sum_by_pieces[(3,)](x, out, 100, 100, BLOCK=32, BOUND=True))
    assert out.tolist() == [100.0] * 3
    out.zero_()
    (fault,) = faults(lambda: sum_by_pieces[(3,)](x, out, 100, 100, BLOCK=32, BOUND=False))
    assert (fault.kind, fault.argument, fault.program, fault.index) == ("bounds", "x", (2, 0, 0), 2 * 100 + 127)
    assert out.tolist() == [128.0, 128.0, 0.0]  # the program at fault has ended
    loops = compiled(sum_by_pieces, (BOUNDS,), x, out, 100, 100, BLOCK=32, BOUND=True).asm["ttir"].split("scf.for")
    assert (
        len(loops) == 3
        and "tt.check" in loops[1]
        and "tt.load" not in loops[1]
        and "tt.check" not in loops[2].split("yield")[0]
    )


@tilewright.jit
def chase(links, out, n):
    at = tl.program_id(0)
    for _ in range(n):
        at = tl.load(links + at)
    tl.store(out + tl.program_id(0), at)


@tilewright.jit
def running(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for first in range(0, n, BLOCK):
        tl.store(out + first + at, tl.load(x + first + at) + 1)


def test_checks_stay_where_memory_or_stores_decide() -> None:
    links, out = torch.tensor([1, 2, 9, 0], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    assert [fault.index for fault in faults(lambda: chase[(1,)](links, out, 3))] == []
    assert [fault.index for fault in faults(lambda: chase[(1,)](links, out, 4))] == [9]
    x, y = torch.zeros(96), torch.zeros(96)
    (fault,) = faults(lambda: running[(1,)](x[:80].clone(), y, 96, BLOCK=32), "bounds")
    assert fault.argument == "x" and y.sum() == 64  # what came before the fault is there


# --- arithmetic -----------------------------------------------------------------------------------------------------


@tilewright.jit
def steps(x, first, stride, BLOCK: tl.constexpr, DOWN: tl.constexpr):
    at = tl.arange(0, BLOCK) * stride
    at = first - at if DOWN else first + at
    tl.store(x + (at & 63), 1.0)


@pytest.mark.parametrize("stride", [1, 3, -5, 1 << 20, -(1 << 25), 1 << 27])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("edge", [LEAST, MOST])
def test_corners_tell_what_elements_would(edge: int, down: bool, stride: int) -> None:
    """The sum reaches the edge of 32 bits with its last element, or goes one beyond it."""
    x, last = torch.zeros(64), 15 * stride * (-1 if down else 1)
    if abs(15 * stride) > MOST:
        assert {
            fault.access for fault in faults(lambda: steps[(1,)](x, 0, stride, BLOCK=16, DOWN=down), "overflow")
        } == {"mul"}
        return
    towards = (last > 0) == (edge > 0)
    first = edge - (last if towards else 0)
    for beyond in (0, 1 if edge > 0 else -1):
        if not LEAST <= first + beyond <= MOST:
            continue
        found = faults(lambda first=first + beyond: steps[(1,)](x, first, stride, BLOCK=16, DOWN=down), "overflow")  # type: ignore[misc]
        assert [(fault.access, fault.index) for fault in found] == (
            [("sub" if down else "add", edge + beyond)] if beyond else []
        )


def test_one_wrap_is_told_once() -> None:
    @tilewright.jit
    def twice(x, stride, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK) * stride + 1
        tl.store(x + ((at + 5) & 63), 1.0)

    (fault,) = faults(lambda: twice[(1,)](torch.zeros(64), 1 << 28, BLOCK=16), "overflow")
    assert (fault.access, fault.element, fault.index) == ("mul", (15,), 15 << 28)


# --- atomics --------------------------------------------------------------------------------------------------------


@tilewright.jit
def histogram_and_sum(x, counts, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + at, at < n, other=0), 1, at < n)
    tl.store(total + tl.program_id(0), tl.load(counts))


def test_atomics_alone_keep_no_words() -> None:
    x, counts = torch.zeros(300, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    made = compiled(histogram, (BOUNDS, RACES), x, counts, 300, BLOCK=128)
    assert made.metadata["checked"]["shadowed"] == []
    assert not faults(lambda: histogram[(3,)](x, counts, 300, BLOCK=128))
    found = faults(lambda: histogram_and_sum[(3,)](x, counts, torch.zeros(3, dtype=torch.int32), 300, BLOCK=128))
    assert {(fault.kind, fault.argument) for fault in found} == {("race", "counts")}
    assert faults(lambda: histogram[(3,)](counts[:3], counts[1:], 3, BLOCK=1))  # what is counted is read, too


@tilewright.jit
def exchange(flags):
    tl.atomic_xchg(flags + tl.program_id(0), 1)


# --- first reads ----------------------------------------------------------------------------------------------------


def test_what_is_written_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Checks] = []
    made = checked.compile_checked

    def noted(fn: Any, specialization: Any, wanted: Checks, *rest: Any, **further: Any) -> Any:
        asked.append(wanted)
        return made(fn, specialization, wanted, *rest, **further)

    monkeypatch.setattr(checked, "compile_checked", noted)
    with checking("uninitialised") as found:
        x, counts = torch.zeros(300, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
        histogram[(3,)](x, counts, 300, BLOCK=128)
        assert not any("uninitialised" in wanted for wanted in asked)
        exchange[(8,)](torch.empty(8, dtype=torch.int32))
        assert any("uninitialised" in wanted for wanted in asked) and not found.faults
        histogram[(3,)](x, torch.empty(8, dtype=torch.int32), 300, BLOCK=128)
    (fault,) = found.faults
    assert (fault.kind, fault.access, fault.argument, fault.program) == ("uninitialised", "atomic", "counts", (0, 0, 0))
    assert fault.times == 128  # of the first program: then it is written
