"""What a graph holds where a package of AOTInductor is made of it: run under `tilewright.as_triton`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright.torch
from tilewright import hl

NODE = "triton_kernel_wrapper_functional"


@triton.jit
def scaled(x_ptr, out_ptr, factor: tl.float64, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * factor, i < n)


tuned = triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])(scaled)
guessed = triton.heuristics({"B": lambda given: 64})(scaled)


def operator(name: str, kernel, **constants):
    @tilewright.torch.triton_op(f"packing::{name}", mutates_args={})
    def launched(x: torch.Tensor, factor: float) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, factor, x.numel(), **constants)
        return out

    return launched


@hl.kernel
def for_one_size(x, factor: float):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * factor
    return out


@hl.kernel(static_shapes=False)
def for_all_sizes(x, factor: float):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * factor
    return out


def gradient(kernel):
    """`x * factor` by way of the gradient of a kernel's sum."""
    derived = make_fx(torch.func.grad(lambda x: kernel(x, 2.0).sum()), tracing_mode="symbolic")(torch.randn(100))
    return lambda x, factor: derived(x) * x


def graph(function, factor=2.0, dtype=torch.float32, dynamic=False, packing=True) -> str:
    """The operators of the graph of a call."""
    found = []

    def keep(module, inputs):
        found.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    x = torch.randn(100, dtype=dtype)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad(), V.set_aot_compilation(packing):
        compiled = torch.compile(lambda x: function(x, factor), backend=aot_autograd(fw_compiler=keep), fullgraph=True)
        torch.testing.assert_close(compiled(x), x * factor)
    return " ".join(found)


def refused(message: str, *args, **kwargs) -> None:
    try:
        graph(*args, **kwargs)
    except Exception as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)


def main() -> None:
    plain = operator("plain", scaled, B=64)
    for function in (plain, operator("tuned", tuned), for_one_size, for_all_sizes):
        assert NODE in graph(function) and "tilewright_kernels" not in graph(function), graph(function)
        assert NODE not in graph(function, packing=False)
    for function in (plain, for_all_sizes):
        assert NODE in graph(function, dynamic=True)
    assert NODE not in graph(operator("guessed", guessed))  # PyTorch takes no heuristics
    refused("static_shapes=False", for_one_size, dynamic=True)
    assert NODE in graph(gradient(for_one_size)) and "tilewright_kernels" not in graph(gradient(for_one_size))
    refused("gradients are derived for one set of sizes", gradient(for_all_sizes), dynamic=True)
    refused("packages pass 32 bits", plain, factor=0.1, dtype=torch.float64)
    assert NODE in graph(plain, factor=0.1) and NODE in graph(plain, factor=0.5, dtype=torch.float64)


if __name__ == "__main__":
    main()
