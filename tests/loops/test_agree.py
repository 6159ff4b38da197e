"""What nests say is what the reference computes, for random kernels."""

from __future__ import annotations

from tests.loops.agree import agree


def test_nests_of_random_kernels_agree() -> None:
    figures = agree(range(20260, 20560, 3))
    assert figures.differing == {}
    assert figures.compared > 5 * figures.unknown.total(), figures.unknown


def test_a_quotient_divides() -> None:
    """By a sum of which one over it is infinite."""
    figures = agree(range(31031, 31032))
    assert figures.differing == {} and figures.compared == 8
