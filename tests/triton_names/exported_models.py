"""Models with kernels of their own, packed by AOTInductor and run by a program in C++, in which there is no Python.

python -m tilewright.as_triton -m tests.triton_names.exported_models FOLDER [cuda]
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch.export.experimental import _export_forward_backward
from torch.library import triton_op, wrap_triton

import tilewright.torch
from tilewright import hl

# Runs a package on saved inputs, and compares with saved outputs. A file has the number of inputs and of all tensors,
# and of each the number of dimensions, the sizes, and the elements.
HOST = """
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <cstdio>
#include <fstream>

static int64_t number(std::istream &from) {
    int64_t found;
    from.read(reinterpret_cast<char *>(&found), sizeof found);
    return found;
}

static at::Tensor tensor(std::istream &from) {
    std::vector<int64_t> sizes(number(from));
    for (auto &size : sizes) size = number(from);
    auto made = at::empty(sizes, at::kFloat);
    from.read(static_cast<char *>(made.data_ptr()), made.nbytes());
    return made;
}

int main(int count, char **argv) {
    c10::InferenceMode mode;
    const at::Device device(DEVICE);
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    for (int at = 2; at < count; ++at) {
        std::ifstream file(argv[at], std::ios::binary);
        const auto given = number(file), all = number(file);
        std::vector<at::Tensor> inputs, wanted;
        for (int64_t i = 0; i < all; ++i) (i < given ? inputs : wanted).push_back(tensor(file).to(device));
        auto found = model.run(inputs);
        if (found.size() != wanted.size()) return std::printf("%s: %zu results\\n", argv[at], found.size()), 1;
        for (size_t i = 0; i < wanted.size(); ++i)
            if (!at::allclose(found[i], wanted[i], 1e-4, 1e-5)) return std::printf("%s differs\\n", argv[at]), 1;
    }
    std::printf("%d inputs agree\\n", count - 2);
}
"""


@triton.autotune([triton.Config({"B": 128}), triton.Config({"B": 256})], key=["n"])
@triton.jit
def scale_rows(x_ptr, s_ptr, out_ptr, n, power: tl.constexpr, eps, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    x = tl.load(x_ptr + row * n + i, i < n, 0.0)
    norm = tl.sum(x * x, 0) + eps
    tl.store(out_ptr + row * n + i, x * tl.load(s_ptr + row) * power / norm, i < n)


@triton.jit
def sorted_blocks(x_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, tl.sort(tl.load(x_ptr + i, i < n, float("inf"))), i < n)


@triton_op("exported::scaled", mutates_args={})
def scaled(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(scale_rows)[(x.shape[0],)](x, s, out, x.shape[1], 3, 1e-6)
    return out


@triton_op("exported::ordered", mutates_args={})
def ordered(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(sorted_blocks)[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, x.numel(), B=64)
    return out


@tilewright.torch.triton_op("exported::doubled", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    twice[triton.cdiv(x.numel(), 256),](x, out, x.numel(), 256)
    return out


@triton.jit
def twice(x_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * 2, i < n)


@hl.kernel(static_shapes=False)
def softmax(x: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        e = torch.exp((x[rows, :] - x[rows, :].amax(-1, keepdim=True)) * scale)
        out[rows, :] = e / e.sum(-1, keepdim=True)
    return out


class Model(torch.nn.Module):
    """Kernels of four kinds, between graphs of PyTorch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(48, 96)

    def forward(self, x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return softmax(doubled(ordered(scaled(self.linear(x).relu(), s).sin())), 3.0).cos()


class Loss(torch.nn.Module):
    """A kernel of hl between a parameter and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(48))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return ((softmax(x * self.weight, 2.0) - target) ** 2).sum()


def write(file: Path, inputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """Save inputs and what is to come of them, for the program in C++."""
    data = struct.pack("qq", len(inputs), len(inputs) + len(wanted))
    for one in (*inputs, *wanted):
        one = one.detach().cpu().contiguous()
        data += struct.pack(f"{one.dim() + 1}q", one.dim(), *one.shape) + one.numpy().tobytes()
    file.write_bytes(data)
    return str(file)


def inference(folder: Path, device: str) -> list[str]:
    """Export the model with a dynamic number of rows, and save inputs of several sizes; returns the files."""
    model = Model().eval().to(device)
    inputs = [(torch.randn(rows, 48, device=device), torch.randn(rows, device=device)) for rows in (100, 2, 37)]
    rows = torch.export.Dim("rows", min=2)
    with torch.no_grad():
        exported = torch.export.export(model, inputs[0], dynamic_shapes={"x": {0: rows}, "s": {0: rows}})
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "model.pt2"))
        files = [write(folder / f"{at}.data", given, [model(*given)]) for at, given in enumerate(inputs)]
    return [package, *files]


def training(folder: Path, device: str) -> list[str]:
    """Export a loss with the gradient of its parameter, and save inputs; returns the files."""
    model, given = Loss().to(device), (torch.randn(100, 48, device=device), torch.rand(100, 48, device=device))
    exported = _export_forward_backward(torch.export.export(model, given))
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "step.pt2"))
    loss = model(*given)
    (gradient,) = torch.autograd.grad(loss, model.weight)
    return [package, write(folder / "step.data", given, [loss, gradient])]


def build(folder: Path, device: str) -> Path:
    """Compile the program; returns its path."""
    home = Path(torch.__file__).parent
    (folder / "host.cpp").write_text(HOST.replace("DEVICE", f'"{device}"'))
    where = [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    libraries = ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"]
    libraries += ["-ltorch_cuda", "-lc10_cuda"] if device == "cuda" else []
    command = ["c++", "-std=c++20", "-O0", abi, *where, "host.cpp", "-o", "host", *libraries]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "host"


def main(folder: Path, device: str = "cpu") -> None:
    """Export, build and run."""
    torch.manual_seed(0)
    program, models = build(folder, device), [inference(folder, device), training(folder, device)]
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "libpython" not in needed and "libtorch_python" not in needed, needed
    for files in models:
        subprocess.run([program, *files], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
