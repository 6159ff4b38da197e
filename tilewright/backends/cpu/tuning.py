"""Numbers of the CPU back end that were chosen, not computed: where it would rather do one thing than another.

Each says what it is and where its value comes from. "Measured: half 0.94 (8), twice 0.92 (4)" is what `python -m
benchmarks.constants NAME` printed on a Xeon with AMX, one thread, others at work: with half the value, 8 of 56 or 72
kernels get other code, and run at 0.94 of the speed on average; "(0)" says that none of them depends on it within that
range. Facts of machines (bytes of a line, registers) are not tuning and stay where they are used.
"""

from __future__ import annotations

# --- what is kept and what is computed again, in element-wise operations (`plan/recompute.py:cost_of`) ----

# Above this cost a value that two groups need is kept in scratch. Measured: half 0.94 (8), twice 0.92 (4): between a
# load with a few additions, which should be repeated, and an exponential, which should not.
SHARED_COST = 4.0
# Above this cost a value is computed before a loop instead of in every iteration. Measured: half (0), twice (0).
LOOP_COST = 2.5
# Above this cost a value of each row is computed as a vector first. Measured: half (0), twice 0.74 (4).
ROW_COST = 1.9
# A value counts as that of a row if its tile has at most one of so many of the elements. Measured: half (0), twice
# (0).
ROW_SHARE = 8
# Elements from which a load across the lanes is staged through scratch. Measured: half (0), twice (0).
STAGED_ELEMENTS = 256
# Cost of an element up to which such a load is turned in registers by the group that stores it, a square of vectors
# at a time: what costs more has the registers for itself. Not measured.
SQUARE_COST = 8.0
# Length of the runs in memory from which it is. Measured: half (0), twice (0).
STAGED_RUN = 8
# Groups back that a value may still be computed in. Measured: half (0), twice (0): it bounds the time of planning.
MATERIALIZE_LOOK_BACK = 4
# Groups back that a step may join. Measured: half (0), twice (0): it bounds the time of planning.
FUSION_LOOK_BACK = 6

# Elements of a row from which passes over the same rows are one loop over rows. Not measured.
FUSED_ROW = 128
# Elements of a row from which numbers of rows are computed one by one in that loop. Not measured.
SCALAR_ROW = 512
# Elements of a row from which sums over rows are made in that loop. Measured: layer norm backward of f32, 2M elements,
# one core of a Zen 5 that others used, time before over after: rows of 256 0.93, of 512 1.7, of 768 1.5, of 1,024 1.3.
SUMMED_ROW = 512
# Bytes of such sums, at most. Measured: the same, rows of 2,048 1.1, of 4,096 1.0; longer ones leave the first cache.
ROW_SUMS_BYTES = 32 * 1024

# Iterations of a loop that is written out, at most: three rows of three taps, not five of five. Not measured: a pass
# has as many vectors at work as there are loads in it.
UNROLLED_ITERATIONS = 8
# Operations that it becomes, at most. Not measured.
UNROLLED_OPERATIONS = 256

# Elements of a reduction that are taken at once where they lie apart; slices of so few are added in registers.
# Measured: 4, 8, 16, 32, 64 took 297, 268, 282, 283, 334 us for sums of the columns of 4096x1024 f32; 43, 43, 46, 51,
# 53 us of 1024x1024; 198, 168, 169, 162, 155 us of 32768x128 (one thread of a Zen 5, busy).
ROWS_ACROSS = 8
# Elements of the factors of a dot that are taken at once, where sums are written as one. Not measured.
SUMMED_DEPTH = 64
# Elements of its result up to which that is done. Not measured.
ELEMENTS_ACROSS = 8192

# Elements of a row that a loop takes piece by piece, taken as one. Measured: a quarter 0.6, sums of 2048 rows of 9000
# in pieces of 128 and 256 on one thread of a Zen 4, as memory is read in shorter stretches; 0.85, 512x3001 times a
# vector in tiles of 4x512 on a Zen 5 (AVX2: 0.75). 8192 and 4096 are no better for 64x200000 times a vector.
LONG_ROW = 16384

# Results of a reduction over a few elements from which its slices are combined. Not measured: a few chunks of lanes.
UNROLLED_ROWS = 64

# --- chunks and masks ----------------------------------------------------------------------------------

# Native vectors of f32 in one chunk of lanes. Measured: half 0.98 (46), twice 0.98 (40).
NATIVE_VECTORS = 4
# Chunks of all lanes in a row from which a reduction has pieces of fewer lanes behind them. Not measured.
PIECED_CHUNKS = 2
# Lanes of a chunk that need no others from further rows, where a row goes on behind them. Measured: one core of
# Emerald Rapids that others used, the stencil of `benchmarks/forms.py`: in tiles of width 56 2.71 ms with 8 rows of 8
# lanes and 0.70 with 8 lanes (0.70 in tiles of 64); of width 28, 2.84 ms with 16 rows of 4 lanes and 0.88 with 4
# lanes.
LANES_OF_A_ROW = 4
# Comparisons of a group's masks that are tested for whole chunks. Measured: half (0), twice (0): kernels have one or
# two.
MASK_COMPARISONS = 6
# Elements of a run that is loaded as a vector of its own and shuffled, instead of being gathered. Measured: half (0),
# twice (0).
SHORTEST_RUN = 4
# Elements of an atomic sum from which those of one address are added first. Measured: half (0), twice (0).
COMBINED_ELEMENTS = 256
# Lanes of a chunk of such a sum, whose places go through the stack. Measured: one core of a Zen (AVX-512) that others
# used, least of 40 calls, 1M elements in 256 bins, 16 bins, 64 segments: 648, 738 and 809 us with 32, 536, 663 and 752
# with 64 (the same kernels as `python -m benchmarks.forms --only counts`, `histogram`, `segments`).
COMBINED_LANES = 64
# Addresses for which that is done, at most. Measured: half (0), twice (0): the sums fit the first cache.
COMBINING_WINDOW = 4096
# An address of the window stands for so many elements of the tile. Measured: Sapphire Rapids that others used, 1M
# elements in 8192 segments, blocks of 4096: with as many addresses as elements twice the time of one for four.
COMBINING_SHARE = 4
# Bytes of the sums that a thread keeps over its programs: half of a second cache. Measured: `python -m benchmarks.forms
# --only segments`, one core of a Xeon with AMX that others used: 262,144 segments of 1M elements 0.8 of torch, 0.34
# without.
KEPT_SUMS_BYTES = 1 << 20
# Kept sums of an address that may take turns. Measured: as above, 16 bins 898 us with one, 766 with 2, 738 with 4, 728
# with 8; 64 segments 890, 831, 809, 810.
SUMMED_WAYS = 4
# Addresses that have them. Not measured: all their sums fit a quarter of the first cache.
SUMMED_APART = 512
# A kept sum stands for so many elements of a thread's tiles. Measured: 1M elements in 262,144 segments, in two halves
# of a block: 0.85 of torch, 0.34 with twice the share, 0.72 with half of it.
KEPT_SUMS_SHARE = 2
# Elements of a pass over a row from which a program asks for the next one's. Not measured: a few chunks of lanes.
PREFETCH_ELEMENTS = 256
# Rows that a pass asks for, at most. Not measured: a core has some fifty requests of its second cache under way.
PREFETCH_ROWS = 4
# Bytes between the rows of two programs up to which the next one is asked for. Measured: one core of a Xeon with AMX
# (2 MiB of second cache) that others used, softmax of f32 in one loop: rows of 64 KiB 3.96 to 3.50 ms; of 200 KiB in
# blocks of 256 3.67 to 4.41.
PREFETCH_BYTES = 64 << 10
# Bytes between what a pass reads and what it asks for, as far as doubling the distance of rows gets. Measured: the same
# core, layer norm of bf16, 4096 rows of 2 KiB: 2.29 ms without, 1.96 with the next row, 1.68 with 4 KiB, 1.62 with 8,
# 1.67 with 16.
PREFETCH_LEAD = 8 << 10
# Bytes of a launch from which stores go past the caches. Measured: one core of a Xeon with AMX (2 MiB of second cache)
# that others used, layer norm of f32 rows of 4096: 1024 rows (16 MiB) 4.6 to 4.9 ms through the caches, 3.4 to 3.7 past
# them; with a sum that reads the result next 6.3 to 6.6 and 5.3 to 6.0; 512 rows 2.0 and 1.9. Zen 5, adding two vectors
# of 16M f32: 5.2 ms and 4.0 (the commands were not noted).
NONTEMPORAL_BYTES = 16 << 20

# --- products ------------------------------------------------------------------------------------------

# Rows of a product up to which its right operand is not packed. Measured: half (0), twice (0): packing moves as many
# bytes as one row's product reads, and accumulators of four rows and two vectors hide the latency of multiply-adds.
THIN_ROWS = 4
# Sums that these keep in registers, of which there are 16 or 32, and vectors of columns, or columns, that they take at
# once at most: what each row of B has side by side is read at once. Not measured: what fits the registers.
THIN_SUMS = (8, 24)
# Not measured.
THIN_VECTORS = 8
# Where it is fewer bytes, B is better read by a pass that widens it: rows lie in pages of their own, and in the same
# lines of the first cache. Not measured: two lines.
THIN_BYTES = 128
# Times that a product reads its right operand (once for the rows of a micro-kernel) up to which it is not packed.
# Measured: one core of a Xeon with AMX that others used, f32, ranges of rows times 128 matrices of 64x64, read in place
# over packed: 8 rows 0.68, 16 rows 0.74, 32 rows 0.82, 64 rows 1.01 (the commands were not noted).
PASSES_IN_PLACE = 4
# Elements of K that such a product should read in a row, over several iterations. Measured: half 1.04 (2), twice 1.02
# (2): a few lines of memory.
THIN_K = 1024
# Size of each dim of a sum of products of two tiles from which it is computed as a product of matrices. Measured: one
# core of a Xeon with AMX that others used, 2M multiply-adds: 16x16x64 0.06 ms as a product, 0.11 as a sum; 64x2x64 0.42
# and 0.17; 16x128x4 0.15 to 0.27 and 0.11 to 0.19; 4x4x4 0.4 to 0.57 and 0.34 to 0.47 (the commands were not noted).
SUMMED_SIZE = 16
# Packed bytes of a panel that several iterations fill together. Measured: one core of a Xeon with AMX that others used,
# 1024 cubed, tiles of 128x128x64, time of PyTorch's product over it with 32, 64 and 128 KiB: bf16 0.73, 0.76, 0.69;
# f16 1.66, 1.77, 1.34; f32 0.84, 0.85, 0.85; int8 1.92, 1.89, 1.82: sums are loaded and stored once for all that K.
JOINED_PANEL_BYTES = 64 << 10
# Packed bytes of B that a dot keeps from program to program. Measured: half 0.84 (25), twice 0.98 (23): three planes
# of 2048 x 256 bf16 elements.
KEPT_BYTES = 3 << 20
# Iterations of which panels are kept, at most. Measured: half 0.98 (4), twice 1.01 (2).
KEPT_ITERATIONS = 256
# Keys of which panels are kept at one time, at most. Not measured: the search among them takes a microsecond at most.
KEPT_KEYS = 16
# Accumulators of a micro-kernel (all, and enough to hide the latency of an FMA) and its rows, by whether the target
# has 32 vector registers. Measured: (16, 8, 6) 0.98 (10), (28, 14, 8) (0): any shape with 8 or more accumulators is
# at the limit of the FMA units.
MICRO_KERNELS = {True: (24, 12, 8), False: (12, 8, 6)}
# Accumulators at least of a micro-kernel for the few rows that are left of a block: four hide the latency of a
# multiply-add where one begins in each cycle. Measured: one Zen core, `python -m benchmarks.forms --only "small
# products" --threads 1`, 17x13x29 padded takes 178 us without such a kernel, 120 with; other numbers were not tried.
FEW_ACCUMULATORS = 4
# Blocks of rows of a tile up to which there is one. Measured: of 8 blocks (33x31x47 padded, as above) 0.82 of the exact
# size without, 0.99 with; it adds 2 to 5 ms to the 60 that a product compiles. Not measured beyond.
FEW_BLOCKS = 8
# CPUs, by the beginning of LLVM's name, whose bf16 dot products beat their f32 FMAs. Measured: one Zen 5 core,
# products of bf16: 495 GF/s with vdpbf16ps, 247 with FMA (the command was not noted). Intel's: half the rate of the
# FMA or less.
FAST_BF16_CPUS = ("znver",)

# --- launches ------------------------------------------------------------------------------------------

# Pauses of a worker that waits for the next launch before it sleeps: about 50 microseconds. Measured: it covers the
# launches of a Python loop: half 1.00, twice 0.97 (all).
SPIN_PAUSES = 2000
# Iterations after which a loop that may wait for another program offers its processor, a power of two. 256 looks take
# about a microsecond, as the offer does. Not measured by itself; `python -m benchmarks.waiting` has what it is for.
LOOKS_BEFORE_YIELD = 256
# Blocks of scratch that wait to be used again. Measured: half 0.97, twice 0.97 (all, beside launches of other
# processes).
KEPT_ARENAS = 16
