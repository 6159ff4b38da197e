"""What programs of Triton, and newcomers, find otherwise than expected, and why it stays: for the state page."""

from __future__ import annotations

REMAINS: dict[str, tuple[tuple[str, str], ...]] = {
    "Other than in Triton, on purpose": (
        (
            "slices, `tl.arange(2, 7)`, shapes that are no power of 2, `return` in a loop, functions in kernels, plain "
            "global numbers and AMD's 8-bit formats on the CPU are accepted",
            "extensions: each has a meaning, and tests of Triton's that expect an error for them fail",
        ),
        (
            "an impossible value of an option (`num_warps=3`) is an `ArgumentError`, not an `AssertionError`",
            "errors that are meant for people are `TilewrightError`s; the text is Triton's",
        ),
        (
            "wording of some messages: axes out of range, autotuners without a configuration, `must_use_result`, "
            "bases and arguments of aggregates; places are file, line and column",
            "they say more, and what to write instead",
        ),
        ("`do_not_specialize` of a constexpr is refused where the kernel is defined", "it can never be right later"),
        ("`tl.cumsum` and `tl.cumprod` of bfloat16 round in bfloat16", "as Triton 3.9; 3.7 promoted them"),
        (
            "`ttgir`, `llvm.assume`, loop metadata, value names and mangled names in texts",
            "the back end is another; the text of tile IR is Triton's, names and early inlining aside",
        ),
        (
            "pointers to CPU memory are accepted; `device_print` shows a scalar once a program; `repr(tl.int8)` has "
            "the name of its module",
            "kernels run on the CPU, where a program is no set of threads",
        ),
        (
            "`num_ctas` gives no cluster, and no speed",
            "a program is one block with its registers: decision 0035; long rows have a cluster without it",
        ),
        (
            "arithmetic of two 8-bit floats of one type is computed in float32 and rounded",
            "Triton's front end takes it, and its back end has no instruction for it",
        ),
        ("atomic minima and maxima of f16 and bf16 through pointers are accepted", "descriptors of Triton have them"),
        (
            "tile IR text whose reductions or scans print, assert or, for CPUs, loop is refused",
            "the front end makes loops of these; text has passed it",
        ),
    ),
    "Known limits": (
        (
            "`make_fx` on tensors with data, in a process that poses as Triton: the launch is made while the program "
            "is traced, and its graph lacks it, as with Triton",
            "PyTorch's own ways are taken there: `torch.library.wrap_triton` records the launch",
        ),
        (
            "CUDA: rows of a block are shared by a cluster only beside loads, stores, arithmetic and reductions",
            "scans, atomics, prints, products and tiles that loops carry have no form for clusters; `explain` names "
            "what stands in the way",
        ),
        (
            "CUDA: the time of a known launch with tensor maps is not measured since machine code makes it",
            "no GPU was left; a fake driver tests what it passes",
        ),
        (
            'CUDA: a float32 product of 128x256x64 with `input_precision="ieee"` spills with 4 warps, and compiles in '
            "2 to 4 s",
            "256 sums do not fit a thread; 8 warps have room",
        ),
        (
            "CPU: kernels of a thousand operations and more take seconds to compile",
            "LLVM's share grows with the code; docs/decisions/compile_time.md has the curves",
        ),
        (
            "`tl.static_range(10**9)` warns and goes on; Ctrl-C ends it",
            "how long a compilation may take is the user's choice",
        ),
        (
            "the source line that a fault in native code names may be that of the instruction before or behind",
            "an instruction that computes and reads at once has one line; the interpreter names the access",
        ),
        (
            "CPU: atomics whose result is used, and those that are no sums, go to memory one by one",
            "only sums that nobody reads are kept apart over a thread's programs (docs/decisions/cpu_atomics.md)",
        ),
        (
            "CPU: `acc += tl.sum(x * w, 1)` in a loop over short pieces of long rows runs at 0.44 of `tl.dot`, and "
            "`acc += x * w` with the sum after the loop at 0.35",
            "each iteration folds the 64 lanes of every row: some 14 instructions beside the 8 that load and multiply; "
            "a tile of sums (32 KiB) is read and written in every iteration",
        ),
        (
            "Hopper: threads copy the operands of a product whose loop moves pointers down through K, or whose places "
            "are computed with 64 bits and ended by no mask",
            "the step of pointers that go back is no sum that is followed: compute places from the counter; wide "
            "places that no mask ends may leave the 32 bits that a box has",
        ),
        (
            "Hopper: programs of a plain grid whose loops are of different lengths (causal attention, groups of "
            "matrices), or of 16 warps, stay blocks: the next one is not loaded while this one is stored",
            "a fixed share of programs would wait for the longest; 16 warps are not measured "
            "(docs/decisions/nvidia_pipelines.md#persistent-programs)",
        ),
        (
            "Hopper: two tests of persistent programs, of torch.compile and of a bundle, have not run on a GPU since "
            "they found faults beside them (a launch by Dynamo of torch 2.11, the name of a descriptor's type)",
            "no time was left there; the other sixteen pass, and memcheck and racecheck find nothing in any",
        ),
        (
            "CPU: a loop of products down through K, an operand made of what lies at quotients of places of K "
            "(`k // 32`: scales of groups, packed bits), stays as it is: its iterations are not joined",
            "a loop of dots is made anew from loads with strides (`loops/lowering.py`); count upwards",
        ),
        (
            "CPU: stores with a constant stride are made element by element",
            "there is no scatter of the hardware that is faster; see fast_on_cpu.md",
        ),
        ("`tl.sigmoid` of float32 below -88.7 is 0", "subnormal results are flushed"),
        (
            "kernels cannot be defined in `python -` or the REPL before Python 3.13",
            "their source text is what is compiled, and Python does not keep it there",
        ),
        (
            "values that Triton's knobs hold as text are paths here (`knobs.cache.dir`); a text may be assigned",
            "they are the knobs of `tilewright.knobs`",
        ),
        ("a relative `HOME` makes a cache below the current folder", "the system's own rule for homes"),
    ),
}
