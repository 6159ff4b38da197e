"""What the planners of the NVIDIA back end decide on; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject
from tilewright.ir.subjects import GENERAL
from tilewright.loops.subjects import DOT_LOOPS, SUNK_LOADS
from tilewright.passes.subjects import IF_CONVERTED

TENSOR_CORES = Subject("tensor cores", "a dot is made by tensor cores instead of multiply-adds of single elements")
WGMMA = Subject("wgmma", "a dot is made by whole groups of four warps, with operands from shared memory (Hopper)")
TURNED = Subject("turned chain", "what is computed of a dot is made transposed, as later dots read it from registers")
COPY_ENGINE = Subject(
    "copy engine",
    "blocks of a descriptor, or of what pointers reach, are moved by the copy engine (TMA) instead of by threads",
)
RING = Subject("ring buffer", "a load of a loop is copied to shared memory some iterations before a dot needs it")
DOUBLE_BUFFERED = Subject(
    "double buffering", "a load of a loop over rows is made an iteration before it is used, in registers"
)
REDUCED_AFTER = Subject("reduction after the loop", "what a loop gathers by reductions is reduced once, after the loop")
STRIPS = Subject("strips", "a tile larger than the registers of a block is computed strip by strip, in loops")
ASYNC_DOT = Subject("asynchronous dot", "a dot of one iteration goes on while that of the next is started")
IN_WARP = Subject("conversion in warps", "a tile gets to another layout without shared memory")
OWN_SLICES = Subject("slices of a warp", "the result of a product leaves each warp without waiting for the others")
NO_BARRIER = Subject("no barrier", "the threads of a block need not wait for each other")
UNORDERED = Subject("no barrier for memory", "accesses of a program to global memory need not wait for each other")
CLUSTER = Subject("cluster", "a program is shared out to the blocks of a cluster (num_ctas)")
LONG_ROWS = Subject(
    "long rows", "rows that one block cannot hold well are shared out to the blocks of a cluster (Hopper)"
)
ROLES = Subject("roles", "a warp group of its own copies what a loop multiplies, the others multiply (Hopper)")
ROTATED = Subject("rotation", "the first dots of an iteration run beside what the one before makes of theirs (Hopper)")
PROGRAM_ORDER = Subject("longest programs first", "programs whose loops go on longest are started first")
PERSISTENT = Subject(
    "persistent programs", "blocks stay, and run one program of the grid after the other, which load ahead (Hopper)"
)
WHOLE = Subject("whole program", "a kernel whose products the linker would make serial is assembled on its own")

SUBJECTS = (
    IF_CONVERTED, SUNK_LOADS, DOT_LOOPS, TENSOR_CORES, WGMMA, TURNED, COPY_ENGINE, RING, DOUBLE_BUFFERED, REDUCED_AFTER,
    STRIPS, ASYNC_DOT, IN_WARP, OWN_SLICES, NO_BARRIER, UNORDERED, CLUSTER, LONG_ROWS, ROLES, ROTATED, PROGRAM_ORDER,
    PERSISTENT, WHOLE, *GENERAL,
)  # fmt: skip
