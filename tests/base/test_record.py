"""Records: fields in order, by name, with defaults; mistakes are told."""

from __future__ import annotations

import pytest

from tilewright.base.record import Record


class Point(Record):
    """Two numbers and a name."""

    x: int
    y: int
    name: str = "?"


def test_fields():
    for point in (Point(1, 2), Point(1, y=2), Point(y=2, x=1, name="?")):
        assert (point.x, point.y, point.name) == (1, 2, "?")
    assert Point(1, 2, "p").name == "p"
    for wrong in (lambda: Point(1), lambda: Point(1, 2, "p", 3), lambda: Point(1, 2, x=1), lambda: Point(1, 2, z=1)):
        with pytest.raises(TypeError, match="Point"):
            wrong()
