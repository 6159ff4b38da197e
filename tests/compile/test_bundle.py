"""Bundles: what was compiled runs elsewhere without compiler and LLVM; a bundle that does not fit says so."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.compile.test_warm_start import COMPILER
from tests.meta.sources import ROOT
from tilewright.backends.cpu import machine
from tilewright.backends.llvm.features import FEATURES, describe, host
from tilewright.base.disk_cache import decode, encode
from tilewright.base.errors import ArgumentError, BundleError, NotCompiledError
from tilewright.compile import bundle as bundles
from tilewright.tools.tensor_descriptor import TensorDescriptor

MINE = {"x_ptr": "*fp32:16", "out_ptr": "*fp32:16", "n": ["i32", "i32:16"]}


@dataclass(frozen=True)
class Shape:
    rows: int = 1


@tilewright.jit
def scale(x_ptr, out_ptr, n, factor=3.0, BLOCK: tl.constexpr = 128, dtype: tl.constexpr = tl.float32):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, (tl.load(x_ptr + offsets, mask) * factor).to(dtype), mask)


@tilewright.jit
def shaped(out_ptr, SHAPE: tl.constexpr = Shape()):
    tl.store(out_ptr, SHAPE.rows)


def aligned(n):
    """An array at an address that is divisible by 16."""
    buffer = np.zeros(n + 16, np.float32)
    return buffer[(-buffer.ctypes.data % 16) // 4 :][:n]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernels.twb"
    tilewright.write_bundle(path, scale.precompile({**MINE, "BLOCK": [64, 128]}))
    return path


PROGRAM = """
import json, sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "llvmlite":
            raise ImportError("there is no llvmlite here")
sys.meta_path.insert(0, Gone())
import numpy as np
import tilewright
kernels = tilewright.load_bundle(sys.argv[1])
def aligned(n):
    buffer = np.zeros(n + 16, np.float32)
    return buffer[(-buffer.ctypes.data % 16) // 4:][:n]
x, out = aligned(1000), aligned(1000)
x[:] = np.arange(1000)
for n in (1000, 992):
    kernels["scale"][(8,)](x, out, n, BLOCK=128)
    assert (out[:n] == 3 * x[:n]).all()
kernels["scale"][lambda meta: (1000 // meta["BLOCK"] + 1,)](x, out, 1000, 2.0, BLOCK=64)
assert (out == 2 * x).all()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere LLVM loads objects")
def test_a_bundle_runs_without_compiler_and_llvm(file, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "empty"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, program, file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not [name for name in json.loads(done.stdout) if name.startswith(COMPILER)]


def test_loading_takes_less_than_a_millisecond_a_kernel(tmp_path):
    signature = {**MINE, "BLOCK": [16, 32, 64, 128, 256]}
    path = tmp_path / "kernels.twb"
    tilewright.write_bundle(path, scale.precompile(signature))
    x, out = aligned(64), aligned(64)

    def load() -> float:
        begin = time.thread_time()
        kernel = tilewright.load_bundle(path)["scale"]
        for block in signature["BLOCK"]:
            for n in (64, 50):
                kernel.warmup(x, out, n, BLOCK=block)
        return (time.thread_time() - begin) / 10

    load()
    assert statistics.median(load() for _ in range(5)) < 3e-3  # a busy machine's milliseconds are three


def test_what_is_not_in_a_bundle_says_so(file):
    kernel = tilewright.load_bundle(file)["scale"]
    assert len(kernel.variants()) == 4 and all("x_ptr: *fp32" in line for line in kernel.variants())
    x, out = aligned(100), aligned(100)
    with pytest.raises(NotCompiledError, match=r"no variant for x_ptr: \*fp32[\s\S]*it has cpu:"):
        kernel[(1,)](x, out, 100, BLOCK=32)
    with pytest.raises(NotCompiledError, match=r"\*fp64"):
        kernel[(1,)](x.astype(np.float64), out, 100)
    with pytest.raises(NotCompiledError, match="enable_fp_fusion|options"):
        kernel[(1,)](x, out, 100, enable_fp_fusion=False)
    with pytest.raises(ArgumentError, match="missing argument `n`"):
        kernel[(1,)](x, out)
    with pytest.raises(BundleError, match="no kernel 'other'[\\s\\S]*scale"):
        tilewright.load_bundle(file)["other"]


def rewritten(file: Path, change) -> Path:
    """The bundle with its index changed, and the checksum of that."""
    entry = decode(bundles._KEY, file.read_bytes())
    index = json.loads(json.dumps(entry.metadata))
    change(index)
    file.write_bytes(encode(bundles._KEY, entry.payload, index))
    return file


def variant(index):
    return index["kernels"]["scale"]["variants"][0]


@pytest.mark.parametrize(
    "lie",
    [
        lambda index: index.pop("kernels"),
        lambda index: index.update(kernels=[1]),
        lambda index: variant(index).update(code=[0, 1 << 40]),
        lambda index: variant(index).update(code=[-8, 4]),
        lambda index: variant(index).update(code="all"),
        lambda index: variant(index)["target"].update(backend="vulkan"),
        lambda index: variant(index)["target"].update(colour="red"),
        lambda index: index["kernels"]["scale"]["params"][0].pop("kind"),
        lambda index: index["kernels"]["scale"].update(params=None),
    ],
)
def test_a_bundle_that_lies_is_refused(file, lie):
    with pytest.raises(BundleError, match="lies"):
        tilewright.load_bundle(rewritten(file, lie))


def test_a_bundle_whose_code_is_none_is_refused_at_its_launch(file):
    def lie(index):
        for one in index["kernels"]["scale"]["variants"]:
            one["metadata"]["symbol"] = "nowhere"

    with pytest.raises((BundleError, tilewright.TilewrightError), match="nowhere"):
        tilewright.load_bundle(rewritten(file, lie))["scale"][(1,)](aligned(9), aligned(9), 9)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:100] + b"x" + data[101:]]
)
def test_a_damaged_bundle_is_refused(file, damage):
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BundleError, match="damaged"):
        tilewright.load_bundle(file)


def test_a_bundle_for_another_version_is_refused(file):
    with pytest.raises(BundleError, match="Tilewright 0.0.9, whose kernels are launched in another way"):
        tilewright.load_bundle(rewritten(file, lambda index: index.update(version="0.0.9", helpers={})))
    with pytest.raises(BundleError, match="cannot be read"):
        tilewright.load_bundle(file.with_name("nothing"))


def test_a_bundle_for_another_target_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "kernels.twb"
    tilewright.write_bundle(path, scale.precompile(MINE, target="cuda:80"))
    with pytest.raises(BundleError, match=r"nothing that runs here \(cuda:80: this machine has "):
        tilewright.load_bundle(path)
    tilewright.write_bundle(path, scale.precompile(MINE, target="cpu:x86-64-v3"))
    monkeypatch.setattr(machine, "features", lambda arch: frozenset({"sse2"}))
    with pytest.raises(BundleError, match=r"this machine has no .*avx2"):
        tilewright.load_bundle(path)


def test_one_bundle_serves_several_targets(tmp_path):
    path = tmp_path / "kernels.twb"
    kernels = [kernel for target in ("cuda:90", "cpu") for kernel in scale.precompile(MINE, target=target)]
    tilewright.write_bundle(path, kernels)
    x, out = aligned(64), aligned(64)
    x[:] = 2
    kernel = tilewright.load_bundle(path)["scale"]
    assert [line.split(":")[0] for line in kernel.variants()] == ["cuda", "cuda", "cpu", "cpu"]
    launched = kernel[(1,)](x, out, 64, num_warps=8)  # which is none of the CPU's business
    assert (out == 6).all() and launched.target.backend == "cpu"


@tilewright.jit
def doubled(pair, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    pair[1].store([start], pair[0].load([start]) * 2)


def test_descriptors_and_tuples_are_named_by_their_types(tmp_path):
    torch = pytest.importorskip("torch")
    x, out = torch.randn(64), torch.zeros(64)
    pair = tuple(TensorDescriptor(t, [64], [1], [16]) for t in (x, out))
    heard = []
    with tilewright.knobs.runtime.scope():
        tilewright.knobs.runtime.jit_cache_hook = lambda **facts: heard.append(facts["compile"]["signature"]["pair"])
        made = doubled.warmup(pair, 64, BLOCK=16, grid=(4,))
    assert heard == ["(tensordesc<fp32[16]>, tensordesc<fp32[16]>)"]
    tilewright.write_bundle(tmp_path / "k.twb", [made])
    kernel = tilewright.load_bundle(tmp_path / "k.twb")["doubled"]
    assert heard[0] in kernel.variants()[0]
    kernel[(4,)](pair, 64, BLOCK=16)
    assert torch.equal(out, x * 2)
    with pytest.raises(NotCompiledError, match=r"no variant for pair: \(tensordesc<fp32\[16\]>, \*fp32\)"):
        kernel[(4,)]((pair[0], out), 64, BLOCK=16)


def test_what_a_bundle_cannot_hold(tmp_path):
    with pytest.raises(ArgumentError, match="at least one"):
        tilewright.write_bundle(tmp_path / "b", [])
    with pytest.raises(ArgumentError, match=r"default of parameter `SHAPE`"):
        tilewright.write_bundle(tmp_path / "b", shaped.precompile({"out_ptr": "*i32"}))


@pytest.mark.skipif(sys.platform != "linux" or not host().is_x86, reason="asks Linux")
def test_the_system_tells_the_features_that_llvm_finds():
    assert machine.features("x86_64") == host().available & FEATURES
    assert machine.features("aarch64") == frozenset()
    assert describe("x86_64-unknown-linux-gnu", "x86-64-v2").available <= machine.features("x86_64")
