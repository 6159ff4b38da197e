"""What the planners of the CPU back end decide on; `docs/explain.md` tells users the same."""

from __future__ import annotations

from tilewright.base.decision import Subject
from tilewright.passes.subjects import CARRIED, EITHER_WAY, HANDED_ON, NESTED, ROLLED

WRAPPED = Subject("wrapped index", "an index that a remainder or a bound holds back is itself; the rest is left out")
WRITTEN_OUT = Subject("short loop", "the few trips of a loop that adds up tiles are one pass over the elements")
BLOCKED = Subject("trips in blocks", "what a loop adds up trip by trip is added up in blocks of trips")
IN_TRIPS = Subject(
    "reduced in trips", "a tile that a loop adds up and that is reduced behind it is reduced in each trip"
)
AT_ONCE = Subject("dims at once", "a reduction of a reduction is one loop over both dims")
SLICED = Subject(
    "slices", "a reduction over a dim of a few elements combines its slices, in the pass of who wants them"
)
BESIDE = Subject("stores side by side", "stores that fill each other's gaps are one store of whole vectors")
RECIPROCAL = Subject("reciprocal", "a division by what a whole row shares is a multiplication for each element")
APART = Subject("sums apart", "sums that a loop makes side by side are made one after the other")
SUMMED = Subject("sum as a product", "a sum over a row times a matrix, which a loop adds up, is a product of matrices")
COMPUTED_ROWS = Subject("row as a sum", "a row times a matrix that is computed is summed in the pass that computes it")
TURNED = Subject("turned product", "a product whose operands both lie across is multiplied the other way around")
PRODUCT = Subject("product", "which instructions multiply, on what element type, in which pieces")
IN_PLACE = Subject("operand in memory", "a product reads its operand from the tensor, not from a copy in scratch")
ACCUMULATOR = Subject("accumulator in place", "a product adds to the tile that the loop carries")
JOINED = Subject("joined trips", "several trips of a loop run as one product")
KEPT = Subject("kept panels", "packed rows or columns of an operand serve the programs that follow")
UNPACKED = Subject("right operand in place", "a product reads its right operand where it lies, not from packed panels")
UNSEEN = Subject("rows left out", "a product leaves out the rows and columns that no store looks at")
STRAIGHT = Subject("sums stored straight", "a product writes its sums to the tensor, and nothing is copied to it")
FUSION = Subject("one loop", "operations on tiles of one shape share one pass over the elements")
KEPT_TILE = Subject("kept tile", "what several passes, or all rows, need is computed once and kept in scratch")
VECTORS = Subject("vectors", "one instruction works on several elements of a tile")
UNMASKED = Subject("chunks without masks", "a mask is tested once for many elements instead of for each")
PAST_END = Subject(
    "chunks past the end", "where all masks are false, elements are computed once for all chunks, or not"
)
PAST_CACHES = Subject("stores past the caches", "what is written and not read again does not pass through the caches")
AHEAD = Subject("rows ahead", "the last pass over a row asks memory for the row of the next program")
COMBINED = Subject(
    "combined sums", "elements of an atomic sum that have one address are added before memory is touched"
)

SUBJECTS = (
    NESTED, CARRIED, WRITTEN_OUT, WRAPPED, EITHER_WAY, HANDED_ON, BLOCKED, SUMMED, IN_TRIPS, AT_ONCE, APART, ROLLED,
    COMPUTED_ROWS, TURNED, RECIPROCAL, SLICED, BESIDE, PRODUCT, IN_PLACE, ACCUMULATOR, JOINED, KEPT, UNPACKED,
    UNSEEN, STRAIGHT, FUSION, KEPT_TILE, VECTORS, UNMASKED, PAST_END, PAST_CACHES, AHEAD, COMBINED,
)  # fmt: skip
