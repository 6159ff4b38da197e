"""Kernels launched through shared objects, as models of AOTInductor launch them: from C++, without Python."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import UnsupportedError

CXX = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
needs_cxx = pytest.mark.skipif(CXX is None or sys.platform != "linux", reason="there is no C++ compiler here")

# Launches kernel.so through launcher.so on what lies in files, and writes what came of it.
HOST = """
#include <dlfcn.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

static float x[BLOCK_COUNT * 64] __attribute__((aligned(64))), out[BLOCK_COUNT * 64 + 16] __attribute__((aligned(64)));
using Launcher = void (*)(uint32_t, uint32_t, uint32_t, int, void **, void *);

int main(int, char **argv) {
    void *kernel = dlsym(dlopen("./kernel.so", RTLD_NOW | RTLD_LOCAL), argv[1]);
    void *launcher = dlopen("./launcher.so", RTLD_NOW | RTLD_LOCAL);
    auto launch = reinterpret_cast<Launcher>(dlsym(launcher, "run_from_nativert"));
    for (int i = 0; i < BLOCK_COUNT * 64; ++i) x[i] = static_cast<float>((i * 7919) % 1000);
    int64_t n = std::atoll(argv[2]), wide = int64_t(1) << 40;  // integers come in 64 bits, floats in 32
    int8_t narrow = -3;
    uint16_t many = 65535;
    bool yes = true;
    float half = 0.5f, third = 1.0f / 3;
    for (int round = 0; round < 3; ++round) {
        try {
            void *arguments[] = {x, nullptr, out + std::atoi(argv[3]), &n, &wide, &narrow, &many, &yes, &half, &third};
            launch(GX, GY, GZ, round, arguments, kernel);
        } catch (const std::exception &error) {
            std::printf("%s\\n", error.what());
        }
    }
    std::fwrite(out, 4, BLOCK_COUNT * 64, std::fopen("out.bin", "wb"));
}
"""


@tilewright.jit
def everything(
    x_ptr,
    B: tl.constexpr,
    out_ptr,
    n: tl.int32,
    wide: tl.int64,
    narrow: tl.int8,
    many: tl.uint16,
    yes: tl.int1,
    half,
    third: tl.float64,
):
    pid = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    i = tl.arange(0, B)
    tl.device_assert(n < 1000, 'n is "large"')
    x = tl.sort(tl.load(x_ptr + pid * B + i))  # needs scratch
    more = (wide >> 40) + narrow + many + yes + n
    tl.store(out_ptr + pid * B + i, x * half + more.to(tl.float32) + third.to(tl.float32))


SIGNATURE = {
    "x_ptr": "*fp32:16", "B": 64, "out_ptr": "*fp32:16", "n": "i32", "wide": "i64", "narrow": "i8", "many": "u16",
    "yes": "i1", "half": "fp32", "third": "fp64",
}  # fmt: skip


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> Path:
    """A folder with the program and the shared objects of `everything`."""
    folder = tmp_path_factory.mktemp("host")
    (kernel,) = everything.precompile(SIGNATURE, debug=True)
    assert "so" not in list(kernel.asm) and "launcher.so" not in list(kernel.asm)
    (folder / "kernel.so").write_bytes(kernel.asm["so"])
    (folder / "launcher.so").write_bytes(kernel.asm.get("launcher.so"))
    (folder / "host.cpp").write_text(HOST)
    grid = ["-DGX=3", "-DGY=5", "-DGZ=7", "-DBLOCK_COUNT=105"]
    for name, flags in (("alone", []), ("team", ["-fopenmp"])):
        command = [CXX, *grid, *flags, "-Wl,--no-as-needed", "-o", name, "host.cpp", "-ldl"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def launched(host: Path, program: str, *arguments: str) -> tuple[str, np.ndarray]:
    done = subprocess.run(
        [f"./{program}", "everything", *arguments], cwd=host, capture_output=True, text=True, check=True
    )
    return done.stdout, np.fromfile(host / "out.bin", np.float32)


@needs_cxx
@pytest.mark.parametrize("program", ["alone", "team"])
def test_a_program_in_cpp_launches_what_aot_inductor_packs(host, program):
    told, out = launched(host, program, "7", "0")
    x = np.sort(((np.arange(105 * 64) * 7919) % 1000).astype(np.float32).reshape(105, 64), 1)
    assert told == ""
    np.testing.assert_array_equal(
        out.reshape(105, 64), x * np.float32(0.5) + np.float32(1 - 3 + 65535 + 1 + 7) + np.float32(1 / 3)
    )


@needs_cxx
def test_what_does_not_hold_is_an_exception_of_cpp(host):
    told, _ = launched(host, "team", "1000", "0")
    assert told == 'device-side assert in everything: n is "large"\n' * 3
    told, out = launched(host, "alone", "7", "1")
    assert told.count("out_ptr is not divisible by 16") == 3 and not out.any()


@needs_cxx
def test_what_a_worker_process_has_compiled_is_linked_here():
    (kernel,) = of_a_worker.precompile({"p": "*fp32"})
    kernel.module = None
    copy = pickle.loads(pickle.dumps(kernel))
    copy._init_handles()
    assert copy.asm["so"].startswith(b"\x7fELF") and copy.asm["launcher.so"].startswith(b"\x7fELF")
    assert "source" not in copy.asm


@tilewright.jit
def of_a_worker(p):
    tl.store(p, 1.0)


@needs_cxx
def test_errors_of_linking(monkeypatch):
    @tilewright.jit
    def nothing(p):
        tl.store(p, 1.0)

    @tilewright.jit
    def of_a_tuple(pair):
        tl.store(pair[0], pair[1])

    (kernel,) = nothing.precompile({"p": "*fp32"})
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnsupportedError, match=r"no-such-compiler does not start[\s\S]*name a C\+\+ compiler in CXX"):
        kernel.asm["so"]
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnsupportedError, match="there is none"):
        kernel.asm["so"]
    tuple_kernel = of_a_tuple.warmup((np.zeros(4, np.float32), 1.5), grid=(1,))
    with pytest.raises(UnsupportedError, match="pair is a tuple"):
        tuple_kernel.asm["launcher.so"]


def test_kernels_of_gpus_have_none():
    @tilewright.jit
    def nothing(p):
        tl.store(p, 1.0)

    (kernel,) = nothing.precompile({"p": "*fp32"}, target="cuda:90")
    assert kernel.asm.get("launcher.so") is None and "so" not in kernel.asm
