"""What the planners of the NVIDIA back end decide on; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject
from tilewright.passes.subjects import EITHER_WAY, HANDED_ON, ROLLED

TENSOR_CORES = Subject("tensor cores", "a product is made by tensor cores instead of multiply-adds of single elements")
WGMMA = Subject("wgmma", "a product is made by whole groups of four warps, with operands from shared memory (Hopper)")
COPY_ENGINE = Subject("copy engine", "blocks of a descriptor are moved by the copy engine (TMA) instead of by threads")
RING = Subject("ring buffer", "a load of a loop is copied to shared memory some trips before a product needs it")
AHEAD = Subject("trips ahead", "a load of a loop over rows is made a trip before it is used, in registers")
REDUCED_BEHIND = Subject("reduced behind", "what a loop gathers by reductions is reduced once, behind the loop")
ASYNC_PRODUCT = Subject("asynchronous product", "a product of one trip goes on while that of the next is started")
IN_WARP = Subject("conversion in warps", "a tile gets to another layout without shared memory")
NO_BARRIER = Subject("no barrier", "the threads of a block need not wait for each other")
UNORDERED = Subject("no barrier for memory", "accesses of a program to global memory need not wait for each other")
CLUSTER = Subject("cluster", "a program is shared out to the blocks of a cluster (num_ctas)")

SUBJECTS = (
    EITHER_WAY, HANDED_ON, ROLLED, TENSOR_CORES, WGMMA, COPY_ENGINE, RING, AHEAD, REDUCED_BEHIND, ASYNC_PRODUCT,
    IN_WARP, NO_BARRIER, UNORDERED, CLUSTER,
)  # fmt: skip
