"""Bundles of hl kernels: calls run without the compiler, without PyTorch, and in programs in C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tilewright
from tests.meta.sources import ROOT
from tilewright import errors, hl

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@hl.kernel(autotune_effort="none")
def normalized(x, weight, seen, factor: float):
    """Two launches, with memory of its own between them: results, a view, and an argument that is written."""
    total = torch.full([x.size(0)], 1.0)
    scaled = torch.empty_like(x)
    counts = torch.zeros([4, x.size(0)], dtype=torch.int32)
    for rows in hl.tile(x.size(0)):
        total[rows] = total[rows] + x[rows, :].sum(-1)
    for rows in hl.tile(x.size(0)):
        scaled[rows, :] = x[rows, :] / total[rows][:, None] * weight[None, :] * factor
        counts[1, rows] = counts[1, rows] + 3
        seen[rows] = seen[rows] + 1
    return scaled, counts[1]


def arguments(rows=8, columns=48):
    x = torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) / 64
    return x, torch.linspace(0, 1, columns), torch.zeros(rows, dtype=torch.int64), 0.5


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    files = normalized.bundle(folder, [arguments(), arguments(3, 16)])
    names = {path.name for path in files}
    assert {"normalized.twb", "normalized.h", "normalized_0_0.obj", "normalized_1_1.h"} <= names
    assert all(path.is_file() for path in files)
    return folder


@pytest.mark.parametrize("shape", [(8, 48), (3, 16)])
def test_it_does_what_the_kernel_does(bundle, shape):
    program = tilewright.load_bundle(bundle / "normalized.twb")["normalized"]
    expected_args, args = arguments(*shape), arguments(*shape)
    expected = normalized(*expected_args)
    for turn in (1, 2):
        made = program(*args)
        assert isinstance(made, tuple) and all(
            torch.equal(one, other) for one, other in zip(made, expected, strict=True)
        )
        assert torch.equal(args[2], turn * expected_args[2])
    assert made[1].stride() == expected[1].stride() and made[1].storage_offset() == expected[1].storage_offset()
    arrays = [one.numpy() if isinstance(one, torch.Tensor) else one for one in arguments(*shape)]
    made = program(*arrays)
    assert isinstance(made[0], np.ndarray)
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(made, expected, strict=True))
    assert (arrays[2] == 1).all()


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["llvmlite"] = None
import numpy as np
import tilewright
program = tilewright.load_bundle(sys.argv[1])["normalized"]
x = np.ones((3, 16), np.float32)
scaled, counts = program(x, np.ones(16, np.float32), np.zeros(3, np.int64), 0.5)
np.testing.assert_allclose(scaled, 0.5 / 17, rtol=1e-6)
assert counts.tolist() == [3, 3, 3] and counts.dtype == np.int32
"""


def test_it_runs_without_pytorch_and_the_compiler(bundle):
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WITHOUT_TORCH, str(bundle / "normalized.twb")]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PROGRAM = """
#include <stdio.h>
#include "normalized.h"
static _Alignas(64) float x[3 * 16], weight[16], scaled[3 * 16];
static _Alignas(64) int64_t seen[3];
static _Alignas(64) int32_t counts[4 * 3];
static _Alignas(64) char workspace[NORMALIZED_1_WORKSPACE];
int main(void) {
    for (int i = 0; i < 48; ++i) x[i] = 1;
    for (int i = 0; i < 16; ++i) weight[i] = 34;
    for (int turn = 0; turn < 2; ++turn) {
        int code = normalized_1(x, weight, seen, scaled, counts, workspace);
        if (code) return code;
    }
    printf("%.3f %.3f %d %d %d\\n", scaled[0], scaled[47], (int)seen[2], counts[3], counts[0]);
    return normalized_1(x + 1, weight, seen, scaled, counts, workspace) == -1 ? 0 : 9;
}
"""


@pytest.mark.skipif(CC is None or sys.platform != "linux", reason="there is no C compiler here")
def test_a_program_in_c_calls_it(bundle, tmp_path):
    (tmp_path / "main.c").write_text(PROGRAM)
    objects = [str(bundle / f"normalized_1_{at}.obj") for at in range(2)]
    command = [CC, "-std=c11", "-Wall", "-Werror", f"-I{bundle}", "-o", "main", "main.c", *objects, "-lm"]
    objects += [str(bundle / f"normalized_0_{at}.obj") for at in range(2)]
    done = subprocess.run([*command[:-1], *objects[2:], "-lm"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "1.000 1.000 2 3 0\n")


def test_other_arguments_are_refused(bundle):
    program = tilewright.load_bundle(bundle / "normalized.twb")["normalized"]
    x, weight, seen, _ = arguments()
    for wrong in ((x, weight, seen, 0.25), (x.double(), weight, seen, 0.5), (x.T.contiguous().T, weight, seen, 0.5)):
        with pytest.raises(errors.NotCompiledError, match=r"x: float32 \[8, 48\], strides \[48, 1\]"):
            program(*wrong)


def test_a_kernel_is_compiled_for_a_gpu_that_is_not_here(tmp_path):
    files = normalized.bundle(tmp_path, [arguments()], target="cuda:90")
    names = {path.name for path in files}
    assert names == {"normalized.twb", *(f"normalized_0_{at}.{kind}" for at in range(2) for kind in "hc")}
    assert "cuda:90" in (tmp_path / "normalized_0_1.h").read_text()


def test_host_code_that_computes_is_refused(tmp_path):
    outside = torch.ones(4)

    @hl.kernel
    def computes(x):
        y = x * 2
        for rows in hl.tile(x.size(0)):
            x[rows] = y[rows]

    @hl.kernel
    def reads(x):
        for rows in hl.tile(x.size(0)):
            x[rows] = x[rows] + outside[rows]

    @hl.kernel
    def two(x, y):
        for rows in hl.tile(x.size(0)):
            x[rows] = y[rows]

    with pytest.raises(hl.exc.UnsupportedOperation, match="computes with PyTorch: aten.mul"):
        computes.bundle(tmp_path, [(torch.ones(4),)])
    with pytest.raises(hl.exc.UnsupportedOperation, match="no arguments"):
        reads.bundle(tmp_path, [(torch.ones(4),)])
    with pytest.raises(hl.exc.UnsupportedOperation, match="y shares memory"):
        two.bundle(tmp_path, [(outside, outside)])
    with pytest.raises(hl.exc.InvalidAPIUsage, match="no arguments"):
        two.bundle(tmp_path)
    assert not list(tmp_path.iterdir())
