"""Where in the source of a kernel an operation is from."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.ir.op import location_of


def line_of(op: Operation, file: str, lines: range) -> int:
    """The line of the kernel that an operation is from; 0 if it is from none."""
    place, found = location_of(op), 0
    while place is not None:
        found = place.line if place.file == file and place.line in lines else found
        place = place.caller
    return found
