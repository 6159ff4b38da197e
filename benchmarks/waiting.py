"""Programs that wait for earlier ones: a running sum of one pass over memory, by threads as many as there are and more.

    python -m benchmarks.waiting

Each program adds its block to what it finds of those before it (decoupled look-back). With more threads than processors
those that wait keep processors from those that work, unless they offer them.
"""

from __future__ import annotations

import os
import time

import numpy as np

import tilewright
import tilewright.language as tl

SIZE, BLOCK, RUNS = 1 << 20, 256, 9


@tilewright.jit
def running_sum(x_ptr, out_ptr, state_ptr, BLOCK: tl.constexpr):
    """State: a sum times 4, and 1 for that of a block, 2 for that of all up to it."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    own, before, look = tl.sum(x), 0, program - 1
    tl.atomic_xchg(state_ptr + program, (own << 2) | 1)
    while look >= 0:
        state = tl.load(state_ptr + look, volatile=True)
        while state & 3 == 0:
            state = tl.load(state_ptr + look, volatile=True)
        before += state >> 2
        look = look - 1 if state & 3 == 1 else -1
    tl.atomic_xchg(state_ptr + program, ((before + own) << 2) | 2)
    tl.store(out_ptr + at, before + tl.cumsum(x, 0))


def main() -> None:
    """Print the milliseconds of each number of threads, beside `np.cumsum`."""
    x = np.random.default_rng(0).integers(0, 3, SIZE, dtype=np.int32)
    expected, out = np.cumsum(x), np.zeros_like(x)
    begin = time.perf_counter()
    np.cumsum(x, out=out)
    print(f"np.cumsum   {1e3 * (time.perf_counter() - begin):9.2f} ms")
    processors = os.cpu_count() or 1
    for threads in (1, processors, 4 * processors):
        tilewright.knobs.cpu.num_threads = threads
        times = []
        for _ in range(RUNS):
            state = np.zeros(SIZE // BLOCK, np.int32)
            begin = time.perf_counter()
            running_sum[(SIZE // BLOCK,)](x, out, state, BLOCK=BLOCK)
            times.append(1e3 * (time.perf_counter() - begin))
            assert np.array_equal(out, expected)
        times.sort()
        print(f"{threads:3} threads {times[len(times) // 2]:9.2f} ms, {times[0]:.2f} to {times[-2]:.2f}")


if __name__ == "__main__":
    main()
