"""`tilewright.testing.assert_kernel`: what it draws, and the call that it shows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hypothesis_strategies

import tilewright
import tilewright.language as tl
from tests.meta.sources import ROOT
from tilewright.comparing.arrays import LAYOUTS
from tilewright.comparing.strategies import examples
from tilewright.testing import ComparisonError, array, assert_kernel, compare, strategies


@tilewright.jit
def row_sums(out, x, row_stride, column_stride, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * row_stride + at * column_stride, at < n, other=0)))


@tilewright.jit
def take(out, x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) - tl.load(y + at, at < n), at < n)


ROW_SUMS = {
    "out": strategies.arrays("rows", dtype="int32", layouts=["contiguous"], written=True),
    "x": strategies.arrays("rows", "columns", dtype="int32"),
    "row_stride": strategies.stride("x", 0),
    "column_stride": strategies.stride("x", 1),
    "n": strategies.size("columns"),
    "BLOCK": lambda drawn: tilewright.next_power_of_2(drawn["columns"]),
}
HOW = {"grid": lambda drawn: (drawn["x"].shape[0],), "dims": {"rows": strategies.sizes(1, 3)}, "sides": ["interpreter"]}


def sums(x):
    return x.sum(axis=1, dtype=np.int32)


def test_a_kernel_that_is_right_in_every_layout():
    assert_kernel(row_sums, sums, ROW_SUMS, calls=15, **HOW)


def test_the_smallest_call_can_be_pasted():
    wrong = {**ROW_SUMS, "n": lambda drawn: min(drawn["columns"], 5)}
    with pytest.raises(ComparisonError) as raised:
        assert_kernel(row_sums, sums, wrong, calls=200, **HOW)
    program = str(raised.value).partition("that was found:\n\n")[2]
    assert "x=array((1, 6), 'int32'" in program and "n=5," in program and "BLOCK=8," in program
    with pytest.raises(ComparisonError):
        exec(program.replace("reference", "sums"), {"row_sums": row_sums, "sums": sums})


def test_arrays_in_one_memory():
    drawn = {
        "out": strategies.arrays("n", layouts=["contiguous"], written=True),
        "x": strategies.arrays("n", layouts=["contiguous"], special=[2.0]),
        "y": strategies.overlapping("x", shift=hypothesis_strategies.integers(0, 3)),
        "n": strategies.size("n"),
        "BLOCK": lambda drawn: tilewright.next_power_of_2(drawn["n"]),
    }
    how = {"grid": (1,), "sides": ["interpreter"]}
    with np.errstate(all="ignore"):
        assert_kernel(take, lambda x, y: x - y, drawn, calls=10, **how)
        with pytest.raises(ComparisonError) as raised:
            assert_kernel(take, lambda x: 0 * x, drawn, calls=100, **how)
    program = str(raised.value).partition("that was found:\n\n")[2]
    assert "x, y = array((1,), 'float32').views(0, 1)" in program and "    x=x,\n    y=y," in program


@given(examples({"x": strategies.arrays("n", "m", dtype=["float16", "int8", "bool"], special=True)}))
def test_examples_are_what_their_text_says(example):
    (x,) = example.arguments.values()
    again = eval(example.texts["x"], {"array": array})
    assert again.dtype == x.dtype and again.strides == x.strides
    assert np.array_equal(again, x, equal_nan=x.dtype.kind == "f")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_lie_in_poison(layout):
    x = array((3, 4), layout=layout, seed=1).make()
    assert (x == 1).all()
    memory = x
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    memory = np.frombuffer(memory, np.float32)
    assert np.isnan(memory).sum() == memory.size - (memory == 1).sum() >= 32
    torch = pytest.importorskip("torch")
    same = array((3, 4), layout=layout, seed=1, torch=True).make()
    assert [4 * stride for stride in same.stride()] == list(x.strides) and torch.equal(same, torch.ones(3, 4))
    assert array((3, 4), "bfloat16", layout, torch=True).make().dtype == torch.bfloat16


def test_it_says_what_to_install(tmp_path):
    program = """
import sys
sys.modules["hypothesis"] = None
import tilewright.testing
try:
    tilewright.testing.assert_kernel(None, None, {})
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "pip install 'tilewright[testing]'" in done.stdout, done.stderr


def test_compare_of_the_example_of_the_text():
    with pytest.raises(ComparisonError):
        compare(row_sums, sums, np.zeros(1, np.int32), array((1, 6), "int32").make(), 6, 1, 5, BLOCK=8, grid=(1,))
