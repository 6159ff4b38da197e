"""`tilewright.testing.compare`: what agrees, what differs and where, and who wrote it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError
from tilewright.comparing.copies import Copies
from tilewright.comparing.differences import difference, tolerance_of
from tilewright.testing import ComparisonError, array, compare


@tilewright.jit
def double(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, i < n), i < n)


@tilewright.jit
def wrong_at(out, x, n, at, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(out + i, tl.where(i == at, v, 2 * v), i < n)


@tilewright.jit
def add_rows(out, x, stride, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.load(x + at) + 1)


def doubled(x):
    return 2 * x


X = np.arange(1, 101, dtype=np.float32)


def test_a_kernel_that_is_right():
    out = np.zeros(100, np.float32)
    found = compare(double, doubled, out, X, 100, grid=(2,), BLOCK=64)
    assert found.ok and [(row.side, row.array) for row in found.rows] == [
        ("interpreter", "out"), ("interpreter", "x"), ("cpu", "out"), ("cpu", "x")]  # fmt: skip
    assert not out.any()  # it had a copy
    assert str(found).startswith("double agrees with its reference")


@pytest.mark.parametrize(
    "reference",
    [lambda out, x, n: np.copyto(out, 2 * x), lambda x: 2 * x, lambda x: {"out": 2 * x}, lambda a, b, c: [2 * b]],
    ids=["in place", "one", "by name", "by position"],
)
def test_what_a_reference_may_be(reference):
    compare(double, reference, np.zeros(100, np.float32), X, 100, grid=(2,), sides=["interpreter"], BLOCK=64)


def test_a_difference_names_the_program_and_the_place_in_its_tile():
    with pytest.raises(ComparisonError) as raised:
        compare(wrong_at, doubled, np.zeros(100, np.float32), X, 100, 70, grid=(2,), BLOCK=64)
    found = raised.value.comparison
    (first, _) = found.differences
    assert (first.side, first.array, first.difference.index, first.difference.count) == ("interpreter", "out", (70,), 1)
    assert (first.difference.got, first.difference.expected, first.difference.absolute) == (71.0, 142.0, 71.0)
    writer = found.writer
    assert (writer.kernel, writer.program, writer.tile, writer.element) == ("wrong_at", (1, 0, 0), (64,), (6,))
    line = open(writer.file).read().splitlines()[writer.line - 1]
    assert writer.file == __file__ and "tl.store(out + i, tl.where" in line
    assert "out[70] is 71.0, expected 142.0; 1 of 100 elements differ" in str(raised.value)


def test_what_nobody_writes():
    found = compare(double, doubled, np.zeros(100, np.float32), X, 99, grid=(2,), BLOCK=64, check=False)
    assert found.differences[0].difference.index == (99,) and found.writer is None
    assert "no program wrote this element" in str(found)


def test_elements_beside_a_view_are_compared():
    def rows(layout):
        return array((4, 8), "int32", layout=layout).make()

    how = {"COLUMNS": 8, "ROWS": 4, "grid": (1,), "sides": ["interpreter"], "check": False}
    assert compare(add_rows, lambda x: x + 1, rows("padded"), rows("padded"), 11, **how).ok
    found = compare(add_rows, lambda x: x + 1, rows("sliced"), rows("sliced"), 16, **how)  # for neighbours
    assert "memory beside the arguments" in [row.array for row in found.differences]


def test_the_interpreter_is_the_reference_where_there_is_no_other():
    found = compare(double, None, np.zeros(100, np.float32), X, 100, grid=(2,), BLOCK=64)
    assert [row.side for row in found.rows] == ["cpu", "cpu"] and found.ok


def test_arrays_that_share_memory_share_it_in_copies():
    x = np.arange(10, dtype=np.float32)
    copies = Copies()
    a, b, c = copies.of(x[2:8:2]), copies.of(x[::-1]), copies.of(x)
    a[0] = 50
    assert c[2] == 50 and b[7] == 50 and x[2] == 2
    assert (a.strides, b.strides) == ((8,), (-4,))
    assert [gap.size for gap in copies.gaps()] == [0]
    alone = Copies()
    alone.of(x[2:8:2])
    assert [gap.size for gap in alone.gaps()] == [28]


def test_a_side_that_raises_is_told():
    @tilewright.jit
    def reads_past(out, x, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i))

    with pytest.raises(ComparisonError, match=r"interpreter: InterpreterError: .*\n(.*\n)*.*x\[6\.\.7\] is past its 6"):
        compare(
            reads_past, lambda x: x, np.zeros(8, np.float32), X[:6].copy(), sides=["interpreter"], grid=(1,), BLOCK=8
        )


def test_mistakes_of_the_call():
    args = (np.zeros(100, np.float32), X, 100)
    with pytest.raises(ArgumentError, match="no side 'gpu'"):
        compare(double, doubled, *args, grid=(2,), BLOCK=64, sides=["gpu"])
    with pytest.raises(ArgumentError, match="returns 2 arrays, outputs are out"):
        compare(double, lambda x: (x, x), *args, grid=(2,), BLOCK=64, sides=["cpu"])


def test_differences():
    nan, inf = float("nan"), float("inf")
    allowed = tolerance_of(np.float32)
    found = difference(np.array([nan, inf, 1, 2, inf]), np.array([nan, inf, 1 + 1e-7, nan, -inf]), allowed)
    assert (found.count, found.index) == (2, (3,))
    exact = tolerance_of(np.int32, rtol=1.0)
    assert difference(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]), exact).index == (1, 1)
    assert tolerance_of("torch.bfloat16").rtol > tolerance_of("torch.float16").rtol > tolerance_of(np.float64).rtol
    assert tolerance_of(np.float32, atol=1.0).atol == 1.0


def test_kernels_of_hl_and_tensors():
    torch = pytest.importorskip("torch")
    from tests.comparing.hl_kernels import scaled

    x = torch.randn(40, 3).t()
    assert compare(scaled, lambda x: 2 * x, x).ok
    found = compare(scaled, lambda x: 2 * x + (x == x[1, 2]), x, check=False)
    assert found.differences[0].array == "result" and found.differences[0].difference.index == (1, 2)
    assert found.writer.kernel.startswith("_scaled")
    half = torch.ones(100, dtype=torch.bfloat16)
    assert compare(double, lambda x: 2 * x, torch.zeros_like(half), half, 100, grid=(2,), BLOCK=64).ok
