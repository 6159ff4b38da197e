"""Kernels launched by programs in C, which are compiled and run here; a fake driver stands for CUDA's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import UnsupportedError
from tilewright.compile.c_interface import write_c

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_cc = pytest.mark.skipif(CC is None or sys.platform != "linux", reason="there is no C compiler here")


@tilewright.jit
def axpy(x_ptr, y_ptr, n, default, weight, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask) * default + weight, mask)


@tilewright.jit
def sums(x_ptr, out_ptr, n: tl.int32, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + tl.program_id(0) * BLOCK * BLOCK + rows[:, None] * BLOCK + rows[None, :])
    tl.device_assert(n > 2, "n is too small")
    tl.store(out_ptr + tl.program_id(0) * BLOCK + rows, tl.sum(tl.sort(tile), 1))


@tilewright.jit
def types(out_ptr, a: tl.int8, b: tl.uint16, c: tl.int64, d: tl.float64, e: tl.float16, f: tl.int1):
    tl.store(out_ptr, a.to(tl.float64) + b + c + d + e + tl.where(f, 1000, 0))


def build(folder: Path, program: str, *more: str) -> Path:
    (folder / "main.c").write_text(program)
    command = [CC, "-std=c11", "-Wall", "-Werror", "-O1", "-o", "main", "main.c", *more, "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "main"


def for_cpu(folder: Path, kernel, signature, **constants) -> str:
    (compiled,) = kernel.precompile({**signature, **constants}, debug=True)
    write_c(compiled, folder)
    (folder / f"{compiled.name}.obj").write_bytes(compiled.binary)
    return f"{compiled.name}.obj"


@needs_cc
@pytest.mark.parametrize("flags", [(), ("-fopenmp",)])
def test_a_program_in_c_launches_on_the_cpu(tmp_path, flags):
    pointers = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}
    object_file = for_cpu(tmp_path, axpy, {**pointers, "n": "i32", "default": "fp32", "weight": "i32", "BLOCK": 64})
    program = """
#include <stdio.h>
#include "axpy.h"
static _Alignas(64) float x[1000], y[1001];
int main(void) {
    for (int i = 0; i < 1000; ++i) x[i] = i;
    int code = axpy_launch(16, 1, 1, x, y, 1000, 0.5f, -3);
    for (int i = 0; i < 1000; ++i) if (y[i] != x[i] * 0.5f - 3) return 10;
    if (y[1000] != 0) return 11;
    printf("%d %d\\n", code, axpy_launch(16, 1, 1, x, y + 1, 999, 1, 1));
    return 0;
}
"""
    main = build(tmp_path, program, object_file, *flags)
    assert subprocess.run([main], capture_output=True, text=True, check=True).stdout == "0 -1\n"
    assert "BLOCK = 64" in (tmp_path / "axpy.h").read_text()


@needs_cc
def test_scratch_and_assertions(tmp_path):
    object_file = for_cpu(tmp_path, sums, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": 32})
    (number,) = re.findall(r"(\d+) .*n is too small", (tmp_path / "sums.h").read_text())
    program = """
#include <stdio.h>
#include "sums.h"
static float x[3 * 32 * 32], out[96];
int main(void) {
    for (int i = 0; i < 3 * 32 * 32; ++i) x[i] = i % 32;
    int good = sums_launch(3, 1, 1, x, out, 3), bad = sums_launch(3, 1, 1, x, out, 2);
    for (int i = 0; i < 96; ++i) if (out[i] != 496) return 10;
    printf("%d %d %d\\n", good, bad, sums_launch(3, 1, 1, x, out, 3));
    return 0;
}
"""
    main = build(tmp_path, program, object_file)
    assert subprocess.run([main], capture_output=True, text=True, check=True).stdout == f"0 {number} 0\n"


@needs_cc
def test_numbers_of_every_type(tmp_path):
    object_file = for_cpu(
        tmp_path, types, {"out_ptr": "*fp64", "a": "i8", "b": "u16", "c": "i64", "d": "fp64", "e": "fp16", "f": "u1"}
    )
    half = int(np.float16(0.5).view(np.uint16))
    program = f"""
#include <stdio.h>
#include "types.h"
int main(void) {{
    double out = 0;
    int code = types_launch(1, 1, 1, &out, -7, 60000, -5000000000, 0.25, {half}, 1);
    printf("%d %.2f\\n", code, out);
    return 0;
}}
"""
    main = build(tmp_path, program, object_file)
    printed = subprocess.run([main], capture_output=True, text=True, check=True).stdout
    assert printed == f"0 {-7 + 60000 - 5000000000 + 0.75 + 1000:.2f}\n"


FAKE_DRIVER = """
#include <stdio.h>
#include <string.h>
int cuModuleLoadData(void **module, const void *image) { *module = (void *)image; return memcmp(image, IMAGE, 4); }
int cuModuleUnload(void *module) { return module == 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)name; return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return printf("%d %d\\n", attribute, value); }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **p, void **extra) {
    printf("%s %u %u %u, %u %u %u, %p\\n", (char *)function, gx, gy, gz, bx, by, bz, stream);
    printf("%llx %llx %d %g %d\\n", *(unsigned long long *)p[0], *(unsigned long long *)p[1], *(int *)p[2],
           *(float *)p[3], *(int *)p[4]);
    return p[5] != 0;
}
"""


@needs_cc
def test_a_program_in_c_launches_on_a_gpu(tmp_path):
    pointers = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}
    signature = {**pointers, "n": "i32", "default": "fp32", "weight": "i32", "BLOCK": 64}
    (compiled,) = axpy.precompile(signature, target="cuda:90", num_warps=2)
    write_c(compiled, tmp_path)
    magic = "".join(f"\\{byte:03o}" for byte in compiled.binary[:4])
    (tmp_path / "driver.c").write_text(FAKE_DRIVER.replace("IMAGE", f'"{magic}"'))
    program = """
#include <stdio.h>
#include "axpy.h"
int main(void) {
    axpy_kernel kernel;
    if (axpy_load(&kernel)) return 10;
    if (axpy_launch(&kernel, (void *)0x99, 16, 2, 3, 0x1000, 0x2000, 1000, 0.5f, -3)) return 11;
    printf("%d\\n", axpy_launch(&kernel, 0, 1, 1, 1, 0x1008, 0x2000, 1000, 0.5f, -3));
    return axpy_unload(&kernel);
}
"""
    main = build(tmp_path, program, "axpy.c", "driver.c")
    printed = subprocess.run([main], capture_output=True, text=True, check=True).stdout
    assert printed == "axpy 16 2 3, 64 1 1, 0x99\n1000 2000 1000 0.5 -3\n-1\n"


def test_what_a_launch_from_c_does_not_do(tmp_path):
    (compiled,) = sums.precompile(
        {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": 32}, target="cuda:90", debug=True
    )
    with pytest.raises(UnsupportedError, match="device_assert"):
        write_c(compiled, tmp_path)
    assert not re.findall("sums", " ".join(map(str, tmp_path.iterdir())))


@tilewright.jit
def shares(x_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, x / tl.sum(x, 0))


def test_programs_that_are_clusters_are_counted_as_programs(tmp_path):
    signature = {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "BLOCK": 65536}
    (compiled,) = shares.precompile(signature, target="cuda:90")
    write_c(compiled, tmp_path)
    text = (tmp_path / "shares.c").read_text()
    assert "cuLaunchKernel(kernel->function, gx * 4u, gy, gz, 512, 1, 1" in text
