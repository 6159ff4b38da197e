"""Numbers of the NVIDIA back end that were chosen, not computed: where it would rather do one thing than another.

Each says what it is and where its value comes from. "Measured: half 0.98 (2), twice 0.99 (2)" is what `python -m
benchmarks.constants --cuda NAME` printed on an H200: with half the value, 2 of 34 kernels get other code, and run at
0.98 of the speed on average; "(0)" says that none of them depends on it within that range. Facts of architectures are
not tuning: they stand in `arch.py` and where they are used.
"""

from __future__ import annotations

# --- layouts -------------------------------------------------------------------------------------------

# Cycles that a warp waits for the others at a barrier, beside the cycles of moving bytes. Measured: half 0.98 (2),
# twice 0.99 (2).
BARRIER_CYCLES = 32
# Accesses share a layout unless that makes one of them so many times as costly. Measured: half (0), twice (0): a
# conversion costs about as much as the access itself.
SHARED_LAYOUT_TOLERANCE = 2.0
# Layouts in which a loop may carry one value. Measured: half (0), twice (0).
CARRIED_LAYOUTS = 4
# Operations back that a tile may be computed once more rather than converted. Measured: half (0), twice (0): it
# bounds planning.
REMADE_DEPTH = 4
# Registers of a thread that an operand from before a loop may hold through it. Measured: half (0), twice (0).
OPERAND_REGISTERS = 32

# --- shared memory ---------------------------------------------------------------------------------------

# Blocks of descriptors take at most one of so many parts of shared memory. Measured: half (0), twice (0): the rest is
# for rings.
DESCRIPTOR_SHARE = 2
# Instructions of the copy engine for one block. Measured: half (0), twice (0).
COPY_ENGINE_BOXES = 32
# Bytes of scratch that keeps clear of its neighbours to save the barrier between them. Measured: half (0), twice 1.00
# (1).
APART_BYTES = 4096
# Tiles of more bytes change their layout in slices. Measured: half (0), twice (0): it leaves room on every target,
# and moving a slice takes about a thousand cycles, beside which two barriers are little.
CONVERSION_SLICE_BYTES = 64 * 1024
# And what a warp exchanges with itself alone, in slices of so many bytes of a warp. Not measured by
# itself: 16 rows of 256 bytes, whole rows of an accumulator by halves.
WARP_SLICE_BYTES = 4096
# Shuffles for one register of a gather; beyond, shared memory. Measured: half (0), twice (0).
GATHER_SHUFFLES = 4
# Groups of copies under way that the placing of barriers tells apart. Measured: half (0), twice (0): it bounds
# planning.
COPY_GROUPS = 8

# --- products --------------------------------------------------------------------------------------------

# Multiply-adds of a thread in a row, of operands in shared memory; more of them are a loop over K. Measured: H200,
# exact products of f32, 2048 cubed, six tiles: 41.8 TFLOP/s on average with 2048, 40.7 with 1024, 39.7 with 512, 41.0
# without a loop, which takes twice as long to compile.
MULTIPLY_ADDS = 2048

# Bytes that a loop of products, in a loop over tiles, copies in an iteration for which a warp group of its own does it
# unasked. Measured: H100, f16, 128x256x64, 48 KiB, programs that stay: 8192 squared x 512 at 578 TFLOP/s, 503 without
# roles, x 4096 at 700 for 690. Smaller ones are not measured.
ROLE_BYTES = 16 * 1024
# And in a loop whose products need results of others, where these run beside the next ones: how many times as long as
# on exponentials it works on products. Measured: H100, attention, 32 heads of 4096, blocks of 128 keys, TFLOP/s with
# and without roles: width 128 (2.0) 643 and 539; width 64 (1.0) 428 and 454. H200, blocks of 64 keys, width 128 (2.0):
# 560 and 461, causal 425 and 328; gradient of queries, 128 x 64, width 128 (3.0): 0.338 ms and 0.487. Between 1 and 2
# nothing is measured; statistics of rows count as well.
ROTATED_PRODUCTS = 1.75
# And the warps that multiply then. Measured: H100, attention of width 64, with roles 8 warps 428 TFLOP/s, 4 warps 410;
# without them 4 warps, of which several blocks share a multiprocessor and hide the copies of each other, 454. Blocks of
# 16 warps, four groups, hide each other's exponentials: 256 rows, 64 keys, 474 where 8 warps had 422.
ROLE_WARPS = 8
# Registers of a thread beside the results of all products of a loop with roles. Not measured by itself: attention of
# width 128, whose results take 128, has 168 registers without ptxas, and spills nothing.
ROLE_REGISTERS = 24
# Registers of a thread that turns operands beside the words of a tile that it holds. Not measured: addresses take 20.
TURNING_REGISTERS = 24
# Registers of a thread beside the results of products of a rotated loop, those of the opening ones twice: statistics of
# rows, addresses, positions. Measured: attention of width 64 with 16 warps, of which it leaves 16, spills nothing.
ROTATION_REGISTERS = 16
# How many times as long as its exponentials the products of a rotated loop may take for two groups of warps to start
# after each other. Measured: H200, attention, 350 cycles at 1.0, fp8, width 128:
# 840 TFLOP/s for 759 together, 700 and 1,050 cycles 840 and 836; f16, width 64, 453 for 450; at 1.9 (f16, width 128)
# 647 for 645; gradient of queries (3.0) 0.93 of the speed.
STAGGERED_PRODUCTS = 1.25
# And by which part of the exponentials of an iteration. Measured: the same, with 350 cycles.
STAGGER = 1 / 3
# Warps of a multiprocessor up to which products of a loop that need results of others run beside these, and are waited
# for where they are read; more warps hide each other's waits. Measured: gradient of attention, 64 x 64, 4 warps: width
# 128 (eight warps of two blocks), H200, of keys and values 0.428 ms and 0.451 without, of queries 0.369 and 0.394;
# width 64, H100, 0.499 with eight warps so, 0.474 with twelve that wait for each product.
OVERLAPPED_WARPS = 8
# And registers of a thread beside all results and fragments of one product there. Measured: width 128, gradient of keys
# and values, whose results take 208, has 240.
OVERLAP_REGISTERS = 32

# Cycles that a program waits for its first copies and its last stores where it is a block. Measured: H100, f16, 8192
# squared x 512, 128x256x64: 504 TFLOP/s, and 591 where blocks run program after program, 1.3 microseconds for each.
PROGRAM_CYCLES = 2200
# And how many times that a program may take for which blocks stay. Not measured: beyond, it is less than the clock is.
LONG_PROGRAM = 100

# --- memory ----------------------------------------------------------------------------------------------

# So many loads under masks of their own, before functions of each element, have a version without. A thread has seven
# predicates. Measured: H200, bias and gelu of f32, 16 x 128 elements of rows of 4001: 2.04 of the speed; of 1111 1.13;
# before layer norms, softmaxes and products, whose elements are exchanged, 0.77 to 0.95, so these have none.
VERSIONED_LOADS = 8

# --- registers -------------------------------------------------------------------------------------------

# Blocks of so many warps get fewer registers where one more of them then fits, even beside others. Measured: H200,
# masked reductions of rows with 16 warps, 32 registers (four blocks) for 33 to 40 (three): 1.09, 1.14, 1.06, 0.92 of
# the speed; with 8 warps 0.99, 0.96; column sums with 4 warps 0.47 to 0.70.
LARGE_BLOCK_WARPS = 16
# And every block that would be alone, if that takes no more than this part of its registers. Measured: H200, layer norm
# of f16, 8192 columns, 16 warps, 64 for 78 registers (two blocks for one): 1.58 of the speed.
FEWER_REGISTERS = 1.35
# The same of blocks whose products are waited for where they are started. Measured: H100, gradient of attention of
# width 64, 4 warps, 168 for 172 registers (three blocks for two) in one of two kernels: both in 0.474 ms for 0.510.
FEWER_OF_PRODUCTS = 1.15
# And that of blocks that wait at barriers and have no loops. Measured: H200, softmax of f32 and layer norm of f16, 8192
# rows of 2048 to 16384, 4 to 32 warps: ten get one more block, and 0.99 to 1.77 of the speed, 1.38 on average. Loops
# with the same numbers: 0.49 to 1.12. Without barriers: 0.95 to 1.00.
FEWER_WITHOUT_LOOPS = 1.75
# So many blocks, of which one more is made. Measured: the same, layer norm of 8192 columns: 8 warps, four for three
# blocks, 1.09 of the speed, 4 warps 1.11; 8 warps, six for five, 1.01.
FEW_BLOCKS = 3
# Registers of a thread for what a loop loads ahead. Measured: H200, loops over rows of 1000: with 32 the same (2.41 for
# 2.38 of the speed without, 1.18 for 1.16).
DOUBLE_BUFFER_WORDS = 16
# And for a tile that a loop carries to reduce it after the loop. Measured: H200, ten loops that sum tiles of 16 to 64
# registers: 0.98 to 1.62 of the speed without, 1.18 on average.
CARRIED_WORDS = 64
# Part of the registers of a thread that one tile may take, some of them spilled. Measured: H100, softmax of 1024 rows
# of 65,536 as one block: with 4 warps (twice the registers) strips take 0.38 ms and Triton's spills 1.02; with 8 and 16
# (once) the tile with its spills 0.250 and 0.262 ms, strips, which load the row three times, 0.365 and 0.361.
HELD_REGISTERS = 1.25
# Registers of a thread for a strip of a tile that takes more: as many loads are under way at once. Not measured.
STRIP_REGISTERS = 32
# Part of the registers of a block that a row may take beside what is computed from it; beyond, a cluster shares it.
# Measured: H100, softmax of 4096 rows, TB/s: 32,768 in half of the registers (8, 16, 32 warps) 2.92, 2.93, 2.93, in all
# of them (4 warps) 2.25, as a cluster of two 2.80; 65,536 in all of them (16 warps) 2.01, as a cluster of four 2.76.
CLUSTER_SHARE = 0.75
# Warps of each block of such a cluster. Measured: H100, softmax of 4096 rows of 65,536: 2.76 TB/s; with 8 of 32
# registers (and twice the blocks) 2.72, with 32 of 16 registers 1.93.
CLUSTER_WARPS = 16
# And registers of each thread for a row, beyond which more blocks share it. Measured: the same with 16, 32, 64
# registers (and 8, 4, 2 blocks): 2.55, 2.76, 2.63.
CLUSTER_REGISTERS = 32
