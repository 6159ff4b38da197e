"""Numbers of the NVIDIA back end that were chosen, not computed: where it would rather do one thing than another.

Each says what it is and where its value comes from: "Measured:" machine, command and result; or "Not measured". Whoever
measures one writes it here. Facts of architectures are not tuning: they stand in `arch.py` and where they are used.
"""

from __future__ import annotations

# --- layouts -------------------------------------------------------------------------------------------

# Cycles that a warp waits for the others at a barrier, beside the cycles of moving bytes. Not measured.
BARRIER_CYCLES = 32
# Accesses share a layout unless that makes one of them so many times as dear. Not measured: a conversion costs about
# as much as the access itself.
SHARED_LAYOUT_TOLERANCE = 2.0
# Layouts in which a loop may carry one value. Not measured.
CARRIED_LAYOUTS = 4
# Operations back that a tile may be computed once more rather than converted. Not measured: it bounds planning.
REMADE_DEPTH = 4
# Registers of a thread that an operand from before a loop may hold through it. Not measured.
OPERAND_REGISTERS = 32

# --- shared memory ---------------------------------------------------------------------------------------

# Blocks of descriptors take at most one of so many parts of shared memory. Not measured: the rest is for rings.
DESCRIPTOR_SHARE = 2
# Instructions of the copy engine for one block. Not measured.
COPY_ENGINE_BOXES = 32
# Bytes of scratch that keeps clear of its neighbours to save the barrier between them. Not measured.
APART_BYTES = 4096
# Tiles of more bytes change their layout in slices. Not measured: it leaves room on every target, and moving a slice
# takes about a thousand cycles, beside which two barriers are little.
CONVERSION_SLICE_BYTES = 64 * 1024
# Shuffles for one register of a gather; beyond, shared memory. Not measured.
GATHER_SHUFFLES = 4
# Groups of copies under way that the placing of barriers tells apart. Not measured: it bounds planning.
COPY_GROUPS = 8
