"""LLVM IR text to PTX text, through llvmlite.

::

    text --parse, verify--> module --passes--> module --NVPTX code generator--> PTX
            with a loop: LLVM's -O2, no vectorisers, no unrolling
            without:     values numbered, sums put in order, instructions combined, once each

The emitters write one thread's scalars and vector accesses themselves, so LLVM must not vectorise: its loop vectoriser
sees no vector unit, and the assembler refuses some of what its SLP vectoriser makes for sm_80. Loops are unrolled by
the assembler, which knows the registers: where few loads are an iteration, those of four iterations are then under way
at once. A kernel without a loop has nothing for most passes of -O2 to do, which combine its instructions five times.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.backends.llvm import codegen, foreign
from tilewright.backends.nvidia import libdevice
from tilewright.backends.nvidia.arch import TRIPLE, Arch, features_of
from tilewright.base.errors import InternalError, report_with
from tilewright.base.options import ExternLibrary

# `mad.wide` keeps a 32-bit multiplication in address arithmetic, which saves registers. Strength reduction of
# straight-line code compares each address with all before it (75 s of a kernel with 2,000 loads), and finds nothing
# that our emitters have left: docs/decisions/compile_time.md#no-straight-line-strength-reduction.
_LLVM_OPTIONS = ("--nvptx-mad-wide-opt", "--opt-disable=slsr")

# The assembler of CUDA 13.0 takes a signed negation of 16 bits for one that does not overflow: it leaves out the
# extension of its sign, so that -(-32768) becomes 32768 in a wider register.
_NEGATION = re.compile(r"(?:neg\.s16\s+|sub\.s16\s+(?=%rs\d+, 0,))(%rs\d+), (?:0, )?(%rs\d+);")


_VERSION = re.compile(r"^\.version \S+$", re.MULTILINE)
_BLOCKS = re.compile(r"^([\w.$-]+):|\blabel %([\w.$-]+)", re.MULTILINE)  # where one starts, where one goes on


def compile_ptx(
    text: str, arch: Arch, *, optimize: bool = True, library: Path | None = None, others: Sequence[ExternLibrary] = ()
) -> str:
    """Compile a module to PTX.

    Args:
        text: LLVM IR. It may use only intrinsics that `arch` has: over others LLVM ends the process.
        arch: the architecture.
        optimize: run LLVM's passes; without them the code generator alone.
        library: the libdevice to link; by default the one that is found.
        others: further libraries, as bitcode.

    Raises:
        InternalError: LLVM rejects the text, which is kept in a file.
    """
    with codegen.lock:
        machine = _machine(arch.capability)
        module = _prepare(text, machine, optimize, library, others)
        try:
            return _NEGATION.sub(r"sub.u16 \t\1, 0, \2;", str(machine.emit_assembly(module)))
        except RuntimeError as error:
            raise InternalError(f"LLVM makes no PTX for {arch.cpu}: {error}", hint=report_with(text, ".ll")) from error


def of_version(text: str, version: int | None) -> str:
    """PTX that says it is of another version. Whether it is, the assembler finds out: LLVM, asked for a version that
    lacks an intrinsic, would end the process.

    Args:
        text: the PTX.
        version: 10 * major + minor; None leaves it as it is.
    """
    return text if version is None else _VERSION.sub(f".version {version // 10}.{version % 10}", text, count=1)


def optimized(text: str, arch: Arch) -> str:
    """The module as LLVM IR after the passes, for people to read. Arguments and errors as `compile_ptx`."""
    with codegen.lock:
        return str(_prepare(text, _machine(arch.capability), True))


@functools.cache
def _machine(capability: int) -> Any:
    import llvmlite.binding as llvm

    _set_options()
    codegen.initialize()
    isa = features_of(capability)
    target = llvm.Target.from_triple(isa.triple)
    return target.create_target_machine(cpu=isa.cpu, features=isa.flags, opt=3, reloc="static")


@functools.cache
def _set_options() -> None:
    """Options of the NVPTX back end; they hold for the process, and must be set before the first target machine."""
    import llvmlite.binding as llvm

    for option in _LLVM_OPTIONS:
        llvm.set_option("tilewright", option)


def _prepare(
    text: str, machine: Any, optimize: bool, path: Path | None = None, others: Sequence[ExternLibrary] = ()
) -> Any:
    import llvmlite.binding as llvm

    library = libdevice.bitcode_for(libdevice.needed(text), path)  # raises, if it does, before LLVM holds anything
    module = codegen.parsed(text, TRIPLE, machine)
    if others:
        foreign.link(module, others)
        called = frozenset(f.name for f in module.functions if f.is_declaration and f.name.startswith("__nv_"))
        library = libdevice.bitcode_for(called, path)
    foreign.link_bitcode(module, library)
    if optimize and not (others or library or _has_loop(text)):
        _straight_line_pipeline().run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    elif optimize:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.loop_interleaving = options.slp_vectorization = False
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return module


def _has_loop(text: str) -> bool:
    """Whether a function goes back to a block that stands before; functions of one module are taken for one."""
    begun: set[str] = set()
    for here, there in _BLOCKS.findall(text):
        if there in begun:
            return True
        begun.add(here)
    return False


def _straight_line_pipeline() -> Any:
    """For kernels without loops. Numbering values first leaves the combining of instructions half of them."""
    import llvmlite.binding as llvm

    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_reassociate_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes
