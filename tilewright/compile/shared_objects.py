"""Shared objects of a CPU kernel: its code, and a launcher for C++ programs that hold no Python.

PyTorch's AOTInductor packs both beside a model (`kernel.asm["so"]`, `kernel.asm["launcher.so"]`) and calls

    run_from_nativert(grid_x, grid_y, grid_z, threads, arguments, kernel)

with the address of the kernel in the first one. `arguments` has an entry for each parameter: the data of a tensor, the
place of a number (integers in 64 bits, floats in 32), nothing for a constant. Source:
torch/csrc/inductor/aoti_runtime/cpu_triton_runtime_wrappers.h of PyTorch 2.13. The C++ compiler that such a model needs
anyway links them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from tilewright.base.errors import UnsupportedError
from tilewright.compile.c_parameters import (
    PERMISSION,
    TYPES,
    Parameter,
    chunks,
    grid_slots,
    needs_permission,
    parameters_of,
    scratch_of,
)
from tilewright.compile.kernel import CompiledKernel

_COMPILERS = ("c++", "g++", "clang++")


def kernel_object(kernel: CompiledKernel) -> bytes:
    """A shared object that exports the kernel."""
    return _linked("kernel.o", kernel.binary)


def launcher_object(kernel: CompiledKernel) -> bytes:
    """A shared object that exports `run_from_nativert`.

    Raises:
        UnsupportedError: a parameter is one that C++ does not pass.
    """
    return _linked("launcher.cpp", _launcher(kernel).encode())


def _linked(source: str, content: bytes) -> bytes:
    """A shared object made of a file called `source`.

    Raises:
        UnsupportedError: there is no C++ compiler, or it fails.
    """
    asked = os.environ.get("CXX", "").split()
    found = asked or [name for name in _COMPILERS if shutil.which(name)][:1]
    if not found:
        raise UnsupportedError(
            "a shared object is linked by a C++ compiler, and there is none",
            hint="install one (g++ or clang++), or name it in CXX; kernel.binary is the object file",
        )
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        Path(folder, source).write_bytes(content)
        command = [*found, "-O2", "-std=c++17", "-fPIC", "-shared", source, "-o", "made.so", "-ldl"]
        try:
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        except OSError as error:
            raise UnsupportedError(f"{command[0]} does not start: {error}", hint="name a C++ compiler in CXX") from None
        if run.returncode:
            raise UnsupportedError(f"{' '.join(command)} failed:\n{run.stderr.strip()}")
        return Path(folder, "made.so").read_bytes()


def _launcher(kernel: CompiledKernel) -> str:
    """The source of the launcher."""
    assert kernel.specialization is not None
    names, found, facts = kernel.specialization.names, parameters_of(kernel), kernel.metadata
    parameters = [replace(one, name=f"argument_{at}") for at, one in enumerate(found)]
    slots = ""
    for at, (own, parameter) in enumerate(zip(found, parameters, strict=True)):
        if len(own.path) > 1:
            name = names[own.path[0]]
            raise UnsupportedError(f"{name} is a tuple, which a launch from C++ does not pass", hint="pass its parts")
        text = _quoted(f"{kernel.name}: {own.name} is not divisible by 16, as it was when the kernel was compiled")
        reaction = f"throw std::runtime_error({text})"
        slots += _read(parameter) + parameter.refused(reaction) + parameter.slot(at)
    asserts = "".join(f"            {_quoted(text)},\n" for text in facts["asserts"])
    return _TEXT % {
        "permission": PERMISSION if needs_permission(kernel) else "",
        "slots": slots + grid_slots(len(parameters), _GRID),
        "count": len(parameters),
        "chunks": chunks(kernel, _GRID),
        "scratch": scratch_of(kernel),
        "asserts": _ASSERTS % {"symbol": facts["symbol"], "name": kernel.name, "texts": asserts} if asserts else "",
    }


def _read(parameter: Parameter) -> str:
    """The declaration of a parameter, with what the caller passed."""
    argument = f"arguments[{parameter.path[0]}]"
    if parameter.is_pointer:
        return f"    void *const {parameter.name} = {argument};\n"
    if parameter.kind not in TYPES:
        raise UnsupportedError(f"a number of type {parameter.kind} is not passed by C++", hint="pass it as fp32")
    passed = "float" if parameter.kind.startswith("fp") else parameter.ctype
    return f"    const {parameter.ctype} {parameter.name} = *static_cast<const {passed} *>({argument});\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("??", '?""?')
    return f'"{escaped}"'


_GRID = ("x", "y", "z")

_ASSERTS = """\
    Dl_info place;
    if (dladdr(kernel, &place) && place.dli_fname) {
        void *library = dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        auto failed = library ? static_cast<int32_t *>(dlsym(library, "%(symbol)s.failed")) : nullptr;
        if (failed && *failed) {
            static const char *const texts[] = {
%(texts)s            };
            const int32_t number = *failed;
            *failed = 0;
            throw std::runtime_error(std::string("device-side assert in %(name)s: ") + texts[number - 1]);
        }
    }
"""

# The team is OpenMP's, if the program has one: that of ATen's kernels. The symbols are weak, so that none is brought.
_TEXT = """\
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

using std::memcpy;

extern "C" {
void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags) __attribute__((weak));
int omp_get_max_threads() __attribute__((weak));
int omp_in_parallel() __attribute__((weak));
}

namespace {

using Kernel = void (*)(int64_t first, int64_t end, const void *slots, void *scratch, const void *stop);

struct Launch {
    Kernel kernel;
    const int64_t *slots;
    int64_t total, chunk;
    std::atomic<int64_t> next{0};
    std::atomic<bool> short_of_memory{false};
};

void work(void *data) {
    static const int64_t stop[2] = {0, 0};
    thread_local std::unique_ptr<void, void (*)(void *)> scratch(nullptr, std::free);
    auto &launch = *static_cast<Launch *>(data);
    if (%(scratch)d && !scratch) scratch.reset(std::aligned_alloc(4096, std::max(%(scratch)d, 1)));
    if (%(scratch)d && !scratch) {
        launch.short_of_memory = true;
        return;
    }
    for (;;) {
        const int64_t first = launch.next.fetch_add(launch.chunk);
        if (first >= launch.total) return;
        launch.kernel(first, std::min(first + launch.chunk, launch.total), launch.slots, scratch.get(), stop);
    }
}

}  // namespace

extern "C" void run_from_nativert(uint32_t x, uint32_t y, uint32_t z, int threads, void **arguments, void *kernel) {
    int64_t slots[%(count)d + 3] = {0};
%(slots)s\
%(permission)s%(chunks)s\
    Launch launch{reinterpret_cast<Kernel>(kernel), slots, total, chunk};
    const bool alone = !GOMP_parallel || !omp_get_max_threads || (omp_in_parallel && omp_in_parallel());
    int team = alone ? 1 : omp_get_max_threads();
    if (threads > 1) team = std::min(team, threads);  // callers that know no number pass 1
    if (team > 1 && total > launch.chunk)
        GOMP_parallel(work, &launch, unsigned(team), 0);
    else
        work(&launch);
    if (launch.short_of_memory) throw std::bad_alloc();
%(asserts)s}
"""
