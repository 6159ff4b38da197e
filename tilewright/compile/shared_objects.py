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
from pathlib import Path

from tilewright.backends.cpu.device.arena import arena_stride
from tilewright.base.errors import UnsupportedError
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.specialize import DIVISIBLE
from tilewright.devices.registry import cpu

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
    names, slots, count = kernel.specialization.names, "", 0
    for name, path, kind, key in kernel.specialization.leaves():
        if kind == "constexpr":
            continue
        if len(path) > 1:
            raise UnsupportedError(f"{name} is a tuple, which a launch from C++ does not pass", hint="pass its parts")
        slots += _slot(count, path[0], kind)
        if key == DIVISIBLE:
            slots += _check(count, names[path[0]], kernel.name)
        count += 1
    facts = kernel.metadata
    asserts = "".join(f"            {_quoted(text)},\n" for text in facts["asserts"])
    return _TEXT % {
        "permission": _PERMISSION if cpu.features_of(kernel.target).has("amx-tile") else "",
        "slots": slots,
        "count": count,
        "chunk": int(facts.get("chunk", 0)),
        "scratch": arena_stride(int(facts["scratch_bytes"])) if facts["scratch_bytes"] else 0,
        "asserts": _ASSERTS % {"symbol": facts["symbol"], "name": kernel.name, "texts": asserts} if asserts else "",
    }


def _slot(slot: int, argument: int, kind: str) -> str:
    """The statement that fills a slot of eight bytes: integers are widened, all else lies in its first bytes."""
    if kind.startswith("*"):
        return f"    slots[{slot}] = reinterpret_cast<int64_t>(arguments[{argument}]);\n"
    number = f"*static_cast<const float *>(arguments[{argument}])"
    if kind in ("fp32", "fp64"):
        ctype = "float" if kind == "fp32" else "double"
        return f"    {{ const {ctype} number = {number}; std::memcpy(&slots[{slot}], &number, sizeof number); }}\n"
    if not kind[1:].isdigit():
        raise UnsupportedError(f"a number of type {kind} is not passed by C++", hint="pass it as fp32")
    signed, width = ("int" if kind[0] == "i" else "uint"), max(int(kind[1:]), 8)
    return f"    slots[{slot}] = *static_cast<const {signed}{width}_t *>(arguments[{argument}]);\n"


def _check(slot: int, name: str, kernel: str) -> str:
    text = _quoted(f"{kernel}: {name} is not divisible by 16, as it was when the kernel was compiled")
    return f"    if (slots[{slot}] % 16 != 0) throw std::runtime_error({text});\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("??", '?""?')
    return f'"{escaped}"'


_PERMISSION = "    syscall(SYS_arch_prctl, 0x1023, 18);  // tile registers\n"

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
    slots[%(count)d] = x, slots[%(count)d + 1] = y, slots[%(count)d + 2] = z;
%(permission)s\
    const int64_t total = int64_t(x) * y * z, given = %(chunk)d;
    Launch launch{reinterpret_cast<Kernel>(kernel), slots, total, given ? given : total / 64 + 1};
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
