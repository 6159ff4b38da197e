"""A compiled kernel for programs in C: a header with a launch function, and for a GPU a source file with its code.

    CPU:   NAME.h, NAME.obj      NAME_launch(gx, gy, gz, arguments...)      on all threads when compiled with OpenMP
    CUDA:  NAME.h, NAME.c        NAME_load(&kernel);  NAME_launch(&kernel, stream, gx, gy, gz, arguments...)

Neither needs Python, Tilewright or CUDA's headers; the CUDA driver is linked (-lcuda). What the kernel was specialised
on is checked at each launch: a pointer or integer that is not divisible by 16 as promised is refused.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tilewright.backends.nvidia.arch import WARP
from tilewright.base.errors import UnsupportedError
from tilewright.base.version import __version__
from tilewright.compile.c_parameters import (
    BITS,
    PERMISSION,
    Parameter,
    chunks,
    grid_slots,
    needs_permission,
    parameters_of,
    scratch_of,
)
from tilewright.compile.kernel import CompiledKernel

RESERVED = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
nullptr class new delete template this namespace gx gy gz kernel stream slots stop first chunk total failed scratch
"""
"""Names that parameters cannot have: words of C and C++, and what the functions use."""


_GRID = ("gx", "gy", "gz")
_SYSCALL = """\
#include <sys/syscall.h>
#ifdef __cplusplus
#include <unistd.h>
#else
extern long syscall(long number, ...);
#endif
"""


def write_c(kernel: CompiledKernel, folder: Path) -> list[Path]:
    """Write the files for C of a kernel; returns them.

    Args:
        kernel: compiled for a CPU or a GPU.
        folder: where the object file of a CPU's kernel is, or will be, under the name `NAME.obj`.

    Raises:
        UnsupportedError: the kernel needs something of the launcher that the C function does not do.
    """
    symbol = str(kernel.metadata["symbol"])
    if not re.fullmatch(r"[A-Za-z_]\w*", symbol):
        raise UnsupportedError(f"{symbol} is no name in C", hint="give the kernel a `repr` that is one")
    kernel = kernel.for_all_values()
    parameters = _parameters(kernel)
    files = (
        _for_cpu(kernel, symbol, parameters) if kernel.target.backend == "cpu" else _for_gpu(kernel, symbol, parameters)
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def _parameters(kernel: CompiledKernel) -> list[Parameter]:
    reserved = RESERVED.split()
    found = parameters_of(kernel)
    return [replace(one, name=f"{one.name}_") if one.name in reserved else one for one in found]


def _note(parameter: Parameter) -> str:
    """What a caller must know of a parameter."""
    notes = ["the bits of a " + parameter.kind] if parameter.kind in BITS else []
    notes += [f"to {parameter.kind[1:]}"] if parameter.is_pointer and "void" in parameter.ctype else []
    return "; ".join([*notes, *(["divisible by 16"] if parameter.divisible else [])])


def _head(kernel: CompiledKernel, symbol: str, parameters: list[Parameter]) -> str:
    assert kernel.specialization is not None
    names = kernel.specialization.names
    lines = [f"{p.name}: {_note(p)}" for p in parameters if _note(p)]
    lines += [f"{names[path[0]]} = {value!r}" for path, value in kernel.specialization.constants.items()]
    noted = "".join(f" *   {line.replace('*/', '* /')}\n" for line in lines)
    return f"/* {symbol} for {kernel.target}, compiled by Tilewright {__version__}.\n{noted} */\n"


def guarded(symbol: str, text: str) -> str:
    """A header that may be included twice."""
    return f"#ifndef TW_{symbol}_H\n#define TW_{symbol}_H\n\n{text}\n#endif\n"


def _takes(parameters: list[Parameter]) -> str:
    return "".join(f", {p.ctype}{'' if p.ctype.endswith('*') else ' '}{p.name}" for p in parameters)


def _codes(asserts: list[str]) -> str:
    rows = "".join(f" *  {number:2}  {text}\n".replace("*/", "* /") for number, text in enumerate(asserts, 1))
    failed = f"; the number of a device_assert that did not hold:\n{rows} */" if asserts else " */"
    return f"/* 0; -1: an argument is not divisible by 16 as promised; -2: no memory for scratch{failed}\n"


# --- CPU --------------------------------------------------------------------------------------------------


def _for_cpu(kernel: CompiledKernel, symbol: str, parameters: list[Parameter]) -> dict[str, str]:
    facts, count = kernel.metadata, len(parameters)
    asserts = list(facts["asserts"])
    slots = "".join(parameter.slot(index) for index, parameter in enumerate(parameters))
    flag = f'extern int32_t {symbol}_failed __asm__("{symbol}.failed");\n' if asserts else ""
    amx, scratch = needs_permission(kernel), scratch_of(kernel)
    text = f"""\
{_head(kernel, symbol, parameters)}
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
{_SYSCALL if amx else ""}
#ifdef __cplusplus
extern "C" {{
#endif

void {symbol}(int64_t first, int64_t end, const void *slots, void *scratch, const void *stop);
{flag}
{_codes(asserts)}static inline int {symbol}_launch(int64_t gx, int64_t gy, int64_t gz{_takes(parameters)}) {{
    static const int64_t stop[2] = {{0, 0}};
{chunks(kernel, _GRID)}\
    int64_t slots[{count + 3}] = {{0}};
    int failed = 0;
{"".join(parameter.refused("return -1") for parameter in parameters)}{slots}{grid_slots(count, _GRID)}\
{PERMISSION if amx else ""}{f"    {symbol}_failed = 0;" if asserts else ""}
#ifdef _OPENMP
#pragma omp parallel
#endif
    {{
        void *scratch = {f"aligned_alloc(4096, {scratch})" if scratch else "NULL"};
        const int usable = scratch || {int(not scratch)};
        if (!usable) failed = -2;
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
        for (int64_t first = 0; first < total; first += chunk)
            if (usable) {symbol}(first, first + chunk < total ? first + chunk : total, slots, scratch, stop);
        free(scratch);
    }}
    return failed{f" ? failed : {symbol}_failed" if asserts else ""};
}}

#ifdef __cplusplus
}}
#endif
"""
    return {f"{symbol}.h": guarded(symbol, text)}


# --- CUDA -------------------------------------------------------------------------------------------------


def _for_gpu(kernel: CompiledKernel, symbol: str, parameters: list[Parameter]) -> dict[str, str]:
    facts = kernel.metadata
    special = {
        "tensor maps": bool(facts.get("tensor_maps")),
        "programs that blocks run one after the other": bool(facts.get("persistent")),
        "device_assert or device_print": bool(facts["needs_log"]),
        "cooperative grids": bool(facts.get("launch_cooperative_grid")),
        "programmatic launches": bool(facts.get("launch_pdl")),
    }
    for what, used in special.items():
        if used:
            raise UnsupportedError(
                f"{symbol} uses {what}, which a launch from C does not do", hint="launch it from Python"
            )
    takes = _takes([_on_gpu(parameter) for parameter in parameters])
    grid = "unsigned gx, unsigned gy, unsigned gz"
    declared = f"int {symbol}_launch(const {symbol}_kernel *kernel, void *stream, {grid}{takes})"
    header = _gpu_header(_head(kernel, symbol, parameters), symbol, declared)
    return {f"{symbol}.h": guarded(symbol, header), f"{symbol}.c": _gpu_source(kernel, symbol, parameters, declared)}


def _gpu_header(head: str, symbol: str, declared: str) -> str:
    return f"""\
{head}
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {{
    void *module, *function;
}} {symbol}_kernel;

/* Load the code into the current CUDA context, and unload it; CUresult. */
int {symbol}_load({symbol}_kernel *kernel);
int {symbol}_unload({symbol}_kernel *kernel);
/* Queue a launch in a CUstream; addresses are CUdeviceptr. CUresult, or -1: not divisible by 16 as promised. */
{declared};

#ifdef __cplusplus
}}
#endif
"""


def _gpu_source(kernel: CompiledKernel, symbol: str, parameters: list[Parameter], declared: str) -> str:
    facts = kernel.metadata
    shared, passed = int(facts["shared"]), ", ".join(f"&{parameter.name}" for parameter in parameters)
    blocks = "gx" if facts["cluster"] == 1 else f"gx * {facts['cluster']}u"  # the image says how they form clusters
    threads = int(facts["block_warps"]) * WARP
    return f"""\
#include "{symbol}.h"

#include <stddef.h>

extern int cuModuleLoadData(void **module, const void *image);
extern int cuModuleUnload(void *module);
extern int cuModuleGetFunction(void **function, void *module, const char *name);
extern int cuFuncSetAttribute(void *function, int attribute, int value);
extern int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra);

static const unsigned char image[] __attribute__((aligned(16))) = {{
{_bytes(kernel.binary)}
}};

int {symbol}_load({symbol}_kernel *kernel) {{
    int code = cuModuleLoadData(&kernel->module, image);
    if (code == 0) code = cuModuleGetFunction(&kernel->function, kernel->module, "{symbol}");
    /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    if (code == 0 && {shared} > 48 * 1024) code = cuFuncSetAttribute(kernel->function, 8, {shared});
    return code;
}}

int {symbol}_unload({symbol}_kernel *kernel) {{ return cuModuleUnload(kernel->module); }}

{declared} {{
    void *parameters[] = {{{passed}{", " if passed else ""}NULL}};
{"".join(_on_gpu(parameter).refused("return -1") for parameter in parameters)}\
    return cuLaunchKernel(kernel->function, {blocks}, gy, gz, {threads}, 1, 1, {shared}, stream,
                          parameters, NULL);
}}
"""


def _on_gpu(parameter: Parameter) -> Parameter:
    """An address on a GPU is a number in C."""
    return replace(parameter, kind="u64") if parameter.is_pointer else parameter


def _bytes(image: bytes) -> str:
    rows = [", ".join(map(str, image[start : start + 24])) for start in range(0, len(image), 24)]
    return "".join(f"    {row},\n" for row in rows).rstrip("\n")
