"""The CPU as the runtime sees it: target, stages, loading, launching.

::

    ttir --loops--> plan of fusion groups --llir--> LLVM IR text --obj--> object bytes --load--> address
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.backends.cpu.device import ir
from tilewright.backends.cpu.device.faults import faults_text, note_extents, note_kernel
from tilewright.backends.cpu.device.interrupt import interrupts_text
from tilewright.backends.cpu.device.launcher import KernelCode, make_launch
from tilewright.backends.cpu.device.permission import request_permission
from tilewright.backends.cpu.device.team import team
from tilewright.backends.llvm import codegen
from tilewright.backends.llvm.calls.calling import CALLS, calls_text
from tilewright.backends.llvm.features import CpuFeatures, describe, set_host_cache
from tilewright.backends.llvm.origin import elsewhere
from tilewright.backends.protocol import ByteCache
from tilewright.base.errors import DeviceAssertionError, DeviceError
from tilewright.base.knobs import knobs
from tilewright.base.lazy import lazy_module, load_all
from tilewright.base.options import ExternLibrary, Options
from tilewright.base.record import Record
from tilewright.base.target import Placement, Target
from tilewright.base.tracebacks import shorten_traceback
from tilewright.passes.stages import Stage

if TYPE_CHECKING:
    from tilewright.backends.cpu import lowering as lowerings
    from tilewright.backends.cpu import machine
    from tilewright.backends.cpu.emit import lower
    from tilewright.backends.cpu.plan import module as loops
    from tilewright.backends.llvm import foreign, linetable, names
    from tilewright.backends.lowering import Lowering
else:  # a kernel that comes from the disk cache needs none of them
    lowerings = lazy_module("tilewright.backends.cpu.lowering")
    machine = lazy_module("tilewright.backends.cpu.machine")
    lower = lazy_module("tilewright.backends.cpu.emit.lower")
    loops = lazy_module("tilewright.backends.cpu.plan.module")
    foreign = lazy_module("tilewright.backends.llvm.foreign")
    linetable = lazy_module("tilewright.backends.llvm.linetable")
    names = lazy_module("tilewright.backends.llvm.names")

BINARY = "obj"
EXTENSIONS = ("loops", "llir", BINARY)
_NO_AMX = "-amx-tile,-amx-bf16,-amx-int8"
_caches: list[ByteCache] = []


def set_cache(cache: ByteCache | None) -> None:
    """Where the launcher's code and LLVM's answer about this machine are kept, so that a warm start needs no LLVM."""
    _caches[:] = [] if cache is None else [cache]
    set_host_cache(cache)


class LoadedKernel(Record):
    """Code of one kernel in memory.

    Args:
        library: keeps the code alive.
        address: of the range function.
        failed: address of the i32 in which a failed `tl.device_assert` leaves 1 + its number; 0 if there is none.
        others: libraries of the user's that it calls.
    """

    library: codegen.Library
    address: int
    failed: int = 0
    others: tuple[Any, ...] = ()

    def note_extents(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Let the handler of faults know the arrays of a launch; arguments as for `faults.note_extents`."""
        note_extents(self.library, ranges)


class ForeignKernel(Record):
    """Code for another machine, which can be looked at.

    Args:
        where: it runs, as `origin.elsewhere` has it.
    """

    where: str


@functools.lru_cache(maxsize=8)
def _target(arch: str | None, features: str | None) -> Target:
    isa = describe("", arch or "", features or "")
    if arch or features:
        names.check_names(isa)
    if isa.has("amx-tile") and not request_permission():  # the kernel keeps the tile registers from us
        isa = describe("", arch or "", ",".join(filter(None, (features, _NO_AMX))))
    return Target("cpu", isa.cpu, features=isa.flags, triple=isa.triple)


def target() -> Target:
    """The host, or the CPU that the knobs name."""
    return _target(knobs.cpu.arch, knobs.cpu.features)


@functools.lru_cache(maxsize=8)
def features_of(target: Target) -> CpuFeatures:
    """What a target can do.

    Raises:
        DeviceError: LLVM does not know its CPU or a feature of it.
    """
    host_like = _target(None, None)
    if target == host_like:
        return describe()
    isa = describe(target.triple, str(target.arch), target.features)
    names.check_names(isa)
    return isa


def threads() -> int:
    """Threads that the next launch would use."""
    return team.threads()


def versions() -> str:
    """Versions of what makes code, for the cache key."""
    return codegen.versions()


def fuses(target: Target) -> bool:
    """All but x86-64 without FMA, where it is a call for each element."""
    return features_of(target).has_fma


def stages(options: Options, target: Target) -> Mapping[str, Stage]:
    """The stages after tile IR."""
    isa, libraries = features_of(target), getattr(options, "libraries", ())
    bitcode = [library for library in libraries if foreign.is_bitcode(library)]

    def emit(planned: loops.LoopModule, metadata: dict[str, Any]) -> str:
        program = lower.emit_module(planned, isa, options)
        metadata.update(
            symbol=program.symbol,
            scratch_bytes=program.scratch_bytes,
            asserts=list(program.asserts),
            decisions=program.decisions,
            file=program.file,
            pointers=program.pointers,
            waits=program.waits,
        )
        if program.externals:
            in_bitcode = set[str]().union(*(foreign.signatures(library) for library in bitcode))
            metadata["externals"] = [name for name in program.externals if name not in in_bitcode]
            metadata["libraries"] = [list(library) for library in libraries if library not in bitcode]
        return program.llvm

    def compile_object(text: str, metadata: dict[str, Any]) -> bytes:
        link = functools.partial(foreign.link, libraries=bitcode) if bitcode else None
        image = codegen.compile_object(text, isa, link=link)
        metadata["lines"] = linetable.lines_of(image)
        return image

    return {
        "loops": Stage(lambda module, _: loops.plan_module(module, isa), lambda planned: planned.render()),
        "llir": Stage(emit, parse=lambda text: text.decode()),
        BINARY: Stage(compile_object, parse=lambda image: image),
    }


def load_compiler() -> None:
    """Load everything that the stages would load when they run."""
    load_all(globals())
    codegen.initialize()


def load(binary: bytes, metadata: Mapping[str, Any]) -> LoadedKernel | ForeignKernel:
    """Load object bytes made by the stages; of those for another machine only a launch is an error.

    Raises:
        InternalError: the bytes are not a loadable object.
    """
    if where := elsewhere(binary):
        return ForeignKernel(where)
    symbol = str(metadata["symbol"])
    flag = f"{symbol}.failed"
    others = [ExternLibrary(*row) for row in metadata.get("libraries", ())]
    found, kept = foreign.addresses(metadata["externals"], others) if metadata.get("externals") else ({}, [])
    library = codegen.load(binary, [symbol, flag] if metadata["asserts"] else [symbol], found)
    note_kernel(library, metadata, _caches[0] if _caches else None)
    failed = library.address(flag) if metadata["asserts"] else 0
    return LoadedKernel(library, library.address(symbol), failed, tuple(kept))


def launcher(
    module: LoadedKernel | ForeignKernel, metadata: Mapping[str, Any], place: Placement, otherwise: object = None
) -> Callable[..., None]:
    """A function ``launch(gx, gy, gz, *values)`` that runs the kernel over a grid.

    Raises:
        DeviceError: the kernel is for another machine.
    """
    if isinstance(module, ForeignKernel):
        raise DeviceError(
            f"kernel `{metadata['name']}` was compiled for {module.where}, which this machine is not",
            hint="leave `target` and its triple out to compile for this machine",
        )
    code = KernelCode(
        address=module.address,
        types=tuple(metadata["types"]),
        scratch_bytes=int(metadata["scratch_bytes"]),
        cooperative=bool(metadata.get("launch_cooperative_grid")),
        in_order=bool(metadata.get("waits")),
        owner=module,
    )
    launch = make_launch(code, num_threads=place.num_threads, cache=_caches[0] if _caches else None)
    return _checked(launch, module.failed, metadata) if module.failed else launch


def helpers(triple: str) -> Mapping[str, str]:
    """Texts of the code of our own that launches need, by name."""
    texts = {
        "launcher": ir.launcher_ir(triple),
        CALLS: calls_text(triple),
        "interrupts": interrupts_text(triple),
        "faults": faults_text(triple),
    }
    return {name: text for name, text in texts.items() if text is not None}


def why_not(target: Target) -> str:
    """Why code for `target` does not run on this machine; "" if it does."""
    return str(machine.why_not(target))


def lowering(name: str) -> Lowering | None:
    """How code is made for operation `name`."""
    made: Lowering | None = lowerings.lowering(name)
    return made


def texts(asm: Mapping[str, str | bytes]) -> Mapping[str, Callable[[], str]]:
    """Texts that are made of the binary when they are asked for: none."""
    return {}


def _checked(launch: Callable[..., None], flag: int, metadata: Mapping[str, Any]) -> Callable[..., None]:
    """`launch`, then an error if a device assertion failed."""
    failed = ctypes.c_int32.from_address(flag)

    def launch_and_check(*args: Any) -> None:
        try:
            failed.value = 0
            launch(*args)
            if failed.value:
                message = metadata["asserts"][failed.value - 1]
                raise DeviceAssertionError(f"device-side assert in {metadata['name']}: {message}")
        except Exception as error:
            shorten_traceback(error)
            raise

    return launch_and_check
