"""Compiling takes about n times as long for n times as many statements, and no length is too long.

Calls of Python functions are counted rather than seconds: the count is the same on every machine, however busy.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")  # which the tables of measurements import

from benchmarks.compile_time import SHAPES, kernel_of
from tests.backends.nvidia.laying import tile_ir
from tests.fuzz.emitted import emitted
from tilewright.base.options import Options
from tilewright.compiler import ASTSource, compile

TYPES = {"p": "*fp32", "q": "*fp32", "n": "i32"}
STRAIGHT = ["loads and stores", "scalar chain", "tile chain", "selections of tiles", "unrolled tiles"]


def calls_of(shape: str, length: int, target: str, folder: Path) -> int:
    """Calls of Python functions from the kernel's text to LLVM IR."""
    kernel = kernel_of(shape, length, folder)
    count = 0

    def counts(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counts)
    try:
        emitted(tile_ir(kernel, TYPES), Options(), target)
    finally:
        sys.setprofile(None)
    return count


def seconds_of(shape: str, length: int, target: str, folder: Path) -> float:
    """CPU time of a compile, without the collector of cycles."""
    kernel = kernel_of(shape, length, folder)
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        emitted(tile_ir(kernel, TYPES), Options(), target)
        return time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.parametrize("target", ["avx2", "cuda90"])
@pytest.mark.parametrize("shape", STRAIGHT)
def test_four_times_as_many_statements_take_about_four_times_as_long(shape: str, target: str, tmp_path: Path) -> None:
    calls_of(shape, 4, target, tmp_path)  # what only the first kernel asks for
    short, long = (calls_of(shape, length, target, tmp_path) for length in (30, 120))
    assert long < 4.8 * short


@pytest.mark.parametrize("target", ["avx2", "cuda90"])
def test_tiles_that_are_each_made_of_all(target: str, tmp_path: Path) -> None:
    """32 of them have 6.7 times the statements of 8, and 16 times the pairs of a store and a load that it needs."""
    calls_of("butterflies", 4, target, tmp_path)
    few, many = (calls_of("butterflies", length, target, tmp_path) for length in (8, 32))
    assert many < 9 * few


def test_so_do_four_times_as_many_branches_inside_one_another(tmp_path: Path) -> None:
    calls_of("early returns", 4, "avx2", tmp_path)
    short, long = (calls_of("early returns", length, "avx2", tmp_path) for length in (20, 80))
    assert long < 4.8 * short


@pytest.mark.parametrize("target", ["avx2", "cuda90"])
def test_a_chain_of_two_thousand_operations(target: str, tmp_path: Path) -> None:
    text = emitted(tile_ir(kernel_of("tile chain", 2000, tmp_path), TYPES), Options(), target)
    assert text.count("fmul") + text.count("fma") >= 2000


@pytest.mark.parametrize("target", ["avx2", "cuda90"])
@pytest.mark.parametrize("shape", ["tiles that overlap", "loads into one sum"])
def test_twice_as_many_accesses_take_about_twice_as_long(shape: str, target: str, tmp_path: Path) -> None:
    calls_of(shape, 4, target, tmp_path)
    short, long = (calls_of(shape, length, target, tmp_path) for length in (400, 800))
    assert long < 2.3 * short


@pytest.mark.parametrize(
    ("shape", "times"), [("loads handed on", 4.8), ("sums over one loop", 8.0), ("states of a recurrence", 8.0)]
)
def test_what_is_unrolled_in_loops_and_recurrences(shape: str, times: float, tmp_path: Path) -> None:
    """Of the second each term is compared with each, of the third each state is first asked for what it is made of."""
    calls_of(shape, 4, "avx2", tmp_path)
    short, long = (calls_of(shape, length, "avx2", tmp_path) for length in (16, 64))
    assert long < times * short


def test_so_does_the_time_of_loads_into_one_sum(tmp_path: Path) -> None:
    """What is no call of Python, such as a walk over a long list, counts here."""
    seconds_of("loads into one sum", 4, "avx2", tmp_path)
    short, long = (seconds_of("loads into one sum", length, "avx2", tmp_path) for length in (400, 1600))
    assert long < 4 * 2 * short + 1


def test_a_sum_that_is_stored_to_what_was_loaded_has_one_place(tmp_path: Path) -> None:
    """Its loads come before the store; each with a place of its own took LLVM n^2 and the kernel as many stores."""
    calls_of("sum in place", 4, "avx2", tmp_path)
    short, long = (calls_of("sum in place", length, "avx2", tmp_path) for length in (100, 400))
    assert long < 4.6 * short
    for length in (3, 100):
        kernel = compile(ASTSource(kernel_of("sum in place", length, tmp_path), TYPES), "cpu:x86-64-v3")
        text = str(kernel.asm["loops"])
        assert text.startswith("kernel: 256 bytes of scratch") and text.count("materialize") == 1


def test_scratch_of_many_tiles_is_found_in_time() -> None:
    """Each is compared with those alone that are alive when it is."""
    from tilewright.backends.cpu.plan.scratch import _Taken

    spans = [(step, step + 2) for step in range(20_000)]
    taken, begin = _Taken(spans), time.process_time()
    places = set()
    for span in spans:
        offset = taken.room(span, 64)
        taken.add(span, (offset, offset + 64))
        places.add(offset)
    assert places == {0, 64, 128} and time.process_time() - begin < 5


def test_the_shapes_are_measured() -> None:
    assert set(STRAIGHT) < set(SHAPES)
