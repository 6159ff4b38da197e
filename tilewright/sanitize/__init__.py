"""Finds faults of kernels: accesses out of bounds, races, reads of what nobody wrote, indices that overflow.

    tilewright sanitize program.py                      a program, with checks in all of its kernels
    kernel[grid](x, y, n, sanitize=True)                one launch; faults raise `SanitizerError`
    with tilewright.sanitize.collect_faults() as found: launches with checks; `found.faults` afterwards

Kernels run compiled, on the CPU, whatever they are for.
"""

from __future__ import annotations

from tilewright.base.errors import SanitizerError
from tilewright.launch.faults import Collected, Fault, Party, collect_faults
from tilewright.sanitize.checking import checking

__all__ = ["Collected", "Fault", "Party", "SanitizerError", "checking", "collect_faults"]
