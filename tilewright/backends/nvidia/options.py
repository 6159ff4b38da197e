"""What the list of back ends knows of NVIDIA GPUs before anything of theirs is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.options import ExternLibrary, Options, extern_libraries
from tilewright.base.target import Target


@dataclass(frozen=True, slots=True)
class CudaOptions(Options):
    """Options that change code for an NVIDIA GPU, or how it is launched.

    Args:
        default_dot_input_precision: as for all targets; usually "tf32" here.
        num_warps: warps per program, a power of two.
        num_stages: software pipeline depth.
        num_ctas: blocks of the cluster that Triton would share a program out to; see `block_warps`.
        maxnreg: register limit per thread.
        ptx_version: version that the PTX says it is of (80 is 8.0), so that older drivers take it; the assembler
            refuses a kernel that needs a newer one. By default the oldest that has every instruction that is written.
        launch_cooperative_grid: all programs must be resident at once.
        tensor_maps: loads through pointers may become copies by the copy engine (TMA, Hopper), for which the launch
            makes tensor maps that follow the parameters. Kernels that are launched by name have it unless they say no;
            for who launches machine code by other means it is off.
        persistent_programs: blocks may run one program of the grid after the other, for which the launch starts as many
            as run at a time and hands the grid on. As `tensor_maps`, on for kernels that are launched by name.
        launch_pdl: the kernel may start before the one ahead of it in the stream has ended.
        extern_libs: path by name of libraries as LLVM's bitcode, whose functions `extern_elementwise` calls;
            "libdevice" is linked instead of the one found.
        enable_reflect_ftz: taken for programs of Triton: small numbers of libdevice's functions are never flushed.

    The other options of Triton's CUDA back end are known, and refused with the reason unless they say what holds here.

    Raises:
        ArgumentError: `num_warps` or `num_ctas` is not what a program can have, or a library is no file.
        UnsupportedError: a value that this back end does not have.
    """

    default_dot_input_precision: str = "tf32"
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    tensor_maps: bool = False
    persistent_programs: bool = False
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    extern_libs: Any = ()
    enable_reflect_ftz: bool = True
    warp_size: int = 32
    backend_name: str = "cuda"
    arch: str | None = None
    ptx_version: int | None = None
    ptx_options: str | None = None
    ir_override: str | None = None
    instrumentation_mode: str = ""
    supported_fp8_dtypes: Any = None
    deprecated_fp8_dot_operand_dtypes: Any = None
    allowed_dot_input_precisions: Any = None
    max_num_imprecise_acc_default: int | None = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        check_warps(self.num_warps)
        if self.ptx_version is not None and not 60 <= self.ptx_version < 1000:
            raise ArgumentError(f"ptx_version={self.ptx_version} is no version of PTX", hint="write 80 for PTX 8.0")
        _check_blocks(self.num_ctas)
        object.__setattr__(self, "extern_libs", extern_libraries(self.extern_libs))
        for name, (held, reason) in _ONE_VALUE.items():
            value = getattr(self, name)
            if value not in held:
                raise UnsupportedError(f"option {name}={value!r}: {reason}", hint=f"leave out {name}")

    def for_all_values(self) -> CudaOptions:
        """Without tensor maps of pointers: strides that are not positive have none, say."""
        return replace(self, tensor_maps=False) if self.tensor_maps else self

    @property
    def block_warps(self) -> int:
        """Warps of the block that a program is: those of its cluster, as long as each adds registers (0035)."""
        return max(self.num_warps, min(self.num_warps * self.num_ctas, _WARPS_WITH_ALL_REGISTERS))

    @property
    def libdevice(self) -> Path | None:
        """The file to link as libdevice, if the options name one."""
        return next((Path(library.path) for library in self.extern_libs if library.name == "libdevice"), None)

    @property
    def libraries(self) -> tuple[ExternLibrary, ...]:
        """The libraries of others."""
        return tuple(library for library in self.extern_libs if library.name != "libdevice")


_WARPS_WITH_ALL_REGISTERS = 8  # 255 registers for each thread are all that a multiprocessor has
_MOST_BLOCKS = 16  # of a cluster

_ONE_VALUE: dict[str, tuple[tuple[Any, ...], str]] = {
    "warp_size": ((32,), "a warp of an NVIDIA GPU has 32 threads"),
    "backend_name": (("cuda",), 'the back end goes with the target, as in target="cuda:90"'),
    "arch": ((None,), 'the architecture goes with the target, as in target="cuda:90"'),
    "ptx_options": ((None, ""), "code is assembled by nvJitLink or the driver where there is no ptxas"),
    "ir_override": ((None, ""), "a file of TILEWRIGHT_OVERRIDE_DIR replaces a stage"),
    "instrumentation_mode": (("",), "kernels are not instrumented"),
    "supported_fp8_dtypes": ((None,), "they follow from the architecture"),
    "deprecated_fp8_dot_operand_dtypes": ((None, ()), "no type is deprecated"),
    "allowed_dot_input_precisions": ((None,), "tl.dot takes every precision that the language has"),
    "max_num_imprecise_acc_default": ((None,), "tl.dot takes max_num_imprecise_acc"),
}
"""Options of Triton's CUDA back end whose values cannot be chosen here: those that may be written out, and why."""


def check_warps(warps: object) -> None:
    """Raise ArgumentError where `warps` is no number of warps that a program can have."""
    if not isinstance(warps, int) or warps < 1 or warps & (warps - 1):
        raise ArgumentError(f"num_warps must be a power of 2, got {warps!r}", hint="write 1, 2, 4, 8, ...")


def _check_blocks(blocks: object) -> None:
    if not isinstance(blocks, int) or not 1 <= blocks <= _MOST_BLOCKS or blocks & (blocks - 1):
        raise ArgumentError(f"num_ctas must be a power of 2 up to {_MOST_BLOCKS}, got {blocks!r}", hint="write 1")


def parse_arch(text: str) -> Target | None:
    """The target `cuda:<text>`, where the text is a compute capability: `"90"` or `"sm_90a"`; None if it is none."""
    digits = text.removeprefix("sm_").rstrip("af")
    return Target("cuda", int(digits), warp_size=32) if digits.isdigit() else None
