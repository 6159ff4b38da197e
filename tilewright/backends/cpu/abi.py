"""What a compiled kernel and those who call it agree on.

    i64 kernel(i64 lo, i64 hi, ptr args, ptr arena, ptr stop)

runs the programs lo .. hi - 1 of a grid, and gives the first that it has not run, or hi. `args` has one slot of eight
bytes for each run-time parameter, then the extents of the grid along x, y, z; `arena` is scratch for this thread alone.
`stop` points to STOP_BYTES: a state, which the kernel reads after every program to return if it is not RUNNING, and
whom the caller then asks, `i32 poll(ptr stop)`, which gives 0 to go on. Sixteen zero bytes do for a caller that never
wants a grid to end early.

Its frame holds FRAME_MARK, behind it the number of the program that runs, and `args`, for `device.faults`.
"""

from __future__ import annotations

STOP_STATE, STOP_POLL, STOP_BYTES = 0, 8, 16
RUNNING, SIGNALLED, STOPPED = range(3)

FRAME_MARK = 0x7477_4652_414D_4521
"""A word that nothing else is likely to leave on a stack ("twFRAME!")."""
