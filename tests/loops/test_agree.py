"""What nests say is what the reference computes, for random kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.fuzz.case import load
from tests.loops.agree import Figures, agree, compare


def test_nests_of_random_kernels_agree() -> None:
    figures = agree(range(20260, 20360))
    assert figures.differing == {}
    # Of what the wider half of the generator draws, atomics and blocks among others, no evaluation is known.
    assert figures.compared > 4 * figures.unknown.total(), figures.unknown


_NO_DIVISOR = """
import tilewright
import tilewright.language as tl

CASE = {'seed': 3, 'grid': (1,), 'cpu': '', 'options': {}, 'params': [
    {'name': 'x', 'kind': 'array', 'dtype': 'int32', 'size': 64, 'fill': 'ints'},
    {'name': 'o', 'kind': 'array', 'dtype': 'int32', 'size': 64, 'fill': 'sentinel'}]}


@tilewright.jit
def kernel(x, o):
    places = tl.arange(0, 64)
    tl.store(o + places, tl.load(x + places) % tl.full((), 0, tl.int32))
"""
_SMALL_SUM = """
import tilewright
import tilewright.language as tl

CASE = {'seed': 3, 'grid': (1,), 'cpu': '', 'options': {}, 'params': [
    {'name': 'x', 'kind': 'array', 'dtype': 'float32', 'size': 128, 'fill': 'ints'},
    {'name': 'o', 'kind': 'array', 'dtype': 'float32', 'size': 128, 'fill': 'sentinel', 'tolerance': 5e-7}]}


@tilewright.jit
def kernel(x, o):
    places = tl.arange(0, 2)[:, None] * 64 + tl.arange(0, 64)[None, :]
    part = (tl.abs(tl.load(x + places)) + 1) * 1.4e-45
    tl.store(o + places, part / tl.sum(part, 1)[:, None])
"""


def _compared(text: str, folder: Path) -> Figures:
    path = folder / "kernel.py"
    path.write_text(text)
    figures = Figures(0, Counter(), {}, (0.0, 0))
    compare(0, load(path), figures)
    return figures


def test_a_quotient_divides(tmp_path: Path) -> None:
    """By a sum of which one over it is infinite."""
    figures = _compared(_SMALL_SUM, tmp_path)
    assert figures.differing == {} and figures.compared == 2


def test_nothing_is_left_of_a_division_by_zero(tmp_path: Path) -> None:
    figures = _compared(_NO_DIVISOR, tmp_path)
    assert figures.differing == {} and figures.compared == 2
