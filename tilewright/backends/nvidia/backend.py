"""NVIDIA GPUs as the runtime sees them: target, stages, loading, launching.

::

    ttir --tgir--> laid-out tile IR --llir--> LLVM IR text --ptx--> PTX text --cubin--> machine code --load--> function

All stages run without a GPU. Where there is no assembler the last one keeps the PTX, which the driver then compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.calls.calling import CALLS, calls_text
from tilewright.backends.llvm.features import set_host_cache
from tilewright.backends.nvidia import cubin, libdevice, registers
from tilewright.backends.nvidia.arch import MAX_THREADS, WARP, Arch, arch_of, target_of
from tilewright.backends.nvidia.device import driver, stub
from tilewright.backends.nvidia.device.launch import LoadedKernel, make_launch
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.protocol import ByteCache, Launch
from tilewright.base.errors import OutOfResources
from tilewright.base.lazy import lazy_module, load_all
from tilewright.base.target import Placement, Target
from tilewright.passes import printing
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.backends.lowering import Lowering
    from tilewright.backends.nvidia import lowering as lowerings
    from tilewright.backends.nvidia import pipeline, ptx
    from tilewright.backends.nvidia.emit import lower
    from tilewright.backends.nvidia.plan import allocate, assembly
    from tilewright.backends.nvidia.tgir import ops as tgir_ops
    from tilewright.ir import decisions
    from tilewright.ops import function
else:  # a kernel that comes from the disk cache needs none of them
    lowerings = lazy_module("tilewright.backends.nvidia.lowering")
    allocate = lazy_module("tilewright.backends.nvidia.plan.allocate")
    pipeline = lazy_module("tilewright.backends.nvidia.pipeline")
    ptx = lazy_module("tilewright.backends.nvidia.ptx")
    assembly = lazy_module("tilewright.backends.nvidia.plan.assembly")
    tgir_ops = lazy_module("tilewright.backends.nvidia.tgir.ops")
    lower = lazy_module("tilewright.backends.nvidia.emit.lower")
    decisions = lazy_module("tilewright.ir.decisions")
    function = lazy_module("tilewright.ops.function")

BINARY = "cubin"
EXTENSIONS = ("tgir", "llir", "ptx", BINARY)


def set_cache(cache: ByteCache | None) -> None:
    """Where the launcher's code and LLVM's answer about this machine are kept, so that a warm start needs no LLVM."""
    stub.set_cache(cache)
    set_host_cache(cache)


def target(ordinal: int | None = None) -> Target:
    """The target of a GPU of this machine; by default of the one that the calling thread uses.

    Raises:
        DriverError: there is no driver, or no such GPU.
        UnsupportedError: no code is made for its architecture.
    """
    return target_of(driver.device(driver.current_device() if ordinal is None else ordinal).capability)


def versions() -> str:
    """Versions of what makes code, for the cache key."""
    return f"{codegen.versions()}, {cubin.identity(driver.driver_major())}, {libdevice.version()}"


def fuses(target: Target) -> bool:
    """Every GPU does."""
    return True


def stages(options: CudaOptions, target: Target) -> Mapping[str, Stage]:
    """The stages after tile IR."""
    arch = arch_of(target)

    def lay_out(module: ModuleOp, metadata: dict[str, Any]) -> ModuleOp:
        noted = decisions.Decisions()
        told = printing.printer(metadata["name"], tgir_ops.print_module)
        hands_on = cubin.hands_registers_on(driver.driver_major())
        made = pipeline.lay_out_module(module, options, target, noted, told, hands_on=hands_on)
        metadata["decisions"] = noted.records()
        return made

    def emit(module: ModuleOp, metadata: dict[str, Any]) -> str:
        kernel = lower.emit_kernel(module, options, target)
        _check_resources(kernel, module, arch)
        told = [*metadata.get("decisions", ()), *kernel.decisions.records()]
        metadata.update(kernel.facts(), decisions=told)
        return kernel.llvm

    def to_ptx(text: str, _: object) -> str:
        made = ptx.compile_ptx(text, arch, library=options.libdevice, others=options.libraries)
        return ptx.of_version(made, options.ptx_version)

    def assemble(text: str, metadata: dict[str, Any]) -> bytes:
        made = registers.assemble(
            text,
            arch,
            kernel=metadata["symbol"],
            warps=metadata["block_warps"],
            shared_bytes=metadata["shared"],
            max_registers=options.maxnreg,
            driver_major=driver.driver_major(),
        )
        if made is None:
            return text.encode() + b"\0"
        warps = metadata["block_warps"]
        metadata.update(
            n_regs=made.registers,
            n_spills=made.spill_bytes,
            n_max_threads=warps * WARP,
            notes=list(made.notes),
            occupancy=arch.occupancy(warps, made.registers, metadata["shared"] + made.shared_bytes),
            decisions=[*metadata.get("decisions", ()), *assembly.records_of(made.whole)],
        )
        return made.image

    return {
        "tgir": Stage(
            lay_out, lambda module: tgir_ops.print_module(module), lambda text: tgir_ops.parse_module(text.decode())
        ),
        "llir": Stage(emit, parse=lambda text: text.decode()),
        "ptx": Stage(to_ptx, parse=lambda text: text.decode()),
        BINARY: Stage(assemble, parse=lambda image: image),
    }


def _check_resources(kernel: lower.LoweredKernel, module: ModuleOp, arch: Arch) -> None:
    """Raises OutOfResources for what no GPU of the architecture has."""
    threads = kernel.num_warps * WARP
    if threads > MAX_THREADS:
        raise OutOfResources(threads, MAX_THREADS, "threads", hint=f"Write num_warps={MAX_THREADS // WARP} or less.")
    if kernel.shared_bytes > arch.shared_limit:
        func = function.FuncOp.kernel_of(module)
        largest = allocate.allocate(func).largest()
        raise OutOfResources(kernel.shared_bytes, arch.shared_limit, "shared memory", largest)


def load_compiler() -> None:
    """Load everything that the stages would load when they run."""
    load_all(globals())
    codegen.initialize()


def load(binary: bytes, metadata: Mapping[str, Any]) -> LoadedKernel:
    """Code for GPUs, which load it at the first launch."""
    return LoadedKernel(binary, metadata)


def launcher(
    module: LoadedKernel, metadata: Mapping[str, Any], place: Placement, otherwise: Callable[[], Launch] | None = None
) -> Launch:
    """A function ``launch(gx, gy, gz, *values)`` that queues the kernel on a GPU."""
    ordinal = driver.current_device() if place.device is None else place.device
    return make_launch(
        module,
        ordinal,
        stream=place.stream,
        cooperative=bool(metadata.get("launch_cooperative_grid")),
        programmatic=bool(metadata.get("launch_pdl")),
        otherwise=otherwise,
    )


def helpers(triple: str) -> Mapping[str, str]:
    """Texts of the code of our own that launches need, by name."""
    return {"cuda launcher": stub.stub_ir(triple), CALLS: calls_text(triple)}


def why_not(target: Target) -> str:
    """Why code for `target` runs on no GPU of this machine; "" if it does on one."""
    here = {str(target_of(driver.device(ordinal).capability)) for ordinal in range(driver.device_count())}
    return "" if str(target) in here else f"this machine has {', '.join(sorted(here)) or 'no NVIDIA GPU'}"


def lowering(name: str) -> Lowering | None:
    """How code is made for operation `name`."""
    made: Lowering | None = lowerings.lowering(name)
    return made


def texts(asm: Mapping[str, str | bytes]) -> Mapping[str, Callable[[], str]]:
    """Texts that are made of the binary when they are asked for: `sass`, where nvdisasm is found."""

    def sass() -> str:
        image = asm[BINARY]
        text = cubin.disassemble(image) if isinstance(image, bytes) else None
        if text is None:
            raise KeyError("sass")  # as for any stage that there is not
        return text

    return {"sass": sass}
