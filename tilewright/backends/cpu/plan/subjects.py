"""What the planners of the CPU back end decide on; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject
from tilewright.ir.subjects import GENERAL
from tilewright.loops.subjects import DOT_LOOPS, REDUCTION_LOOPS, SUNK_LOADS
from tilewright.passes.subjects import CARRIED, DELINEARIZED, IF_CONVERTED

WRAPPED = Subject("wrapped index", "an index that a remainder or a bound holds back is itself; the rest is left out")
UNROLLED = Subject("unrolled loop", "the few iterations of a loop that adds up tiles are one pass over the elements")
SINGLE_TRIPS = Subject(
    "loops of one trip", "loops that compute the same are straight-line code for launches in which they run once"
)
STRIPS = Subject(
    "strip-mined loop", "a tile that a loop carries stays in registers, strip by strip, for all iterations"
)
UNROLLED_REDUCTION = Subject(
    "unrolled reduction", "a reduction over a dim of a few elements combines its slices, in the pass of who wants them"
)
REDUCTION_ORDER = Subject("order of reductions", "of several dims, that along memory is reduced last, behind loops")
INTERLEAVED = Subject("interleaved stores", "stores that fill each other's gaps are one store of whole vectors")
RECIPROCAL = Subject("reciprocal", "a division by what a whole row shares is a multiplication for each element")
DISTRIBUTED = Subject("loop distribution", "sums that a loop makes side by side are made one after the other")
DOT_AS_SUM = Subject("dot as a sum", "a row times a matrix that is computed is summed in the pass that computes it")
NARROWED = Subject(
    "narrowed operands", "what is widened in front of a dot, without loss, is widened where it is packed"
)
SWAPPED = Subject("swapped operands", "a dot whose operands both lie across is computed with its operands swapped")
DOT = Subject("dot", "which instructions multiply, on what element type, in which pieces")
IN_PLACE = Subject("operand in memory", "a dot reads its operand from the tensor, not from a copy in scratch")
ACCUMULATOR = Subject("accumulator in place", "a dot adds to the tile that the loop carries")
K_STRIPS = Subject("K strip-mining", "several iterations of a loop run as one dot")
KEPT = Subject("kept panels", "packed rows or columns of an operand serve the programs that follow")
UNPACKED = Subject("right operand in place", "a dot reads its right operand where it lies, not from packed panels")
DEAD_ROWS = Subject("dead rows", "a dot leaves out the rows and columns that no store looks at")
DIRECT_STORE = Subject("direct store", "a dot writes its sums to the tensor, and nothing is copied to it")
FUSION = Subject("loop fusion", "operations on tiles of one shape share one pass over the elements")
ROWS_FUSED = Subject("outer loop fusion", "passes over one row after the other are one loop over rows")
APART_AT_LAUNCH = Subject("apart at launch", "what shares a loop only where elements lie apart is planned twice")
MATERIALIZED = Subject(
    "materialized tile", "what several passes, or all rows, need is computed once and kept in scratch"
)
VECTORS = Subject("vectors", "one instruction works on several elements of a tile")
UNMASKED = Subject("chunks without masks", "a mask is tested once for many elements instead of for each")
TAIL = Subject("tail chunks", "where all masks are false, elements are computed once for all chunks, or not")
NONTEMPORAL = Subject("non-temporal stores", "what is written and not read again does not pass through the caches")
PREFETCHED = Subject("prefetched rows", "the last pass over a row asks memory for the row of the next program")
COMBINED = Subject(
    "combined sums", "elements of an atomic sum that have one address are added before memory is touched"
)

SUBJECTS = (
    DELINEARIZED, CARRIED, UNROLLED, STRIPS, WRAPPED, IF_CONVERTED, SINGLE_TRIPS, SUNK_LOADS, REDUCTION_LOOPS,
    DISTRIBUTED, DOT_LOOPS, NARROWED, DOT_AS_SUM, SWAPPED, RECIPROCAL, REDUCTION_ORDER, UNROLLED_REDUCTION,
    INTERLEAVED, DOT, IN_PLACE, ACCUMULATOR, K_STRIPS, KEPT, UNPACKED, DEAD_ROWS, DIRECT_STORE, FUSION, ROWS_FUSED,
    APART_AT_LAUNCH, MATERIALIZED, VECTORS, UNMASKED, TAIL, NONTEMPORAL, PREFETCHED, COMBINED, *GENERAL,
)  # fmt: skip
